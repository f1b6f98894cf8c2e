"""The table of a run's results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tests.bench.core_level import CoreResult
from tests.bench.http_level import HttpResult
from tests.bench.results import Results

_N_SHARES = 4


def table(results: Results) -> str:
    """Return the run as text, with a block for each level."""
    machine = results.machine
    head = [
        f"{machine.n_cpus} x {machine.cpu}, Python {machine.python}, numpy {machine.numpy}, load {machine.load:.2f}",
        *([f"conformance: {results.conformance}"] if results.conformance else []),
    ]
    blocks = [
        _core(results),
        _flatness(results),
        _bytes(results),
        _http(results),
        _capacity(results),
        _holds(results),
        _hostile(results),
    ]
    return "\n\n".join(["\n".join(head), *filter(None, blocks)])


def _core(results: Results) -> str:
    rows = results.core
    return _block(
        "decision in the core alone, µs of CPU (budget p50 250, p99 600)",
        "shape nodes running pods p50 p99 max per-s echo KiB |shares",
        (
            [
                row.shape,
                row.n_nodes,
                row.n_running,
                row.n_pods,
                f"{row.decision.p50:.0f}",
                f"{row.decision.p99:.0f}",
                f"{row.decision.highest:.0f}",
                f"{row.per_second:.0f}",
                f"{row.echo_us:.0f}",
                f"{row.transient_kib:.0f}",
                _shares(row),
            ]
            for row in rows
        ),
    )


def _shares(row: CoreResult) -> str:
    ordered = sorted(row.share_by_plugin.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {share:.0%}" for name, share in ordered[:_N_SHARES])


def _flatness(results: Results) -> str:
    first: dict[str, float] = {}
    return _block(
        "decision against running pods, µs of CPU (budget: within 10 %)",
        "shape running p50 p99 x-first",
        (
            [
                row.shape,
                row.n_running,
                f"{row.decision.p50:.0f}",
                f"{row.decision.p99:.0f}",
                _ratio(row.decision.p50, first.setdefault(row.shape, row.decision.p50)),
            ]
            for row in results.flatness
        ),
    )


def _bytes(results: Results) -> str:
    events = list(results.bytes[0].us_by_event) if results.bytes else []
    names = " ".join(event.replace(" ", "-") for event in events)
    return _block(
        "one watch event from its bytes, µs of CPU (target 40)",
        f"shape mean x-basic {names} initial-list",
        (
            [
                row.shape,
                f"{row.event_us:.1f}",
                _ratio(row.event_us, results.bytes[0].event_us),
                *(f"{row.us_by_event[event]:.1f}" for event in events),
                f"{row.load_us:.1f}",
            ]
            for row in results.bytes
        ),
    )


def _http(results: Results) -> str:
    rows = results.http
    return _block(
        "whole path over HTTP, first to last binding, medians of the rounds (x-limit, x-other, x-kube: our pods/s to"
        " those of binding only, of the other checkout, of kube-scheduler;"
        " events-s: from the last binding to the last event, CPU until then; untold: pods without one)",
        "server shape scheduler nodes running pods pods/s x-limit x-other x-kube CPU-ms/pod server-ms/pod start-s"
        " events-s untold peak-MiB",
        (
            [
                row.server,
                row.shape,
                row.scheduler,
                row.n_nodes,
                row.n_running,
                row.n_pods,
                f"{row.pods_per_s:.0f}",
                *(
                    _ratio(row.pods_per_s, _pods_per_s(rows, row.server, row.shape, other))
                    if row.scheduler == "ours"
                    else ""
                    for other in ("binding only", "other checkout", "kube-scheduler")
                ),
                f"{row.cpu_ms_per_pod:.2f}",
                f"{row.server_cpu_ms_per_pod:.2f}",
                f"{row.start_s:.1f}",
                f"{row.events_s:.1f}",
                str(row.n_untold),
                f"{row.peak_mib:.0f}",
            ]
            for row in rows
        ),
    )


def _pods_per_s(rows: Sequence[HttpResult], server: str, shape: str, scheduler: str) -> float:
    wanted = (server, shape, scheduler)
    return next((r.pods_per_s for r in rows if (r.server, r.shape, r.scheduler) == wanted), 0.0)


def _capacity(results: Results) -> str:
    return _block(
        "memory of the whole process and CPU from the first byte to the first decision",
        "kind nodes running MiB peak-MiB start-s first-ms p50-µs p99-µs",
        (
            [
                row.kind,
                row.n_nodes,
                row.n_running,
                f"{row.resident_mib:.0f}",
                f"{row.peak_mib:.0f}",
                f"{row.start_s:.1f}",
                f"{row.first_ms:.1f}",
                f"{row.decision_p50_us:.0f}",
                f"{row.decision_p99_us:.0f}",
            ]
            for row in results.capacity
        ),
    )


def _holds(results: Results) -> str:
    return _block(
        "longest hold of the event loop, ms of CPU (target 10), the collector's part, and ms of wall time",
        "phase longest gc above-10 wall task",
        (
            [
                row.phase,
                f"{row.longest_ms:.1f}",
                f"{row.gc_ms:.1f}",
                row.n_above_10_ms,
                f"{row.longest_wall_ms:.1f}",
                row.what,
            ]
            for row in results.holds
        ),
    )


def _hostile(results: Results) -> str:
    return _block(
        "good pods beside an attack, ms from their creation, itself post, to their binding (goal: p99 within 10 x peace"
        " and 250); CPU s, MiB at the peak and after the deletion, also the enforcer's; back-s: until the memory was"
        " back",
        "attack scheduler peace-p50 peace-p99 p50 p99 max post-p99 good late attack-s CPU-s peak after e-CPU-s e-peak"
        " e-after back-s log-lines",
        (
            [
                row.attack,
                row.scheduler,
                f"{row.peace_p50_ms:.0f}",
                f"{row.peace_p99_ms:.0f}",
                f"{row.p50_ms:.0f}",
                f"{row.p99_ms:.0f}",
                f"{row.highest_ms:.0f}",
                f"{row.post_p99_ms:.0f}",
                row.n_good,
                row.n_late,
                f"{row.attack_s:.0f}",
                f"{row.cpu_s:.1f}",
                f"{row.peak_mib:.0f}",
                f"{row.after_mib:.0f}",
                f"{row.enforcer_cpu_s:.1f}",
                f"{row.enforcer_peak_mib:.0f}",
                f"{row.enforcer_after_mib:.0f}",
                f"{row.back_s:.0f}",
                row.n_log_lines,
            ]
            for row in results.hostile
        ),
    )


def _ratio(amount: float, base: float) -> str:
    return f"{amount / base:.2f}" if base else ""


def _block(title: str, header: str, rows: Iterable[Sequence[object]]) -> str:
    """Return a titled block of aligned columns, empty if there are no rows; numbers are right-aligned."""
    cells = [[str(cell) for cell in row] for row in rows]
    if not cells:
        return ""
    names = header.replace("|", "").split(" ")
    widths = [max(len(line[i]) for line in [names, *cells]) for i in range(len(names))]
    return "\n".join([title, *_lines([names, *cells], widths)])


def _lines(cells: Iterable[Sequence[str]], widths: Sequence[int]) -> Iterator[str]:
    for line in cells:
        yield "  ".join(
            cell.rjust(width) if _is_number(cell) else cell.ljust(width)
            for cell, width in zip(line, widths, strict=True)
        ).rstrip()


def _is_number(cell: str) -> bool:
    return cell.replace(".", "", 1).isdigit()
