"""
Recounts everything from the placed pods and compares: the invariant that the whole design stands on.

Runs at the teardown of every test that has a cluster, and in slices in the background of a running scheduler.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from scheduler.state.cluster import ClusterState
from scheduler.state.declared import TermKey
from scheduler.state.selection import Selection


def differences(state: ClusterState) -> list[str]:
    """Where counts and a recount differ, one line each; empty when they are equal. O(pods x selections)."""
    return [
        *_node_differences(state),
        *_port_differences(state),
        *_selection_differences(state),
        *_declared_differences(state),
    ]


class Recount:
    """
    The same comparison in slices, for a running scheduler.

    A round begins with all that is counted from the pods themselves; then comes one selection at a time, compared with
    what its label sets add up to. Args: state: may move between two slices, not during one.
    """

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        #: Selections that this round has not come to.
        self._left: list[Selection] = []

    def step(self) -> list[str]:
        """
        The differences of the next slice, one line each. Never ends: a new round follows the last slice.

        Cost: O(pods + rows), 1 µs each, once in a round; O(label sets) for a selection.
        """
        if not self._left:
            self._left = list(self._state.selections.selections())
            state = self._state
            return [
                *_node_differences(state),
                *_port_differences(state),
                *_label_set_differences(state),
                *_declared_differences(state),
            ]
        selection = self._left.pop()
        if self._state.selections.find(selection.matcher) is not selection:
            return []  # swept since the round began: nobody keeps its counts any more
        return list(_summed_differences(self._state, selection))


def _label_set_differences(state: ClusterState) -> Iterator[str]:
    rows: dict[int, Counter[int]] = {}
    terminating: dict[int, Counter[int]] = {}
    for placed in state.placed.values():
        rows.setdefault(id(placed.label_set), Counter())[placed.row] += 1
        if placed.pod.terminating:
            terminating.setdefault(id(placed.label_set), Counter())[placed.row] += 1
    for label_set in state.selections.label_sets():
        for what, kept, counted in (
            ("pods", label_set.rows, rows),
            ("terminating pods", label_set.terminating_rows, terminating),
        ):
            recounted = dict(counted.get(id(label_set), Counter()))
            if kept != recounted:
                name = f"{label_set.namespace} {dict(label_set.labels)}"
                yield f"{name}: {what} per row {kept} kept, {recounted} recounted"
        if label_set.n_pods != sum(label_set.rows.values()):
            yield f"{label_set.namespace} {dict(label_set.labels)}: {label_set.n_pods} pods kept, {label_set.rows}"


def _summed_differences(state: ClusterState, selection: Selection) -> Iterator[str]:
    """Of one selection: whether it has the label sets that it matches, and the sum of their counts."""
    labels = state.selections.namespace_labels
    every: Counter[int] = Counter()
    live: Counter[int] = Counter()
    for label_set in state.selections.label_sets():
        namespace = label_set.namespace
        is_selected = selection.matcher.matches(namespace, label_set.labels, labels.get(namespace))
        if is_selected != (label_set in selection.label_sets):
            yield f"{selection.matcher}: {namespace} {dict(label_set.labels)} is wrongly in or out"
        if is_selected:
            every.update(label_set.rows)
            live.update(label_set.rows)
            live.subtract(label_set.terminating_rows)
    if selection.counts is not None and selection.live_counts is not None:
        yield from _compared(selection, "pods", dict(selection.counts.items()), every)
        yield from _compared(selection, "live pods", dict(selection.live_counts.items()), live)
    yield from _limit_differences(state, selection, every)


def _node_differences(state: ClusterState) -> Iterator[str]:
    nodes = state.nodes
    pods: Counter[int] = Counter()
    requested: Counter[tuple[str, int]] = Counter()
    non_zero: Counter[tuple[int, int]] = Counter()
    for placed in state.placed.values():
        usage = state.usage_of(placed.pod)
        pods[placed.row] += 1
        for resource, amount in usage.requested.items():
            requested[resource, placed.row] += amount
        for index, amount in enumerate(usage.non_zero):
            non_zero[index, placed.row] += amount
    for row in range(nodes.n_rows):
        if nodes.pod_count[row] != pods[row]:
            yield f"{nodes.name_of(row)}: {nodes.pod_count[row]} pods kept, {pods[row]} recounted"
        for index in range(2):
            if nodes.non_zero[index, row] != non_zero[index, row]:
                kept_non_zero = nodes.non_zero[index, row]
                yield f"{nodes.name_of(row)}: non-zero {kept_non_zero} kept, {non_zero[index, row]} recounted"
    offered = {name for node in nodes.nodes if node is not None for name in node.allocatable}
    for resource in sorted({*offered, *(name for name, _ in requested)}):
        for row in range(nodes.n_rows):
            if requested[resource, row] != nodes.requested_at(resource, row):
                yield f"{nodes.name_of(row)}: {resource} differs, {requested[resource, row]} recounted"
    if nodes.n_live != int(np.count_nonzero(nodes.alive)):
        yield f"{nodes.n_live} live nodes kept, {int(np.count_nonzero(nodes.alive))} recounted"


def _port_differences(state: ClusterState) -> Iterator[str]:
    recounted: Counter[tuple[str, int, int, str]] = Counter()
    for placed in state.placed.values():
        for port in state.usage_of(placed.pod).host_ports:
            recounted[port.protocol, port.port, placed.row, port.ip] += 1
    kept: Counter[tuple[str, int, int, str]] = Counter()
    for (protocol, number), rows in state.nodes.ports.items():
        for row, held in rows.items():
            for ip, count in held.items():
                kept[protocol, number, row, ip] = count
    for protocol, number, row, ip in sorted((kept - recounted) + (recounted - kept)):
        one = (protocol, number, row, ip)
        name = state.nodes.name_of(row)
        yield f"{name}: host port {ip}:{number}/{protocol}: {kept[one]} kept, {recounted[one]} recounted"


def _selection_differences(state: ClusterState) -> Iterator[str]:
    namespace_labels = state.selections.namespace_labels
    for selection in state.selections.selections():
        is_counted = selection.counts is not None and selection.live_counts is not None
        if not is_counted and not selection.limiting_terms:
            continue
        every: Counter[int] = Counter()
        live: Counter[int] = Counter()
        for placed in state.placed.values():
            pod = placed.pod
            if selection.matcher.matches(pod.namespace, pod.labels, namespace_labels.get(pod.namespace)):
                every[placed.row] += 1
                live[placed.row] += not pod.terminating
        if selection.counts is not None and selection.live_counts is not None:
            yield from _compared(selection, "pods", dict(selection.counts.items()), every)
            yield from _compared(selection, "live pods", dict(selection.live_counts.items()), live)
        yield from _limit_differences(state, selection, every)


def _limit_differences(state: ClusterState, selection: Selection, every: Mapping[int, int]) -> Iterator[str]:
    """
    Of the limits per domain that select by it.

    Args: every: its pods per row, recounted.
    """
    for label_set in selection.label_sets:
        for term in selection.limiting_terms:
            if term.limit not in label_set.limits:
                yield f"{selection.matcher}: {dict(label_set.labels)} does not know of a limit"
    for limit in (term.limit for term in selection.limiting_terms if term.limit is not None):
        declared = _per_domain(state, limit.topology_key, dict(limit.declaring.items()))
        per_domain = _per_domain(state, limit.topology_key, every)
        selected = {domain: per_domain[domain] for domain in declared}
        full = {domain for domain, count in selected.items() if count >= limit.room}
        on_marks = _per_domain(state, limit.topology_key, dict(limit.counts.items()))
        for what, kept, recounted in (
            ("declaring pods", limit.declared, dict(declared)),
            ("selected pods", limit.selected, selected),
            ("full domains", limit.marks.keys(), full),
            ("marks", on_marks, dict.fromkeys(full, 1)),
        ):
            if kept != recounted:
                yield f"{selection.matcher}: {what} by {limit.topology_key}: {kept} kept, {recounted} recounted"


def _per_domain(state: ClusterState, key: str, by_row: Mapping[int, int]) -> Counter[str]:
    found: Counter[str] = Counter()
    for row, count in by_row.items():
        node = state.nodes.nodes[row]
        if node is not None and key in node.labels and count:
            found[node.labels[key]] += count
    return found


def _compared(
    selection: Selection, what: str, kept: Mapping[int, int], recounted: Counter[int]
) -> Iterator[str]:
    wanted = {row: count for row, count in recounted.items() if count}
    if kept != wanted:
        yield f"{selection.matcher}: {what} per row {kept} kept, {wanted} recounted"


def _declared_differences(state: ClusterState) -> Iterator[str]:
    recounted: dict[TermKey, Counter[int]] = {}
    for placed in state.placed.values():
        for key in state.declared.keys(placed.label_set, placed.pod.spec):
            recounted.setdefault(key, Counter())[placed.row] += 1
    kept = {key: dict(term.counts.items()) for key, term in state.declared.all().items()}
    for key in {*recounted, *kept}:
        if kept.get(key, {}) != dict(recounted.get(key, Counter())):
            yield f"{key}: declared {kept.get(key)} kept, {recounted.get(key)} recounted"
