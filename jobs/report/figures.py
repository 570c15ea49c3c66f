"""Pictures of runs. Each function returns a matplotlib figure, or None where the runs have nothing of the kind."""

import numpy as np
from matplotlib.lines import Line2D

from report.run import smooth
from report.style import COLOURS, HATCHES, ink_on, legend_outside, line_styles, plt
from report.sweep import curve_styles


PARTS = {"comm": "message buffers", "optimizer": "optimizer moments"}


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def losses(runs, names):
    """Loss against tokens and against time: with markers the validation, thin the training loss, or smoothed where one is all."""
    chosen = [(run, name) for run, name in zip(runs, names) if not run.emulated and len(run.trace["loss"])]
    if not chosen:
        return None
    figure, both = plt.subplots(1, 2, figsize=(10, 4.6), sharey=True, layout="constrained")
    styles = curve_styles([run for run, _ in chosen]) or line_styles(len(chosen))
    for (run, name), style in zip(chosen, styles):
        at = np.searchsorted(run.trace["step"], run.validation_step)
        validated = len(run.validation_loss) > 1
        for axes, x in zip(both, (run.trace["tokens"] * 1e-6, run.trace["time_s"])):
            label = name if axes is both[0] else None
            if validated:
                axes.plot(x, run.trace["loss"], color=style["color"], linewidth=0.8, alpha=0.35)
                axes.plot(x[at], run.validation_loss, marker="o", markersize=3.5, label=label, **style)
            else:
                axes.plot(x, smooth(run.trace["loss"]), label=label, **style)
                axes.plot(x[at], run.validation_loss, marker="o", markersize=5, linestyle="none", color=style["color"])
    both[0].set_xlabel("tokens (millions)")
    both[1].set_xlabel("time since the start of the run (s)")
    both[0].set_ylabel("loss (nats per token)")
    # The first updates would press everything else flat.
    top = max(np.percentile(run.trace["loss"], 94) for run, _ in chosen)
    low = min(run.trace["loss"].min() if len(run.validation_loss) > 1 else smooth(run.trace["loss"]).min() for run, _ in chosen)
    low = min([low, *(run.validation_loss.min() for run, _ in chosen if len(run.validation_loss) == 1)])
    both[0].set_ylim(low - 0.03 * (top - low), top + 0.03 * (top - low))
    handles, labels = both[0].get_legend_handles_labels()
    if any(len(run.validation_loss) > 1 for run, _ in chosen):
        handles.append(Line2D([], [], color="grey", linewidth=0.8))
        labels.append("thin: training")
    if any(len(run.validation_loss) == 1 for run, _ in chosen):
        handles.append(Line2D([], [], color="grey", marker="o", markersize=5))
        labels.append("line: training, smoothed\nmarker: the only validation")
    # One below the left axes would push the right ones away.
    legend_outside(both[1], handles, labels, columns=0)
    return figure


