"""A rank that stands still: the others end by run.watchdog instead of waiting for ever."""

import os
import signal
import time

import support

WATCHDOG = 3.0


def stop_one(schedule, victim):
    out = f"{schedule}_{victim}"
    changes = {
        "schedule.name": schedule,
        "run.steps": 100000,
        "run.watchdog": WATCHDOG,
        "output.evaluation_interval": 0,
        "output.directory": out,
    }
    job = support.Job(3, "train", "deck.toml", *support.overrides(changes))
    assert job.until(lambda: "step 20/" in job.output(2), "training goes on"), job.report("ended too soon")
    assert job.kill(victim, signal.SIGSTOP), f"rank {victim} is not there"
    begin = time.monotonic()
    others = [rank for rank in range(3) if rank != victim]
    statuses = job.wait(WATCHDOG + 10, of=others)
    seconds = time.monotonic() - begin
    output = job.output()
    print(f"  {out}: {statuses} after {seconds:.1f} s, stopped rank: {job.status(victim)}")
    job.end()
    for status in statuses:
        # The first rank to notice ends with 3; a launcher may kill the other one before it says so itself.
        assert support.accepted(status, (3, -signal.SIGKILL, -signal.SIGTERM), launcher_kill=True), statuses
    assert seconds >= WATCHDOG - 1, f"ended after {seconds:.1f} s, before the watchdog"
    support.assert_contains(output, "run.watchdog", "nothing moved")
    assert any(f"rank {rank}: nothing has moved" in output for rank in others), output


def test_watchdog():
    for schedule, victim in (("1f1b", 0), ("1f1b", 2), ("paci", 1)):
        stop_one(schedule, victim)


def test_rank_that_stands_still_at_the_start():
    # Wherever it stands, MPI's start or the program's own: the others end by the limit for that.
    limit = 4.0
    for verb in ("train", "profile"):
        changes = {"run.steps": 100000, "run.watchdog": WATCHDOG, "output.directory": f"start_{verb}"}
        environment = {"MINIPIPE_START_LIMIT": str(limit)}
        job = support.Job(3, verb, "deck.toml", *support.overrides(changes), env=environment)
        assert job.until(lambda: job.kill(1, signal.SIGSTOP), "rank 1 is there"), job.report("ended too soon")
        statuses = job.wait(limit + 30, of=[0, 2])
        output = job.output()
        job.end()
        for status in statuses:
            assert support.accepted(status, (3, -signal.SIGKILL, -signal.SIGTERM), launcher_kill=True), statuses
        support.assert_contains(output, "nothing moved")


def test_long_step_is_no_stall():
    # Quiet for less than the watchdog: the run survives a pause.
    changes = {"run.steps": 3000, "run.watchdog": 6.0, "output.evaluation_interval": 0, "output.directory": "pause"}
    job = support.Job(2, "train", "deck.toml", *support.overrides(changes))
    assert job.until(lambda: "step 5/" in job.output(1), "training goes on"), job.report("ended too soon")
    pid = job.pids(0)[0][0]
    os.kill(pid, signal.SIGSTOP)
    time.sleep(2)
    os.kill(pid, signal.SIGCONT)
    assert job.until(lambda: support.process_state(*job.pids(0)[0]) != "T", "the rank goes on")
    job.until(lambda: "step 200/" in job.output(1), "training goes on")
    job.kill(0, signal.SIGTERM)
    job.kill(1, signal.SIGTERM)
    support.finish(job, 75)


def test_tiny_limit():
    told = support.train(1, "tiny", {"run.watchdog": 1e-9}, status=support.NONZERO).output
    support.assert_contains(told, "nothing has moved for run.watchdog = 1.0e-09 s")


if __name__ == "__main__":
    support.main([test_tiny_limit, test_watchdog, test_rank_that_stands_still_at_the_start, test_long_step_is_no_stall])
