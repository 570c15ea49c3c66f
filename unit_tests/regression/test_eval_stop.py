"""A signal ends minipipe eval within about a second, on all ranks, with status 75 and a line that says how far it came."""

import re
import signal
from pathlib import Path

import support

# Far more than a second's work.
LONG = {"data.validation": "long/train.h5", "output.evaluation_batches": 1000000}


def catches(pid, number):
    """Whether the process has a handler for the signal."""
    caught = re.search(r"^SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.M)
    return bool(int(caught[1], 16) >> (number - 1) & 1)


def stopped(ranks, signalled, number):
    job = support.Job(ranks, "eval", "deck.toml", *support.overrides({**LONG, "output.directory": "trained"}))
    assert job.until(lambda: all(job.pids(rank) and catches(job.pids(rank)[0][0], number) for rank in range(ranks)), "handlers")
    job.kill(signalled, number)
    text = support.finish(job, 75, timeout=30).output
    support.assert_contains(text, "a signal asked the evaluation to stop: ", "run the same command again")
    done, total = map(int, re.search(r"stop: (\d+) of (\d+) microbatches", text).groups())
    assert done < total and total > 10000, text
    assert text.count("a signal asked") == 1 and "validation_loss" not in text, text


def test_signals():
    support.run(1, "prepare", "--synthetic", "--tokens", "4000000", "--vocab", "64", "--out", "long")
    support.train(1, "trained", {"run.steps": 2})
    stopped(1, 0, signal.SIGTERM)
    stopped(2, 1, signal.SIGUSR1)


if __name__ == "__main__":
    support.main([test_signals])
