"""Looks of all pictures."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (the backend is chosen first)

# Colours that colour-blind readers tell apart (Okabe and Ito), and hatches for those who see none.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999"]
HATCHES = ["", "//", "..", "\\\\", "xx", "--", "oo", "++"]
DASHES = ["-", "--", "-.", ":"]

plt.rcParams.update({"font.size": 10, "axes.grid": True, "grid.alpha": 0.3, "axes.axisbelow": True, "hatch.linewidth": 0.6})


def line_styles(count):
    """Colour and dash for each of `count` lines; a shade of cividis each where there are more than the palette has."""
    if count <= len(COLOURS):
        return [{"color": COLOURS[i], "linestyle": DASHES[i % 2]} for i in range(count)]
    shades = matplotlib.colormaps["cividis"]
    return [{"color": shades(i / (count - 1)), "linestyle": DASHES[i % len(DASHES)]} for i in range(count)]


def legend_outside(axes, count, **options):
    """A legend that covers nothing: below the axes for few entries, at the right for many."""
    if count <= 4:
        axes.figure.legend(loc="outside lower center", ncols=min(count, 2), frameon=False, **options)
    else:
        axes.figure.legend(loc="outside right center", frameon=False, fontsize=8, **options)
