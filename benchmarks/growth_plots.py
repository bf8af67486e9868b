"""The pictures of growth.py: SVG without a background, in greys and hues that both light and dark
pages show; text stays text, so that they are small."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

INK, FIRST, SECOND = "#808080", "#2f81d6", "#d9822b"
STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "growth",  # the same figures make the same file
    "font.family": "sans-serif",
    "font.size": 11,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": INK,
    "grid.alpha": 0.25,
    "legend.frameon": False,
}


def plot(part: str, figures: dict[str, Any], folder: Path) -> None:
    """Write growth-PART.svg, or say what is missing."""
    try:
        import matplotlib as mpl
    except ImportError:
        print(f"no picture of {part}: pip install matplotlib, then again with --plots")
        return
    mpl.use("svg")
    from matplotlib import pyplot as plt

    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
        DRAWN[part](axes, figures)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"growth-{part}.svg"
        figure.savefig(path, transparent=True, metadata={"Date": None})
        plt.close(figure)
    text = re.sub(r"[ \t]+$", "", path.read_text(), flags=re.MULTILINE)
    path.write_text(text)
    print(f"{path}: {len(text) / 1e3:.0f} kB")


def rows(axes: Any, figures: dict[str, Any]) -> None:
    """Speed so far, and what has been held at most, over the rows."""
    seen = figures["seen"]
    counts = [one["rows"] for one in seen]
    speeds = [one["rows"] / one["seconds"] / 1e3 for one in seen]
    axes.plot(counts, speeds, color=FIRST, marker="o", label="1,000 rows a second, so far")
    axes.plot(counts, [one["peak"] for one in seen], color=SECOND, marker="s", label="peak MB")
    axes.set(xscale="log", xlabel="millions of rows", ylim=(0, None))
    axes.set_xticks(counts, [f"{count / 1e6:.3g}" for count in counts])
    axes.minorticks_off()
    axes.legend(loc="lower right")


def nonzeros(axes: Any, figures: dict[str, Any]) -> None:
    """What a row costs, and the line."""
    counts = figures["nonzeros"]
    line = [(figures["fixed"] + figures["each"] * count) / 1e3 for count in counts]
    told = f"{figures['fixed']:,.0f} + {figures['each']:,.1f} × non-zeros, ns"
    axes.plot(counts, line, color=INK, label=told)
    axes.plot(counts, [ns / 1e3 for ns in figures["ns"]], "o", color=FIRST, label="measured")
    axes.set(xscale="log", yscale="log", xlabel="non-zeros of a row", ylabel="µs a row, processor")
    axes.legend(loc="upper left")


def coordinates(axes: Any, figures: dict[str, Any]) -> None:
    """What a non-zero costs, and where the state leaves the last cache."""
    sizes = [2.0**power for power in figures["powers"]]
    axes.plot(sizes, figures["uniform"], color=FIRST, marker="o", label="coordinates alike")
    axes.plot(sizes, figures["log-uniform"], color=SECOND, marker="s", label="mostly low ones")
    axes.axvline(figures["cache"] / figures["cell"], color=INK, linestyle="--", label="last cache")
    axes.set(xlabel="coordinates", ylabel="ns a non-zero", ylim=(0, None))
    axes.set_xscale("log", base=2)
    axes.legend(loc="upper left")


DRAWN = {"rows": rows, "nonzeros": nonzeros, "coordinates": coordinates}
