"""Stopped and resumed equals never stopped: the same trace, bit for bit, time apart."""

import signal
from pathlib import Path

import support

# An update takes long enough for a signal to arrive in the middle of the run.
COMMON = {
    "run.steps": 12,
    "run.grace": 1000.0,  # on a busy machine, too, asynchronous runs stop where the deck drains
    "checkpoint.interval": 4,
    "checkpoint.keep": 9,
    "train.microbatches": 8,
    "train.microbatch_size": 8,
}
PACI = {**COMMON, "schedule.name": "paci", "schedule.synchronous_updates": 3}


def whole(schedule, changes):
    support.train(4, f"{schedule}_whole", changes)


def go_on(out, changes, ranks=4, **options):
    return support.train(ranks, out, {**changes, "run.resume": "latest", **options.pop("also", {})}, **options)


def in_pieces(out, changes, most):
    """Stops by run.time_limit as early as it can, resumes, until it is done. Returns the number of starts."""
    for start in range(1, most + 1):
        result = go_on(out, changes, also={"run.time_limit": 1e-3}, status=(0, 75))
        assert len(set(result.statuses)) == 1, result.statuses
        if start == 1:
            support.assert_contains(result.output, 'run.resume = "latest"', "the run starts from the beginning")
        if result.statuses[0] == 0:
            return start
        support.assert_contains(result.output, "run.time_limit was reached", "run.resume=latest")
    raise AssertionError(f"not done after {most} starts")


def by_signal(out, changes, after, ranks):
    job = support.Job(4, "train", "deck.toml", *support.overrides({**changes, "output.directory": out}))
    assert job.until(lambda: f"step {after}/" in job.output(3), f"update {after}") and job.status(0) is None, "done too soon"
    for rank in ranks:
        job.kill(rank, signal.SIGTERM)
    stopped = support.finish(job, 75)
    support.assert_contains(stopped.output, "a signal asked the run to stop", "run.resume=latest")
    done = support.read_trace(out)["step"][-1]
    assert after <= done < 12, f"stopped after update {done}"
    assert support.checkpoints(out)[-1] == support.checkpoint(out, done)
    support.assert_contains(go_on(out, changes).output, f"{done} updates done")
    return done


def test_flush():
    whole("flush", COMMON)
    assert in_pieces("flush_pieces", COMMON, 13) > 3
    support.assert_same_trace("flush_whole", "flush_pieces")
    by_signal("flush_signal", COMMON, 2, range(4))
    support.assert_same_trace("flush_whole", "flush_signal")
    by_signal("flush_last_rank", COMMON, 2, [3])
    support.assert_same_trace("flush_whole", "flush_last_rank")


def test_paci():
    whole("paci", PACI)
    assert in_pieces("paci_pieces", PACI, 13) > 2
    support.assert_same_trace("paci_whole", "paci_pieces")
    # The asynchronous rule only stops where the deck drains the pipe.
    assert by_signal("paci_signal", PACI, 5, range(4)) == 8
    support.assert_same_trace("paci_whole", "paci_signal")


def assert_same_tail(whole_out, out, first):
    tail, trace = support.read_trace(whole_out), support.read_trace(out)
    for name in ("step", "tokens", "loss", "lr", "grad_norm"):
        assert trace[name].tobytes() == tail[name][first:].tobytes(), f"{out}: {name}\n{trace[name]}\n{tail[name][first:]}"


def test_from_a_file():
    for schedule, changes in (("flush", COMMON), ("paci", PACI)):
        file = str(support.checkpoint(f"{schedule}_whole", 4))
        support.train(4, f"{schedule}_from_4", {**changes, "run.resume": file})
        assert_same_tail(f"{schedule}_whole", f"{schedule}_from_4", 4)


