"""The map of one rule's domains, and the pods behind one of its cells."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from scheduler.engine.queueing.pod_queue import PodQueue
from scheduler.engine.state.batches import Pieces
from scheduler.engine.state.cluster import ClusterState
from scheduler.tools.explain.formats.explanation import Document, JsonStruct, PodRef, Pods
from scheduler.tools.page.occupancy import DomainState, RuleRecord, occupancy
from scheduler.tools.page.survey import RuleSummary, summary_of

#: Domains in a map, and pods by name in a list.
MAX_DOMAINS: Final = 20_000
_MAX_SHOWN: Final = 100
#: Pending pods that are looked at for one cell.
_MAX_LOOKED_AT: Final = 20_000


class DomainMap(Document, frozen=True, kw_only=True):
    """
    The domains of one rule; the lists have one entry per domain, ordered by group and name.

    `states`: 0 empty, 1 with room, 2 full, 3 broken, 4 without a pod that affinity requires. `room`: -1 if unlimited.
    `groups`: the value of the label `group_by` that the domain's nodes share; '' if they differ or lack it.
    """

    kind: str = "DomainMap"
    rule: RuleSummary
    fewest: int
    group_by: str
    domains: tuple[str, ...]
    groups: tuple[str, ...]
    nodes: tuple[int, ...]
    pods: tuple[int, ...]
    declaring: tuple[int, ...]
    room: tuple[int, ...]
    states: tuple[int, ...]
    n_more_domains: int


class Cell(Document, frozen=True, kw_only=True):
    """One domain: its nodes, the pods that the rule counts there, and the pending pods that the rule keeps out."""

    kind: str = "Cell"
    domain: str
    state: int
    room: int
    node_names: tuple[str, ...]
    n_nodes: int
    pods: Pods
    pending: Pods


class NodeLabel(JsonStruct, frozen=True, kw_only=True):
    """A label key of nodes, its number of values, and the first of them."""

    key: str
    n_values: int
    shown: tuple[str, ...]


class NodeLabels(Document, frozen=True, kw_only=True):
    """The label keys of live nodes, by which domains can be grouped and nodes taken away."""

    kind: str = "NodeLabels"
    labels: tuple[NodeLabel, ...]


def domain_map_pieces(
    identifier: str, record: RuleRecord, state: ClusterState, group_by: str
) -> Pieces[DomainMap]:
    """Return the map of the rule, in steps that yield. O(domains), and `occupancy`."""
    found = occupancy(record, state)
    names = [found.column.value_of(domain) for domain in found.ids.tolist()]
    yield
    group_of = _groups(state, record.rule.topology_key, group_by)
    groups = [group_of.get(name, "") for name in names]
    yield
    ordered = sorted(range(len(names)), key=lambda index: (groups[index], names[index]))
    shown = np.array(ordered[:MAX_DOMAINS], dtype=np.intp)
    yield
    return DomainMap(
        rule=summary_of(identifier, record, found),
        fewest=found.fewest,
        group_by=group_by,
        domains=tuple(names[index] for index in ordered[:MAX_DOMAINS]),
        groups=tuple(groups[index] for index in ordered[:MAX_DOMAINS]),
        nodes=tuple(found.n_nodes[shown].tolist()),
        pods=tuple(found.n_pods[shown].tolist()),
        declaring=tuple(found.n_declaring[shown].tolist()),
        room=tuple(found.room[shown].tolist()),
        states=tuple(found.states[shown].tolist()),
        n_more_domains=len(ordered) - len(shown),
    )


def _groups(state: ClusterState, topology_key: str, group_by: str) -> dict[str, str]:
    """Return the value of the label that all nodes of a domain share, by domain; '' where they differ."""
    if not group_by or group_by == topology_key:
        return {}
    groups: dict[str, str] = {}
    for node in state.nodes.nodes:
        if node is not None and (domain := node.labels.get(topology_key)) is not None:
            group = node.labels.get(group_by, "")
            if groups.setdefault(domain, group) != group:
                groups[domain] = ""
    return groups


def cell_of(record: RuleRecord, state: ClusterState, queue: PodQueue, domain: str) -> Cell | None:
    """Return the pods behind a domain of the rule; None if there is no such domain. O(pods there + pending pods)."""
    rule = record.rule
    found = occupancy(record, state)
    domain_id = found.column.id_by_value.get(domain)
    indexes = [] if domain_id is None else (found.ids == domain_id).nonzero()[0].tolist()
    if not indexes:
        return None
    rows = (found.column.ids[: state.nodes.n_rows] == domain_id).nonzero()[0].tolist()
    selected = state.label_sets.selected(rule.matcher)
    refs = (
        PodRef(placed.pod.namespace, placed.pod.name, state.nodes.name_of(row), domain)
        for row in rows
        for placed in state.placed_on(row)
        if selected[placed.label_set.number]
    )
    names = sorted(node.name for row in rows if (node := state.nodes.nodes[row]) is not None)
    index = indexes[0]
    return Cell(
        domain=domain,
        state=int(found.states[index]),
        room=int(found.room[index]),
        node_names=tuple(names[:_MAX_SHOWN]),
        n_nodes=len(names),
        pods=_shown(refs),
        pending=_shown(_held_off(record, state, queue, int(found.states[index]))),
    )


def _held_off(
    record: RuleRecord, state: ClusterState, queue: PodQueue, domain_state: int
) -> Iterable[PodRef]:
    """Yield the pending pods that the rule keeps out of the domain; none if there is room."""
    if domain_state in (DomainState.EMPTY, DomainState.ROOM):
        return
    matcher, labels_of = record.rule.matcher, state.label_sets.namespace_labels
    is_symmetric = record.rule.kind == "requiredAntiAffinity"
    for n_looked_at, queued in enumerate(queue.pods()):
        if n_looked_at >= _MAX_LOOKED_AT:
            return
        pod = queued.pod
        if queued.uid in record.pending or (
            is_symmetric and matcher.matches(pod.namespace, pod.labels, labels_of.get(pod.namespace))
        ):
            yield PodRef(pod.namespace, pod.name)


def _shown(refs: Iterable[PodRef]) -> Pods:
    found = sorted(refs, key=lambda one: one.key)
    return Pods(len(found), tuple(found[:_MAX_SHOWN]))


def node_labels(state: ClusterState) -> NodeLabels:
    """Return the label keys of live nodes. O(nodes x labels)."""
    values: dict[str, set[str]] = {}
    for node in state.nodes.nodes:
        if node is not None:
            for key, value in node.labels.items():
                values.setdefault(key, set()).add(value)
    return NodeLabels(
        labels=tuple(
            NodeLabel(key=key, n_values=len(values[key]), shown=tuple(sorted(values[key])[:_MAX_SHOWN]))
            for key in sorted(values)
        )
    )
