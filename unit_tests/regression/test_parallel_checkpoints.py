"""Checkpoints travel: written by any replicas, read on any grid and in any mode; a run goes on as if it had not moved."""

import json

import h5py
import numpy as np

import support

DECK = {"run.steps": 6, "checkpoint.interval": 3, "checkpoint.keep": 9, "output.evaluation_interval": 3, "model.layers": 4}
SDP = {"parallel.mode": "sdp", "sdp.coverage": 0.5}
# Eight microbatches per update, whatever the grid: name -> (ranks, replicas, changes).
WRITERS = {
    "ddp": (2, 2, {}),
    "zero1": (2, 2, {"parallel.mode": "zero1"}),
    "fsdp": (4, 4, {"parallel.mode": "fsdp"}),
    "sdp": (4, 4, SDP),
    "sdp_fsdp": (4, 4, {**SDP, "sdp.fsdp": True}),
    "2x2": (4, 2, {}),
}
# Evaluations on other grids and in other modes than the writer's.
READERS = {
    "one rank": (1, 1, {}),
    "two stages": (2, 1, {}),
    "fsdp": (2, 2, {"parallel.mode": "fsdp"}),
    "neurons of 2x2": (4, 2, {**SDP, "sdp.coverage": 0.75, "sdp.unit": "neuron", "sdp.masking": "backward"}),
}


