"""AdamW, NAdam and Muon: they learn, they resume bit for bit, and ranks make no difference."""

import h5py

import support

DECK = {"run.steps": 8, "checkpoint.interval": 4, "checkpoint.keep": 9, "output.evaluation_interval": 8}
NAMES = ("step", "tokens", "loss", "lr", "grad_norm")


def changes(optimizer, more=None):
    return {**DECK, "train.optimizer": optimizer, **(more or {})}


def learns_and_agrees(optimizer):
    first = f"{optimizer}_1"
    support.train(1, first, changes(optimizer))
    trace = support.read_trace(first)
    assert trace["loss"][-1] < trace["loss"][0] - 0.05, f"{optimizer} learnt nothing: {trace['loss']}"
    support.train(4, f"{optimizer}_4", changes(optimizer))
    support.assert_same_trace(first, f"{optimizer}_4")
    support.train(1, f"{optimizer}_inside", changes(optimizer, {"parallel.stages": 4}))
    support.assert_same_trace(first, f"{optimizer}_inside")


def resumes(optimizer, schedule):
    more = {"schedule.name": schedule}
    whole = f"{optimizer}_4" if schedule == "1f1b" else f"{optimizer}_{schedule}_whole"
    pieces = f"{optimizer}_{schedule}_pieces"
    if schedule != "1f1b":
        support.train(4, whole, changes(optimizer, more))
    stop = {**more, "run.time_limit": 1e-3, "run.grace": 1000.0, "run.resume": "latest"}
    support.train(4, pieces, changes(optimizer, stop), status=75)
    done = support.read_trace(pieces, ("step",))["step"][-1]
    assert 0 < done < DECK["run.steps"], done
    support.train(4, pieces, changes(optimizer, {**more, "run.resume": "latest"}))
    support.assert_same_trace(whole, pieces)
    # From a file, on another number of processes.
    tail = f"{optimizer}_{schedule}_tail"
    support.train(1, tail, changes(optimizer, {**more, "parallel.stages": 4, "run.resume": str(support.checkpoint(whole, 4))}))
    expected, found = support.read_trace(whole, NAMES), support.read_trace(tail, NAMES)
    for name in NAMES:
        assert found[name].tobytes() == expected[name][4:].tobytes(), f"{tail}: {name}\n{found[name]}\n{expected[name][4:]}"


def test_adamw():
    learns_and_agrees("adamw")


def test_nadam():
    learns_and_agrees("nadam")
    resumes("nadam", "1f1b")
    resumes("nadam", "paci")


def test_muon():
    learns_and_agrees("muon")
    resumes("muon", "1f1b")
    resumes("muon", "paci")


def test_they_differ():
    losses = {support.read_trace(f"{optimizer}_1", ("loss",))["loss"].tobytes() for optimizer in ("adamw", "nadam", "muon")}
    assert len(losses) == 3, "two optimizers did the same: the comparisons mean nothing"


def test_memory_of_the_state():
    # Muon keeps one moment of the hidden matrices where AdamW keeps two; the rest has two under both.
    def state(out):
        with h5py.File(f"{out}/trace.h5") as file:
            memory = file["ranks/0/memory"].attrs
            return int(memory["optimizer"]), int(memory["parameters"])

    adamw, parameters = state("adamw_1")
    nadam, _ = state("nadam_1")
    muon, _ = state("muon_1")
    assert adamw == nadam == 2 * parameters, (adamw, nadam, parameters)
    assert parameters < muon, (muon, parameters)
    assert muon != adamw, "Muon's state is counted as AdamW's"


def test_other_optimizer_cannot_resume():
    wrong = changes("nadam", {"run.resume": str(support.checkpoint("muon_1", 4))})
    result = support.train(1, "wrong", wrong, status=2)
    support.assert_contains(result.output, "train.optimizer", "muon")


if __name__ == "__main__":
    tests = [test_adamw, test_nadam, test_muon, test_they_differ, test_memory_of_the_state]
    support.main([*tests, test_other_optimizer_cannot_resume])
