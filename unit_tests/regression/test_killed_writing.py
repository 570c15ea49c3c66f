"""kill -9 while a checkpoint is being written: the latest whole checkpoint loads, and the run goes on from it."""

import signal
import time
from pathlib import Path

import support

WATCHDOG = 4.0
OUT = "writing"
CHANGES = {
    "run.steps": 100000,
    "run.watchdog": WATCHDOG,
    "run.resume": "latest",
    "model.width": 256,
    "train.microbatches": 1,
    "train.microbatch_size": 1,
    "checkpoint.interval": 1,
    "output.evaluation_interval": 0,
    "output.log_interval": 100,
    "output.directory": OUT,
}


def half_written():
    return list(Path(OUT, "checkpoints").glob(".step_*.tmp"))


def newest_step():
    files = support.checkpoints(OUT)
    return int(files[-1].stem[5:]) if files else -1


def kill_while_writing(job, victim):
    """Stops the victim while a temporary file is there, and kills it if the file stays: then it has not been published."""
    for _ in range(200):
        assert all(status is None for status in job.statuses()), job.report("ended too soon")
        if half_written() and job.kill(victim, signal.SIGSTOP):
            time.sleep(0.3)
            if half_written():
                job.kill(victim)
                return
            job.kill(victim, signal.SIGCONT)
        time.sleep(0.003)
    raise AssertionError("no half-written checkpoint was ever seen")


def test_killed_writing():
    step = -1
    for victim in (0, 1, 0):
        job = support.Job(2, "train", "deck.toml", *support.overrides(CHANGES))
        assert job.until(lambda: newest_step() >= step + 3, "new checkpoints"), job.report("ended too soon")
        kill_while_writing(job, victim)
        result = support.finish(job, support.NONZERO, timeout=WATCHDOG + 10, launcher_kill=True)
        if step < 0:
            support.assert_contains(result.output, "the run starts from the beginning")
        else:
            support.assert_contains(result.output, f"{step} updates done")
        assert half_written(), "the temporary file is gone: the kill came too late"
        step = newest_step()
        evaluated = support.run(1, "eval", "deck.toml", *support.overrides(CHANGES))
        support.assert_contains(evaluated.output, f'"step":{step},', f"step_{step:08d}.h5")


def test_goes_on():
    step = newest_step()
    result = support.run(2, "train", "deck.toml", *support.overrides({**CHANGES, "run.time_limit": 0.5}), status=75)
    support.assert_contains(result.output, f"{step} updates done")
    trace = support.read_trace(OUT)
    assert trace["step"].tolist() == list(range(1, newest_step() + 1)), "rows are missing or doubled"
    assert newest_step() > step
    assert not half_written(), "temporary files of killed runs stay"


if __name__ == "__main__":
    support.main([test_killed_writing, test_goes_on])