def test_a_file_of_another_run():
    # What the folder held is another run's: it is moved away, not mixed with this one.
    support.train(1, "taken", {"run.steps": 2})
    file = str(support.checkpoint("flush_whole", 4))
    result = support.train(1, "taken", {**COMMON, "run.resume": file})
    support.assert_contains(result.output, "results of an earlier run were moved to", "previous.1")
    assert_same_tail("flush_whole", "taken", 4)
    assert support.read_trace("taken/previous.1")["step"].tolist() == [1, 2]
    assert support.checkpoints("taken")[0] == support.checkpoint("taken", 8), support.checkpoints("taken")


def test_other_ranks():
    file = str(support.checkpoint("flush_whole", 4))
    for ranks in (1, 2):
        support.train(ranks, f"flush_on_{ranks}", {**COMMON, "run.resume": file})
        assert_same_tail("flush_whole", f"flush_on_{ranks}", 4)


def test_hybrid():
    changes = {**support.HYBRID, "run.steps": 6, "checkpoint.interval": 3, "checkpoint.keep": 9}
    for schedule, more in (("1f1b", {}), ("paci", {"schedule.name": "paci"})):
        whole = f"hybrid_{schedule}"
        support.train(2, whole, {**changes, **more})
        loss = support.read_trace(whole, ("loss",))["loss"]
        assert loss[-1] < loss[0], loss
        file = str(support.checkpoint(whole, 3))
        # PACI's numbers depend on the stages.
        for ranks in (1, 2, 4) if schedule == "1f1b" else (2,):
            support.train(ranks, f"{whole}_on_{ranks}", {**changes, **more, "run.resume": file})
            assert_same_tail(whole, f"{whole}_on_{ranks}", 3)


def test_broken_latest():
    # The newest checkpoint that is whole counts; the broken one is named.
    support.train(1, "broken", {"run.steps": 4, "checkpoint.interval": 2})
    newest = support.checkpoint("broken", 4)
    newest.write_bytes(newest.read_bytes()[:-1000])
    changes = {"run.steps": 4, "checkpoint.interval": 2, "run.resume": "latest"}
    result = support.train(1, "broken", changes)
    support.assert_contains(result.output, newest.name, "damaged", "2 updates done")
    assert support.read_trace("broken")["step"].tolist() == [1, 2, 3, 4]


def files_of(out):
    """All but the lock, which every run takes."""
    files = [file for file in Path(out).rglob("*") if file.is_file() and file.name != ".lock"]
    return {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in files}


def test_a_finished_run():
    changes = {"run.steps": 4, "schedule.name": "paci", "checkpoint.interval": 2}
    support.train(2, "finished", changes)
    before = files_of("finished")
    assert len(before) >= 4, before.keys()
    for ranks in (1, 2):
        result = go_on("finished", changes, ranks=ranks, also={"parallel.stages": 2})
        support.assert_contains(result.output, "nothing to do: 4 of 4 updates are done")
        assert files_of("finished") == before
    # More updates are something to do; so is the summary of a run that was killed before it wrote one.
    go_on("finished", changes, ranks=2, also={"run.steps": 5})
    assert support.read_trace("finished")["step"].tolist() == [1, 2, 3, 4, 5]
    Path("finished/summary.json").unlink()
    go_on("finished", changes, ranks=2, also={"run.steps": 5})
    assert support.summary("finished")["done"] and support.summary("finished")["steps"] == 5


# Longer than the first part of an evaluation, which is never cut.
LONG = {"run.steps": 4, "train.microbatch_size": 2, "output.evaluation_interval": 2, "output.evaluation_batches": 30}
CUT = "the evaluation after update {} was cut after {} of 30 microbatches"


