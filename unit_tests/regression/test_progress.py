"""The progress lines show the loss of each update as the trace has it, also while later updates' losses come in."""

import re

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


if __name__ == "__main__":
    support.main([test_lines_show_the_losses_of_the_trace])
