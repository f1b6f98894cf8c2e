"""
The comparison of `audit` a bounded piece at a time, for a running scheduler whose state moves between two pieces.

Whatever is kept per row is compared with the pods on that row, found by `ClusterState.placed_on`: first row by row what
the pods ask to be kept, then count by count what is kept without a pod. Every single comparison is made at one moment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from scheduler.state.audit import limit_differences
from scheduler.state.cluster import ClusterState, PlacedPod
from scheduler.state.declared import TermKey
from scheduler.state.selection import LabelSet, Selection

#: Pods that are looked at in a piece, 2 µs each.
_AT_ONCE: Final = 1000
#: Label sets that are asked at once whether a selection has them, and pods that this counts as.
_LABEL_SETS: Final = 500
#: The same of a row, be there pods on it or not.
_ROW: Final = 6

#: What one comparison cost, in pods looked at, and its differences.
_Compared = tuple[int, list[str]]


class Recount:
    """
    Rounds of comparisons without end.

    Args:
        state: may move between two pieces, not during one.
        at_once: pods that a piece looks at, and some more.
    """

    def __init__(self, state: ClusterState, at_once: int = _AT_ONCE) -> None:
        self._state = state
        self._at_once = at_once
        self._round: Iterator[_Compared] = iter(())

    def step(self) -> list[str]:
        """The differences of the next piece, one line each; it ends where a round does. Cost: 2 ms."""
        found: list[str] = []
        left = self._at_once
        while left > 0:
            compared = next(self._round, None)
            if compared is None:
                self._round = _round(self._state)
                return found
            cost, texts = compared
            left -= cost
            found += texts
        return found


def _round(state: ClusterState) -> Iterator[_Compared]:
    n_found = sum(len(state.placed_on(row)) for row in range(state.nodes.n_rows))
    yield (
        state.nodes.n_rows // 10,
        [] if n_found == len(state.placed) else [f"{len(state.placed)} pods placed, {n_found} found on rows"],
    )
    offered = {name for node in state.nodes.nodes if node is not None for name in node.allocatable}
    for row in range(state.nodes.n_rows):
        yield _ROW + 2 * len(state.placed_on(row)), list(_row_differences(state, row, offered))
    for label_set in list(state.selections.label_sets()):
        for row in {*label_set.rows, *label_set.terminating_rows}:
            yield 1 + len(state.placed_on(row)) // 10, list(_label_set_differences(state, label_set, row))
        yield 1 + len(label_set.rows) // 50, list(_total_differences(label_set))
    for key in list(state.declared.all()):
        term = state.declared.all().get(key)
        for row, _ in [] if term is None else list(term.counts.items()):
            yield 1 + 2 * len(state.placed_on(row)), list(_declared_differences(state, key, row))
    for selection in list(state.selections.selections()):
        yield from _selection(state, selection)


def _row_differences(state: ClusterState, row: int, offered: set[str]) -> Iterator[str]:
    """Of all that the pods on the row ask to be kept."""
    pods, nodes, name = state.placed_on(row), state.nodes, state.nodes.name_of(row)
    requested: Counter[str] = Counter()
    non_zero = [0, 0]
    label_sets: Counter[LabelSet] = Counter()
    terms: Counter[TermKey] = Counter()
    for placed in pods:
        usage = state.usage_of(placed.pod)
        for resource, amount in usage.requested.items():
            requested[resource] += amount
        non_zero = [kept + more for kept, more in zip(non_zero, usage.non_zero, strict=True)]
        label_sets[placed.label_set] += 1
        terms.update(state.declared.keys(placed.label_set, placed.pod.spec))
    if nodes.pod_count[row] != len(pods):
        yield f"{name}: {nodes.pod_count[row]} pods kept, {len(pods)} recounted"
    if nodes.non_zero[:, row].tolist() != non_zero:
        yield f"{name}: non-zero {nodes.non_zero[:, row].tolist()} kept, {non_zero} recounted"
    for resource in sorted({*offered, *requested}):
        if nodes.requested_at(resource, row) != requested[resource]:
            yield f"{name}: {resource} differs, {requested[resource]} recounted"
    yield from _port_differences(state, row, pods)
    for label_set, n_pods in label_sets.items():
        if label_set.rows.get(row, 0) != n_pods:
            yield f"{name}: {label_set.rows.get(row, 0)} of {dict(label_set.labels)} kept, {n_pods} recounted"
    for key, n_times in terms.items():
        term = state.declared.all().get(key)
        if term is None or term.counts.at(row) != n_times:
            yield f"{key} on {name}: {n_times} times recounted, kept otherwise"


def _port_differences(state: ClusterState, row: int, pods: Iterable[PlacedPod]) -> Iterator[str]:
    ports = (port for placed in pods for port in state.usage_of(placed.pod).host_ports)
    recounted = Counter((port.protocol, port.port, port.ip) for port in ports)
    kept = {
        (protocol, number, ip): count
        for (protocol, number), rows in state.nodes.ports.items()
        for ip, count in rows.get(row, {}).items()
    }
    if kept != recounted:
        yield f"{state.nodes.name_of(row)}: host ports {kept} kept, {dict(recounted)} recounted"


def _label_set_differences(state: ClusterState, label_set: LabelSet, row: int) -> Iterator[str]:
    """Of the label set's pods on the row."""
    pods = [placed for placed in state.placed_on(row) if placed.label_set is label_set]
    terminating = sum(placed.pod.terminating for placed in pods)
    kept = (label_set.rows.get(row, 0), label_set.terminating_rows.get(row, 0))
    if kept != (len(pods), terminating):
        name = f"{label_set.namespace} {dict(label_set.labels)} on {state.nodes.name_of(row)}"
        yield f"{name}: pods and terminating ones {kept} kept, {(len(pods), terminating)} recounted"


