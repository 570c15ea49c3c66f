"""A run has its output folder alone, and only a run that starts touches the results of an earlier one."""

import os
import signal
from pathlib import Path

import support

LONG = {"run.steps": 100000, "output.evaluation_interval": 0}
GOOD = {"run.steps": 4, "checkpoint.interval": 2}


def start(out, ranks=1):
    job = support.Job(ranks, "train", "deck.toml", *support.overrides({**LONG, "output.directory": out}))
    assert job.until(lambda: "step 3/" in job.output(), "update 3") and job.status(0) is None, "done too soon"
    return job


def contents(out):
    """Every file but the lock, with its bytes."""
    return {str(file.relative_to(out)): file.read_bytes() for file in Path(out).rglob("*") if file.is_file() and file.name != ".lock"}


def test_second_run():
    job = start("shared", ranks=2)
    (pid, _), _ = job.pids(0)
    for changes in ({}, {"run.resume": "latest"}):
        refused = support.train(2, "shared", changes, status=2)
        support.assert_contains(
            refused.output, 'output.directory = "shared": another run', f"host {os.uname().nodename}, pid {pid}", "output.directory=PATH"
        )
        assert refused.output.count("another run") == 1, refused.output
    assert not list(Path("shared").glob("previous.*"))
    for rank in range(2):
        job.kill(rank, signal.SIGTERM)
    support.finish(job, 75)
    done = support.read_trace("shared", ("step",))["step"]
    assert done.tolist() == list(range(1, done.size + 1)), done
    assert (Path("shared") / ".lock").read_text() == ""
    support.train(2, "shared", {"run.steps": 2})
    assert support.read_trace("shared", ("step",))["step"].tolist() == [1, 2]


def test_same_instant():
    jobs = [support.Job(1, "train", "deck.toml", *support.overrides({**LONG, "output.directory": "instant"})) for _ in range(4)]
    support.wait_until(lambda: sum(job.status(0) == 2 for job in jobs) == 3)
    for job in jobs:
        if job.status(0) == 2:
            support.assert_contains(job.output(), "another run is writing there (host")
        else:
            job.kill(0, signal.SIGTERM)
            support.finish(job, 75)


def test_killed():
    """A lock that was left behind by kill -9 is none."""
    job = start("killed")
    job.kill(0)
    job.wait()
    job.end()
    assert "pid" in (Path("killed") / ".lock").read_text()
    support.train(1, "killed", {"run.steps": 2})
    assert not list(Path("killed/previous.1").glob(".lock"))


def test_failed_start():
    support.train(2, "good", GOOD)
    before = contents("good")
    Path("bad.csv").write_text("no plan\n")
    foreign = support.checkpoint("good", 2)
    for changes, status, told in (
        ({"schedule.replay": "nowhere.h5"}, 2, 'schedule.replay = "nowhere.h5"'),
        ({"schedule.replay": "bad.csv"}, 2, "bad.csv"),
        ({"schedule.replay": "good/trace.h5", "run.steps": 9}, 2, "schedule.replay"),
        ({"train.microbatch_size": 20000000}, 3, "out of memory"),
        ({"data.train": "nowhere.h5"}, 2, "nowhere.h5"),
        ({"run.resume": "nowhere.h5"}, 2, 'run.resume = "nowhere.h5"'),
        ({"run.resume": "deck.toml"}, 2, "deck.toml"),
        ({"run.resume": "copy/" + foreign.name, "model.width": 64}, 2, "holds another model"),
    ):
        Path("copy").mkdir(exist_ok=True)
        (Path("copy") / foreign.name).write_bytes(foreign.read_bytes())
        failed = support.train(2, "good", {**GOOD, **changes}, status=status)
        assert "were moved" not in failed.output, failed.output
        support.assert_contains(failed.output, told)
        assert contents("good") == before, f"{changes}: {sorted(contents('good'))}"
    # What the failed starts asked for is still there to go on from.
    support.assert_contains(support.train(2, "good", {**GOOD, "run.steps": 6, "run.resume": "latest"}).output, "4 updates done")


