"""Synchronous schedules: losses and gradient norms are those of 1f1b on the same microbatches, bit for bit.

On real ranks and with all stages in one process; for m = 1, fewer microbatches than stages and no multiple of the ranks.
"""

import support

STAGES = 4
DECK = {"run.steps": 3, "output.evaluation_interval": 0, "parallel.stages": STAGES}
NAMES = ("step", "tokens", "loss", "lr", "grad_norm")

# Schedule: changes and real ranks.
SCHEDULES = {
    "gpipe": ({"schedule.name": "gpipe"}, 4),
    "1f1b": ({"schedule.name": "1f1b"}, 4),
    "interleaved": ({"schedule.name": "interleaved", "schedule.chunks": 2}, 2),
    "zb-h1": ({"schedule.name": "zb-h1"}, 4),
    "zb-h2": ({"schedule.name": "zb-h2"}, 4),
    "zb-v": ({"schedule.name": "zb-v"}, 2),
    "zb-auto-1n": ({"schedule.name": "zb-auto", "schedule.memory_limit": 4.0}, 4),
    "zb-auto-2n": ({"schedule.name": "zb-auto", "schedule.memory_limit": 8.0}, 4),
}


def all_agree(microbatches, name="", model=None):
    changes = {**DECK, "train.microbatches": microbatches, **(model or {})}
    microbatches = f"{name}{microbatches}"  # in the names of outputs
    reference = f"reference_{microbatches}"
    support.train(1, reference, changes)
    trace = support.read_trace(reference, NAMES)
    assert len(trace["step"]) == 3 and len(set(trace["loss"])) == 3 and (trace["grad_norm"] > 0).all(), trace
    for name, (schedule, ranks) in SCHEDULES.items():
        for number in (1, ranks):
            out = f"{name}_{microbatches}_{number}"
            support.train(number, out, {**changes, **schedule})
            support.assert_same_trace(reference, out, NAMES)
    plan = f"plan_{microbatches}.csv"
    exported = support.overrides({**changes, **SCHEDULES["zb-v"][0]})
    support.run(1, "simulate", "deck.toml", *exported, "--updates", "1", "--export", plan)
    for number in (1, 2):
        out = f"plan_{microbatches}_{number}"
        support.train(number, out, {**changes, "schedule.name": "plan", "schedule.plan": plan})
        support.assert_same_trace(reference, out, NAMES)


def test_one_microbatch():
    all_agree(1)


def test_fewer_microbatches_than_stages():
    all_agree(3)


def test_no_multiple_of_the_ranks():
    all_agree(7)


def test_hybrid():
    all_agree(3, "hybrid_", support.HYBRID)


def test_the_order_matters_not_the_data():
    # The comparison can fail: other microbatches, other losses.
    first, other = (support.read_trace(f"reference_{m}", ("loss", "grad_norm")) for m in (3, 7))
    assert first["loss"].tobytes() != other["loss"].tobytes()
    assert first["grad_norm"].tobytes() != other["grad_norm"].tobytes()


if __name__ == "__main__":
    tests = [test_one_microbatch, test_fewer_microbatches_than_stages, test_no_multiple_of_the_ranks, test_hybrid]
    support.main([*tests, test_the_order_matters_not_the_data])
