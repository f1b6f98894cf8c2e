"""What the machine does on a watch event (pkg/scheduler/eventhandlers.go, kubernetes 1.36)."""

from __future__ import annotations

from typing import assert_never

from scheduler.engine.core.group_lives import GroupLives
from scheduler.engine.core.nominator import Nominator
from scheduler.engine.core.pod_lifecycle import PodLifecycle
from scheduler.engine.framework.events import (
    KUBELET_REFUSAL_OVER,
    NODE_ADD,
    NODE_DELETE,
    Action,
    ClusterEvent,
    Resource,
    node_update_actions,
)
from scheduler.engine.framework.kinds import STORES, event_of
from scheduler.engine.model.devices import DeviceKind
from scheduler.engine.model.instructions import ClearNomination, Instruction
from scheduler.engine.model.nodes import Node
from scheduler.engine.model.object_writes import WatchedObject
from scheduler.engine.model.pod_groups import GroupKind, PodGroup
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
from scheduler.engine.queueing.pod_queue import PodQueue
from scheduler.engine.state.cluster import ClusterState


class EventHandlers:
    """Updates the state, then notifies the queue, which wakes pods. Pods are `engine.core.pod_lifecycle`'s."""

    def __init__(
        self,
        state: ClusterState,
        queue: PodQueue,
        lifecycle: PodLifecycle,
        groups: GroupLives,
        nominator: Nominator,
    ) -> None:
        self._state, self._queue = state, queue
        self._lifecycle, self._groups, self._nominator = lifecycle, groups, nominator

    def handle(self, event: WatchEvent, now_s: float) -> list[Instruction]:
        """Apply the event, and return what follows."""
        match event:
            case PodSeen(pod):
                return self._lifecycle.on_seen(pod, now_s)
            case PodGone(uid):
                self._lifecycle.on_deleted(uid, now_s)
            case NodeSeen(node):
                self._on_node(node, now_s)
            case NodeGone(name):
                self._on_node_deleted(name, now_s)
                return [ClearNomination(pod) for pod in self._nominator.leave_node(name, now_s)]
            case ObjectSeen(obj):
                self._on_object(obj, now_s)
            case ObjectGone(kind, key):
                self._on_object_deleted(kind, key, now_s)
            case PodGroupSeen(group):
                self._on_pod_group(group, now_s)
            case PodGroupsServed(group_kind, is_served):
                self._on_pod_groups_served(group_kind, now_s, is_served=is_served)
            case DevicesServed(device_kind, True):
                self._on_devices_served(device_kind, now_s)
            case DevicesServed(device_kind):
                self._state.devices.unserve(device_kind)
            case DevicesRelisted(device_kind):
                self._state.devices.begin_list(device_kind)
            case PodGroupGone(key):
                self._state.groups.remove(key)
                self._groups.note(key, None, now_s)
            case _:
                assert_never(event)
        return []

    def _on_pod_groups_served(self, kind: GroupKind, now_s: float, *, is_served: bool) -> None:
        """Wake the pods that wait for groups of a kind that there is no more: each is a pod like any other."""
        groups = self._state.groups
        groups.serve(kind, is_served=is_served)
        if not is_served:
            members = [pod.uid for key in groups.listed() if key.kind is kind for pod in groups.pending(key)]
            self._queue.activate_each(members, now_s)

    def _on_devices_served(self, kind: DeviceKind, now_s: float) -> None:
        """Wake the pods that were rejected as on a cluster without devices, once all are known."""
        devices = self._state.devices
        was_served = devices.is_served
        devices.serve(kind)
        if devices.is_served and not was_served:
            self._queue.activate_each((queued.pod.uid for queued in self._queue.pods()), now_s)

    def expire_kubelet_refusals(self, now_s: float) -> None:
        """End exclusions whose time is over, and wake the pods that wait for them."""
        if self._state.kubelet_refusals.expire(now_s):
            self._queue.on_event(KUBELET_REFUSAL_OVER, None, None, now_s)

    def _on_pod_group(self, group: PodGroup, now_s: float) -> None:
        groups, old = self._state.groups, self._state.groups.get(group.key)
        groups.upsert(group)
        self._groups.note(group.key, None, now_s)
        new = groups.get(group.key) or group
        if old is None or (old.min_count, old.topology) != (new.min_count, new.topology):
            # The minimum or topology key may let members in that the former one refused, or that of a deleted PodGroup.
            self._queue.activate_each((pod.uid for pod in groups.pending(group.key)), now_s)

    def _on_node(self, node: Node, now_s: float) -> None:
        old = self._state.node(node.name)
        self._state.nodes.upsert(node)
        if old is None:
            self._queue.on_event(NODE_ADD, None, node, now_s)
            return
        actions = node_update_actions(old, node)
        for action in actions:
            self._queue.on_event(ClusterEvent(Resource.NODE, action), old, node, now_s)
        if actions and self._state.kubelet_refusals.forget_node(node.name):
            self._queue.on_event(KUBELET_REFUSAL_OVER, None, None, now_s)

    def _on_node_deleted(self, name: str, now_s: float) -> None:
        old = self._state.node(name)
        self._state.nodes.remove(name)
        self._state.kubelet_refusals.forget_node(name)
        if old is not None:
            self._queue.on_event(NODE_DELETE, old, None, now_s)

    def _on_object(self, obj: WatchedObject, now_s: float) -> None:
        store = STORES[obj.kind]
        old = store.seen(self._state, obj.kind, obj.key)
        store.upsert(self._state, obj)
        # An update that changed nothing that is read, such as of a ReplicaSet's status, helps no pod.
        if old != obj:
            action = Action.ADD if old is None else Action.UPDATE
            self._queue.on_event(event_of(obj.kind, action), old, obj, now_s)

    def _on_object_deleted(self, kind: str, key: str, now_s: float) -> None:
        store = STORES[kind]
        old = store.seen(self._state, kind, key)
        if old is not None:
            store.remove(self._state, kind, key)
            self._queue.on_event(event_of(kind, Action.DELETE), old, None, now_s)
