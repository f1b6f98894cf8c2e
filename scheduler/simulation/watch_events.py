"""Applies watch events to a state, without a queue: for commands and comparisons that only decide."""

from __future__ import annotations

from typing import assert_never

from scheduler.model.stimuli import (
    DisruptionBudgetGone,
    DisruptionBudgetSeen,
    NamespaceGone,
    NamespaceSeen,
    NodeGone,
    NodeSeen,
    PodGone,
    PodGroupGone,
    PodGroupSeen,
    PodGroupsServed,
    PodSeen,
    StorageGone,
    StorageSeen,
    WatchEvent,
    WorkloadGone,
    WorkloadSeen,
)
from scheduler.state.cluster import ClusterState


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
        case NamespaceSeen(namespace):
            state.upsert_namespace(namespace)
        case NamespaceGone(name):
            state.remove_namespace(name)
        case WorkloadSeen(workload):
            state.upsert_workload(workload)
        case WorkloadGone(kind, namespace_name, name):
            state.remove_workload(kind, namespace_name, name)
        case StorageSeen(obj):
            state.upsert_storage(obj)
        case StorageGone(storage_kind, key):
            state.remove_storage(storage_kind, key)
        case DisruptionBudgetSeen(budget):
            state.upsert_budget(budget)
        case DisruptionBudgetGone(namespace_name, name):
            state.remove_budget(namespace_name, name)
        case PodGroupSeen(group):
            state.groups.upsert(group)
        case PodGroupGone(group_key):
            state.groups.remove(group_key)
        case PodGroupsServed(group_kind):
            state.groups.serve(group_kind)
        case _:
            assert_never(event)


def _drop_pod(state: ClusterState, uid: str) -> None:
    state.nominated.remove(uid)
    state.remove_pod(uid)
