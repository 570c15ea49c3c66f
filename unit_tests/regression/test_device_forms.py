"""Trainings in the kernels' device forms (preset device-forms) and in the program under test: the same losses to rounding.

Runs where MINIPIPE_DEVICE_FORMS_PROGRAM names the program of the former: build/device-forms/minipipe with its full path.
"""

import os
import sys

import support

DEVICE = os.environ.get("MINIPIPE_DEVICE_FORMS_PROGRAM")
SMALL = {"run.steps": 3, "train.sequence": 16, "train.microbatches": 2, "output.evaluation_interval": 3}
BF16 = {"precision.compute": "bf16"}
SHARED = {"parallel.data": 2, "parallel.bucket_mb": 0.01}
SDP = {"parallel.mode": "sdp", "sdp.coverage": 0.75}
LLAMA = {"model.family": "llama", "model.kv_heads": 2}
CASES = {
    "gpt2": (1, {"train.recompute": "attention", "train.clip": "stage"}),
    "llama": (1, {**LLAMA, **BF16, "model.dropout": 0.1, "train.recompute": "block", "train.optimizer": "muon"}),
    "hybrid": (1, {**support.HYBRID, "model.dropout": 0.1, "train.clip": "global", "train.optimizer": "nadam"}),
    "hybrid_bf16": (1, {**support.HYBRID, **BF16, "train.recompute": "block", "model.expert_capacity": 1.25}),
    "zb_v": (2, {**support.HYBRID, "schedule.name": "zb-v", "train.microbatches": 4}),
    "paci": (2, {**LLAMA, "schedule.name": "paci"}),
    "pipedream": (1, {"schedule.name": "pipedream", "parallel.stages": 4}),
    "zero1": (2, {**SHARED, "parallel.mode": "zero1", "train.clip": "global"}),
    "fsdp": (2, {**SHARED, **support.HYBRID, **BF16, "parallel.mode": "fsdp"}),
    "sdp_block": (2, {**SHARED, **SDP}),
    "sdp_neuron": (2, {**SHARED, **SDP, "sdp.unit": "neuron", "sdp.masking": "backward"}),
}

# Sums are taken in another order; optimizers make much of gradients that are zero but for rounding.
LIMITS = {"fp32": 1e-6, "bf16": 1e-3}


def train(program, ranks, out, changes):
    changes = {**SMALL, **changes, "output.directory": out}
    support.finish(support.Job(ranks, "train", "deck.toml", *support.overrides(changes), program=program))


def assert_close(name, host, device, changes):
    first, second = support.read_trace(host), support.read_trace(device)
    limit = LIMITS["bf16" if "precision.compute" in changes else "fp32"]
    for key in ("loss", "val/loss"):
        part = first[key][-second[key].size :]  # one that was resumed has the last updates
        assert part.size == second[key].size > 0, f"{name}: /trace/{key}"
        far = abs(second[key] / part - 1).max()
        print(f"{name}: /trace/{key} differs by {far:.1e}", flush=True)
        assert far < limit, f"{name}: /trace/{key}\n{first[key]!r}\n{second[key]!r}"


def test_trainings():
    for name, (ranks, changes) in CASES.items():
        train(None, ranks, name + "_host", changes)
        train(DEVICE, ranks, name + "_device", changes)
        assert_close(name, name + "_host", name + "_device", changes)


def test_checkpoints_travel():
    """Written by one program, read by the other."""
    whole = {**support.HYBRID, "run.steps": 4, "checkpoint.interval": 2, "output.evaluation_interval": 4}
    train(None, 1, "whole_host", whole)
    train(DEVICE, 1, "whole_device", whole)
    for first, second, program in (("whole_host", "on_device", DEVICE), ("whole_device", "on_host", None)):
        train(program, 1, second, {**whole, "run.resume": str(support.checkpoint(first, 2))})
        assert_close(second, "whole_host", second, whole)


if __name__ == "__main__":
    if not DEVICE:
        print("MINIPIPE_DEVICE_FORMS_PROGRAM names no program")
        sys.exit(77)
    os.environ.setdefault("ASAN_OPTIONS", "detect_leaks=0")  # of MPI's
    support.main([test_trainings, test_checkpoints_travel])
