"""Every second of every rank has a purpose, and the purposes add up to the wall time; timelines hold prediction and measure."""

import json
import math
from pathlib import Path

import h5py

import support

STAGES = 4
EMULATED = {"emulate.enabled": True, "emulate.forward_ms": 2.0, "emulate.backward_ms": 4.0, "emulate.message_bytes": 4096}
PURPOSES = {"compute", "update", "wait_input", "exchange", "send", "evaluation", "checkpoint", "output", "other"}


def assert_adds_up(out, ranks):
    seconds = support.summary(out)["seconds"]
    assert set(seconds) == PURPOSES | {"wall"}, sorted(seconds)
    for rank in range(ranks):
        parts = {purpose: seconds[purpose][rank] for purpose in PURPOSES}
        wall = seconds["wall"][rank]
        assert all(value >= 0 for value in parts.values()) and parts["compute"] > 0, f"rank {rank}: {parts}"
        told = sum(parts.values())
        assert math.isclose(told, wall, rel_tol=1e-6), f"rank {rank}: {parts} add up to {told}, not {wall}"
    assert all(len(values) == ranks for values in seconds.values()), seconds


def events(out):
    """Spans by process name: [(kind, microbatch, stage or rank row, start)]."""
    found = json.loads(Path(out, "timeline.json").read_text())["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in found if event["name"] == "process_name"}
    spans = {name: [] for name in names.values()}
    for event in found:
        if event["ph"] == "X":
            assert event["dur"] >= 0, event
            spans[names[event["pid"]]].append((event["cat"], event["args"]["microbatch"], event["tid"]))
    return spans


def assert_timeline(out):
    spans = events(out)
    assert set(spans) == {"measured", "predicted"}, list(spans)
    passes = {name: sorted(span for span in found if span[0] in "FBIW") for name, found in spans.items()}
    assert passes["measured"] and passes["measured"] == passes["predicted"], passes


def whole_run(schedule, changes, ranks, out):
    support.train(ranks, out, {"schedule.name": schedule, "parallel.stages": STAGES, **changes})
    assert_adds_up(out, ranks)
    assert_timeline(out)
    return support.summary(out)["seconds"]


def test_real():
    for schedule in ("1f1b", "zb-h1", "paci"):
        seconds = whole_run(schedule, {"checkpoint.interval": 4}, STAGES, f"real_{schedule}")
        for purpose in ("evaluation", "checkpoint", "update"):
            assert all(value > 0 for value in seconds[purpose]), f"{purpose}: {seconds[purpose]}"
    whole_run("1f1b", {}, 1, "real_one_process")


def test_emulated():
    for schedule in ("1f1b", "zb-h1", "pipedream"):
        out = f"emulated_{schedule}"
        seconds = whole_run(schedule, {**EMULATED, "output.evaluation_interval": 0}, STAGES, out)
        # Sleeping lasts at least as long as asked for: 6 ms per microbatch.
        microbatches = 8 * (1 if schedule == "pipedream" else 4)
        assert all(value >= 0.006 * microbatches for value in seconds["compute"]), seconds["compute"]


def test_bubble_phases():
    # What is idle between the first action and the last of a run is warm-up, cool-down or in between.
    for out in ("emulated_1f1b", "emulated_pipedream"):
        told = support.summary(out)
        phases = told["bubble_seconds"]
        assert set(phases) == {"warm_up", "residual", "cool_down"}, phases
        for stage in range(STAGES):
            assert all(values[stage] >= 0 for values in phases.values()), phases
            idle = sum(values[stage] for values in phases.values())
            assert idle <= told["seconds"]["wall"][stage], f"stage {stage}: {idle}"
        assert phases["warm_up"][0] < phases["warm_up"][STAGES - 1], "the last stage starts last"


def idle_after_sends(out):
    """By rank, one stage each: seconds between an action and the next in which the message that this one reads had been sent."""
    logs = []
    with h5py.File(Path(out, "trace.h5")) as file:
        for rank in range(STAGES):
            columns = file["ranks"][str(rank)]["actions"]
            names = ("kind", "microbatch", "start_s", "end_s")
            logs.append(list(zip(*(columns[name][...] for name in names))))
    sent = {}
    for stage, log in enumerate(logs):
        for kind, microbatch, _, end in log:
            if kind in (b"F", b"B", b"I"):
                sent[stage, kind == b"F", microbatch] = end
    result = []
    for stage, log in enumerate(logs):
        seconds, free = 0, 0
        for kind, microbatch, start, end in log:
            source = stage - 1 if kind == b"F" else stage + 1
            if kind in (b"F", b"B", b"I") and 0 <= source < STAGES:
                seconds += max(0, start - max(free, sent[source, kind == b"F", microbatch]))
            free = end
        result.append(seconds)
    return result


def test_waits_for_messages():
    out = "emulated_latency"
    support.train(STAGES, out, {**EMULATED, "emulate.link_latency_ms": 3.0, "parallel.stages": STAGES, "output.evaluation_interval": 0})
    for out in ("real_1f1b", "real_zb-h1", "real_paci", "emulated_1f1b", "emulated_pipedream", out):
        told = support.summary(out)
        assert 0 <= told["messages_hidden_share"] <= 1, f"{out}: {told['messages_hidden_share']}"
        seconds, idle = told["message_wait_seconds"], idle_after_sends(out)
        assert len(seconds) == STAGES, f"{out}: {seconds}"
        for rank in range(STAGES):
            assert 0 <= seconds[rank] <= idle[rank] + 1e-6, f"{out}, rank {rank}: {seconds[rank]} of {idle[rank]} idle seconds"
        training = told["step_time_s"] * told["steps"]
        share = sum(seconds) / (training * STAGES)
        assert math.isclose(told["message_wait_share"], share, rel_tol=1e-6, abs_tol=1e-12), f"{out}: {told['message_wait_share']}, not {share}"
    # All stages in one process: nothing is sent.
    told = support.summary("real_one_process")
    assert told["message_wait_seconds"] == [0], told["message_wait_seconds"]
    assert not {"messages_hidden_share", "message_wait_share"} & set(told), told


if __name__ == "__main__":
    support.main([test_real, test_emulated, test_bubble_phases, test_waits_for_messages])
