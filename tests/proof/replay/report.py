"""The table and the picture of a replay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final
from xml.sax.saxutils import escape

from scheduler.tools.explain.formats.table import table_lines
from tests.bench.measuring import percentile
from tests.proof.replay.play import Played
from tests.proof.replay.trace import GPU_MILLI

_WIDTH, _HEIGHT, _MARGIN, _RIGHT = 960, 452, 56, 940
#: The upper ends of the two diagrams, and their heights.
_TOP, _PANEL, _GAP = 28, 160, 36
#: Of lines and their names, on a light and on a dark page.
_COLOURS: Final = (
    ("#0969da", "#58a6ff"),
    ("#1a7f37", "#56d364"),
    ("#cf222e", "#ff7b72"),
    ("#8250df", "#bc8cff"),
    ("#9a6700", "#e3b341"),
)
_N_COLOURS: Final = len(_COLOURS)


def _rules(page: int) -> str:
    """Return the colours on a page that is light, 0, or dark, 1."""
    ink = ("#1f2328", "#e6edf3")[page]
    lines = "".join(
        f"polyline.p{index}{{stroke:{colours[page]}}}text.p{index}{{fill:{colours[page]}}}"
        for index, colours in enumerate(_COLOURS)
    )
    return f"text{{fill:{ink}}}path{{stroke:{ink}}}{lines}"


_STYLE: Final = (
    "path,polyline{fill:none}polyline{stroke-width:1.5}"
    f"{_rules(0)}@media(prefers-color-scheme:dark){{{_rules(1)}}}"
)
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
    """Return the GPUs that pods held and those that worked, on average until the last job was created."""
    held = working = 0.0
    points = _until_last_creation(played)
    for (start_s, held_milli, working_milli), (end_s, _, _) in pairwise(points):
        held += held_milli * (end_s - start_s)
        working += working_milli * (end_s - start_s)
    whole_s = points[-1][0] - points[0][0]
    return (held / whole_s / GPU_MILLI, working / whole_s / GPU_MILLI) if whole_s else (0.0, 0.0)


def _until_last_creation(played: Played) -> list[tuple[float, int, int]]:
    """Return the changes until then; what follows are the last jobs' ends, which may take as long as all before."""
    jobs = [*(result.job for result in played.results), *played.unplaced]
    last_s = max(job.created_s for job in jobs)
    return [point for point in played.allocated if point[0] <= last_s] or played.allocated[:1]


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 600 else f"{seconds / _HOUR_S:.1f} h"


def picture(plays: Sequence[Played], n_gpus: int) -> str:
    """Return an SVG, for light and dark pages: GPUs at work, and below GPUs held idle, a line for each play."""
    series = [_until_last_creation(played) for played in plays]
    end_s = max(points[-1][0] for points in series) or 1.0
    most_idle = max(max(held - working for _, held, working in points) for points in series)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f"<style>{_STYLE}</style>",
        *_panel("GPUs of jobs that run", _TOP, n_gpus),
        *_panel("GPUs held by jobs that wait for a pod", _TOP + _PANEL + _GAP, most_idle // GPU_MILLI),
        f'<text x="{_RIGHT}" y="{_HEIGHT - 50}" text-anchor="end">{end_s / _HOUR_S:.1f} hours</text>',
    ]
    for index, (played, points) in enumerate(zip(plays, series, strict=True)):
        at_work = [(second, working / (GPU_MILLI * n_gpus)) for second, _, working in points]
        idle = [(second, (held - working) / max(1, most_idle)) for second, held, working in points]
        for top, values in ((_TOP, at_work), (_TOP + _PANEL + _GAP, idle)):
            line = " ".join(
                f"{_MARGIN + second / end_s * (_RIGHT - _MARGIN):.1f},{top + _PANEL * (1 - share):.1f}"
                for second, share in _steps(values)
            )
            parts.append(f'<polyline class="p{index % _N_COLOURS}" points="{line}"/>')
        x, y = _MARGIN + (_RIGHT - _MARGIN) * (index % 3) // 3, _HEIGHT - 28 + 18 * (index // 3)
        parts.append(f'<text class="p{index % _N_COLOURS}" x="{x}" y="{y}">{escape(played.name)}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _panel(title: str, top: int, most: int) -> list[str]:
    """Return the axes of one diagram."""
    bottom = top + _PANEL
    return [
        f'<path d="M{_MARGIN},{top}V{bottom}H{_RIGHT}"/>',
        f'<text x="{_MARGIN - 6}" y="{top + 4}" text-anchor="end">{most}</text>',
        f'<text x="{_MARGIN - 6}" y="{bottom}" text-anchor="end">0</text>',
        f'<text x="{_MARGIN}" y="{top - 8}">{title}</text>',
    ]


def _steps(values: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """Yield the corners of the line, at most about twice `_POINTS`."""
    chosen = [*values[:: max(1, len(values) // _POINTS)], values[-1]]
    last = chosen[0][1]
    for second, share in chosen:
        yield second, last
        yield second, share
        last = share
