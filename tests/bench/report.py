"""The table of a run's results: a block for each level, a column for each field of its rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tests.bench.measuring import Spread
from tests.bench.results import Results

_N_SHARES = 4

#: By the field of `Results`. Fields of rows end in their unit.
_TITLES: Final = {
    "core": "decision in the core alone, µs of CPU (budget p50 250, p99 600)",
    "flatness": "decision against running pods, µs of CPU (budget: within 10 %)",
    "bytes": "one watch event from its bytes, µs of CPU (target 40)",
    "http": "whole path over HTTP, first to last binding, medians of the rounds (x-limit, x-other, x-kube: our pods/s"
    " to those of binding only, of the other checkout, of kube-scheduler; events-s: from the last binding to the last"
    " event, CPU until then, cpu-s from the start on; untold: pods without one)",
    "capacity": "memory of the whole process and CPU from the first byte to the first decision",
    "holds": "longest hold of the event loop, ms of CPU (at most 10), the collector's part; in wall time: of a"
    " callback, the loop's lag by the scheduler itself, and as another thread waits for it",
    "hostile": "good pods beside an attack, ms from their creation, itself post, to their binding (goal: p99 within"
    " 10 x peace and 250); CPU s, MiB at the peak and after the deletion, also the enforcer's; back-s: until the"
    " memory was back",
    "commands": "commands that print and end (goal: --help within 0.15 s)",
    "starts": "from the start to filled caches, and on to the first binding (goal: 0.5 s); from SIGTERM of the leader"
    " to the release of its Lease, and on to the standby's first binding (goal: 0.5 s)",
}
_COMPARED: Final = {"x-limit": "binding only", "x-other": "other checkout", "x-kube": "kube-scheduler"}


def table(results: Results) -> str:
    """Return the run as text."""
    machine = results.machine
    head = f"{machine.n_cpus} x {machine.cpu}, Python {machine.python}, numpy {machine.numpy}, load {machine.load:.2f}"
    blocks = [
        "\n".join([title, *_aligned([_cells(row) | _compared(level, row, rows) for row in rows])])
        for level, title in _TITLES.items()
        if (rows := getattr(results, level))
    ]
    return "\n\n".join([head, *blocks])


def _cells(row: Any) -> dict[str, str]:
    """Return the row's fields as text, by the names of columns."""
    cells: dict[str, str] = {}
    for name in row.__struct_fields__:
        value, column = getattr(row, name), name.removeprefix("n_").replace("_", "-")
        if name == "share_by_plugin":
            ordered = sorted(value.items(), key=lambda item: -item[1])
            cells["shares"] = ", ".join(f"{plugin} {share:.0%}" for plugin, share in ordered[:_N_SHARES])
        elif isinstance(value, Mapping):
            cells |= {key.replace(" ", "-"): _text(each) for key, each in value.items()}
        elif isinstance(value, Spread):
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
    if level == "bytes":
        return {"x-basic": _text(row.event_us / rows[0].event_us)}
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


def _aligned(rows: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """Yield a line for each row, below the names of its columns; numbers are right-aligned."""
    lines = [list(rows[0]), *(list(row.values()) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        yield "  ".join(
            cell.rjust(width) if cell.replace(".", "", 1).isdigit() else cell.ljust(width)
            for cell, width in zip(line, widths, strict=True)
        ).rstrip()