def test_cut_evaluation():
    for name, ranks, changes in (
        ("1f1b", 2, {}),
        ("paci", 2, {"schedule.name": "paci"}),
        ("fsdp", 4, {"parallel.data": 2, "parallel.mode": "fsdp"}),
    ):
        out, changes = f"cut_{name}", {**LONG, **changes}
        support.train(ranks, f"{out}_whole", changes)
        done = 8 * int(changes.get("parallel.data", 1))
        # The first stop may come before the update that the evaluation is due after.
        at = {"run.time_limit": 1e-3, "output.evaluation_interval": 2, "checkpoint.interval": 2}
        starts, told = 0, ""
        while CUT.format(2, done) not in told:
            starts += 1
            assert starts <= 2, told
            told = go_on(out, changes, ranks=ranks, also=at, status=75).output
        support.assert_contains(told, "run.time_limit was reached", "the resumed run makes up for it")
        assert "no update was done" not in told, told
        assert support.checkpoints(out)[-1] == support.checkpoint(out, 2), support.checkpoints(out)
        assert support.read_trace(out)["val/step"].tolist() == [], support.read_trace(out)["val/step"]
        # What is made up for can be cut, too.
        told = go_on(out, changes, ranks=ranks, also=at, status=75).output
        support.assert_contains(told, CUT.format(2, done), "no update was done", "output.evaluation_batches")
        go_on(out, changes, ranks=ranks)
        support.assert_same_trace(f"{out}_whole", out)


def test_cut_last_evaluation():
    changes = {**LONG, "run.steps": 1, "train.warmup_steps": 0, "output.evaluation_interval": 1}
    support.assert_contains(go_on("cut_last", changes, ranks=1, also={"run.time_limit": 1e-3}, status=75).output, CUT.format(1, 8))
    summary = support.summary("cut_last")
    assert not summary["done"] and summary["validation_loss"] is None, summary
    go_on("cut_last", changes, ranks=1)
    assert support.summary("cut_last")["done"]
    assert support.read_trace("cut_last")["val/step"].tolist() == [1]


def test_signal_in_an_evaluation():
    # Seconds of evaluation: the whole training file, a sequence at a time.
    changes = {"run.steps": 2, "train.microbatch_size": 1, "output.evaluation_interval": 1, "output.evaluation_batches": 1000000}
    changes.update({"model.layers": 8, "model.width": 64, "data.validation": "data/sample/train.h5"})
    job = support.Job(2, "train", "deck.toml", *support.overrides({**changes, "output.directory": "signal"}))
    assert job.until(lambda: "step 1/" in job.output(1), "update 1")
    job.kill(1, signal.SIGUSR1)
    told = support.finish(job, 75).output
    support.assert_contains(told, "output.evaluation_batches = 1000000: ", "holds 6187 microbatches", "goes through these once")
    support.assert_contains(told, "a signal asked the run to stop", "the evaluation after update 1 was cut")
    assert support.checkpoints("signal") == [support.checkpoint("signal", 1)]


def test_evaluation_batches():
    # As many as the file holds, and no window twice.
    all_of_it = {"run.steps": 1, "train.warmup_steps": 0, "output.evaluation_interval": 1, "output.evaluation_batches": 1000000}
    told = support.train(1, "all_of_it", all_of_it).output
    there = int(told.split("holds ")[1].split()[0])
    for name, batches in (("as_many", there), ("fewer", there - 1)):
        told = support.train(1, name, {**all_of_it, "output.evaluation_batches": batches}).output
        assert "goes through" not in told, told
    support.assert_same_trace("all_of_it", "as_many")
    loss = {name: support.read_trace(name)["val/loss"][0] for name in ("as_many", "fewer")}
    assert loss["as_many"] != loss["fewer"], loss
    options = ["deck.toml", "--checkpoint", str(support.checkpoint("as_many", 1)), *support.overrides(all_of_it)]
    told = support.run(1, "eval", *options).output
    support.assert_contains(told, "goes through these once", f'"validation_loss":{loss["as_many"]!r}')


if __name__ == "__main__":
    tests = [test_flush, test_paci, test_from_a_file, test_a_file_of_another_run, test_other_ranks, test_hybrid]
    tests += [test_cut_evaluation, test_cut_last_evaluation, test_signal_in_an_evaluation, test_evaluation_batches]
    support.main([*tests, test_broken_latest, test_a_finished_run])
