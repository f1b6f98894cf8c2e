"""The table and the picture of a replay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final
from xml.sax.saxutils import escape

from scheduler.cli.query.table import table_lines
from tests.bench.measuring import percentile
from tests.replay.play import Played
from tests.replay.trace import GPU_MILLI

_WIDTH, _HEIGHT, _MARGIN = 960, 320, 56
_COLOURS: Final = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd")
_HOUR_S: Final = 3600.0
#: Points of a line in the picture.
_POINTS: Final = 1_000


def table(plays: Sequence[Played], n_gpus: int) -> list[str]:
    """Return a table with a row for each play; figures of jobs are of those with two pods or more."""
    head = (
        "PLACED",
        "JOBS RUN",
        "NEVER",
        "GPUS AT WORK",
        "GPUS HELD IDLE",
        "WAIT P50",
        "P99",
        "BLOCKS",
        "RACKS",
        "HOSTS",
    )
    return table_lines(head, [_row(played, n_gpus) for played in plays])


def _row(played: Played, n_gpus: int) -> tuple[str | int, ...]:
    groups = [result for result in played.results if len(result.job.pods) > 1]
    waits = sorted(result.waited_s for result in groups)
    held, working = _means(played)
    return (
        played.name,
        len(played.results),
        len(played.unplaced),
        f"{working / n_gpus:.1%}",
        f"{(held - working) / n_gpus:.1%}",
        _seconds(percentile(waits, 0.5)) if waits else "-",
        _seconds(percentile(waits, 0.99)) if waits else "-",
        *(
            f"{sum(getattr(result, name) for result in groups) / len(groups):.2f}" if groups else "-"
            for name in ("n_blocks", "n_racks", "n_hosts")
        ),
    )


def _means(played: Played) -> tuple[float, float]:
    """Return the GPUs that pods held and those that worked, on average over the time until the last change."""
    held = working = 0.0
    points = played.allocated
    for (start_s, held_milli, working_milli), (end_s, _, _) in pairwise(points):
        held += held_milli * (end_s - start_s)
        working += working_milli * (end_s - start_s)
    whole_s = (points[-1][0] - points[0][0]) if points else 0.0
    return (held / whole_s / GPU_MILLI, working / whole_s / GPU_MILLI) if whole_s else (0.0, 0.0)


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 600 else f"{seconds / _HOUR_S:.1f} h"


def picture(plays: Sequence[Played], n_gpus: int) -> str:
    """Return an SVG: GPUs at work over time, a line for each play."""
    begin_s = min(played.allocated[0][0] for played in plays)
    end_s = max(played.allocated[-1][0] for played in plays)
    span_s = max(end_s - begin_s, 1.0)
    right, bottom = _WIDTH - _MARGIN, _HEIGHT - _MARGIN

    def place(second: float, milli: int) -> str:
        x = _MARGIN + (second - begin_s) / span_s * (right - _MARGIN)
        y = bottom - milli / GPU_MILLI / n_gpus * (bottom - 24)
        return f"{x:.1f},{y:.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<path d="M{_MARGIN},24V{bottom}H{right}" fill="none" stroke="black"/>',
        f'<text x="{_MARGIN - 6}" y="28" text-anchor="end">{n_gpus}</text>',
        f'<text x="{_MARGIN - 6}" y="{bottom}" text-anchor="end">0</text>',
        f'<text x="{_MARGIN}" y="16">GPUs of jobs that run</text>',
        f'<text x="{right}" y="{bottom + 16}" text-anchor="end">{span_s / _HOUR_S:.1f} hours</text>',
    ]
    for played, colour in zip(plays, _COLOURS, strict=False):
        line = " ".join(place(second, milli) for second, milli in _steps(played))
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
    for index, (played, colour) in enumerate(zip(plays, _COLOURS, strict=False)):
        text = escape(played.name)
        parts.append(f'<text x="{_MARGIN + 220 * index}" y="{_HEIGHT - 12}" fill="{colour}">{text}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _steps(played: Played) -> Iterator[tuple[float, int]]:
    """Yield the corners of the line, at most about twice `_POINTS`."""
    points = played.allocated
    chosen = points[:: max(1, len(points) // _POINTS)] + points[-1:]
    last = chosen[0][2]
    for second, _, working_milli in chosen:
        yield second, last
        yield second, working_milli
        last = working_milli
