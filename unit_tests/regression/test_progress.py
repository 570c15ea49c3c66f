"""The progress lines show the loss of each update as the trace has it, also while later updates' losses come in."""

import re
from pathlib import Path

import support


def test_lines_show_the_losses_of_the_trace():
    changes = {"schedule.name": "paci", "schedule.order": "fixed", "parallel.stages": 4, "train.microbatches": 2}
    result = support.train(1, "paci", changes)
    lines = re.findall(r"paci step (\d+)/8 loss ([0-9.]+) ", result.output)
    trace = support.read_trace("paci", ("step", "loss"))
    assert [int(step) for step, _ in lines] == list(trace["step"]) == list(range(1, 9)), lines
    assert len(set(trace["loss"])) == 8
    for (step, shown), loss in zip(lines, trace["loss"]):
        assert abs(float(shown) - loss) < 6e-5, (step, shown, loss)


def test_with_replicas_the_line_says_whose_loss_it_is():
    result = support.train(2, "replicas", {"parallel.data": 2, "train.microbatches": 2})
    assert len(re.findall(r"1f1b step \d/8 loss of replica 0 [0-9.]+ \d+ tokens/s", result.output)) == 8, result.output


def test_an_emulated_run_shows_no_loss():
    result = support.train(1, "emulated", {"emulate.enabled": True})
    assert len(re.findall(r"1f1b step \d/8 \d+ tokens/s", result.output)) == 8, result.output


def test_cores_are_shared_out_where_nobody_said_how_many_threads():
    Path("unset.sh").write_text(f'#!/bin/sh\nexec env -u OMP_NUM_THREADS -u OMP_PROC_BIND "{support.MINIPIPE}" "$@"\n')
    Path("unset.sh").chmod(0o755)
    job = support.Job(3, "train", "deck.toml", "run.steps=2", "output.directory=threads", program=str(Path("unset.sh").resolve()))
    output = support.finish(job).output
    told = re.search(r"OMP_NUM_THREADS is not set: (\d+) threads? on a rank \(3 ranks on (\d+) cores?\)", output)
    assert told, output
    assert int(told[1]) == max(1, int(told[2]) // 3), told[0]
    assert "Kokkos" not in output, output


if __name__ == "__main__":
    tests = [test_lines_show_the_losses_of_the_trace, test_with_replicas_the_line_says_whose_loss_it_is]
    support.main([*tests, test_an_emulated_run_shows_no_loss, test_cores_are_shared_out_where_nobody_said_how_many_threads])
