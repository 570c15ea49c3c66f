"""Flush schedules: the trace does not depend on the number of ranks, bit for bit."""

import support

DECK = {"run.steps": 6, "output.evaluation_interval": 3}


def compare(name, changes, ranks=(1, 2, 4), stages_in_one_process=4):
    """Runs on each number of ranks, and on one process with all stages in it."""
    changes = {**DECK, **changes}
    first = f"{name}_{ranks[0]}"
    for number in ranks:
        support.train(number, f"{name}_{number}", changes)
        support.assert_same_trace(first, f"{name}_{number}")
    if stages_in_one_process:
        support.train(1, f"{name}_inside", {**changes, "parallel.stages": stages_in_one_process})
        support.assert_same_trace(first, f"{name}_inside")
    return first


def test_1f1b():
    first = compare("1f1b", {})
    trace = support.read_trace(first)
    assert trace["step"].tolist() == list(range(1, 7)), trace["step"]
    assert trace["val/step"].tolist() == [3, 6], trace["val/step"]
    assert trace["loss"][-1] < trace["loss"][0], "nothing was learnt"


def test_gpipe():
    first = compare("gpipe", {"schedule.name": "gpipe"})
    support.assert_same_trace(first, "1f1b_1")


def test_eight_ranks():
    compare("eight", {"model.layers": 8}, ranks=(1, 8), stages_in_one_process=0)


def test_global_clip():
    # One process has no global norm over several stages.
    first = compare("clip", {"train.clip": "global"}, stages_in_one_process=0)
    clipped, free = support.read_trace(first), support.read_trace("1f1b_1")
    assert clipped["loss"].tobytes() != free["loss"].tobytes(), "clipping changed nothing: the test cannot fail"


def test_dropout():
    first = compare("dropout", {"model.dropout": 0.1})
    dropped, free = support.read_trace(first), support.read_trace("1f1b_1")
    assert dropped["loss"].tobytes() != free["loss"].tobytes(), "dropout changed nothing: the test cannot fail"


def test_hybrid():
    first = compare("hybrid", {**support.HYBRID, "model.dropout": 0.1})
    trace = support.read_trace(first)
    assert trace["loss"][-1] < trace["loss"][0], "nothing was learnt"
    for recompute in ("attention", "block"):
        support.train(2, f"hybrid_{recompute}", {**DECK, **support.HYBRID, "model.dropout": 0.1, "train.recompute": recompute})
        support.assert_same_trace(first, f"hybrid_{recompute}")


def test_partition():
    first = compare("balanced", {}, ranks=(1,), stages_in_one_process=0)
    for name, partition in {"uneven": [1, 2, 1], "head_alone": [2, 2, 0]}.items():
        support.train(3, name, {**DECK, "schedule.partition": partition})
        support.assert_same_trace(first, name)


if __name__ == "__main__":
    support.main([test_1f1b, test_gpipe, test_eight_ranks, test_global_clip, test_dropout, test_hybrid, test_partition])
