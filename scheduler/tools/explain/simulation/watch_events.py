"""Applies watch events to a state, without a queue: for commands and comparisons that only decide."""

from __future__ import annotations

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
            state.upsert_node(node)
        case NodeGone(name):
            state.remove_node(name)
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
