#!/usr/bin/python3
"""Runs minipipe simulate over a grid of sizes, prints a table, writes OUT/table.json and OUT/scaling.png.

usage: MINIPIPE=... scaling.py OUT
"""
import argparse
import json
import os
import pathlib
import subprocess

from report.style import COLOURS, DASHES, plt

PROFILE = "inputs/profiles/llama3_8b.json"
SCHEDULES = ["1f1b", "interleaved", "zb-h1", "paci"]
MARKERS = ["o", "s", "^", "D"]
# 0.9e12 parameters; eight blocks per stage at 512 devices.
BASE = {"layers": 4096, "devices": 64, "microbatches": 256, "width": 4096, "sequence": 4096, "replicas": 1}
AXES = [
    ("devices", "pipeline stages (devices)", [8, 16, 32, 64, 128, 256, 512], {}),
    ("microbatches", "microbatches per update", [16, 32, 64, 128, 256, 512, 1024], {}),
    ("width", "width", [1024, 2048, 4096, 8192, 16384], {}),
    ("sequence", "tokens per sequence", [1024, 4096, 16384, 65536, 262144], {}),
    ("replicas", "replicas of 64 stages", [1, 2, 4, 8, 32, 128, 512], {}),
    ("replicas", "replicas of 512 stages", [1, 2, 4, 8, 32, 128, 512], {"devices": 512}),
]


def simulate(schedule, size):
    """The last line of minipipe simulate, with the cost of a token in time of all devices."""
    options = [text for name, value in size.items() for text in (f"--{name}", str(value))]
    command = [os.environ["MINIPIPE"], "simulate", "--profile", PROFILE, "--schedule", schedule, *options]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    row = json.loads(run.stdout.splitlines()[-1])
    row["device_s_per_mtoken"] = 1e6 / row["tokens_per_s_per_device"]
    return row


def run_all():
    known, panels = {}, []
    for key, label, values, changes in AXES:
        rows = []
        for value in values:
            size = {**BASE, **changes, key: value}
            for schedule in SCHEDULES:
                case = (schedule, *size.values())
                if case not in known:
                    known[case] = simulate(schedule, size)
                rows.append(known[case])
        panels.append({"axis": key, "label": label, "rows": rows})
    return panels


def print_table(panels):
    columns = ["devices", "replicas", "microbatches", "width", "sequence"]
    for panel in panels:
        print(panel["label"])
        print("".join(f"{name:>13}" for name in columns) + f"{'schedule':>13}{'step ms':>14}{'passes':>9}{'exchange ms':>13}"
              f"{'tokens/s/device':>17}{'device s/Mtoken':>17}")
        for row in panel["rows"]:
            print("".join(f"{row[name]:13.0f}" for name in columns) + f"{row['schedule']:>13}{row['step_ms']:14.1f}"
                  f"{row['pass_share']:9.4f}{row['exchange_ms']:13.1f}{row['tokens_per_s_per_device']:17.1f}"
                  f"{row['device_s_per_mtoken']:17.1f}")
        print()


def figure(panels, file):
    fig, axes = plt.subplots(2, 3, figsize=(12, 7), layout="constrained")
    for panel, axis in zip(panels, axes.flat):
        for i, schedule in enumerate(SCHEDULES):
            rows = [row for row in panel["rows"] if row["schedule"] == schedule]
            axis.plot([row[panel["axis"]] for row in rows], [row["device_s_per_mtoken"] for row in rows], color=COLOURS[i],
                      linestyle=DASHES[i], marker=MARKERS[i], markersize=5, label=schedule)
        axis.set_xscale("log", base=2)
        if panel["axis"] in ("width", "sequence"):
            axis.set_yscale("log")
        else:
            axis.set_ylim(0, 1.08 * max(row["device_s_per_mtoken"] for row in panel["rows"]))
        axis.set_xlabel(panel["label"])
        ticks = sorted({row[panel["axis"]] for row in panel["rows"]})
        axis.set_xticks(ticks, [f"{t:.0f}" if t < 65536 else f"{t / 1024:.0f}k" for t in ticks])
    for axis in axes[:, 0]:
        axis.set_ylabel("device seconds per million tokens")
    axes[0, 0].legend(loc="upper left")
    fig.suptitle(f"Simulated cost of training {BASE['layers']} Llama-3 blocks; where not on the axis: {BASE['devices']} stages, "
                 f"{BASE['microbatches']} microbatches, width {BASE['width']}, sequence {BASE['sequence']}, 1 replica", fontsize=10)
    fig.savefig(file, dpi=130)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=pathlib.Path)
    out = parser.parse_args().out
    panels = run_all()
    print_table(panels)
    (out / "table.json").write_text(json.dumps(panels, indent=1) + "\n")
    figure(panels, out / "scaling.png")
    speeds = [row["actions_per_s"] for panel in panels for row in panel["rows"]]
    print(f"simulator: {min(speeds):.2g} to {max(speeds):.2g} actions per second of processor time")


if __name__ == "__main__":
    main()
