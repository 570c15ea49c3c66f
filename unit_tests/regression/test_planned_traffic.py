"""What minipipe check says a run will send is what the run sends, to the byte, in every mode."""

import json
import re

import support

SDP = {"parallel.mode": "sdp", "sdp.coverage": 0.5}
MODES = {  # replicas times stages = 4 ranks
    "ddp": {},
    "ddp_stages": {"parallel.data": 2, "train.clip": "stage"},
    "zero1": {"parallel.mode": "zero1"},
    "fsdp_microbatch": {"parallel.mode": "fsdp", "parallel.fsdp_reduce": "microbatch", "output.evaluation_interval": 2},
    "fsdp_window_stages": {"parallel.mode": "fsdp", "parallel.fsdp_reduce": "window", "parallel.data": 2, "schedule.name": "zb-h1"},
    "fsdp_gpipe_stages": {"parallel.mode": "fsdp", "parallel.data": 2, "schedule.name": "gpipe"},
    "sdp_forward": SDP,
    "sdp_sharded": {**SDP, "sdp.fsdp": True, "output.evaluation_interval": 2},
    "sdp_backward": {**SDP, "sdp.masking": "backward", "sdp.refresh": 4},
    "sdp_neuron": {**SDP, "sdp.unit": "neuron", "sdp.masking": "backward"},
    "sdp_average": {**SDP, "sdp.sync": "parameter", "sdp.period": 3},
}


def readable(count):
    return f"{count / 2**10:.2f} KiB" if count < 2**20 else f"{count / 2**20:.2f} MiB"


def planned(deck, stages):
    told = support.run(1, "check", deck, "--stages", stages).output
    table = told[told.index("bytes sent per update:") :].splitlines()[1:]
    purposes = table[0].split()[1:]
    rows = [line.split()[1:] for line in table[1:] if re.match(r" *\d+ +\d", line)]
    plan = {purpose: [float(row[column]) for row in rows] for column, purpose in enumerate(purposes)}
    support.assert_contains(told, f"mean of the ranks: {readable(sum(plan['all']) / len(rows))}\n")
    simulated = json.loads(support.run(1, "simulate", deck, "--stages", stages).output.strip().splitlines()[-1])
    exchanged = max(whole - pipeline for whole, pipeline in zip(plan["all"], plan["pipeline"]))
    assert round(simulated["exchange_bytes_per_update"]) == exchanged > 0, (simulated, plan)
    return plan


def test_plan_is_what_is_sent():
    for name, changes in MODES.items():
        settings = {"parallel.data": 4, "run.steps": 6, "train.microbatches": 2, "output.evaluation_interval": 0, **changes}
        settings["parallel.stages"] = 4 // settings["parallel.data"]
        deck = support.write_deck({**settings, "output.directory": name}, f"{name}.toml")
        plan = planned(deck, settings["parallel.stages"])
        support.run(4, "train", deck)
        sent = support.summary(name)["sent_bytes_per_update"]
        assert set(plan) == set(sent) | {"all"}, (plan.keys(), sent.keys())
        for purpose, by_rank in sent.items():
            assert [round(value) for value in by_rank] == plan[purpose], f"{name}, {purpose}: sent {by_rank}, planned {plan[purpose]}"
        assert sum(plan["all"]) > 0, name


if __name__ == "__main__":
    support.main([test_plan_is_what_is_sent])
