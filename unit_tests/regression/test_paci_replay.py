"""PACI: a live run over MPI and the replay of its action log in one process give the same numbers, bit for bit."""

import h5py

import support

DYNAMIC = {"schedule.name": "paci", "schedule.order": "dynamic", "run.steps": 12, "train.microbatches": 2}
# No drain but the last: the simulated order has none either.
FIXED = {**DYNAMIC, "schedule.order": "fixed", "output.evaluation_interval": 0}
WITHOUT_VALIDATION = tuple(name for name in support.TRACE if not name.startswith("val/"))
STAGES = 4


def replay(out, log, changes, **options):
    support.train(1, out, {**changes, "parallel.stages": STAGES, "schedule.replay": log}, **options)


def assert_gaps(out, window):
    gaps = support.summary(out)["version_gap"]["max"]
    bounds = [-(-(STAGES - i) // window) for i in range(1, STAGES + 1)]
    assert len(gaps) == STAGES and all(gap <= bound for gap, bound in zip(gaps, bounds)), f"{out}: {gaps}, bounds {bounds}"
    assert max(gaps) > 0, f"{out}: no gap at all, this was not asynchronous"


def cells(file, rank):
    group = file[f"ranks/{rank}/actions"]
    for kind, stage, microbatch in zip(group["kind"][...], group["stage"][...], group["microbatch"][...]):
        yield f"{stage}{kind.decode()}{microbatch}"


def test_dynamic():
    support.train(STAGES, "dynamic", DYNAMIC)
    assert_gaps("dynamic", DYNAMIC["train.microbatches"])
    replay("replayed", "dynamic/trace.h5", DYNAMIC)
    support.assert_same_trace("dynamic", "replayed")


def test_csv():
    with h5py.File("dynamic/trace.h5") as file, open("dynamic.csv", "w") as csv:
        for rank in range(STAGES):
            csv.write(",".join(cells(file, rank)) + "\n")
    replay("from_csv", "dynamic.csv", DYNAMIC)
    support.assert_same_trace("dynamic", "from_csv")


def test_order_matters():
    # A legal order of other version sequences gives other numbers: the comparisons above can fail.
    support.train(STAGES, "flush", {**DYNAMIC, "schedule.name": "1f1b"})
    flush, paci = support.read_trace("flush"), support.read_trace("dynamic")
    assert flush["loss"].tobytes() != paci["loss"].tobytes()


def test_fixed():
    support.train(STAGES, "fixed_a", FIXED)
    support.train(STAGES, "fixed_b", FIXED)
    support.assert_same_trace("fixed_a", "fixed_b", WITHOUT_VALIDATION)
    assert_gaps("fixed_a", FIXED["train.microbatches"])
    simulate = ("--stages", STAGES, "--updates", FIXED["run.steps"], "--export", "fixed.csv")
    support.run(1, "simulate", "deck.toml", *support.overrides(FIXED), *simulate)
    replay("fixed_replay", "fixed.csv", FIXED)
    support.assert_same_trace("fixed_a", "fixed_replay", WITHOUT_VALIDATION)
    support.train(1, "fixed_inside", {**FIXED, "parallel.stages": STAGES})
    support.assert_same_trace("fixed_a", "fixed_inside", WITHOUT_VALIDATION)


def test_wrong_log():
    changes = {**DYNAMIC, "parallel.stages": STAGES, "schedule.replay": "dynamic/trace.h5"}
    result = support.train(1, "too_long", {**changes, "run.steps": 13}, status=2)
    support.assert_contains(result.output, "schedule.replay", "run.steps")
    result = support.train(1, "few", {**DYNAMIC, "parallel.stages": 2, "schedule.replay": "dynamic/trace.h5"}, status=2)
    support.assert_contains(result.output, "schedule.replay", "dynamic/trace.h5", "parallel.stages")


if __name__ == "__main__":
    support.main([test_dynamic, test_csv, test_order_matters, test_fixed, test_wrong_log])
