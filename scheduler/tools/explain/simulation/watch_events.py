"""Applies watch events to a state, without a queue, and takes them back: for what only decides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import assert_never

from scheduler.engine.framework.kinds import STORES
from scheduler.engine.model.stimuli import (
    DevicesRelisted,
    DevicesServed,
    NodeGone,
    NodeSeen,
    ObjectGone,
    ObjectSeen,
    PodGone,
    PodGroupGone,
    PodGroupSeen,
    PodGroupsServed,
    PodSeen,
    WatchEvent,
)
from scheduler.engine.state.cluster import ClusterState


def apply_event(state: ClusterState, event: WatchEvent) -> None:
    """Change the state by the event. A pod without a node counts where it is nominated; a finished one does not."""
    match event:
        case PodSeen(pod) if pod.is_terminal:
            _drop_pod(state, pod.uid)
        case PodSeen(pod) if pod.node_name:
            state.nominated.remove(pod.uid)
            state.upsert_pod(pod)
        case PodSeen(pod):
            state.remove_pod(pod.uid)
            state.nominate(pod, pod.nominated_node_name)
        case PodGone(uid):
            _drop_pod(state, uid)
        case NodeSeen(node):
            state.nodes.upsert(node)
        case NodeGone(name):
            state.nodes.remove(name)
        case ObjectSeen(obj):
            STORES[obj.kind].upsert(state, obj)
        case ObjectGone(kind, key):
            STORES[kind].remove(state, kind, key)
        case PodGroupSeen(group):
            state.groups.upsert(group)
        case PodGroupGone(group_key):
            state.groups.remove(group_key)
        case PodGroupsServed(group_kind, is_served):
            state.groups.serve(group_kind, is_served=is_served)
        case DevicesServed(device_kind, True):
            state.devices.serve(device_kind)
        case DevicesServed(device_kind):
            state.devices.unserve(device_kind)
        case DevicesRelisted(device_kind):
            state.devices.begin_list(device_kind)
        case _:
            assert_never(event)


def _drop_pod(state: ClusterState, uid: str) -> None:
    state.nominated.remove(uid)
    state.remove_pod(uid)


@contextmanager
def applied(state: ClusterState, events: Iterable[WatchEvent]) -> Iterator[None]:
    """Let the state be as after the events within the block; each is asked for once the one before is applied."""
    reversals: list[WatchEvent] = []
    with state.devices.order_kept():
        for event in events:
            reversals += filter(None, [reversal(state, event)])
            apply_event(state, event)
        try:
            yield
        finally:
            for event in reversed(reversals):
                apply_event(state, event)


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