def changes_of(replicas, changes):
    return {**DECK, "parallel.data": replicas, "train.microbatches": 8 // replicas, **changes}


def write(name):
    ranks, replicas, changes = WRITERS[name]
    support.train(ranks, name, changes_of(replicas, changes))


def evaluate(ranks, out, changes):
    arguments = support.overrides({**changes, "output.directory": out})
    output = support.run(ranks, "eval", "deck.toml", *arguments).job.output(0)
    return json.loads(output.strip().splitlines()[-1])


def test_evaluation():
    for name in WRITERS:
        write(name)
        told = support.summary(name)["validation_loss"]
        assert told == support.read_trace(name)["val/loss"][-1]
        for reader, (ranks, replicas, changes) in READERS.items():
            result = evaluate(ranks, name, changes_of(replicas, changes))
            assert result["step"] == 6, result
            # The full model's loss is that of the same weights by the same products, wherever they lie.
            assert result["validation_loss"] == told, f"{name} read as {reader}: {result}, written at {told}"


def test_evaluation_of_another_deck():
    # A grid that the ranks do not suit, and a batch that is not the stored one, do not matter to an evaluation.
    told = support.summary("ddp")["validation_loss"]
    for ranks, changes in (
        (1, {"parallel.data": 2}),
        (1, {"parallel.data": 1}),
        (2, {"parallel.data": 2, "parallel.mode": "zero1"}),
        # Training refuses this: two stages of each replica on one rank.
        (2, {"parallel.data": 2, "parallel.stages": 2, "parallel.mode": "fsdp"}),
    ):
        result = evaluate(ranks, "ddp", {**DECK, "train.microbatches": 4, **changes})
        assert result["validation_loss"] == told, f"{changes}: {result}, written at {told}"


def test_evaluation_without_what_only_training_does():
    # Clipping and the way of sums are settings of the run; on these grids training refuses them.
    told = support.summary("ddp")["validation_loss"]
    for ranks, changes in (
        (1, {"parallel.data": 2, "parallel.mode": "fsdp", "parallel.fsdp_reduce": "window"}),
        (1, {"parallel.stages": 2, "train.clip": "global"}),
        (2, {"parallel.data": 2, "parallel.stages": 2, "train.clip": "stage"}),
        (2, {"parallel.data": 2, "schedule.replay": "of/another/run/trace.h5"}),
    ):
        result = evaluate(ranks, "ddp", {**DECK, "train.microbatches": 4, **changes})
        assert result["validation_loss"] == told, f"{changes}: {result}, written at {told}"


def resume(out, source, ranks, replicas, changes):
    file = str(support.checkpoint(source, 3))
    support.train(ranks, out, {**changes_of(replicas, changes), "run.resume": file})


def tail_of(out, first=0):
    return {name: values[first:] for name, values in support.read_trace(out, ("step", "tokens", "loss", "lr")).items()}


def assert_tail(whole, out, bound):
    expected, found = tail_of(whole, 3), tail_of(out)
    for name in ("step", "tokens", "lr"):
        assert expected[name].tobytes() == found[name].tobytes(), f"{out}: {name} {found[name]}, not {expected[name]}"
    worst = float(np.max(np.abs(expected["loss"] - found["loss"]) / expected["loss"]))
    print(f"  {out}: loss differs by {worst:.1e} from {whole}'s")
    assert worst <= bound, f"{out}: {found['loss']}, not {expected['loss']}"
    # The numbers are of the data: another cursor would be seen.
    assert np.max(np.abs(np.diff(expected["loss"]))) > 1e-4


def test_other_modes_of_the_same_grid():
    # Sums in the same order, so the same bits; fsdp's per microbatch are in another.
    resume("ddp_again", "ddp", 2, 2, {})
    assert_tail("ddp", "ddp_again", 0)
    resume("ddp_recomputed", "ddp", 2, 2, {"train.recompute": "block"})
    assert_tail("ddp", "ddp_recomputed", 0)
    for mode, bound in {"zero1": 0, "fsdp": 1e-6}.items():
        resume(f"ddp_as_{mode}", "ddp", 2, 2, {"parallel.mode": mode})
        assert_tail("ddp", f"ddp_as_{mode}", bound)
    resume("zero1_as_ddp", "zero1", 2, 2, {})
    assert_tail("zero1", "zero1_as_ddp", 0)
    resume("sdp_again", "sdp", 4, 4, SDP)
    assert_tail("sdp", "sdp_again", 0)
    resume("sdp_fsdp_as_sdp", "sdp_fsdp", 4, 4, SDP)
    assert_tail("sdp_fsdp", "sdp_fsdp_as_sdp", 1e-6)


def test_other_grids():
    for name, (ranks, replicas, changes) in {
        "one": (1, 1, {}),
        "2x2": (4, 2, {"parallel.mode": "zero1"}),
        "4x1": (4, 4, {"parallel.mode": "fsdp"}),
    }.items():
        resume(f"ddp_on_{name}", "ddp", ranks, replicas, changes)
        assert_tail("ddp", f"ddp_on_{name}", 1e-6)
    resume("fsdp_on_2", "fsdp", 2, 2, {})
    assert_tail("fsdp", "fsdp_on_2", 1e-6)
    resume("2x2_on_2", "2x2", 2, 2, {})
    assert_tail("2x2", "2x2_on_2", 0)


def actions_of(out, rank):
    """{kind: numbers in the order of the log} of the computations and updates of a rank with one stage."""
    with h5py.File(f"{out}/trace.h5") as file:
        actions = file[f"ranks/{rank}/actions"]
        kinds = [kind.decode() if isinstance(kind, bytes) else str(kind) for kind in actions["kind"][...]]
        numbers = actions["microbatch"][...].tolist()
    return {kind: [n for k, n in zip(kinds, numbers) if k == kind] for kind in ("F", "B", "U")}


def test_action_log_of_a_moved_run():
    changes = {**DECK, "run.steps": 4, "checkpoint.interval": 2, "output.evaluation_interval": 0, "parallel.data": 1}
    support.train(1, "moved", {**changes, "train.microbatches": 4})
    file = str(support.checkpoint("moved", 2))
    # The same grid: the log is that of a run that never stopped.
    support.train(1, "moved", {**changes, "train.microbatches": 4, "run.resume": file})
    whole = {"F": list(range(16)), "B": list(range(16)), "U": list(range(4))}
    assert actions_of("moved", 0) == whole, actions_of("moved", 0)
    # Another grid: a replica's microbatches have other numbers, so that the log begins anew.
    support.train(2, "moved", {**changes, "parallel.data": 2, "train.microbatches": 2, "run.resume": file})
    later = list(range(4, 8))
    for rank in (0, 1):
        assert actions_of("moved", rank) == {"F": later, "B": later, "U": [2, 3]}, actions_of("moved", rank)
    assert support.read_trace("moved")["step"].tolist() == [1, 2, 3, 4]


def test_another_product_is_refused():
    file = str(support.checkpoint("ddp", 3))
    for ranks, changes, remedy in (
        (4, {"parallel.data": 4, "train.microbatches": 4}, "set train.microbatches = 2"),
        (1, {"parallel.data": 1, "train.microbatches": 4}, "set train.microbatches = 8"),
        (2, {"parallel.data": 2, "train.microbatches": 3}, "set train.microbatches = 4"),
        (3, {"parallel.data": 3, "train.microbatches": 4}, "a parallel.data that divides 8"),
    ):
        result = support.train(ranks, "refused", {**DECK, **changes, "run.resume": file}, status=2)
        product = changes["parallel.data"] * changes["train.microbatches"]
        support.assert_contains(result.output, f"would have {product} microbatches", "not 8 as before", remedy)


if __name__ == "__main__":
    support.main(
        [
            test_evaluation,
            test_evaluation_of_another_deck,
            test_evaluation_without_what_only_training_does,
            test_other_modes_of_the_same_grid,
            test_other_grids,
            test_action_log_of_a_moved_run,
            test_another_product_is_refused,
        ]
    )
