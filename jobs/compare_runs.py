#!/usr/bin/python3
"""Compares a run under a flush schedule with one under PACI of the same deck: a table, table.json and loss.png.

usage: compare_runs.py FLUSH PACI --out DIR      (output folders of two runs)
"""
import argparse
import json
import pathlib
import re

import h5py
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (the backend is chosen first)
import numpy as np  # noqa: E402

# Colours that colour-blind readers tell apart (Okabe and Ito).
COLOURS = {"flush": "#0072B2", "paci": "#D55E00"}


class Run:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.summary = json.loads((self.folder / "summary.json").read_text())
        with h5py.File(self.folder / "trace.h5", "r") as file:
            trace = {name: file["trace"][name][...] for name in ("step", "tokens", "time_s", "loss")}
            self.validation_step = file["trace/val/step"][...]
            self.validation_loss = file["trace/val/loss"][...]
            self.deck = file.attrs["deck"]
            self.deck = self.deck.decode() if isinstance(self.deck, bytes) else self.deck
            self.actions = {name: np.concatenate([rank["actions"][name][...] for rank in file["ranks"].values()])
                            for name in ("kind", "microbatch", "start_s", "end_s")}
        self.trace = trace

    def setting(self, key):
        return int(re.search(rf"^{key} = (\d+)", self.deck, re.MULTILINE).group(1))

    @property
    def rate(self):
        """Tokens per second under the schedule's own rule: without warm-up, evaluation and synchronous updates."""
        return self.summary.get("schedule_tokens_per_s") or self.summary["tokens_per_s"]

    def training_seconds(self):
        """Seconds of training at each update, from the action log: the pauses for validation and output are left out."""
        kind = np.array([k.decode() if isinstance(k, bytes) else str(k) for k in self.actions["kind"]])
        forward, update = kind == "F", kind == "U"
        microbatches = self.setting("microbatches")
        drains = np.unique(np.concatenate([[0], self.validation_step]))
        seconds = np.zeros(len(self.trace["step"]))
        before = 0.0
        for first, end in zip(drains[:-1], drains[1:]):
            window = self.actions["microbatch"] // microbatches
            begin = self.actions["start_s"][forward & (window >= first) & (window < end)].min()
            ends = [self.actions["end_s"][update & (self.actions["microbatch"] == u)].max() for u in range(first, end)]
            seconds[first:end] = before + np.array(ends) - begin
            before = seconds[end - 1]
        return seconds

    def validation_seconds(self):
        return self.training_seconds()[self.validation_step - 1]


def validation_at(run, seconds):
    """Validation loss after so many seconds of training, by linear interpolation between validations."""
    return float(np.interp(seconds, run.validation_seconds(), run.validation_loss))


def rows(flush, paci):
    stages = flush.summary["stages"]
    microbatches = flush.setting("microbatches")
    shorter = min(flush.validation_seconds()[-1], paci.validation_seconds()[-1])
    ratio = paci.rate / flush.rate
    model = (microbatches + stages - 1) / microbatches
    result = []
    for name, run in (("1f1b", flush), ("paci", paci)):
        result.append(
            {
                "schedule": name,
                "tokens_per_s": run.rate,
                "tokens_per_s_whole_run": run.summary["tokens_per_s"],
                "bubble_share": run.summary.get("schedule_bubble_share", run.summary["bubble_share"]),
                "wait_share": run.summary["wait_share"],
                "version_gap_max": max(run.summary["version_gap"]["max"]),
                "version_gap_mean": max(run.summary["version_gap"]["mean"]),
                "loss_equal_tokens": float(run.validation_loss[-1]),
                "loss_equal_time": validation_at(run, shorter),
                "speed_up": run.rate / flush.rate,
                "speed_up_model": model if name == "paci" else 1.0,
            }
        )
    return result, {"ratio": ratio, "model": model, "difference": ratio / model - 1, "equal_time_s": float(shorter)}


def print_table(table, verdict):
    columns = [
        ("schedule", "{}"),
        ("tokens_per_s", "{:.0f}"),
        ("bubble_share", "{:.3f}"),
        ("wait_share", "{:.3f}"),
        ("version_gap_max", "{}"),
        ("version_gap_mean", "{:.3f}"),
        ("loss_equal_tokens", "{:.4f}"),
        ("loss_equal_time", "{:.4f}"),
        ("speed_up", "{:.3f}"),
        ("speed_up_model", "{:.3f}"),
    ]
    print("  ".join(name for name, _ in columns))
    for row in table:
        print("  ".join(f"{form.format(row[name]):>{len(name)}}" for name, form in columns))
    print(
        f"throughput ratio {verdict['ratio']:.3f}, bubble model (m+N-1)/m = {verdict['model']:.3f}: "
        f"{100 * verdict['difference']:+.1f} %; equal time = {verdict['equal_time_s']:.1f} s of training"
    )
    print("tokens_per_s: under the schedule's own rule (first segment and synchronous updates left out); losses: validation, nats per token")


def draw(flush, paci, file):
    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    for name, label, run in (("flush", "1F1B-flush", flush), ("paci", "PACI", paci)):
        axes.plot(run.training_seconds(), run.trace["loss"], color=COLOURS[name], alpha=0.35, linewidth=1)
        axes.plot(run.validation_seconds(), run.validation_loss, color=COLOURS[name], marker="o", label=f"{label}, validation")
    axes.set_xlabel("training time (s)")
    axes.set_ylabel("loss (nats per token)")
    # The first updates, common to both, would press everything else flat.
    losses = np.concatenate([flush.trace["loss"], paci.trace["loss"]])
    low, top = losses.min(), np.percentile(losses, 85)
    axes.set_ylim(low - 0.05 * (top - low), top)
    axes.set_title("The same GPT, the same data, two cores (thin lines: training loss)", fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(file, dpi=150)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("flush")
    parser.add_argument("paci")
    parser.add_argument("--out", required=True)
    arguments = parser.parse_args()
    flush, paci = Run(arguments.flush), Run(arguments.paci)
    out = pathlib.Path(arguments.out)
    table, verdict = rows(flush, paci)
    print_table(table, verdict)
    draw(flush, paci, out / "loss.png")
    (out / "table.json").write_text(json.dumps({"rows": table, **verdict}, indent=1) + "\n")
    print(f"picture: {out / 'loss.png'}, rows: {out / 'table.json'}")


if __name__ == "__main__":
    main()
