"""
Recounts everything from the placed pods and compares: the invariant that the whole design stands on.

Runs at the teardown of every test that has a cluster; `recounting` does the same in pieces in a running scheduler.
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
        is_counted = selection.counts is not None or selection.live_counts is not None
        if not is_counted and not selection.limiting_terms:
            continue
        every: Counter[int] = Counter()
        live: Counter[int] = Counter()
        for placed in state.placed.values():
            pod = placed.pod
            if selection.matcher.matches(pod.namespace, pod.labels, namespace_labels.get(pod.namespace)):
                every[placed.row] += 1
                live[placed.row] += not pod.terminating
        if selection.counts is not None:
            yield from _compared(selection, "pods", dict(selection.counts.items()), every)
        if selection.live_counts is not None:
            yield from _compared(selection, "live pods", dict(selection.live_counts.items()), live)
        yield from limit_differences(state, selection, every)


def limit_differences(state: ClusterState, selection: Selection, every: Mapping[int, int]) -> Iterator[str]:
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