def test_own_trace_replayed():
    """The trace to replay may be the one that moves away."""
    support.train(2, "replayed", GOOD)
    support.train(2, "replayed", {**GOOD, "schedule.replay": "replayed/trace.h5"})
    support.assert_same_trace("replayed", "replayed/previous.1")


def test_unreadable_checkpoints():
    support.train(1, "unreadable", GOOD)
    for file in support.checkpoints("unreadable"):
        file.write_bytes(file.read_bytes()[:100])
    before = contents("unreadable")
    failed = support.train(2, "unreadable", {**GOOD, "run.resume": "latest"}, status=2)
    names = [str(file) for file in support.checkpoints("unreadable")]
    assert len(names) == 2, names
    support.assert_contains(failed.output, 'run.resume = "latest"', "can be read", *names, "move these files away or leave run.resume out")
    assert contents("unreadable") == before
    evaluated = support.run(1, "eval", "deck.toml", "output.directory=unreadable", "--checkpoint", "latest", status=2)
    support.assert_contains(evaluated.output, '--checkpoint "latest"', "can be read", *names)
    # The remedy, and that no checkpoint at all is a start from the beginning.
    for file in support.checkpoints("unreadable"):
        file.unlink()
    fresh = support.train(1, "unreadable", {**GOOD, "run.resume": "latest"})
    support.assert_contains(fresh.output, "the run starts from the beginning")


def test_going_back():
    """After a resume from an earlier checkpoint, the later ones are neither kept as the newest nor resumed from."""
    changes = {"run.steps": 8, "checkpoint.interval": 2, "checkpoint.keep": 2, "run.time_limit": 1e-3}
    support.train(1, "back", {**changes, "checkpoint.keep": 4, "run.time_limit": 0})
    whole = support.read_trace("back")
    earlier = "back/checkpoints/step_00000002.h5"
    stopped = support.train(1, "back", {**changes, "checkpoint.interval": 8, "run.resume": earlier}, status=75)
    support.assert_contains(stopped.output, "results of updates after 2 were moved to back/previous.1", "2 updates done")
    done = int(support.read_trace("back")["step"][-1])
    assert 2 < done < 8
    assert [file.name for file in support.checkpoints("back")] == ["step_00000002.h5", f"step_{done:08d}.h5"]
    assert not support.summary("back")["done"]
    assert [file.name for file in support.checkpoints("back/previous.1")] == [f"step_{step:08d}.h5" for step in (4, 6, 8)]
    assert support.summary("back/previous.1")["done"]
    assert all(whole[name].tobytes() == values.tobytes() for name, values in support.read_trace("back/previous.1").items())
    resumed = support.train(1, "back", {**changes, "run.time_limit": 0, "run.resume": "latest"})
    support.assert_contains(resumed.output, f"{done} updates done")
    assert "were moved" not in resumed.output
    assert all(whole[name].tobytes() == values.tobytes() for name, values in support.read_trace("back").items())
    # A damaged newest checkpoint must not count as one of those that are kept.
    newest = support.checkpoint("back", 8)
    newest.write_bytes(newest.read_bytes()[:100])
    resumed = support.train(1, "back", {**changes, "run.time_limit": 0, "checkpoint.keep": 1, "run.resume": "latest", "run.steps": 9})
    support.assert_contains(resumed.output, "skipped", "6 updates done", "were moved to back/previous.2")
    assert [file.name for file in support.checkpoints("back")] == ["step_00000009.h5"]


def test_nothing_to_go_on_from():
    """Without checkpoints "latest" starts anew, and what the folder has is no less a result."""
    support.train(1, "bare", GOOD)
    for file in support.checkpoints("bare"):
        file.unlink()
    before = contents("bare")
    fresh = support.train(1, "bare", {**GOOD, "run.resume": "latest", "run.steps": 3})
    support.assert_contains(fresh.output, "the run starts from the beginning", "moved to bare/previous.1")
    assert contents("bare/previous.1") == before


if __name__ == "__main__":
    support.main(
        [
            test_second_run,
            test_same_instant,
            test_killed,
            test_failed_start,
            test_own_trace_replayed,
            test_unreadable_checkpoints,
            test_going_back,
            test_nothing_to_go_on_from,
        ]
    )
