"""The harness of these tests sees what it has to see: statuses by rank, signals, runs that hang."""

import io
import signal
import time
from contextlib import redirect_stdout

import support


def shell(ranks, script):
    return support.Job(ranks, "-c", script, program="/bin/sh")


def fails(job, word, **options):
    """The run is judged a failure, with a report that holds the word."""
    report = io.StringIO()
    try:
        with redirect_stdout(report):
            support.finish(job, **options)
    except AssertionError:
        support.assert_contains(report.getvalue(), word)
        return
    raise AssertionError("a failure was not seen")


def test_statuses():
    job = shell(3, "exit $OMPI_COMM_WORLD_RANK")
    assert support.finish(job, status=None).statuses == [0, 1, 2]
    fails(shell(2, "exit $OMPI_COMM_WORLD_RANK"), "rank 1: status 1")
    fails(shell(1, "echo some words; exit 3"), "some words", status=2)
    assert support.finish(shell(2, "echo of rank $OMPI_COMM_WORLD_RANK")).output == "of rank 0\nof rank 1\n"


def test_signals():
    job = shell(2, "kill -9 $$")
    assert support.finish(job, status=support.NONZERO).statuses == [-9, -9]
    job = shell(1, "trap 'exit 4' TERM; while :; do sleep 0.05; done")
    job.until(lambda: job.pids(0), "a start")
    time.sleep(0.5)
    job.launcher.send_signal(signal.SIGTERM)  # of one rank, the launcher is the wrapper: it passes the signal on
    support.finish(job, 4, timeout=20)


def test_killed_with_its_wrapper():
    job = shell(1, "sleep 60")
    job.until(lambda: job.pids(0), "a start")
    job.launcher.kill()
    job.launcher.wait()
    assert support.finish(job, support.NONZERO, timeout=20, launcher_kill=True).statuses == [support.LAUNCHER_KILL]


def test_hanging():
    begin = time.monotonic()
    job = shell(2, "sleep 60")
    fails(job, "rank 1: status None", timeout=2)
    assert time.monotonic() - begin < 30
    assert not any(support.process_state(*process) for rank in range(2) for process in job.pids(rank)), "processes stay"


if __name__ == "__main__":
    support.main([test_statuses, test_signals, test_killed_with_its_wrapper, test_hanging])
