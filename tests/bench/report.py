"""The table of a run's results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from tests.bench.core_level import CoreResult
from tests.bench.http_level import HttpResult
from tests.bench.results import Results

_N_SHARES = 4

#: By the name of a column, what it has of a row: a format of `0`, the row, or a function of it.
Columns = Mapping[str, str | Callable[[Any], str]]

_CAPACITY: Final = {
    "kind": "{0.kind}",
    "nodes": "{0.n_nodes}",
    "running": "{0.n_running}",
    "MiB": "{0.resident_mib:.0f}",
    "peak-MiB": "{0.peak_mib:.0f}",
    "start-s": "{0.start_s:.1f}",
    "first-ms": "{0.first_ms:.1f}",
    "p50-µs": "{0.decision_p50_us:.0f}",
    "p99-µs": "{0.decision_p99_us:.0f}",
}
_HOLDS: Final = {
    "situation": "{0.situation}",
    "nodes": "{0.n_nodes}",
    "running": "{0.n_running}",
    "longest": "{0.longest_ms:.1f}",
    "gc": "{0.gc_ms:.1f}",
    "above-10": "{0.n_above_10_ms}",
    "wall": "{0.longest_wall_ms:.1f}",
    "lag": "{0.lag_ms:.1f}",
    "sampled": "{0.sampled_ms:.1f}",
    "task": "{0.what}",
}
_HOSTILE: Final = {
    "attack": "{0.attack}",
    "scheduler": "{0.scheduler}",
    "peace-p50": "{0.peace_p50_ms:.0f}",
    "peace-p99": "{0.peace_p99_ms:.0f}",
    "p50": "{0.p50_ms:.0f}",
    "p99": "{0.p99_ms:.0f}",
    "max": "{0.highest_ms:.0f}",
    "post-p99": "{0.post_p99_ms:.0f}",
    "good": "{0.n_good}",
    "late": "{0.n_late}",
    "attack-s": "{0.attack_s:.0f}",
    "CPU-s": "{0.cpu_s:.1f}",
    "peak": "{0.peak_mib:.0f}",
    "after": "{0.after_mib:.0f}",
    "e-CPU-s": "{0.enforcer_cpu_s:.1f}",
    "e-peak": "{0.enforcer_peak_mib:.0f}",
    "e-after": "{0.enforcer_after_mib:.0f}",
    "back-s": "{0.back_s:.0f}",
    "log-lines": "{0.n_log_lines}",
}
_COMMANDS: Final = {
    "command": "{0.command}",
    "scheduler": "{0.scheduler}",
    "CPU-s": "{0.cpu_s:.2f}",
    "wall-s": "{0.wall_s:.2f}",
}
_STARTS: Final = {
    "server": "{0.server}",
    "scheduler": "{0.scheduler}",
    "nodes": "{0.n_nodes}",
    "running": "{0.n_running}",
    "filled-s": "{0.filled_s:.2f}",
    "CPU-s": "{0.filled_cpu_s:.2f}",
    "bind-s": "{0.bind_s:.2f}",
    "release-s": "{0.release_s:.2f}",
    "takeover-s": "{0.takeover_s:.2f}",
    "longest": "{0.takeover_max_s:.2f}",
}


def table(results: Results) -> str:
    """Return the run as text, with a block for each level."""
    machine = results.machine
    head = [
        f"{machine.n_cpus} x {machine.cpu}, Python {machine.python}, numpy {machine.numpy}, load {machine.load:.2f}",
        *([f"conformance: {results.conformance}"] if results.conformance else []),
    ]
    blocks = [
        _block(
            "decision in the core alone, µs of CPU (budget p50 250, p99 600)", _core_columns(), results.core
        ),
        _block(
            "decision against running pods, µs of CPU (budget: within 10 %)",
            _flatness_columns(),
            results.flatness,
        ),
        _block(
            "one watch event from its bytes, µs of CPU (target 40)", _bytes_columns(results), results.bytes
        ),
        _block(
            "whole path over HTTP, first to last binding, medians of the rounds (x-limit, x-other, x-kube: our pods/s"
            " to those of binding only, of the other checkout, of kube-scheduler;"
            " events-s: from the last binding to the last event, CPU until then, CPU-s from the start on; untold: pods"
            " without one)",
            _http_columns(results.http),
            results.http,
        ),
        _block(
            "memory of the whole process and CPU from the first byte to the first decision",
            _CAPACITY,
            results.capacity,
        ),
        _block(
            "longest hold of the event loop, ms of CPU (at most 10), the collector's part; in wall time: of a callback,"
            " the loop's lag by the scheduler itself, and as another thread waits for it",
            _HOLDS,
            results.holds,
        ),
        _block(
            "good pods beside an attack, ms from their creation, itself post, to their binding (goal: p99 within 10 x"
            " peace and 250); CPU s, MiB at the peak and after the deletion, also the enforcer's; back-s: until the"
            " memory was back",
            _HOSTILE,
            results.hostile,
        ),
        _block("commands that print and end (goal: --help within 0.15 s)", _COMMANDS, results.commands),
        _block(
            "from the start to filled caches, and on to the first binding (goal: 0.5 s); from SIGTERM of the leader to"
            " the release of its Lease, and on to the standby's first binding (goal: 0.5 s)",
            _STARTS,
            results.starts,
        ),
    ]
    return "\n\n".join(["\n".join(head), *filter(None, blocks)])


def _core_columns() -> Columns:
    return {
        "shape": "{0.shape}",
        "nodes": "{0.n_nodes}",
        "running": "{0.n_running}",
        "pods": "{0.n_pods}",
        "p50": "{0.decision.p50:.0f}",
        "p99": "{0.decision.p99:.0f}",
        "max": "{0.decision.highest:.0f}",
        "per-s": "{0.per_second:.0f}",
        "echo": "{0.echo_us:.0f}",
        "KiB": "{0.transient_kib:.0f}",
        "shares": _shares,
    }


def _shares(row: CoreResult) -> str:
    ordered = sorted(row.share_by_plugin.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {share:.0%}" for name, share in ordered[:_N_SHARES])


def _flatness_columns() -> Columns:
    first: dict[str, float] = {}
    return {
        "shape": "{0.shape}",
        "running": "{0.n_running}",
        "p50": "{0.decision.p50:.0f}",
        "p99": "{0.decision.p99:.0f}",
        "x-first": lambda row: _ratio(row.decision.p50, first.setdefault(row.shape, row.decision.p50)),
    }


def _bytes_columns(results: Results) -> Columns:
    events = list(results.bytes[0].us_by_event) if results.bytes else []
    return {
        "shape": "{0.shape}",
        "mean": "{0.event_us:.1f}",
        "x-basic": lambda row: _ratio(row.event_us, results.bytes[0].event_us),
        **{event.replace(" ", "-"): f"{{0.us_by_event[{event}]:.1f}}" for event in events},
        "initial-list": "{0.load_us:.1f}",
    }


def _http_columns(rows: Sequence[HttpResult]) -> Columns:
    def compared_with(other: str) -> Callable[[HttpResult], str]:
        def ratio(row: HttpResult) -> str:
            if row.scheduler != "ours":
                return ""
            return _ratio(row.pods_per_s, _pods_per_s(rows, row.server, row.shape, other))

        return ratio

    return {
        "server": "{0.server}",
        "shape": "{0.shape}",
        "scheduler": "{0.scheduler}",
        "nodes": "{0.n_nodes}",
        "running": "{0.n_running}",
        "pods": "{0.n_pods}",
        "pods/s": "{0.pods_per_s:.0f}",
        "x-limit": compared_with("binding only"),
        "x-other": compared_with("other checkout"),
        "x-kube": compared_with("kube-scheduler"),
        "CPU-ms/pod": "{0.cpu_ms_per_pod:.2f}",
        "CPU-s": "{0.cpu_s:.1f}",
        "server-ms/pod": "{0.server_cpu_ms_per_pod:.2f}",
        "start-s": "{0.start_s:.1f}",
        "events-s": "{0.events_s:.1f}",
        "untold": "{0.n_untold}",
        "peak-MiB": "{0.peak_mib:.0f}",
    }


def _pods_per_s(rows: Sequence[HttpResult], server: str, shape: str, scheduler: str) -> float:
    wanted = (server, shape, scheduler)
    return next((r.pods_per_s for r in rows if (r.server, r.shape, r.scheduler) == wanted), 0.0)


def _ratio(amount: float, base: float) -> str:
    return f"{amount / base:.2f}" if base else ""


def _block(title: str, columns: Columns, rows: Sequence[object]) -> str:
    """Return a titled block of aligned columns, empty if there are no rows; numbers are right-aligned."""
    cells = [
        [column.format(row) if isinstance(column, str) else column(row) for column in columns.values()]
        for row in rows
    ]
    return "\n".join([title, *aligned([list(columns), *cells])]) if cells else ""


def aligned(cells: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a line for each row of cells."""
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    for line in cells:
        yield "  ".join(
            cell.rjust(width) if _is_number(cell) else cell.ljust(width)
            for cell, width in zip(line, widths, strict=True)
        ).rstrip()


def _is_number(cell: str) -> bool:
    return cell.replace(".", "", 1).isdigit()
