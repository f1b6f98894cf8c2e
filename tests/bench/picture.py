"""A chart of a run: cost against running pods, and pods per second by shape. Needs matplotlib."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from tests.bench.results import Results

#: matplotlib's Axes, which cannot be named where matplotlib is not installed.
Axes = Any


def draw(results: Results, path: Path) -> None:
    """Draw the chart to `path`; raise ImportError if matplotlib is missing."""
    # Imported by name, so that type checks do not depend on the extra.
    import_module("matplotlib").use("Agg")
    pyplot = import_module("matplotlib.pyplot")
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(15, 7), constrained_layout=True)
    _cost(left, results)
    _throughput(right, results)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _cost(axes: Axes, results: Results) -> None:
    """Draw a line for each shape: median decision against running pods."""
    rows = results.flatness or results.core
    for shape in dict.fromkeys(row.shape for row in rows):
        points = sorted((max(row.n_running, 1), row.decision.p50) for row in rows if row.shape == shape)
        axes.plot(*zip(*points, strict=True), marker="o", label=shape)
    axes.set(xscale="log", yscale="log", xlabel="running pods", ylabel="one decision, p50, µs of CPU")
    axes.set_ylim(bottom=50)
    axes.grid(visible=True, which="both", alpha=0.3)
    axes.set_title("a decision does not ask how many pods run")
    if rows:
        axes.legend(fontsize="small")


def _throughput(axes: Axes, results: Results) -> None:
    """Draw bars for each shape: pods per second by scheduler and server, or of the core alone."""
    series: dict[str, dict[str, float]] = {}
    for row in results.http:
        series.setdefault(f"{row.scheduler} on {row.server}", {})[row.shape] = row.pods_per_s
    if not series:
        series["core alone"] = {row.shape: row.per_second for row in results.core}
    shapes = list(dict.fromkeys(shape for bars in series.values() for shape in bars))
    height = 0.8 / len(series)
    for place, (label, bars) in enumerate(series.items()):
        heights = [index + place * height for index in range(len(shapes))]
        axes.barh(heights, [bars.get(shape, 0.0) for shape in shapes], height, label=label)
    axes.set_yticks([index + 0.4 - height / 2 for index in range(len(shapes))], shapes)
    axes.invert_yaxis()
    axes.set(xlabel="pods per second")
    axes.set_title("pods per second by shape")
    axes.legend(fontsize="small")
