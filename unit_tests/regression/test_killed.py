"""kill -9 of one rank ends the job, by run.watchdog at the latest; what was saved before stays whole."""

import time

import support

WATCHDOG = 4.0
STATES = {"paci": {"schedule.name": "paci", "schedule.order": "dynamic"}, "1f1b": {"schedule.name": "1f1b"}}


def kill_one(schedule, victim):
    out = f"{schedule}_{victim}"
    changes = {
        **STATES[schedule],
        "run.steps": 100000,
        "run.watchdog": WATCHDOG,
        "checkpoint.interval": 20,
        "output.evaluation_interval": 0,
        "output.log_interval": 100,
        "output.directory": out,
    }
    job = support.Job(3, "train", "deck.toml", *support.overrides(changes))
    assert job.until(lambda: len(support.checkpoints(out)) == 2, "two checkpoints"), job.report("ended too soon")
    assert job.kill(victim), f"rank {victim} is not there"
    begin = time.monotonic() - job.begin
    result = support.finish(job, support.NONZERO, timeout=WATCHDOG + 10, launcher_kill=True)
    print(f"  {out}: {result.statuses} {result.elapsed - begin:.1f} s after the kill")
    assert result.statuses[victim] in (-9, support.LAUNCHER_KILL), result.statuses
    evaluated = support.run(1, "eval", "deck.toml", *support.overrides({**changes, **STATES[schedule]}))
    support.assert_contains(evaluated.output, '"validation_loss"', support.checkpoints(out)[-1].name)


def test_paci():
    for victim in range(3):
        kill_one("paci", victim)


def test_1f1b():
    kill_one("1f1b", 1)


if __name__ == "__main__":
    support.main([test_paci, test_1f1b])
