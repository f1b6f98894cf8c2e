"""Prints the pods that wait for a node as a table of workloads."""

from __future__ import annotations

from typing import Final

from scheduler.daemon.kube.requests import seconds_of
from scheduler.engine.syntax.plurals import counted
from scheduler.tools.explain.formats.table import table_lines
from scheduler.tools.explain.formats.terminal import Style, escape_control_characters
from scheduler.tools.explain.pending import PendingWorkload, PendingWorkloads
from scheduler.tools.explain.report import more_lines
from scheduler.tools.explain.serving import age_text

#: The most that is printed unless the table is wide.
_ROWS: Final = 30
_WORDS: Final = 10


def pending_lines(pending: PendingWorkloads, read_at: str, style: Style, *, wide: bool) -> list[str]:
    """Return the lines to print. `read_at`: when the cluster was read, from which ages count."""
    where = f"in namespace {pending.namespace}" if pending.namespace else "in all namespaces"
    where = escape_control_characters(where)
    if not pending.n_pods:
        return [style.heading(f"Pending {where}: {style.good('nothing')}")]
    workloads = {one.workload for one in pending.workloads}
    count = f"{counted(pending.n_pods, 'pod')} of {counted(len(workloads), 'workload')}"
    shown = pending.workloads if wide else pending.workloads[:_ROWS]
    head: tuple[str, ...] = ("WORKLOAD", "PODS", "SINCE", "REASON", "WHAT WOULD HELP MOST")
    rows = [_cells(one, read_at, wide=wide) for one in shown]
    if not pending.namespace:
        head, rows = (
            ("NAMESPACE", *head),
            [(one.namespace, *row) for one, row in zip(shown, rows, strict=True)],
        )
    first = pending.workloads[0]
    more = f"affinity-scheduler explain -n {first.namespace} {first.workload.text}"
    return [
        style.heading(f"Pending {where}: {style.bad(count)}"),
        "",
        *map(escape_control_characters, table_lines(head, rows, columns=style.columns)),
        *more_lines(len(pending.workloads) - len(shown), 0, "workload"),
        "",
        f"More of the first: {escape_control_characters(more)}",
    ]


def _cells(one: PendingWorkload, read_at: str, *, wide: bool) -> tuple[str | int, ...]:
    created_s, read_s = seconds_of(one.oldest), seconds_of(read_at)
    since = one.oldest if created_s is None or read_s is None else age_text(read_s - created_s)
    is_answered = one.state != "unschedulable" or one.misspelt
    nothing = "-" if is_answered else "no small change"
    reason = one.missing or (one.unserved or one.reason if wide else _cut(one.reason))
    return one.workload.text, one.n_pods, since or "-", reason, " ".join(one.change) or nothing


def _cut(reason: str) -> str:
    """Return the first words, since a table is read at a glance."""
    words = reason.split()
    return reason if len(words) <= _WORDS else " ".join((*words[:_WORDS], "..."))
