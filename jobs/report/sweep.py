"""Runs of one sweep against the values they were swept over: pivot tables and heat maps."""

import textwrap

import numpy as np

from report import of_ddp
from report.style import grid_styles, ink_on, plt

# Name of the column, title with unit, form.
METRICS = [
    ("tokens_per_s", "throughput (tokens/s)", "{:,.0f}"),
    ("validation_loss", "last validation loss (nats per token)", "{:.3f}"),
    ("training_loss", "training loss of the last update, of runs without validation (nats per token)", "{:.3f}"),
    ("version_gap_max", "largest version gap (updates)", "{:.0f}"),
    ("version_gap_mean", "mean version gap (updates)", "{:.2f}"),
    ("idle_share", "idle share of the ranks' time", "{:.3f}"),
    ("peak_mib", "memory of the rank that needs most (MiB)", "{:,.1f}"),
    ("sent_mib", "sent per update, mean of the ranks (MiB)", "{:,.2f}"),
    *of_ddp.METRICS,
]


# What the axes of heat maps say beside the key.
MEANINGS = {
    "parallel.stages": "pipeline stages",
    "parallel.data": "replicas",
    "train.microbatches": "microbatches per update",
    "train.microbatch_size": "sequences",
    "train.sequence": "tokens per sequence",
    "sdp.coverage": "share of the units held by a replica",
    "emulate.link_latency_ms": "ms",
    "run.steps": "updates",
}


def axis_label(key):
    return f"{key} ({MEANINGS[key]})" if key in MEANINGS else key


def peak_mib(run):
    return max((sum(rank.values()) for rank in run.memory.values()), default=0) / 2**20


def metrics(run, runs):
    """Of one of the runs of a sweep."""
    gap = run.summary.get("version_gap", {})
    return {
        "tokens_per_s": run.rate,
        "validation_loss": float(run.validation_loss[-1]) if len(run.validation_loss) else None,
        "training_loss": None if len(run.validation_loss) else run.summary.get("final_loss"),
        "version_gap_max": max(gap.get("max") or [0]),
        # Of stage 0, where it is largest.
        "version_gap_mean": max(gap.get("mean") or [0.0]),
        "idle_share": run.idle_share,
        "peak_mib": peak_mib(run),
        "sent_mib": run.sent_per_rank / 2**20,
        **of_ddp.metrics(run, runs, peak_mib),
    }


def hashable(value):
    return tuple(value) if isinstance(value, list) else value


def axes_of(runs):
    """Swept keys with several values, without those that only move together with one before: [(key, [values], [followers])]."""
    keys = list(dict.fromkeys(key for run in runs for key in run.swept))
    found = []
    for key in keys:
        column = [hashable(run.swept.get(key)) for run in runs]
        values = list(dict.fromkeys(column))
        if len(values) < 2:
            continue
        for axis in found:
            other = [hashable(run.swept.get(axis[0])) for run in runs]
            if len(set(zip(other, column))) == len(set(other)) == len(values):
                axis[2].append(key)
                break
        else:
            found.append((key, values, []))
    return found


def same_values(runs):
    """Runs of which a pivot can show one only, since they have the same swept values: [[run, ...]]."""
    found = {}
    for run in runs:
        if run.swept:
            found.setdefault(tuple((key, hashable(value)) for key, value in sorted(run.swept.items())), []).append(run)
    return [group for group in found.values() if len(group) > 1]


def curve_styles(runs):
    """Colour and dash of each run's line by its values on the two axes of the sweep; None where there are not two."""
    if not runs or not all(run.swept for run in runs):
        return None
    axes = axes_of(runs)
    if len(axes) != 2:
        return None
    first, second = sorted((axis[0] for axis in axes), key=lambda key: len({str(run.swept[key]) for run in runs}), reverse=True)
    pair = [(hashable(run.swept[first]), hashable(run.swept[second])) for run in runs]
    return grid_styles(pair)


class Pivot:
    """One metric over two swept keys (one: a single row), at fixed values of the others."""

    def __init__(self, metric, title, form, rows, columns, fixed):
        self.metric, self.title, self.form = metric, title, form
        self.row_key, self.row_values = rows
        self.column_key, self.column_values = columns
        self.fixed = fixed
        self.cells = np.full((len(self.row_values), len(self.column_values)), np.nan)

    def heading(self):
        return self.title + "".join(f", {key} = {value}" for key, value in self.fixed)

    def text(self, row, column):
        value = self.cells[row, column]
        return "-" if np.isnan(value) else self.form.format(value)

    def lines(self):
        """The table for people."""
        columns = [str(value) for value in self.column_values]
        width = max([10] + [len(c) + 2 for c in columns])
        side = max([len(self.row_key) + 2] + [len(str(v)) + 2 for v in self.row_values])
        yield f"{self.heading()}; down: {self.row_key or 'nothing'}, across: {self.column_key}"
        yield f"{'':{side}}" + "".join(f"{c:>{width}}" for c in columns)
        for at, value in enumerate(self.row_values):
            yield f"{str(value):{side}}" + "".join(f"{self.text(at, c):>{width}}" for c in range(len(columns)))


def pivots(runs):
    """All pivots of the runs of a sweep. Runs without swept values are left out."""
    runs = [run for run in runs if run.swept]
    axes = axes_of(runs)
    if not axes:
        return []
    # The longest axes are the two of the table; the others get a table for each of their values.
    by_length = sorted(axes, key=lambda axis: -len(axis[1]))
    columns = by_length[0]
    rows = by_length[1] if len(by_length) > 1 else None
    if rows is not None and axes.index(rows) > axes.index(columns):
        rows, columns = columns, rows  # the key that comes first in the deck goes down
    others = [axis[0] for axis in axes if axis is not rows and axis is not columns]
    result = []
    numbers = [metrics(run, runs) for run in runs]
    for metric, title, form in METRICS:
        tables = {}
        for run, of_run in zip(runs, numbers):
            value = of_run.get(metric)
            if value is None:
                continue
            fixed = tuple((key, hashable(run.swept.get(key))) for key in others)
            if fixed not in tables:
                row_axis = (rows[0], rows[1]) if rows else ("", [""])
                tables[fixed] = Pivot(metric, title, form, row_axis, (columns[0], columns[1]), fixed)
            row = rows[1].index(hashable(run.swept.get(rows[0]))) if rows else 0
            tables[fixed].cells[row, columns[1].index(hashable(run.swept.get(columns[0])))] = value
        result += [table for table in tables.values() if np.any(table.cells != 0)]
    return result


def heat_map(pivot):
    figure, axes = plt.subplots(figsize=(3 + 0.9 * len(pivot.column_values), 2 + 0.6 * len(pivot.row_values)), layout="constrained")
    image = axes.imshow(np.ma.masked_invalid(pivot.cells), cmap="cividis", aspect="auto")
    for (row, column), value in np.ndenumerate(pivot.cells):
        ink = "black" if np.isnan(value) else ink_on(image.cmap(image.norm(value)))
        axes.text(column, row, pivot.text(row, column), ha="center", va="center", color=ink)
    axes.set_xticks(range(len(pivot.column_values)), [str(value) for value in pivot.column_values])
    axes.set_yticks(range(len(pivot.row_values)), [str(value) for value in pivot.row_values])
    axes.set_xlabel(axis_label(pivot.column_key))
    axes.set_ylabel(axis_label(pivot.row_key))
    axes.set_title("\n".join(textwrap.wrap(pivot.heading(), int(9 * figure.get_figwidth()))), fontsize=10)
    axes.grid(visible=False)
    figure.colorbar(image)
    return figure
