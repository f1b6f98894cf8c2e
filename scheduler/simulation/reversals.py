"""The event that takes another one back: the object as it was before."""

from __future__ import annotations

from scheduler.model.nodes import Namespace
from scheduler.model.stimuli import (
    DisruptionBudgetSeen,
    NamespaceGone,
    NamespaceSeen,
    NodeGone,
    NodeSeen,
    PodGone,
    PodGroupGone,
    PodGroupSeen,
    PodSeen,
    StorageGone,
    StorageSeen,
    WatchEvent,
)
from scheduler.model.volumes import StorageKind
from scheduler.state.cluster import ClusterState


def reversal(state: ClusterState, event: WatchEvent) -> WatchEvent | None:
    """
    Return what restores the state once the event has changed it; call it before.

    None if there is nothing to restore, and for workloads and ends of budgets and groups.
    """
    match event:
        case PodSeen(pod):
            return _counted(state, pod.uid) or PodGone(pod.uid)
        case PodGone(uid):
            return _counted(state, uid)
        case NodeSeen(node):
            return _node(state, node.name) or NodeGone(node.name)
        case NodeGone(name):
            return _node(state, name)
        case NamespaceSeen(namespace):
            return _namespace(state, namespace.name) or NamespaceGone(namespace.name)
        case NamespaceGone(name):
            return _namespace(state, name)
        case StorageSeen(obj):
            return _storage(state, obj.kind, obj.key) or StorageGone(obj.kind, obj.key)
        case StorageGone(storage_kind, key):
            return _storage(state, storage_kind, key)
        case DisruptionBudgetSeen(budget):
            known = [one for one in state.budgets.within(budget.namespace) if one.name == budget.name]
            return DisruptionBudgetSeen(known[0]) if known else None
        case PodGroupSeen(group) if state.groups.get(group.key) is None:
            return PodGroupGone(group.key)
    return None


def _counted(state: ClusterState, uid: str) -> PodSeen | None:
    """Return the pod as it counts now, placed or nominated."""
    placed = state.placed.get(uid)
    if placed is not None:
        return PodSeen(placed.pod)
    nominated = state.nominated.on(state.nominated.node_of(uid))
    return next((PodSeen(pod) for pod in nominated if pod.uid == uid), None)


def _node(state: ClusterState, name: str) -> NodeSeen | None:
    node = state.node(name)
    return None if node is None else NodeSeen(node)


def _namespace(state: ClusterState, name: str) -> NamespaceSeen | None:
    labels = state.label_sets.namespace_labels.get(name)
    return None if labels is None else NamespaceSeen(Namespace(name, "", labels))


def _storage(state: ClusterState, kind: StorageKind, key: str) -> StorageSeen | None:
    obj = state.volumes.seen(kind, key)
    return None if obj is None else StorageSeen(obj)
