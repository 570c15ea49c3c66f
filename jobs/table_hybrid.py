#!/usr/bin/python3
"""The table of jobs/validate-hybrid.sh: reads the folders of its runs, prints a table, writes OUT/table.json.

usage: table_hybrid.py OUT [--strict]          OUT holds folders real-N and emulated-N, each with uniform and tuned
       table_hybrid.py --overrides KIND ...    deck overrides, one a line, for the script:
           uniform TUNED N     1f1b on N stages with equal numbers of the layers of the plan in the last line of the file TUNED
           plan TUNED PLAN     the plan PLAN, whose partition is in the last line of the file TUNED
           stages SIMULATED    stages that sleep as long as the last line of the file SIMULATED says
"""
import argparse
import json
import pathlib
import re
import sys

import h5py
import numpy as np

from table import measured_step_time, percent

STEP_LIMIT, STEP_GOAL = 0.06, 0.03  # relative error of a predicted step time
PEAK_LIMIT = 0.06  # of the predicted peak bytes
FACTOR_LIMIT = 0.05  # of the predicted speed-up


def last_line(path):
    return json.loads(pathlib.Path(path).read_text().strip().splitlines()[-1])


def overrides(kind, arguments):
    line = last_line(arguments[0])
    if kind == "uniform":
        layers, stages = sum(line["partition"]), int(arguments[1])
        partition = [layers // stages + (s < layers % stages) for s in range(stages)]
        return ["schedule.name=1f1b", f"schedule.partition={json.dumps(partition)}", f"parallel.stages={stages}"]
    if kind == "plan":
        partition = line["partition"]
        return ["schedule.name=plan", f"schedule.plan={arguments[1]}", f"schedule.partition={json.dumps(partition)}",
                f"parallel.stages={len(partition)}"]
    # The stages' times hold the handling of messages: those that are really sent are as small as can be.
    times = [f"emulate.{key}={json.dumps(line[key])}" for key in line if key.startswith("stage_")]
    return ["emulate.enabled=true", "emulate.message_bytes=64", f"emulate.link_latency_ms={line['link_latency_ms']}", *times]


def row_of(folder, name):
    summary = json.loads((folder / name / "summary.json").read_text())
    predicted = last_line(folder / name / "simulated.txt")
    measured = measured_step_time(summary, predicted)
    real = folder.name.startswith("real")
    row = {"ranks": int(folder.name.rpartition("-")[2]), "emulated": not real, "plan": name, "stages": summary["stages"],
           "predicted_step_time_s": predicted["step_time_s"], "measured_step_time_s": measured,
           "step_error": predicted["step_time_s"] / measured - 1, "predicted_bubble_share": predicted["bubble_share"],
           "measured_bubble_share": summary["schedule_bubble_share"]}
    if real:  # an emulated rank holds messages only
        peaks = predicted["peak_bytes"], summary["peak_bytes"]
        row.update({"predicted_peak_bytes": peaks[0], "measured_peak_bytes": peaks[1],
                    "peak_error": max((a / b - 1 for a, b in zip(*peaks)), key=abs)})
    return row


def same_losses(folder):
    losses = []
    for name in ("uniform", "tuned"):
        with h5py.File(folder / name / "trace.h5", "r") as file:
            losses.append(file["trace/loss"][...])
    return losses[0].tobytes() == losses[1].tobytes() and len(losses[0]) > 0 and bool(np.isfinite(losses[0]).all())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--strict", action="store_true")
    arguments = parser.parse_args()
    rows, cases = [], []
    print(f"\n{'ranks':>14} {'plan':8} {'stages':>6} {'step, predicted':>16} {'measured':>12} {'error':>11} {'bubble, pred.':>13} "
          f"{'measured':>9} {'peak error':>11} {'speed-up, pred.':>15} {'measured':>9} {'error':>11}  losses")
    folders = [f for f in arguments.out.iterdir() if re.fullmatch(r"(real|emulated)-\d+", f.name)]
    folders = [f for f in folders if (f / "tuned" / "summary.json").exists()]
    for folder in sorted(folders, key=lambda f: (not f.name.startswith("real"), int(f.name.rpartition("-")[2]))):
        pair = [row_of(folder, name) for name in ("uniform", "tuned")]
        rows += pair
        factors = [pair[0][key] / pair[1][key] for key in ("predicted_step_time_s", "measured_step_time_s")]
        case = {"ranks": pair[0]["ranks"], "emulated": pair[0]["emulated"], "predicted_speed_up": factors[0],
                "measured_speed_up": factors[1], "speed_up_error": factors[0] / factors[1] - 1}
        if not case["emulated"]:
            case["same_losses"] = same_losses(folder)
        cases.append(case)
        for row in pair:
            name = f"{row['ranks']} {'emulated' if row['emulated'] else 'real'}"
            text = (f"{name:>14} {row['plan']:8} {row['stages']:6d} {1e3 * row['predicted_step_time_s']:13.3f} ms "
                    f"{1e3 * row['measured_step_time_s']:9.3f} ms {percent(row['step_error'], STEP_LIMIT):>11} "
                    f"{row['predicted_bubble_share']:13.4f} {row['measured_bubble_share']:9.4f} "
                    f"{percent(row.get('peak_error'), PEAK_LIMIT):>11}")
            if row["plan"] == "tuned":
                losses = {None: "-", True: "the same", False: "DIFFER"}[case.get("same_losses")]
                text += (f" {factors[0]:15.3f} {factors[1]:9.3f} {percent(case['speed_up_error'], FACTOR_LIMIT):>11}  {losses}")
            print(text)
    beyond = sum(abs(row["step_error"]) > STEP_LIMIT for row in rows) + sum(abs(row.get("peak_error", 0)) > PEAK_LIMIT for row in rows)
    beyond += sum(abs(case["speed_up_error"]) > FACTOR_LIMIT for case in cases)
    goal = sum(abs(row["step_error"]) <= STEP_GOAL for row in rows)
    print(f"\nuniform: 1f1b, equal numbers of layers. limits: step {100 * STEP_LIMIT:.0f} %, peak {100 * PEAK_LIMIT:.0f} %, speed-up "
          f"{100 * FACTOR_LIMIT:.0f} %; beyond them, marked !: {beyond}. step within {100 * STEP_GOAL:.0f} %: {goal} of {len(rows)}. "
          "other work\non the machine makes the errors larger. emulated ranks sleep as long as the profile says.")
    (arguments.out / "table.json").write_text(json.dumps({"rows": rows, "cases": cases}, indent=1) + "\n")
    if not all(case.get("same_losses", True) for case in cases):
        sys.exit("error: the tuned plan's losses are not those of 1f1b")
    if arguments.strict and beyond > 0:
        sys.exit(f"error: {beyond} values beyond their limits")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--overrides"]:
        print("\n".join(overrides(sys.argv[2], sys.argv[3:])))
    else:
        main()
