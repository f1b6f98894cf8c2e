"""The table of a run's results: a block for each level, a column for each field of its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from scheduler.tools.explain.formats.table import table_lines
from tests.bench.measuring import Spread
from tests.bench.results import Results

#: By the field of `Results`. Fields of rows end in their unit.
_TITLES: Final = {
    "core": "decision in the core alone, µs of CPU (budget p50 250, p99 600)",
    "flatness": "decision against running pods, µs of CPU (budget: within 10 %)",
    "http": "whole path over HTTP, first to last binding, medians of the rounds (x-limit, x-other, x-kube: our pods/s"
    " to those of binding only, of the other checkout, of kube-scheduler; events-s: from the last binding to the last"
    " event, CPU until then, cpu-s from the start on; untold: pods without one)",
    "holds": "longest hold of the event loop, ms of CPU (at most 10), and the collector's part",
    "hostile": "good pods beside an attack, ms from their creation, itself post, to their binding (goal: p99 within"
    " 10 x peace and 250); CPU s, MiB at the peak",
}
_COMPARED: Final = {"x-limit": "binding only", "x-other": "other checkout", "x-kube": "kube-scheduler"}


def table(results: Results) -> str:
    """Return the run as text."""
    machine = results.machine
    head = f"{machine.n_cpus} x {machine.cpu}, Python {machine.python}, numpy {machine.numpy}, load {machine.load:.2f}"
    blocks = [
        "\n".join([title, *_lines([_cells(row) | _compared(level, row, rows) for row in rows])])
        for level, title in _TITLES.items()
        if (rows := getattr(results, level))
    ]
    return "\n\n".join([head, *blocks])


def _lines(cells: Sequence[Mapping[str, str]]) -> list[str]:
    return table_lines(list(cells[0]), [list(row.values()) for row in cells], indent="")


def _cells(row: Any) -> dict[str, str]:
    """Return the row's fields as text, by the names of columns."""
    cells: dict[str, str] = {}
    for name in row.__struct_fields__:
        value, column = getattr(row, name), name.removeprefix("n_").replace("_", "-")
        if isinstance(value, Spread):
            parts = {"p50": value.p50, "p99": value.p99, "max": value.highest}
            cells |= {f"{column}-{part}": _text(each) for part, each in parts.items()}
        else:
            cells[column] = _text(value)
    return cells


def _compared(level: str, row: Any, rows: Sequence[Any]) -> dict[str, str]:
    """Return further columns, of ratios to other rows."""
    if level == "flatness":
        first = next(one for one in rows if one.shape == row.shape)
        return {"x-first": _text(row.decision.p50 / first.decision.p50)}
    if level != "http":
        return {}
    speeds = {
        one.scheduler: one.pods_per_s for one in rows if (one.server, one.shape) == (row.server, row.shape)
    }
    return {
        column: _text(row.pods_per_s / speeds[other]) if row.scheduler == "ours" and other in speeds else ""
        for column, other in _COMPARED.items()
    }


def _text(value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2}f}"
