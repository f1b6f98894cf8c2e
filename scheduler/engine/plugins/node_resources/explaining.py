"""The shortages on the nodes that NodeResourcesFit refuses, and changes that would mend them: fewer pods, more room."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from scheduler.engine.framework.explaining import (
    ExplainContext,
    Holding,
    PluginExplanation,
    Repair,
    did_you_mean,
    pods_to_remove,
    removal,
)
from scheduler.engine.model.changes import AddRoom, Changes
from scheduler.engine.model.requests import PODS, on_node_request
from scheduler.engine.model.wording import amount_text
from scheduler.engine.state.arrays import Amount, Fractions, RowIndex, Rows
from scheduler.engine.state.node_table import NodeTable

#: The pod's request: amounts by resource, without PODS.
Request = Sequence[tuple[str, int]]


def explain_shortages(context: ExplainContext, request: Request) -> PluginExplanation:
    """Return the explanation of the refusals of a pod with this request."""
    return PluginExplanation(
        where=lambda rows: [_shortage_text(context, request, rows)] * len(rows),
        repair=Repair(partial(_make_room, context, request), partial(_effort, context, request)),
        admitted="room for what it requests",
    )


def _shortage_text(context: ExplainContext, request: Request, rows: Rows) -> str:
    """Return as text each resource short on all rows: the request, and the most that any row has left, or could."""
    nodes, texts = context.view.nodes, list[str]()
    for name, amount in sorted(request):
        largest = _largest(nodes, name)
        if not largest:
            offered = [other for other in nodes.resource_names() if _largest(nodes, other)]
            classes = (each.extended_resource for each in context.view.devices.classes.values())
            alike = did_you_mean(name, [*offered, *filter(None, classes)])
            texts.append(f"no node has the resource {name}{alike}")
            continue
        most = int(np.max(nodes.left(name, rows)))
        needs = f"needs {amount_text(name, amount)} {name}"
        if amount > largest:
            texts.append(f"{needs}, the largest node has {amount_text(name, largest)}")
        elif most < amount:
            texts.append(f"{needs}, at most {amount_text(name, max(0, most))} free")
    return "; ".join(texts)


def _largest(nodes: NodeTable, resource: str) -> int:
    """Return the most that a node has of the resource, whatever its pods take."""
    allocatable = nodes.allocatable(resource)
    return 0 if allocatable is None else int(np.max(allocatable[nodes.alive], initial=0))


def _effort(context: ExplainContext, request: Request, rows: Rows) -> Fractions:
    """Return at least 1 per row, more for a larger shortage, so that nodes with small shortages come first."""
    effort = np.zeros(len(rows))
    for name, amount in ((PODS, 1), *request):
        short = np.maximum(amount - _left(context.view.nodes, name, rows), 0)
        effort = np.maximum(effort, np.where(short > 0, 1.0 + short / amount / 2, 0.0))
    return effort


def _left(nodes: NodeTable, resource: str, rows: RowIndex) -> Amount:
    return nodes.pods_left(rows) if resource == PODS else nodes.left(resource, rows)


def _make_room(context: ExplainContext, request: Request, row: int) -> list[Changes]:
    """
    Return two alternatives: few pods leave the node, or the node gets more of the resources that are short.

    No node grows to a size that none has.
    """
    nodes = context.view.nodes
    missing = {name: amount - int(_left(nodes, name, row)) for name, amount in ((PODS, 1), *request)}
    short = {name: amount for name, amount in missing.items() if amount > 0}
    node_name = nodes.name_of(row)
    held = (Holding((pod,), {PODS: 1, **on_node_request(pod)}) for pod in context.pods_on(row))
    removals = tuple(removal(pod, node_name) for pod in pods_to_remove(context, held, short))
    wanted = dict(request)
    additions = (
        tuple(AddRoom(node_name, name, amount) for name, amount in short.items())
        if all(name == PODS or wanted[name] <= _largest(nodes, name) for name in short)
        else ()
    )
    return [changes for changes in (removals, additions) if changes]
