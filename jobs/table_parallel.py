#!/usr/bin/python3
"""The tables of jobs/compare-parallel.sh: reads the output folders of its runs, prints tables, writes OUT/table.json.

usage: table_parallel.py OUT [--steps N]      OUT holds folders CASE-UPDATES-seedSEED; N: updates of the equal-updates runs
"""
import argparse
import json
import pathlib
import re

import numpy as np

CATEGORIES = ("parameters", "gradients", "optimizer", "activations", "comm")
NAME = re.compile(r"(?P<case>.+)-(?P<steps>\d+)-seed(?P<seed>\d+)$")


def read(out):
    """{case: {steps: [summary of each seed]}} in the order the cases were run first."""
    runs = {}
    paths = [path for path in out.glob("*/summary.json") if NAME.match(path.parent.name)]
    for path in sorted(paths, key=lambda p: (p.stat().st_mtime, str(p))):
        match = NAME.match(path.parent.name)
        runs.setdefault(match["case"], {}).setdefault(int(match["steps"]), {})[int(match["seed"])] = json.loads(path.read_text())
    return {case: {steps: [seeds[seed] for seed in sorted(seeds)] for steps, seeds in by_steps.items()} for case, by_steps in runs.items()}


def mean_sent(summary):
    """Bytes that a replica sends per update, by purpose: the mean over the ranks."""
    return {purpose: float(np.mean(by_rank)) for purpose, by_rank in summary["sent_bytes_per_update"].items() if any(by_rank)}


def updates_of_equal_flops(summary, steps):
    return round(steps * summary["model_flops_per_update"] / summary["flops_per_update"])


def row_of(case, by_steps, steps, ddp):
    summary = by_steps[steps][0]
    worst = int(np.argmax(summary["peak_bytes"]))  # the rank that needs most
    longer = updates_of_equal_flops(summary, steps)
    return {
        "case": case,
        "seeds": len(by_steps[steps]),
        "peak_bytes": summary["peak_bytes"][worst],
        "peak_share": summary["peak_bytes"][worst] / max(ddp["peak_bytes"]),
        "bytes": {name: summary["bytes"][name][worst] for name in CATEGORIES},
        "sent_bytes_per_update": mean_sent(summary),
        "sent_share": sum(mean_sent(summary).values()) / sum(mean_sent(ddp).values()),
        "flops_share": summary["flops_per_update"] / summary["model_flops_per_update"],
        "training_loss": [s["final_loss"] for s in by_steps[steps]],
        "loss_equal_updates": [s["validation_loss"] for s in by_steps[steps]],
        "updates_equal_flops": longer,
        # Empty where no such runs were made.
        "loss_equal_flops": [s["validation_loss"] for s in by_steps.get(longer, [])],
    }


def spread(values):
    if not values:
        return "-"
    return f"{np.mean(values):.4f}" + (f" +/- {np.std(values, ddof=1):.4f}" if len(values) > 1 else "")


def mebibytes(value):
    return f"{value / 2**20:.2f}"


def print_table(header, lines):
    """The first column to the left, the others to the right, as wide as needed."""
    widths = [max(len(line[column]) for line in [header, *lines]) for column in range(len(header))]
    for line in [header, *lines]:
        cells = [cell.rjust(width) if column else cell.ljust(width) for column, (cell, width) in enumerate(zip(line, widths))]
        print("  ".join(cells).rstrip())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=250)
    arguments = parser.parse_args()
    steps = arguments.steps
    runs = read(arguments.out)
    if steps not in runs.get("ddp", {}):
        parser.error(f"{arguments.out}: no run ddp-{steps}-seed0; run jobs/compare-parallel.sh first, or give --steps")
    ddp = runs["ddp"][steps][0]
    rows = [row_of(case, by_steps, steps, ddp) for case, by_steps in runs.items() if steps in by_steps]

    print("\nmemory in MiB of the replica that needs most")
    print_table(["case", *CATEGORIES, "all", "of ddp"],
                [[row["case"], *(mebibytes(row["bytes"][name]) for name in CATEGORIES), mebibytes(row["peak_bytes"]), f"{row['peak_share']:.3f}"]
                 for row in rows])
    purposes = list(dict.fromkeys(purpose for row in rows for purpose in row["sent_bytes_per_update"]))
    print("\nMiB sent per update, mean over the replicas")
    print_table(["case", *(purpose.replace("_", " ") for purpose in purposes), "all", "of ddp"],
                [[row["case"], *(mebibytes(row["sent_bytes_per_update"].get(purpose, 0)) for purpose in purposes),
                  mebibytes(sum(row["sent_bytes_per_update"].values())), f"{row['sent_share']:.3f}"] for row in rows])
    print("\nloss of the full model, nats per byte, mean +/- standard deviation over the seeds; flops of an update as a share of the full\n"
          f"model's; at equal updates ({steps}), and with as many more as make the flops equal")
    print_table(["case", "seeds", "flops", "equal updates", "updates", "equal flops"],
                [[row["case"], str(row["seeds"]), f"{row['flops_share']:.3f}", spread(row["loss_equal_updates"]), str(row["updates_equal_flops"]),
                  spread(row["loss_equal_flops"])] for row in rows])
    (arguments.out / "table.json").write_text(json.dumps({"steps": steps, "rows": rows}, indent=1) + "\n")
    print(f"\nrows: {arguments.out}/table.json")


if __name__ == "__main__":
    main()
