"""One steady window of a run as a Gantt picture: predicted above, measured below."""

from matplotlib.patches import Patch

from report.style import legend_outside, plt

# Light colours that dark letters can be read on, told apart by brightness too.
KINDS = {"F": ("forward", "#56B4E9"), "B": ("backward", "#E69F00"), "I": ("input gradient", "#F0E442"),
         "W": ("weight gradient", "#CC79A7"), "U": ("update", "#000000")}


def window_of(events, stages, per_update):
    """Start and end of about two updates in the middle of the log, cut at forwards of the last stage."""
    starts = sorted(start for stage, kind, _, start, _ in events if stage == stages - 1 and kind == "F")
    if not starts:
        return None
    length = min(len(starts) - 1, 2 * per_update, 24)
    first = max(0, (len(starts) - length) // 2)
    # At the first microbatch of an update, so that the picture shows whole windows.
    first -= first % per_update if per_update <= first else 0
    return (starts[first], starts[min(first + length, len(starts) - 1)]) if length > 0 else None


WIDTH = 11  # inches of the picture
FONT = 7  # points


def fits(label, share):
    """Has a box of this share of the picture's width room for the label? A digit is about 0.64 of the font size wide."""
    return share * 0.93 * WIDTH * 72 > 0.64 * FONT * len(label) + 1


def draw(axes, events, window, stages):
    begin, end = window
    numbered = False
    for stage, kind, micro, start, stop in events:
        if stop <= begin or start >= end or kind not in KINDS:
            continue
        left, right = max(start, begin), min(stop, end)
        axes.barh(stage, 1e3 * (right - left), left=1e3 * (left - begin), height=0.86, color=KINDS[kind][1], edgecolor="black", linewidth=0.4)
        if kind != "U" and fits(str(micro), (right - left) / (end - begin)):
            numbered = True
            axes.text(1e3 * ((left + right) / 2 - begin), stage, str(micro), ha="center", va="center", fontsize=FONT)
    axes.set_ylim(stages - 0.4, -0.6)
    axes.set_yticks(range(stages))
    axes.set_ylabel("stage")
    axes.set_xlim(0, 1e3 * (end - begin))
    axes.grid(axis="y", visible=False)
    return numbered


def gantt(run, name):
    timeline = run.timeline()
    logs = [(title, timeline[title]) for title in ("predicted", "measured") if timeline.get(title)]
    if not logs:
        return None
    figure, rows = plt.subplots(len(logs), 1, figsize=(WIDTH, (0.9 + 0.34 * run.stages) * len(logs) + 0.7), layout="constrained", squeeze=False)
    length = 0.0
    windows = []
    numbered = False
    for _, events in logs:
        window = window_of(events, run.stages, run.window)
        if window is None:
            plt.close(figure)
            return None
        windows.append(window[0])
        length = max(length, window[1] - window[0])
    for (title, events), axes, begin in zip(logs, rows[:, 0], windows):
        numbered = draw(axes, events, (begin, begin + length), run.stages) or numbered
        axes.set_title(f"{name}{', first replica' if run.replicas > 1 else ''}: {title}, from {begin:.3f} s on", fontsize=10)
    rows[-1, 0].set_xlabel("time (ms)" + ("; numbers: microbatch" if numbered else ""))
    present = {kind for _, events in logs for _, kind, _, _, _ in events}
    handles = [Patch(facecolor=colour, edgecolor="black", linewidth=0.4, label=label) for kind, (label, colour) in KINDS.items() if kind in present]
    legend_outside(rows[-1, 0], handles, [handle.get_label() for handle in handles], columns=len(handles))
    return figure
