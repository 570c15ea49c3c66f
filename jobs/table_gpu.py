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
# another order on the GPU; bf16 has 8 bits, so that another order can round an activation the other way.
COMPARISONS = [
    ("gpu", "host", 1e-4),
    ("gpu-bf16", "host-bf16", 2e-2),
    ("gpu-stages", "gpu", 0.0),
    ("gpu-paci", "host-paci", 1e-4),
    ("gpu-mpi", "gpu", 0.0),
    ("gpu-device-mpi", "gpu", 0.0),
    ("gpu-nccl", "gpu", 0.0),
    ("gpu-ddp-nccl", "gpu-replicas", 0.0),
    ("gpu-zero1-nccl", "gpu-replicas", 0.0),
    ("gpu-fsdp-nccl", "gpu-replicas", 0.0),
]


def losses(folder):
    with h5py.File(folder / "trace.h5", "r") as file:
        return file["trace/loss"][...]


def compare(runs, name, reference, bound):
    try:
        here, there = losses(runs / name), losses(runs / reference)
    except (OSError, KeyError):
        return {"run": name, "reference": reference, "bound": bound, "difference": None, "good": False}
    if here.shape != there.shape or not np.isfinite(here).all():
        return {"run": name, "reference": reference, "bound": bound, "difference": None, "good": False}
    difference = float(np.abs(here - there).max())
    return {"run": name, "reference": reference, "bound": bound, "difference": difference, "good": difference <= bound}


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
