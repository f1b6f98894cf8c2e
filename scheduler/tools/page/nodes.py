"""The use of the nodes: requests of their pods by resource."""

from __future__ import annotations

from typing import Final

import numpy as np

from scheduler.engine.model.requests import PODS
from scheduler.engine.model.terms import ZONE_KEY
from scheduler.engine.state.arrays import Amounts
from scheduler.engine.state.cluster import ClusterState
from scheduler.tools.explain.formats.explanation import Document, JsonStruct

#: Nodes in an answer.
MAX_NODES: Final = 200


class Use(JsonStruct, frozen=True):
    """Requested and allocatable: milli-units of cpu, bytes of memory and storage, whole units of the others."""

    resource: str
    requested: int
    allocatable: int


class TotalUse(Use, frozen=True):
    """The use of all nodes. `most_free`: the most that any node has free; a pod that requests more fits nowhere."""

    most_free: int


class NodeUse(JsonStruct, frozen=True, kw_only=True):
    """One node. `share`: the requested share of its fullest resource, 1 for all of it."""

    node: str
    zone: str
    cordoned: bool
    share: float
    uses: tuple[Use, ...]


class NodeUses(Document, frozen=True, kw_only=True):
    """
    The nodes that the search finds, the fullest first, and how many more.

    `total`: of all nodes. `by_share`: how many nodes have a share below 10 %, 20 % ... 100 %, and how many are full.
    """

    kind: str = "NodeUses"
    total: tuple[TotalUse, ...]
    by_share: tuple[int, ...]
    nodes: tuple[NodeUse, ...]
    n_more: int


def node_uses(state: ClusterState, search: str) -> NodeUses:
    """Return the nodes whose name or zone contains the search. O(nodes · resources)."""
    table = state.nodes
    rows = np.flatnonzero(table.alive)
    #: What is requested and what is allocatable of each resource that a node has, by row.
    columns: dict[str, tuple[Amounts, Amounts]] = {}
    for name in sorted(table.resource_names(), key=_place):
        allocatable = table.allocatable(name)
        requested = table.pod_count if name == PODS else table.requested(name)
        if allocatable is not None and requested is not None and allocatable[rows].any():
            columns[name] = requested[rows].astype(np.int64), allocatable[rows]
    share = np.zeros(len(rows))
    for requested, allocatable in columns.values():
        share = np.maximum(share, np.where(allocatable > 0, requested / np.maximum(allocatable, 1), 0))
    by_share = np.bincount(np.minimum(share * 10, 10).astype(np.int64), minlength=11)
    found = []
    for index in np.argsort(-share, kind="stable").tolist():
        node = table.live(rows.item(index))
        zone = node.labels.get(ZONE_KEY, "")
        if search in node.name or search in zone:
            found.append((index, node, zone))
    shown = tuple(
        NodeUse(
            node=node.name,
            zone=zone,
            cordoned=node.unschedulable,
            share=round(share.item(index), 4),
            uses=tuple(
                Use(name, requested.item(index), allocatable.item(index))
                for name, (requested, allocatable) in columns.items()
                if allocatable.item(index)
            ),
        )
        for index, node, zone in found[:MAX_NODES]
    )
    return NodeUses(
        total=tuple(
            TotalUse(
                name,
                int(requested.sum()),
                int(allocatable.sum()),
                max(0, int((allocatable - requested).max(initial=0))),
            )
            for name, (requested, allocatable) in columns.items()
        ),
        by_share=tuple(by_share.tolist()),
        nodes=shown,
        n_more=len(found) - len(shown),
    )


def _place(resource: str) -> tuple[int, str]:
    """Return the place of the resource in the order of columns: cpu, memory and pods first."""
    first = ("cpu", "memory", PODS)
    return (first.index(resource) if resource in first else len(first), resource)
