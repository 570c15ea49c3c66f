#!/usr/bin/env python3
"""The table of jobs/compare-parallel.sh: reads the output folders of its runs, prints the table, writes OUT/table.json.

usage: table_parallel.py OUT [--steps N]
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
    for path in sorted(out.glob("*/summary.json"), key=lambda p: p.stat().st_mtime):
        match = NAME.match(path.parent.name)
        if match:
            runs.setdefault(match["case"], {}).setdefault(int(match["steps"]), []).append(json.loads(path.read_text()))
    return runs


def spread(values):
    if not values:
        return "-"
    return f"{np.mean(values):.4f}" + (f" +/- {np.std(values, ddof=1):.4f}" if len(values) > 1 else "")


def row_of(case, by_steps, steps, ddp):
    summary = by_steps[steps][0]
    worst = int(np.argmax(summary["peak_bytes"]))  # the rank that needs most
    sent = {purpose: float(np.mean(by_rank)) for purpose, by_rank in summary["sent_bytes_per_update"].items()}
    longer = [s for s in by_steps if s != steps]
    return {
        "case": case,
        "seeds": len(by_steps[steps]),
        "peak_bytes": summary["peak_bytes"][worst],
        "peak_share": summary["peak_bytes"][worst] / max(ddp["peak_bytes"]),
        "bytes": {name: summary["bytes"][name][worst] for name in CATEGORIES},
        "sent_bytes_per_update": sent,
        "sent_share": sum(sent.values()) / sum(np.mean(v) for v in ddp["sent_bytes_per_update"].values()),
        "flops_share": summary["flops_per_update"] / summary["model_flops_per_update"],
        "loss_equal_updates": [s["validation_loss"] for s in by_steps[steps]],
        "updates_equal_flops": longer[0] if longer else steps,
        "loss_equal_flops": [s["validation_loss"] for s in by_steps[longer[0] if longer else steps]],
        "training_loss": [s["final_loss"] for s in by_steps[steps]],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=250)
    arguments = parser.parse_args()
    runs = read(arguments.out)
    if arguments.steps not in runs.get("ddp", {}):
        parser.error(f"{arguments.out}: no run ddp-{arguments.steps}-seed0; run jobs/compare-parallel.sh first, or give --steps")
    ddp = runs["ddp"][arguments.steps][0]
    rows = [row_of(case, by_steps, arguments.steps, ddp) for case, by_steps in runs.items() if arguments.steps in by_steps]

    print(f"\nfour replicas, {arguments.steps} updates; bytes in MiB of the replica that needs most, sent: mean per replica and update;"
          f"\nlosses: full model, nats per byte, mean +/- standard deviation over seeds\n")
    print(f"{'mode':29}" + "".join(f"{name[:10]:>11}" for name in CATEGORIES) + f"{'all':>8}{'of ddp':>8}{'sent':>8}{'of ddp':>8}"
          f"{'flops':>7}{'equal updates':>19}{'updates':>9}{'equal flops':>19}")
    for row in rows:
        print(f"{row['case']:29}" + "".join(f"{row['bytes'][name] / 2**20:11.2f}" for name in CATEGORIES) +
              f"{row['peak_bytes'] / 2**20:8.2f}{row['peak_share']:8.3f}"
              f"{sum(row['sent_bytes_per_update'].values()) / 2**20:8.2f}{row['sent_share']:8.3f}{row['flops_share']:7.3f}"
              f"{spread(row['loss_equal_updates']):>19}{row['updates_equal_flops']:9d}{spread(row['loss_equal_flops']):>19}")
    (arguments.out / "table.json").write_text(json.dumps({"steps": arguments.steps, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
