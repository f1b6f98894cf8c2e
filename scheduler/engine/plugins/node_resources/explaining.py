"""The shortages on the nodes that NodeResourcesFit refuses, and changes that would mend them: fewer pods, more room."""

from __future__ import annotations

from functools import partial
from operator import itemgetter

import numpy as np

from scheduler.engine.framework.explaining import (
    ExplainContext,
    Holding,
    PluginExplanation,
    Repair,
    Where,
    did_you_mean,
    pods_to_remove,
    removal,
)
from scheduler.engine.framework.room import RoomFilter
from scheduler.engine.model.changes import AddRoom, Changes
from scheduler.engine.model.requests import PODS, on_node_request
from scheduler.engine.model.wording import amount_text
from scheduler.engine.state.arrays import Amount, Fractions, RowIndex, Rows
from scheduler.engine.state.node_table import NodeTable


def explain_shortages(context: ExplainContext, room: RoomFilter) -> PluginExplanation:
    """Return the explanation of the refusals of a pod with this request."""
    return PluginExplanation(
        where=lambda rows: [_shortage(context, room, rows)] * len(rows),
        repair=Repair(partial(_make_room, context, room), partial(_effort, room)),
        admitted="room for what it requests",
    )


def _spare(room: RoomFilter, rows: RowIndex) -> list[tuple[str, int, Amount]]:
    """Return each resource, PODS first, with the amount that the pod needs and what would be left beside it."""
    needs = ((PODS, 1), *room.request)
    return [(*need, spare) for need, spare in zip(needs, room.spare(rows), strict=True)]


def _shortage(context: ExplainContext, room: RoomFilter, rows: Rows) -> Where:
    """Return each resource short on all rows: the request, and the most that any row has left, or could."""
    nodes, said = context.view.nodes, list[Where]()
    for name, amount, spare in sorted(_spare(room, rows)[1:], key=itemgetter(0)):
        most = int(np.max(spare)) + amount
        if most >= amount:
            continue
        largest, needs = _largest(nodes, name), f"needs {amount_text(name, amount)} {name}"
        if not largest:
            offered = [other for other in nodes.resource_names() if _largest(nodes, other)]
            classes = (each.extended_resource for each in context.view.devices.classes.values())
            alike = did_you_mean(name, [*offered, *filter(None, classes)])
            said.append(
                Where(f"no node has the resource {name}{alike}", is_nowhere=True, is_misspelt=bool(alike))
            )
        elif amount > largest:
            said.append(Where(f"{needs}, the largest node has {amount_text(name, largest)}", is_nowhere=True))
        else:
            said.append(Where(f"{needs}, at most {amount_text(name, max(0, most))} free"))
    return Where.joined(said)


def _largest(nodes: NodeTable, resource: str) -> int:
    """Return the most that a node has of the resource, whatever its pods take."""
    allocatable = nodes.allocatable(resource)
    return 0 if allocatable is None else int(np.max(allocatable[nodes.alive], initial=0))


def _effort(room: RoomFilter, rows: Rows) -> Fractions:
    """Return at least 1 per row, more for a larger shortage, so that nodes with small shortages come first."""
    effort = np.zeros(len(rows))
    for _, amount, spare in _spare(room, rows):
        effort = np.maximum(effort, np.where(np.less(spare, 0), 1.0 - np.asarray(spare) / amount / 2, 0.0))
    return effort


def _make_room(context: ExplainContext, room: RoomFilter, row: int) -> list[Changes]:
    """Return two alternatives: few pods leave the node, or the node gets more of the resources that are short."""
    # No node grows to a size that none has.
    nodes, wanted = context.view.nodes, dict(room.request)
    short = {name: -int(spare) for name, _, spare in _spare(room, row) if spare < 0}
    node_name = nodes.name_of(row)
    held = (Holding((pod,), {PODS: 1, **on_node_request(pod)}) for pod in context.pods_on(row))
    removals = tuple(removal(pod, node_name) for pod in pods_to_remove(context, held, short))
    additions = (
        tuple(AddRoom(node_name, name, amount) for name, amount in short.items())
        if all(name == PODS or wanted[name] <= _largest(nodes, name) for name in short)
        else ()
    )
    return [changes for changes in (removals, additions) if changes]
