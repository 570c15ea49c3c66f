"""Replicas stop together, with a checkpoint from which the run goes on as if it had not stopped; when one is lost, all end."""

import signal
import time

import numpy as np

import support

# An update takes long enough for a signal to arrive in the middle of the run.
COMMON = {
    "run.steps": 12,
    "run.grace": 1000.0,  # on a busy machine, too, asynchronous runs stop where the deck drains
    "checkpoint.interval": 4,
    "checkpoint.keep": 9,
    "train.microbatches": 4,
    "train.microbatch_size": 8,
    "model.layers": 8,
    "parallel.data": 2,
}
CASES = {
    "1f1b": {},
    "paci": {"schedule.name": "paci", "schedule.order": "fixed"},
    "sdp": {"parallel.mode": "sdp", "sdp.coverage": 0.75, "sdp.sync": "parameter", "sdp.period": 2},
}
WATCHDOG = 3.0


def changes_of(case):
    return {**COMMON, **CASES[case]}


def test_whole():
    for case in CASES:
        support.train(4, f"{case}_whole", changes_of(case))


def assert_goes_on(case, out, done):
    """As if it had not stopped after `done` updates; under averages of parameters only the weights are as they were."""
    if case != "sdp":
        support.assert_same_trace(f"{case}_whole", out)
        return
    expected, found = (support.read_trace(name, ("loss",))["loss"] for name in (f"{case}_whole", out))
    assert expected[: done + 1].tobytes() == found[: done + 1].tobytes(), f"{out}: {found}, not {expected}"
    # The holders' moments were a few updates' and are one's now.
    assert np.max(np.abs(expected - found) / expected) < 0.01, f"{out}: {found}, not {expected}"


def by_signal(case, ranks):
    out, changes = f"{case}_signal_{len(ranks)}", changes_of(case)
    job = support.Job(4, "train", "deck.toml", *support.overrides({**changes, "output.directory": out}))
    # The last stage of the first replica tells.
    assert job.until(lambda: "step 2/" in job.output(1), "update 2") and job.status(0) is None, "done too soon"
    for rank in ranks:
        job.kill(rank, signal.SIGTERM)
    stopped = support.finish(job, 75)
    support.assert_contains(stopped.output, "a signal asked the run to stop", "run.resume=latest")
    done = int(support.read_trace(out)["step"][-1])
    assert 2 <= done < 12, f"{out} stopped after update {done}"
    assert support.checkpoints(out)[-1] == support.checkpoint(out, done)
    support.assert_contains(support.train(4, out, {**changes, "run.resume": "latest"}).output, f"{done} updates done")
    assert_goes_on(case, out, done)
    return done


def test_signal():
    by_signal("1f1b", [3])
    # The asynchronous rule stops where the deck drains the pipe, averages where holders have just become equal.
    assert by_signal("paci", [0, 1, 2, 3]) % 4 == 0
    assert by_signal("sdp", [2]) % 2 == 0


def test_time_limit():
    for case in CASES:
        out, changes = f"{case}_pieces", {**changes_of(case), "run.resume": "latest", "run.time_limit": 1e-3}
        stops = []
        for _ in range(12):
            result = support.train(4, out, changes, status=(0, 75))
            assert len(set(result.statuses)) == 1, result.statuses
            if result.statuses[0] == 0:
                break
            support.assert_contains(result.output, "run.time_limit was reached")
            stops.append(int(support.read_trace(out)["step"][-1]))
            assert support.checkpoints(out)[-1] == support.checkpoint(out, stops[-1])
            changes["run.time_limit"] = 1e-3 if len(stops) < 2 else 0
        assert len(stops) == 2, f"{case}: stopped {len(stops)} times, {stops}"
        assert_goes_on(case, out, stops[0])


def test_end_of_a_segment():
    # A flush schedule's segments end after 25 updates: averages every other update do not fall together with that.
    changes = {**changes_of("sdp"), "run.steps": 40, "checkpoint.interval": 0, "output.evaluation_interval": 0}
    changes.update({"train.microbatch_size": 1, "train.microbatches": 1})
    job = support.Job(4, "train", "deck.toml", *support.overrides({**changes, "output.directory": "segment"}))
    assert job.until(lambda: "step 24/" in job.output(1), "update 24"), "done too soon"
    job.kill(0, signal.SIGTERM)
    statuses = job.wait()
    job.end()
    assert set(statuses) in ({0}, {75}), statuses
    assert int(support.read_trace("segment")["step"][-1]) % 2 == 0, support.read_trace("segment")["step"]


def endless(out, changes):
    changes = {"model.layers": 8, "parallel.data": 2, "run.steps": 100000, "run.watchdog": WATCHDOG, **changes}
    changes.update({"output.evaluation_interval": 0, "output.log_interval": 10, "output.directory": out})
    job = support.Job(4, "train", "deck.toml", *support.overrides(changes))
    assert job.until(lambda: "step 20/" in job.output(1), "training goes on"), job.report("ended too soon")
    return job


def test_lost_replica():
    for mode, victim in (("ddp", 3), ("fsdp", 2)):
        job = endless(f"killed_{mode}", {"parallel.mode": mode})
        assert job.kill(victim), f"rank {victim} is not there"
        begin = time.monotonic() - job.begin
        result = support.finish(job, support.NONZERO, timeout=WATCHDOG + 10, launcher_kill=True)
        print(f"  {mode}: {result.statuses} {result.elapsed - begin:.1f} s after the kill")
        assert result.statuses[victim] in (-9, support.LAUNCHER_KILL), result.statuses


def test_replica_that_stands_still():
    for name, victim, changes in (
        ("ddp", 2, {}),
        ("fsdp", 0, {"parallel.mode": "fsdp"}),
        ("sdp", 3, {"parallel.mode": "sdp", "sdp.coverage": 0.75, "schedule.name": "paci", "schedule.order": "dynamic"}),
    ):
        job = endless(f"stopped_{name}", changes)
        assert job.kill(victim, signal.SIGSTOP), f"rank {victim} is not there"
        begin = time.monotonic()
        statuses = job.wait(WATCHDOG + 10, of=[rank for rank in range(4) if rank != victim])
        seconds, output = time.monotonic() - begin, job.output()
        job.end()
        print(f"  {name}: {statuses} after {seconds:.1f} s")
        for status in statuses:
            assert support.accepted(status, (3, -signal.SIGKILL, -signal.SIGTERM), launcher_kill=True), statuses
        assert seconds >= WATCHDOG - 1, f"ended after {seconds:.1f} s, before the watchdog"
        support.assert_contains(output, "run.watchdog", "nothing has moved")


if __name__ == "__main__":
    support.main(
        [
            test_whole,
            test_signal,
            test_time_limit,
            test_end_of_a_segment,
            test_lost_replica,
            test_replica_that_stands_still,
        ]
    )
