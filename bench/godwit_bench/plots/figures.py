"""Plots of results in the style of the published figures; a Python with matplotlib runs it on the JSON of a result.

figures.py FILE.json: draws every figure of `plots` into an SVG in the directory of FILE. A figure has `name`, `title`, `x` and `y`
(labels), `log` (axes), `lines` (name -> [[x, y], ..]) and optionally `bold` (prefixes of the names of highlighted lines; default: those of
godwit).
"""

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
from matplotlib.ticker import NullLocator

# Each line has its own marker, so that lines are distinct without colour.
MARKERS = "osD^v<>Pp*hX"
# A fixed salt makes the output reproducible.
matplotlib.rcParams["svg.hashsalt"] = "godwit"
matplotlib.rcParams["font.size"] = 9


def tick_labels(ticks: Sequence[float], log: bool) -> list[str]:
    """Returns the labels of ticks; a label that would overlap the previous one is empty."""
    places = [math.log(tick) if log else tick for tick in ticks]
    least, labels, last = 0.03 * (places[-1] - places[0]), [], None
    for tick, place in zip(ticks, places, strict=False):
        is_free = last is None or place - last > least
        labels.append(f"{tick:.4g}" if is_free else "")
        last = place if is_free else last
    return labels


def draw_figure(figure: dict[str, Any], path: Path) -> None:
    whole, axes = plt.subplots(figsize=(7.5, 4.5), layout="constrained")
    for (name, points), mark in zip(figure["lines"].items(), MARKERS, strict=False):
        bold = name.startswith(tuple(figure.get("bold", ["godwit"])))
        xs, ys = zip(*points, strict=False)
        axes.plot(xs, ys, marker=mark, label=name, linewidth=2.4 if bold else 1.2, markersize=6 if bold else 5, linestyle="-" if bold else "--")
    for axis in figure.get("log", ""):
        getattr(axes, f"set_{axis}scale")("log")
    ticks = sorted({x for points in figure["lines"].values() for x, _ in points})
    if len(ticks) < 12:
        axes.set_xticks(ticks, tick_labels(ticks, "x" in figure.get("log", "")))
        axes.xaxis.set_minor_locator(NullLocator())
    if "y" in figure.get("log", ""):
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in "25" else "")
    else:
        axes.set_ylim(bottom=0)
    axes.set_title(figure["title"])
    axes.set_xlabel(figure["x"])
    axes.set_ylabel(figure["y"])
    axes.grid(alpha=0.3)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    whole.savefig(path, metadata={"Date": None})
    whole.savefig(path.with_suffix(".png"), dpi=110) if "--png" in sys.argv else None
    plt.close(whole)


if __name__ == "__main__":
    result = Path(sys.argv[1])
    for figure in json.loads(result.read_text())["plots"]:
        draw_figure(figure, result.parent / f"{figure['name']}.svg")
