"""What is short on the nodes that NodeResourcesFit refuses, and what would make room: fewer pods, or larger nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import numpy as np

from scheduler.framework.explaining import (
    MOST_REMOVED,
    ExplainContext,
    PluginExplanation,
    Repair,
    must_stay,
    removal,
)
from scheduler.model.changes import AddRoom, Changes
from scheduler.model.pods import Pod
from scheduler.model.requests import PODS, on_node_request
from scheduler.model.wording import amount_text
from scheduler.state.arrays import Amount, Fractions, Rows, Where
from scheduler.state.node_table import NodeTable

#: What the pod asks for: amounts by resource.
Asked = Sequence[tuple[str, int]]


def explain_shortages(context: ExplainContext, asked: Asked) -> PluginExplanation:
    """Explain the refusals of a pod that asks for these amounts."""
    return PluginExplanation(
        where=lambda rows: [_shortage_text(context, asked, rows)] * len(rows),
        repair=Repair(partial(_make_room, context, asked), partial(_effort, context, asked)),
    )


def _shortage_text(context: ExplainContext, asked: Asked, rows: Rows) -> str:
    """Return the first resource that is short on all rows, as text: the request and the most that any row has left."""
    nodes = context.snapshot.nodes
    for name, amount in sorted(asked):
        if nodes.allocatable(name) is None:
            continue
        most = int(np.max(nodes.left(name, rows)))
        if most < amount:
            return f"needs {amount_text(name, amount)} {name}, at most {amount_text(name, max(0, most))} free"
    return ""


def _effort(context: ExplainContext, asked: Asked, rows: Rows) -> Fractions:
    """Return 1 or more; the larger the shortage the more, so that the best node is first."""
    effort = np.zeros(len(rows))
    for name, amount in ((PODS, 1), *asked):
        short = np.maximum(amount - _left(context.snapshot.nodes, name, rows), 0)
        effort = np.maximum(effort, np.where(short > 0, 1.0 + short / amount / 2, 0.0))
    return effort


def _left(nodes: NodeTable, resource: str, where: Where) -> Amount:
    return nodes.pods_left(where) if resource == PODS else nodes.left(resource, where)


def _make_room(context: ExplainContext, asked: Asked, row: int) -> list[Changes]:
    """Return two alternatives: the fewest pods leave the node, or the node gets more of what is short."""
    nodes = context.snapshot.nodes
    missing = {name: amount - int(_left(nodes, name, row)) for name, amount in ((PODS, 1), *asked)}
    short = {name: amount for name, amount in missing.items() if amount > 0}
    node_name = nodes.name_of(row)
    removals = tuple(removal(pod, node_name) for pod in _pods_to_remove(context.pods_on(row), short))
    additions = tuple(AddRoom(node_name, name, amount) for name, amount in short.items())
    return [changes for changes in (removals, additions) if changes]


def _pods_to_remove(pods: Iterable[Pod], short: Mapping[str, int]) -> list[Pod]:
    """Return few of the pods that together free what is short, chosen greedily; empty if that is impossible."""
    still_short = dict(short)
    candidates = {pod.uid: (pod, {PODS: 1, **on_node_request(pod)}) for pod in pods if not must_stay(pod)}
    chosen: list[Pod] = []
    while still_short and candidates and len(chosen) < MOST_REMOVED:
        pod, freed = min(
            candidates.values(),
            key=lambda entry: (-_share_freed(entry[1], still_short), entry[0].priority, entry[0].key),
        )
        if not _share_freed(freed, still_short):
            return []
        del candidates[pod.uid]
        chosen.append(pod)
        still_short = {
            name: n - freed.get(name, 0) for name, n in still_short.items() if n > freed.get(name, 0)
        }
    return [] if still_short else chosen


def _share_freed(freed: Mapping[str, int], short: Mapping[str, int]) -> float:
    """Return the sum over the short resources of the share that would be freed."""
    return sum(min(freed.get(name, 0) / amount, 1.0) for name, amount in short.items())
