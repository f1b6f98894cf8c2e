"""Prints where the pods of drained nodes would go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from scheduler.engine.syntax.plurals import counted, first_names
from scheduler.tools.explain.formats.table import table_lines
from scheduler.tools.explain.formats.terminal import Style, escape_control_characters
from scheduler.tools.explain.report import more_lines, report_lines
from scheduler.tools.explain.sentences import reason_in
from scheduler.tools.explain.simulation.drain import Drain, LeavingPod, Stay, StayingPods

#: Rows of each table unless it is wide.
_ROWS: Final = 20

_WORDS: Final = {
    Stay.DAEMON_SET: "of DaemonSets",
    Stay.STATIC: "static",
    Stay.NO_CONTROLLER: "without a controller: nothing makes them anew",
    Stay.TERMINATING: "terminating already",
}


def drain_lines(drain: Drain, style: Style, *, wide: bool) -> list[str]:
    """Return the lines to print."""
    placed = [pod for pod in drain.leaving if pod.to]
    unplaced = [pod for pod in drain.leaving if pod.message]
    held = [pod for pod in drain.leaving if pod.held_by]
    what = f"Without zone {drain.zone}" if drain.zone else f"Drain of {_names(drain.nodes)}"
    finds = "finds a place" if drain.n_leaving == 1 else "find a place"
    count = f"{drain.n_placed} of {counted(drain.n_leaving, 'pod')} {finds} elsewhere"
    lines = [style.heading(f"{what}: {style.good(count) if drain.is_ok else style.bad(count)}")]
    lines += [style.faint(f"  note: {escape_control_characters(note)}") for note in drain.notes]
    lines += [f"  {_stays(pods, gone=bool(drain.zone))}" for pods in drain.staying]
    tables = (
        (
            "WHERE THEY GO" if drain.zone else "WHERE THEY GO, AS BUDGETS ALLOW",
            ("ROUND", "POD", "FROM", "TO"),
            [(pod.round, pod.key, pod.node, pod.to) for pod in placed],
        ),
        ("NO PLACE", *_refused(unplaced, "WHY", lambda pod: pod.message, wide=wide)),
        ("NEVER LET GO", *_refused(held, "PODDISRUPTIONBUDGET", lambda pod: pod.held_by, wide=wide)),
    )
    for title, head, rows in tables:
        shown = rows if wide else rows[:_ROWS]
        if shown:
            table = map(escape_control_characters, table_lines(head, shown, columns=style.columns))
            lines += ["", style.heading(title), *table]
        lines += more_lines(len(rows) - len(shown), 0, head[-3].lower())
    if drain.next is not None:
        title = f"WHY {drain.next.namespace}/{drain.next.pod} FINDS NO PLACE"
        lines += ["", style.heading(title), "", *report_lines(drain.next, style, wide=wide)]
    return lines


def _refused(
    pods: Sequence[LeavingPod], why: str, why_of: Callable[[LeavingPod], str], *, wide: bool
) -> tuple[tuple[str, ...], Sequence[Sequence[str | int]]]:
    """Return the head and rows of a table of pods without a place: a row for those that are alike, unless wide."""
    if wide:
        return ("ROUND", "POD", "FROM", why), [(pod.round, pod.key, pod.node, why_of(pod)) for pod in pods]
    alike: dict[tuple[str, str], list[str]] = {}
    for pod in pods:
        key = f"{pod.namespace}/{pod.workload}", reason_in(why_of(pod))
        alike.setdefault(key, []).append(pod.node)
    rows = [
        (len(nodes), workload, first_names(list(dict.fromkeys(nodes))), reason)
        for (workload, reason), nodes in alike.items()
    ]
    return ("PODS", "WORKLOAD", "FROM", why), rows


def _names(nodes: Sequence[str]) -> str:
    return f"node {nodes[0]}" if len(nodes) == 1 else counted(len(nodes), "node")


def _stays(staying: StayingPods, *, gone: bool) -> str:
    """Return a line about pods without a replacement, such as `2 pods stay: of DaemonSets`."""
    leave = gone or staying.why in (Stay.NO_CONTROLLER, Stay.TERMINATING)
    one = staying.pods.n_total == 1
    verb = ("leaves" if one else "leave") if leave else ("stays" if one else "stay")
    line = f"{counted(staying.pods.n_total, 'pod')} {verb}: {_WORDS[staying.why]}"
    if staying.why is Stay.NO_CONTROLLER:
        line += f" ({first_names([ref.key for ref in staying.pods.shown])})"
        if not gone:
            line += f"; kubectl drain refuses {'it' if one else 'them'} without --force"
    return escape_control_characters(line)
