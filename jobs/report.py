#!/usr/bin/python3
"""Report on runs: tables, pictures (PNG) and one HTML page with all of it inside.

usage: jobs/report.py RUN... --out DIR [--loss L] [--details N]

RUN: output folders of runs. DIR gets report.html, table.json and the pictures. A run that cannot be read is named and left out,
and the exit status is 1. Runs of a sweep (they say which case they are) also give pivot tables and heat maps.
"""
import argparse
import io
import json
import pathlib
import sys

from report import figures, sweep
from report.gantt import gantt
from report.page import Page, write_whole
from report.run import Run, Unreadable, names_of
from report.style import plt

COLUMNS = [
    ("schedule", "schedule", "{}"),
    ("stages", "stages", "{}"),
    ("ranks", "ranks", "{}"),
    ("replicas", "replicas", "{}"),
    ("mode", "mode", "{}"),
    ("microbatches", "microbatches per update", "{}"),
    ("steps", "updates", "{}"),
    ("tokens_per_s", "tokens/s", "{:,.0f}"),
    ("model_tokens_per_s", "bubble model, tokens/s", "{:.5g}"),
    ("idle_share", "idle share", "{:.3f}"),
    ("version_gap_max", "largest version gap", "{}"),
    ("final_loss", "training loss", "{:.4f}"),
    ("validation_loss", "validation loss", "{:.4f}"),
    ("seconds_to_loss", "time to the loss (s)", "{:.1f}"),
    ("tokens_to_loss", "tokens to the loss", "{:.0f}"),
    ("peak_mib", "memory of the fullest rank (MiB)", "{:,.1f}"),
    ("sent_mib", "sent per update and rank (MiB)", "{:,.2f}"),
]


def common_loss(runs):
    """The lowest loss that all runs reach: the highest of their lowest losses."""
    lowest = [float(min(run.losses()[2])) for run in runs if not run.emulated and len(run.trace["loss"])]
    return max(lowest) if lowest else None


def row_of(run, name, loss):
    seconds, tokens = run.time_to(loss) if loss is not None and not run.emulated and len(run.trace["loss"]) else (None, None)
    return {
        "name": name,
        "folder": str(run.folder),
        "case": run.case,
        "swept": run.swept,
        "schedule": run.schedule,
        "stages": run.stages,
        "ranks": run.summary["ranks"],
        "replicas": run.replicas if run.replicas > 1 else None,
        "mode": run.mode,
        "microbatches": run.window,
        "steps": int(run.trace["step"][-1]) if len(run.trace["step"]) else run.summary["steps"],
        "tokens_per_s": run.rate,
        "model_tokens_per_s": run.model_rate,
        "idle_share": run.idle_share,
        "model_idle_share": run.model_idle_share,
        "version_gap_max": max((int(gap.nonzero()[0].max()) for gap in run.gaps if gap.any()), default=None),
        "final_loss": float(run.trace["loss"][-1]) if not run.emulated and len(run.trace["loss"]) else None,
        "validation_loss": float(run.validation_loss[-1]) if len(run.validation_loss) else None,
        "seconds_to_loss": seconds,
        "tokens_to_loss": tokens,
        "peak_mib": max((sum(categories.values()) for categories in run.memory.values()), default=0) / 2**20,
        "sent_mib": run.sent_per_rank / 2**20,
        "sent_bytes_per_update": run.sent,
        "memory_bytes": {rank: sum(categories.values()) for rank, categories in run.memory.items()},
    }


def shown(row, key, form):
    return "" if row[key] is None else form.format(row[key])


class Report:
    def __init__(self, out, title):
        self.out = out
        self.page = Page(title)
        self.pictures = []

    def add(self, figure, file, what):
        if figure is None:
            return
        self.pictures.append(file)
        data = io.BytesIO()
        figure.savefig(data, format="png", dpi=120)
        plt.close(figure)
        write_whole(self.out / file, data.getvalue())
        self.page.picture(data.getvalue(), what)


    def remove_old_pictures(self):
        """Those of an earlier report in the same folder that this one has not written."""
        for kind in ("gantt", "gaps", "memory", "traffic", "sweep"):
            for file in self.out.glob(f"{kind}_[0-9]*.png"):
                if file.name not in self.pictures:
                    file.unlink()


def read_runs(folders):
    runs, problems = [], []
    for folder in folders:
        try:
            run = Run(folder)
            run.timeline()
            runs.append(run)
        except Unreadable as error:
            problems.append(str(error))
    return runs, problems