def throughput(runs, names):
    """Measured tokens per second beside what the bubble model leaves of the busy time."""
    chosen = [(run, name) for run, name in zip(runs, names) if run.rate]
    if not chosen:
        return None
    figure, axes = plt.subplots(figsize=(8, 1.6 + 0.5 * len(chosen)), layout="constrained")
    y = np.arange(len(chosen))
    axes.barh(y - 0.19, [run.rate for run, _ in chosen], 0.36, color=COLOURS[0], label="measured")
    models = [(i, run.model_rate) for i, (run, _) in enumerate(chosen) if run.model_rate]
    if models:
        axes.barh([i + 0.19 for i, _ in models], [rate for _, rate in models], 0.36, color=COLOURS[4], hatch="//", edgecolor="black",
                  linewidth=0.5, label="bubble model: busy time as measured, idle only in the bubble")
    for i, (run, _) in enumerate(chosen):
        axes.annotate(number(run.rate), (run.rate, i - 0.19), xytext=(3, 0), textcoords="offset points", va="center", fontsize=8)
        if run.model_rate:
            axes.annotate(number(run.model_rate), (run.model_rate, i + 0.19), xytext=(3, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set_yticks(y, [name for _, name in chosen])
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_xlabel("throughput (tokens/s)")
    axes.grid(axis="y", visible=False)
    legend_outside(axes, *axes.get_legend_handles_labels(), columns=1)
    return figure


def percent(share):
    """Of a share: nothing where it is 0, and never 0 or 100 for what is neither."""
    if not share:
        return ""
    return f"{100 * share:.0f}" if 0.01 <= share <= 0.99 or share == 1 else f"{100 * share:.2g}" if share < 0.5 else ">99"


def gaps(run, name):
    """Version gap by stage: the share of microbatches with each gap; None if all are 0."""
    if not any(gap[1:].any() for gap in run.gaps):
        return None
    largest = max(int(np.nonzero(gap)[0].max()) if gap.any() else 0 for gap in run.gaps)
    shares = np.zeros((len(run.gaps), largest + 1))
    for stage, gap in enumerate(run.gaps):
        shares[stage, : min(len(gap), largest + 1)] = gap[: largest + 1] / max(1, gap.sum())
    figure, axes = plt.subplots(figsize=(5 + 0.4 * largest, 1.9 + 0.36 * len(run.gaps)), layout="constrained")
    image = axes.imshow(100 * shares, cmap="cividis", vmin=0, vmax=100, aspect="auto")
    for (stage, gap), share in np.ndenumerate(shares):
        axes.text(gap, stage, percent(share), ha="center", va="center",
                  color=ink_on(image.cmap(image.norm(100 * share))), fontsize=9)
    axes.set_xticks(range(largest + 1))
    axes.set_yticks(range(len(run.gaps)))
    axes.set_xlabel("version gap (updates between forward and backward)")
    axes.set_ylabel("stage")
    axes.set_title(name, fontsize=10)
    axes.grid(visible=False)
    figure.colorbar(image, label="share of microbatches (%)")
    return figure


def memory(run, name):
    """Bytes by category, a bar per rank."""
    ranks = sorted(run.memory)
    parts = {c: [run.memory[rank].get(c, 0) for rank in ranks]
             for c in ("parameters", "gradients", "optimizer", "weight_versions", "activations", "comm")}
    return bars_by_rank(run, name, {c: values for c, values in parts.items() if any(values)}, "memory")


def traffic(run, name):
    """Bytes sent per update by purpose, a bar per rank."""
    return bars_by_rank(run, name, run.sent, "sent per update")


def bars_by_rank(run, name, parts, what):
    """parts: name -> bytes by rank."""
    if not parts:
        return None
    ranks = range(len(next(iter(parts.values()))))
    largest = max(sum(values) for values in zip(*parts.values()))
    unit, factor = next((u, f) for u, f in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("bytes", 1)) if largest >= f or f == 1)
    figure, axes = plt.subplots(figsize=(7.5, 2 + 0.4 * len(ranks)), layout="constrained")
    before = np.zeros(len(ranks))
    for at, (part, by_rank) in enumerate(parts.items()):
        values = np.array(by_rank) / factor
        axes.barh(ranks, values, left=before, color=COLOURS[at], hatch=HATCHES[at], edgecolor="white", linewidth=0.5,
                  label=PARTS.get(part, part.replace("_", " ")))
        before += values
    if run.replicas > 1:
        axes.set_yticks(ranks, [f"{rank} (replica {rank * run.replicas // len(ranks)})" for rank in ranks])
    else:
        axes.set_yticks(ranks)
    axes.invert_yaxis()
    axes.set_xlabel(f"{what} ({unit})")
    axes.set_ylabel("rank")
    axes.set_title(name, fontsize=10)
    axes.grid(axis="y", visible=False)
    legend_outside(axes, *axes.get_legend_handles_labels(), columns=3)
    return figure
