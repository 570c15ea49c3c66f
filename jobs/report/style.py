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
    """Colour and dash for each of `count` lines; a shade of cividis each (its last ones are too light for lines) where there are more than the palette has."""
    if count <= len(COLOURS):
        return [{"color": COLOURS[i], "linestyle": DASHES[i % 2]} for i in range(count)]
    shades = matplotlib.colormaps["cividis"]
    return [{"color": shades(0.88 * i / (count - 1)), "linestyle": DASHES[i % len(DASHES)]} for i in range(count)]


def grid_styles(pairs):
    """Colour by the first and dash by the second of each pair; None where there are more of either than can be told apart."""
    first, second = (list(dict.fromkeys(pair[at] for pair in pairs)) for at in (0, 1))
    if len(first) > len(COLOURS) or len(second) > len(DASHES):
        return None
    return [{"color": COLOURS[first.index(a)], "linestyle": DASHES[second.index(b)]} for a, b in pairs]


def ink_on(colour):
    """Black or white, whichever stands out more from a background colour (contrast of relative luminances, WCAG 2)."""
    channels = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour[:3]]
    luminance = 0.2126 * channels[0] + 0.7152 * channels[1] + 0.0722 * channels[2]
    return "black" if (luminance + 0.05) ** 2 > 1.05 * 0.05 else "white"


def legend_outside(axes, handles, labels, columns=2):
    """A legend that covers nothing: below the axes, or at their right where there are many entries or columns=0."""
    if columns and len(handles) <= 6:
        axes.legend(handles, labels, loc="upper left", bbox_to_anchor=(0, -54 / (axes.bbox.height * 72 / axes.figure.dpi)),
                    borderaxespad=0, ncol=columns, frameon=False)
    else:
        axes.legend(handles, labels, loc="upper left", bbox_to_anchor=(1.02, 1), frameon=False, fontsize=8)