def write_overview(report, runs, names, rows, loss):
    report.page.heading("Runs")
    used = [c for c in COLUMNS if any(row[c[0]] is not None for row in rows)]
    caption = "" if loss is None else f"the loss: {loss:.4f} nats per token, of validation where there are several"
    report.page.table(["run"] + [title for _, title, _ in used], [[row["name"]] + [shown(row, key, form) for key, _, form in used] for row in rows], caption)
    report.page.text(f"minipipe {runs[0].version} on {', '.join(sorted({run.host for run in runs}))}")
    report.add(figures.losses(runs, names), "loss.png", "loss against tokens and against time")
    report.page.heading("Throughput beside the bubble model")
    crowded = [name for run, name in zip(runs, names) if run.crowded]
    if crowded:
        report.page.text("More ranks than cores: times say more about sharing cores than about the schedule, and the bubble model says nothing, "
                         f"of {'all runs' if len(crowded) == len(runs) else '; '.join(crowded)}.")
    report.page.text("The bubble model: busy time as measured, and idle only (N-1)/(m+N-1) of the time under gpipe and 1f1b, none under paci, "
                     "with N stages and m microbatches per update; none is stated for other schedules.")
    report.add(figures.throughput(runs, names), "throughput.png", "throughput and bubble model")


def write_sweep(report, runs):
    tables = sweep.pivots(runs)
    if not tables:
        return
    report.page.heading("Sweep")
    for key, _, followers in sweep.axes_of([run for run in runs if run.swept]):
        if followers:
            report.page.text(f"with {key} move: {', '.join(followers)}")
    for group in sweep.same_values(runs):
        note = f"the same swept values, of which tables and heat maps show the last: {', '.join(str(run.folder) for run in group)}"
        print(f"note: {note}", file=sys.stderr)
        report.page.text(note)
    for number, table in enumerate(tables):
        print("\n" + "\n".join(table.lines()))
        report.page.table([f"{table.row_key} \\ {table.column_key}"] + table.column_values,
                          [[value] + [table.text(row, column) for column in range(len(table.column_values))]
                           for row, value in enumerate(table.row_values)], table.heading())
        report.add(sweep.heat_map(table), f"sweep_{number}_{table.metric}.png", table.heading())


def write_details(report, runs, names, count):
    count = min(count, len(runs))
    # First, last and some between: in the order of a sweep these differ most.
    chosen = [round(at * (len(runs) - 1) / max(1, count - 1)) for at in range(count)]
    if len(runs) > count > 0:
        report.page.text(f"Versions, memory, traffic and timelines below are those of {count} of {len(runs)} runs; --details N shows more.")
    for number, at in enumerate(chosen):
        run, name = runs[at], names[at]
        report.page.heading(name)
        report.add(gantt(run, name), f"gantt_{number}.png", f"timeline of {name}")
        if run.gaps and not any(gap[1:].any() for gap in run.gaps):
            report.page.text("Version gap: 0 updates for every microbatch on every stage.")
        report.add(figures.gaps(run, name), f"gaps_{number}.png", f"version gaps of {name}")
        report.add(figures.memory(run, name), f"memory_{number}.png", f"memory of {name}")
        report.add(figures.traffic(run, name), f"traffic_{number}.png", f"bytes sent by {name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="output folder of a run")
    parser.add_argument("--out", required=True, help="folder of the report")
    parser.add_argument("--loss", type=float, help="time to this loss (default: the lowest that all runs reach)")
    parser.add_argument("--details", type=int, default=4, help="runs with pictures of versions, memory and timeline (default 4)")
    arguments = parser.parse_args()
    runs, problems = read_runs(arguments.runs)
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    if not runs:
        print("error: no run is left to report on", file=sys.stderr)
        return 1
    out = pathlib.Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    runs.sort(key=lambda run: run.case if run.case is not None else -1)
    followers = [key for axis in sweep.axes_of([run for run in runs if run.swept]) for key in axis[2]]
    names = names_of(runs, followers)
    loss = arguments.loss if arguments.loss is not None else common_loss(runs)
    rows = [row_of(run, name, loss) for run, name in zip(runs, names)]
    report = Report(out, "minipipe report")
    for problem in problems:
        report.page.text(f"left out: {problem}")
    write_overview(report, runs, names, rows, loss)
    write_sweep(report, runs)
    write_details(report, runs, names, arguments.details)
    report.page.write(out / "report.html")
    report.remove_old_pictures()
    tables = [{"metric": p.metric, "rows": p.row_key, "columns": p.column_key, "row_values": p.row_values, "column_values": p.column_values,
               "fixed": dict(p.fixed), "cells": [[None if c != c else float(c) for c in line] for line in p.cells]} for p in sweep.pivots(runs)]
    write_whole(out / "table.json", (json.dumps({"loss": loss, "rows": rows, "pivots": tables}, indent=1) + "\n").encode())
    print(f"\nreport: {out}/report.html ({len(runs)} runs, {len(report.pictures)} pictures), rows: {out}/table.json")
    return 1 if problems else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except OSError as error:
        print(f"error: the report cannot be written: {error}; make room, or choose another folder (--out)", file=sys.stderr)
        sys.exit(1)
