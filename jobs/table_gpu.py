#!/usr/bin/python3
"""The table of jobs/gpu-check.sh, and table.json. Exit status 1 if something failed or differs more than it may.

usage: table_gpu.py DIR --card NAME      (DIR holds runs/NAME/trace.h5 and bench-*.json)
"""
import argparse
import json
import pathlib
import sys

import h5py
import numpy as np

# run, what it must agree with, by how much the losses may differ (absolute, nats; they start near 5.5). Sums are formed in
# another order on the GPU, which may also send a token to another expert; bf16 has 8 bits, so that another order can round an
# activation the other way.
COMPARISONS = [
    ("gpu", "host", 1e-4),
    ("gpu-bf16", "host-bf16", 2e-2),
    ("gpu-llama", "host-llama", 1e-4),
    ("gpu-hybrid", "host-hybrid", 1e-3),
    ("gpu-muon", "host-muon", 1e-4),
    ("gpu-paci", "host-paci", 1e-4),
    ("gpu-stages", "gpu", 0.0),
    ("gpu-resume", "gpu", 0.0),
    ("gpu-mpi", "gpu", 0.0),
    ("gpu-device-mpi", "gpu", 0.0),
    ("gpu-nccl", "gpu", 0.0),
    ("gpu-zero1-mpi", "gpu-replicas", 0.0),
    ("gpu-fsdp-mpi", "gpu-replicas", 0.0),
    ("gpu-ddp-nccl", "gpu-replicas", 0.0),
    ("gpu-zero1-nccl", "gpu-replicas", 0.0),
    ("gpu-fsdp-nccl", "gpu-replicas", 0.0),
]


def losses(folder, resumed):
    """Those of the updates and of the evaluations; of the second half of the run only where one is compared that began there."""
    with h5py.File(folder / "trace.h5", "r") as file:
        steps, validated = file["trace/step"][...], file["trace/val/step"][...]
        after = steps.max() // 2 if resumed else 0
        return np.concatenate([file["trace/loss"][...][steps > after], file["trace/val/loss"][...][validated > after]])


def compare(runs, name, reference, bound):
    row = {"run": name, "reference": reference, "bound": bound, "difference": None, "good": False}
    try:
        here, there = (losses(runs / one, name.endswith("resume")) for one in (name, reference))
    except (OSError, KeyError, ValueError):
        return row
    if here.shape == there.shape and here.size > 0 and np.isfinite(here).all():
        row["difference"] = float(np.abs(here - there).max())
        row["good"] = row["difference"] <= bound
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--card", required=True)
    arguments = parser.parse_args()
    folder = arguments.folder
    tried = {path.name for path in (folder / "runs").glob("*")} | {path.stem for path in folder.glob("gpu*.log")}
    rows = [compare(folder / "runs", *one) for one in COMPARISONS if one[0] in tried]
    print(f"{arguments.card}\nrun             compared with   largest difference of a loss     bound")
    for row in rows:
        difference = "failed" if row["difference"] is None else f"{row['difference']:.2e}"
        print(f"{row['run']:16}{row['reference']:16}{difference:>28}{row['bound']:10.0e}{'' if row['good'] else '   NOT GOOD'}")
    benches = {}
    print("\nGPT-2 124M       tokens/s   TFLOP/s of the step   matrix rate   share")
    for file in sorted(folder.glob("bench-*.json")):
        bench = json.loads(file.read_text())
        step, name = bench["step"], file.stem.removeprefix("bench-")
        # The products that the step makes: bench's own share is always of those in fp32.
        rates = {gemm["name"]: gemm["gflops"] / 1e3 for gemm in bench["references"]["gemm"]}
        rate = rates.get("bf16", rates["hidden"])
        reached = step["flops"] / step["seconds"]["median"] / 1e12
        benches[name] = {"tokens_per_s": step["tokens_per_s"], "matrix_tflops": rate, "share": reached / rate}
        print(f"{name:14}{step['tokens_per_s']:11.0f}{reached:22.1f}{rate:14.1f}{reached / rate:8.3f}")
    (folder / "table.json").write_text(json.dumps({"card": arguments.card, "losses": rows, "bench": benches}, indent=1) + "\n")
    if len(benches) < 2 or not rows or not all(row["good"] for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
