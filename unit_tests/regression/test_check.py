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


def test_stages_are_stages():
    """Also where a rank has several; a plan file has its own."""
    for changes, ranks in (({"schedule.name": "interleaved", "schedule.chunks": 4}, 2), ({"schedule.name": "zb-v"}, 4), ({}, 8)):
        for replicas in (1, 2):
            deck = support.write_deck({**changes, "parallel.data": replicas, "model.layers": 8})
            told = support.run(1, "check", deck, "--stages", 8).output
            support.assert_contains(told, ", 8 stages, ", f"needs {ranks * replicas} ranks (mpirun -n {ranks * replicas})")
    deck = support.write_deck({"schedule.name": "interleaved", "schedule.chunks": 3, "parallel.stages": 3, "model.layers": 8})
    told = support.run(1, "check", deck, "--stages", 8, status=2).output
    support.assert_contains(told, "--stages 8: ", "puts 3 stages on each rank", "a multiple")
    support.assert_contains(support.run(1, "check", deck, "--stages", 6).output, ", 6 stages, ", "needs 2 ranks (mpirun -n 2)")


def test_timeline():
    support.run(1, "simulate", support.write_deck(ZB_V, "zb_v.toml"), "--timeline", "timeline.json")
    events = json.loads(Path("timeline.json").read_text())["traceEvents"]
    names = {kind: [event["args"]["name"] for event in events if event["name"] == kind] for kind in ("process_name", "thread_name")}
    assert names["process_name"] == ["simulated"], names
    assert names["thread_name"] == ["stage 0 (rank 0)", "stage 1 (rank 1)", "stage 2 (rank 1)", "stage 3 (rank 0)"], names


def test_long_tables_show_ends_and_extremes():
    deck = support.write_deck({"parallel.data": 100, "parallel.mode": "zero1", "parallel.stages": 1}, "wide.toml")
    told = {}
    for flags in ([], ["--all-ranks"]):
        text = support.run(1, "check", deck, *flags).output
        memory, traffic = text[text.index("bytes by category:") :].split("bytes sent per update:")
        rows = [[line for line in table.splitlines() if line.split()[:1] and line.split()[0].isdigit() and line.startswith("  ")]
                for table in (memory, traffic)]
        told[bool(flags)] = [[row for row in table if " rows: " not in row] for table in rows]
        assert text.count("; minipipe check --all-ranks shows all\n") == (0 if flags else 2), text
    for short, full in zip(told[False], told[True]):
        assert len(full) == 100 and 16 <= len(short) <= 18, (short, full)
        assert short == [row for row in full if row in short] and short[:8] + short[-8:] == full[:8] + full[-8:], short
        largest = max(full, key=lambda row: int(row.split()[-1]))
        assert max(int(row.split()[-1]) for row in short) == int(largest.split()[-1]), short


if __name__ == "__main__":
    support.main([test_ranks_and_comparison, test_stages_are_stages, test_timeline, test_long_tables_show_ends_and_extremes])
