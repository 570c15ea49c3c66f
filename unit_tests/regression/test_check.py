"""What minipipe check and minipipe simulate tell about a schedule, and the timeline of a simulation."""

import json
from pathlib import Path

import support

ZB_V = {"schedule.name": "zb-v", "parallel.stages": 4, "parallel.data": 2}


def test_ranks_and_comparison():
    """Two stages of each of two ranks: other schedules are compared on as many ranks, not stages, and bound nothing."""
    deck = support.write_deck(ZB_V, "zb_v.toml")
    told = support.run(1, "check", deck).output
    support.assert_contains(told, "schedule zb-v, 4 stages, 4 microbatches per update", "needs 4 ranks (mpirun -n 4): 2 replicas of 2 ranks",
                            "1F1B or GPipe on 2 ranks with equal stages: utilisation 0.8000; PACI: 1.2500 times their throughput",
                            "stashed weights", "slots: room for")
    one = support.run(1, "check", deck, "schedule.name=gpipe", "parallel.stages=1", "parallel.data=1", "train.microbatches=1").output
    support.assert_contains(one, "schedule gpipe, 1 stage, 1 microbatch per update", "needs 1 rank (mpirun -n 1)\n", "fullest of 1 rank: ")


def test_timeline():
    support.run(1, "simulate", support.write_deck(ZB_V, "zb_v.toml"), "--timeline", "timeline.json")
    events = json.loads(Path("timeline.json").read_text())["traceEvents"]
    names = {kind: [event["args"]["name"] for event in events if event["name"] == kind] for kind in ("process_name", "thread_name")}
    assert names["process_name"] == ["simulated"], names
    assert names["thread_name"] == ["stage 0 (rank 0)", "stage 1 (rank 1)", "stage 2 (rank 1)", "stage 3 (rank 0)"], names


if __name__ == "__main__":
    support.main([test_ranks_and_comparison, test_timeline])