def _total_differences(label_set: LabelSet) -> Iterator[str]:
    if label_set.n_pods != sum(label_set.rows.values()):
        yield f"{label_set.namespace} {dict(label_set.labels)}: {label_set.n_pods} pods kept, {label_set.rows}"


def _declared_differences(state: ClusterState, key: TermKey, row: int) -> Iterator[str]:
    """Of the term as the row's pods declare it."""
    recounted = sum(
        declared == key
        for placed in state.placed_on(row)
        for declared in state.declared.keys(placed.label_set, placed.pod.spec)
    )
    term = state.declared.all().get(key)
    kept = 0 if term is None else term.counts.at(row)
    if kept != recounted:
        yield f"{key} on {state.nodes.name_of(row)}: declared {kept} times kept, {recounted} recounted"


def _selection(state: ClusterState, selection: Selection) -> Iterator[_Compared]:
    """Whether it has the label sets that it matches, and counts their pods; over where it was swept meanwhile."""
    label_sets = iter(list(state.selections.label_sets()))
    while piece := list(islice(label_sets, _LABEL_SETS)):
        if state.selections.find(selection.matcher) is not selection:
            return
        yield _LABEL_SETS, list(_membership_differences(state, selection, piece))
    for row in range(state.nodes.n_rows):
        if state.selections.find(selection.matcher) is not selection:
            return
        yield 1 + len(state.placed_on(row)) // 10, list(_selected_differences(state, selection, row))
    if selection.limiting_terms:
        every: Counter[int] = Counter()
        for label_set in selection.label_sets:
            every.update(label_set.rows)
        yield _LABEL_SETS, list(limit_differences(state, selection, every))


def _membership_differences(
    state: ClusterState, selection: Selection, label_sets: list[LabelSet]
) -> Iterator[str]:
    labels = state.selections.namespace_labels
    for label_set in label_sets:
        if not label_set.n_pods:
            continue  # it may have been swept since the round began
        namespace = label_set.namespace
        is_selected = selection.matcher.matches(namespace, label_set.labels, labels.get(namespace))
        if is_selected != (label_set in selection.label_sets):
            yield f"{selection.matcher}: {namespace} {dict(label_set.labels)} is wrongly in or out"


def _selected_differences(state: ClusterState, selection: Selection, row: int) -> Iterator[str]:
    every, live = selection.counts, selection.live_counts
    if every is None and live is None:
        return
    pods = [placed for placed in state.placed_on(row) if placed.label_set in selection.label_sets]
    where = f"{selection.matcher} on {state.nodes.name_of(row)}"
    if every is not None and every.at(row) != len(pods):
        yield f"{where}: {every.at(row)} pods kept, {len(pods)} recounted"
    n_live = sum(not placed.pod.terminating for placed in pods)
    if live is not None and live.at(row) != n_live:
        yield f"{where}: {live.at(row)} live pods kept, {n_live} recounted"
