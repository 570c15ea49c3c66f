#!/usr/bin/python3
"""Tables of the studies: reads the output folders of runs, prints a table, writes OUT/table.json.

usage: table.py schedules OUT                                  (made by jobs/compare-schedules.sh)
       table.py optimizers OUT --seeds S --updates EQUAL LONGER    (made by jobs/compare-optimizers.sh)
       table.py profile OUT                                    (made by jobs/validate-profile.sh)
"""
import argparse
import itertools
import json
import pathlib
import re

import h5py
import numpy as np

RANKS, TOTAL = 8, 128  # of jobs/compare-schedules.sh: ranks; microbatches per run
FORWARD = INPUT = WEIGHT = 0.010  # seconds of a rank per microbatch, as in inputs/studies/schedules.toml
WORK = FORWARD + INPUT + WEIGHT
ORDER = ["gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "zb-auto-1n", "zb-auto-2n"]
ORDER += ["paci", "async-1f1b", "pipedream", "pipedream-2bw", "pipemare"]


def closed_form(schedule, m):
    """Efficiency of a whole run of TOTAL microbatches, m per update, or None. Sources: schedules/simulate/efficiency.hpp."""
    n, updates = RANKS, TOTAL // m
    if schedule in ("gpipe", "1f1b"):
        return m / (m + n - 1)
    if schedule == "interleaved":
        return m * 2 / (m * 2 + n - 1) if m % n == 0 else None
    if schedule == "zb-h1":
        return m * WORK / (m * WORK + (n - 1) * (FORWARD + INPUT - WEIGHT)) if m >= n else None
    # No bubble between updates (no barrier across ranks); the last rank starts (n-1) forwards late, once per run.
    if schedule == "zb-h2" and m >= 2 * n - 1:
        idle = updates * (n - 1) * (FORWARD + INPUT - 2 * WEIGHT) + (n - 1) * FORWARD
        return TOTAL * WORK / (TOTAL * WORK + idle)
    if schedule == "zb-v" and m >= 2 * n:
        return TOTAL * WORK / (TOTAL * WORK + (n - 1) * FORWARD / 2)
    if schedule in ("paci", "async-1f1b", "pipedream", "pipedream-2bw", "pipemare"):
        return 1 / (1 + (n - 1) / TOTAL)
    return None


class Emulated:
    def __init__(self, folder):
        self.folder = folder
        self.summary = json.loads((folder / "summary.json").read_text())
        with h5py.File(folder / "trace.h5", "r") as file:
            names = ("kind", "stage", "start_s", "end_s")
            logs = [{name: log["actions"][name][...] for name in names} for log in file["ranks"].values()]  # one per stage
        actions = {name: np.concatenate([log[name] for log in logs]) for name in logs[0]}
        actions["kind"] = np.array([kind.decode() if isinstance(kind, bytes) else str(kind) for kind in actions["kind"]])
        order = np.argsort(actions["end_s"], kind="stable")
        self.actions = {name: values[order] for name, values in actions.items()}

    def makespan(self):
        return self.actions["end_s"].max() - self.actions["start_s"].min()

    def efficiency(self):
        return TOTAL * WORK / self.makespan()

    def simulated(self):
        text = (self.folder / "simulated.txt").read_text()
        return TOTAL * WORK / float(re.search(r"makespan ([0-9.]+) s", text).group(1))

    def peak(self):
        """Most activations alive on a rank, from its actions, in those of one microbatch on a whole rank."""
        stage, stages = self.actions["stage"], self.summary["stages"]
        if self.summary["schedule"] == "zb-v":
            rank_of = np.minimum(stage, stages - 1 - stage)
        else:
            rank_of = stage % RANKS
        change = np.select([self.actions["kind"] == "F", np.isin(self.actions["kind"], ["B", "W"])], [1, -1])
        return float(max(np.cumsum(change[rank_of == rank]).max() for rank in range(RANKS)) * RANKS / stages)

    def copies(self):
        """Weights kept per parameter, most over the stages (PipeMare: weights, a velocity, corrected weights)."""
        text = (self.folder / "check.txt").read_text()
        text = text[re.search(r"^ *stage +parameters.*\n", text, re.MULTILINE).end():]
        lines = itertools.takewhile(lambda line: re.match(r" *\d+ ", line), text.splitlines())  # the table of traffic follows
        rows = [line.split() for line in lines]
        return max(1 + int(row[4]) / int(row[1]) for row in rows)


def is_there(folder):
    """True behind a run that came to its end."""
    return (folder / "made_of").exists()


def show(value, form):
    return "-" if value is None else format(value, form)


def percent(value, limit):
    return "-" if value is None else f"{100 * value:+.2f} %" + (" !" if abs(value) > limit else "")


def schedules(out, _):
    rows = []
    for m in (8, 16, 32):
        print(f"\nN = {RANKS}, m = {m}, {TOTAL} microbatches in all; F = I = W = 10 ms per rank (two stages per rank: half each)")
        print(f"{'schedule':14} {'emulated':>9} {'simulated':>9} {'closed':>8} {'emu/sim':>10} {'sim/closed':>11} "
              f"{'peak act.':>9} {'weights':>8} {'gap max':>8} {'gap mean':>8} {'delay max':>9}")
        for schedule in ORDER:
            each = schedule in ("async-1f1b", "pipedream")
            folder = out / f"{schedule}-{1 if each else m}"
            if not is_there(folder):
                continue
            run, closed = Emulated(folder), closed_form(schedule, 1 if each else m)
            emulated, simulated = run.efficiency(), run.simulated()
            row = {"schedule": schedule, "microbatches": m, "emulated": emulated, "simulated": simulated, "closed_form": closed,
                   "emulated_over_simulated": emulated / simulated - 1,
                   "simulated_over_closed": simulated / closed - 1 if closed else None,
                   "peak_activations": run.peak(), "weight_copies": run.copies(),
                   "gap_max": run.summary["version_gap"]["max"], "gap_mean": run.summary["version_gap"]["mean"],
                   "delay_max": run.summary["gradient_delay"]["max"]}
            rows.append(row)
            print(f"{schedule:14} {emulated:9.4f} {simulated:9.4f} {show(closed, '.4f'):>8} "
                  f"{percent(row['emulated_over_simulated'], 0.03):>10} {percent(row['simulated_over_closed'], 0.001):>11} "
                  f"{row['peak_activations']:9.1f} {row['weight_copies']:8.2f} {max(row['gap_max']):8d} {row['gap_mean'][0]:8.3f} "
                  f"{max(row['delay_max']):9d}")
    outside = [r for r in rows if abs(r["emulated_over_simulated"]) > 0.03 or abs(r["simulated_over_closed"] or 0) > 0.001]
    print(f"\nmarked !: emulated beyond 3 % of simulated, or simulated beyond 0.1 % of the closed form: {len(outside)} of {len(rows)}")
    print("gaps: in updates, largest over the stages; mean of the first stage over the whole run, its fill included. weights: copies"
          "\nper parameter on the stage that has most, PipeMare's velocity and corrected weights counted. async-1f1b and pipedream update after every"
          "\nmicrobatch: the same run in all three tables. no closed form: searched schedules; zb-h2, zb-v with m too small to fill.")
    table = {"schedules": rows, "effects": effects(out)}
    (out / "table.json").write_text(json.dumps(table, indent=1) + "\n")


def effects(out):
    rows = []
    if not is_there(out / "paci-8"):
        return rows
    plain = Emulated(out / "paci-8")
    print(f"\nPACI, a = 8, link latency c per message (relative to the run without: fill and drain are left out as far as they can be)"
          f"\n{'c / F':>6} {'emulated':>9} {'simulated':>9} {'1/(1+2(N-1)c/(N(F+B)))':>23} {'emu/sim':>10} {'sim/form':>10}")
    for tenths in (1, 5, 10):
        if not is_there(out / f"latency-{tenths}"):
            continue
        run, latency = Emulated(out / f"latency-{tenths}"), 0.1 * tenths * FORWARD
        closed = 1 / (1 + 2 * (RANKS - 1) * latency / (RANKS * WORK))
        emulated, simulated = run.efficiency() / plain.efficiency(), run.simulated() / plain.simulated()
        rows.append({"effect": "latency", "latency_over_forward": latency / FORWARD, "emulated": emulated, "simulated": simulated,
                     "closed_form": closed})
        print(f"{latency / FORWARD:6.2f} {emulated:9.4f} {simulated:9.4f} {closed:23.4f} {percent(emulated / simulated - 1, 1):>10} "
              f"{percent(simulated / closed - 1, 1):>10}")
    print(f"\nPACI, a = 8, first stage slower: time over that of the slow stage alone, {TOTAL} microbatches"
          f"\n{'factor':>6} {'order':>15} {'emulated':>9} {'simulated':>9} {'emu/sim':>10}")
    for hundredths in (150, 200):
        for ready in ("alternate", "backward_first"):
            if not is_there(out / f"slow-{ready}-{hundredths}"):
                continue
            run = Emulated(out / f"slow-{ready}-{hundredths}")
            factor = hundredths / 100
            emulated, simulated = 1 / (run.efficiency() * factor), 1 / (run.simulated() * factor)
            rows.append({"effect": "slow stage", "factor": factor, "ready": ready, "emulated": emulated, "simulated": simulated})
            print(f"{factor:6.2f} {ready:>15} {emulated:9.4f} {simulated:9.4f} {percent(emulated / simulated - 1, 1):>10}")
    return rows


# Validation loss of an independent program at the same setting (other text, seed 0; nats per byte): equal tokens, equal time.
REFERENCE = {("1f1b", "adamw", 0): (2.225, None), ("paci", "adamw", 0): (3.097, None), ("paci", "adamw", 50): (2.507, None),
             ("1f1b", "muon", 0): (1.740, None), ("paci", "muon", 0): (2.154, 1.404), ("paci", "muon", 50): (None, 1.429)}


def losses(out, name, seeds):
    """Validation losses of the seeds that are there."""
    folders = [out / f"{name}-seed{seed}" for seed in range(seeds)]
    return [json.loads((f / "summary.json").read_text())["validation_loss"] for f in folders if is_there(f)]


def spread(values):
    if not values:
        return "-"
    return f"{np.mean(values):.3f}" + (f" +/- {np.std(values, ddof=1):.3f}" if len(values) > 1 else "")


def optimizers(out, arguments):
    equal, longer = arguments.updates
    rows = []
    print(f"\nvalidation loss (nats per byte), N = 8, m = a = 4, mean +/- standard deviation over seeds\n"
          f"equal tokens: {equal} updates each; equal time: flush {equal} updates, PACI {longer}\n")
    print(f"{'schedule':9} {'optimizer':9} {'synchronous':>11} {'seeds':>6} {'equal tokens':>18} {'reference':>10} "
          f"{'equal time':>18} {'reference':>10}")
    for optimizer in ("adamw", "nadam", "muon"):
        for schedule, synchronous in (("1f1b", 0), ("paci", 0), ("paci", 50)):
            name = f"{optimizer}-{schedule}-sync{synchronous}"
            tokens = losses(out, f"{name}-{equal}", arguments.seeds)
            time = tokens if schedule == "1f1b" else losses(out, f"{name}-{longer}", arguments.seeds)
            reference = REFERENCE.get((schedule, optimizer, synchronous), (None, None))
            rows.append({"schedule": schedule, "optimizer": optimizer, "synchronous_updates": synchronous, "equal_tokens": tokens,
                         "equal_time": time, "reference_equal_tokens": reference[0], "reference_equal_time": reference[1]})
            print(f"{schedule:9} {optimizer:9} {synchronous:11d} {len(tokens):6d} {spread(tokens):>18} {show(reference[0], '.3f'):>10} "
                  f"{spread(time):>18} {show(reference[1], '.3f'):>10}")
    print("\nreference: an independent program in one process on another dictionary's text, seed 0; its equal-time row with"
          "\nsynchronous updates had 60 of them.")
    (out / "table.json").write_text(json.dumps({"updates": [equal, longer], "rows": rows}, indent=1) + "\n")


def measured_step_time(summary, predicted):
    """Seconds of an update under the schedule's own rule."""
    tokens = round(predicted["tokens_per_s"] * predicted["step_time_s"])  # of an update
    return tokens / summary["schedule_tokens_per_s"]


def profile(out, _):
    rows = []
    print(f"\n{'schedule':9} {'step, predicted':>16} {'measured':>12} {'error':>9} {'bubble, predicted':>18} {'measured':>9} "
          f"{'peak bytes of each rank, predicted':>36} {'measured':>9}")
    for schedule in ("1f1b", "paci", "gpipe"):
        summary = json.loads((out / schedule / "summary.json").read_text())
        predicted = json.loads((out / schedule / "simulated.txt").read_text().splitlines()[-1])
        measured = measured_step_time(summary, predicted)
        row = {"schedule": schedule, "predicted_step_time_s": predicted["step_time_s"], "measured_step_time_s": measured,
               "error": predicted["step_time_s"] / measured - 1, "predicted_bubble_share": predicted["bubble_share"],
               "measured_bubble_share": summary["schedule_bubble_share"], "predicted_peak_bytes": predicted["peak_bytes"],
               "measured_peak_bytes": summary["peak_bytes"]}
        rows.append(row)
        same = "the same" if row["predicted_peak_bytes"] == row["measured_peak_bytes"] else str(row["measured_peak_bytes"])
        print(f"{schedule:9} {1e3 * row['predicted_step_time_s']:13.3f} ms {1e3 * measured:9.3f} ms {100 * row['error']:+7.1f} % "
              f"{row['predicted_bubble_share']:18.4f} {row['measured_bubble_share']:9.4f} "
              f"{str(row['predicted_peak_bytes']):>36} {same:>9}")
    print("\nsteady state under the schedule's own rule, without the first updates. other work on the machine makes the errors larger.")
    (out / "table.json").write_text(json.dumps({"rows": rows}, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=("schedules", "optimizers", "profile"))
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--updates", type=int, nargs=2, default=(250, 688))
    arguments = parser.parse_args()
    {"schedules": schedules, "optimizers": optimizers, "profile": profile}[arguments.study](arguments.out, arguments)


if __name__ == "__main__":
    main()
