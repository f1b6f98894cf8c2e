"""The event that takes another one back: the object as it was before."""

from __future__ import annotations

from scheduler.engine.framework.kinds import STORES
from scheduler.engine.model.stimuli import (
    NodeGone,
    NodeSeen,
    ObjectGone,
    ObjectSeen,
    PodGone,
    PodGroupGone,
    PodGroupSeen,
    PodSeen,
    WatchEvent,
)
from scheduler.engine.state.cluster import ClusterState


def reversal(state: ClusterState, event: WatchEvent) -> WatchEvent | None:
    """Return what restores the state once the event has changed it, None if nothing does; call it before."""
    match event:
        case PodSeen(pod):
            return _counted(state, pod.uid) or PodGone(pod.uid)
        case PodGone(uid):
            return _counted(state, uid)
        case NodeSeen(node):
            return _node(state, node.name) or NodeGone(node.name)
        case NodeGone(name):
            return _node(state, name)
        case ObjectSeen(obj):
            return _object(state, obj.kind, obj.key) or ObjectGone(obj.kind, obj.key)
        case ObjectGone(kind, key):
            return _object(state, kind, key)
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


def _object(state: ClusterState, kind: str, key: str) -> ObjectSeen | None:
    known = STORES[kind].seen(state, kind, key)
    return None if known is None else ObjectSeen(known)
