"""
What the machine does on a watch event: update ClusterState, then notify the queue, which wakes pods.

Source: pkg/scheduler/eventhandlers.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, MutableMapping
from typing import assert_never

from scheduler.core.fallbacks import Fallbacks
from scheduler.core.nominator import Nominator
from scheduler.core.preemption import Preemptions
from scheduler.framework.events import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    KUBELET_REFUSAL_OVER,
    NODE_ADD,
    NODE_DELETE,
    Action,
    ClusterEvent,
    Resource,
    node_update_actions,
    pod_update_actions,
)
from scheduler.framework.kinds import KINDS, STORES
from scheduler.model.nodes import Node
from scheduler.model.pod_groups import GroupKey, GroupReference, PodGroup
from scheduler.model.pods import Pod, as_relaxed
from scheduler.model.stimuli import (
    NodeGone,
    NodeSeen,
    ObjectGone,
    ObjectSeen,
    PodGone,
    PodGroupGone,
    PodGroupSeen,
    PodGroupsServed,
    PodSeen,
    WatchedObject,
    WatchEvent,
)
from scheduler.queueing.pod_queue import PodQueue
from scheduler.state.cluster import ClusterState


class EventHandlers:
    """Handles watch events for the machine, whose state, queue and mappings it shares."""

    def __init__(
        self,
        *,
        state: ClusterState,
        queue: PodQueue,
        profile_names: Collection[str],
        pending: MutableMapping[str, Pod],
        binding: Container[str],
        preemptions: Preemptions,
        nominator: Nominator,
        fallbacks: Fallbacks,
        on_member: Callable[[GroupKey, Pod | None, float], None],
    ) -> None:
        """
        Args:
            state: of the machine.
            queue: of the machine.
            profile_names: the schedulerNames of our pods.
            pending: unassigned pods of ours as last seen, by UID; kept here.
            binding: the UIDs of the pods that are being bound.
            preemptions: learn of pods that are placed, leave or are gone.
            nominator: of the machine.
            fallbacks: learn of pods that are placed or gone.
            on_member: called after a member of a group came, changed or left, or its PodGroup did.
        """
        self._state = state
        self._queue = queue
        self._profile_names = profile_names
        self._pending = pending
        self._binding = binding
        self._preemptions = preemptions
        self._nominator = nominator
        self._fallbacks = fallbacks
        self._on_member = on_member

    def handle(self, event: WatchEvent, now_s: float) -> None:
        """Apply the event. `now_s`: seconds of a monotonic clock."""
        match event:
            case PodSeen(pod):
                self._on_pod(pod, now_s)
            case PodGone(uid):
                left = self._on_pod_deleted(uid, now_s)
                if left is not None and left.group is not None:
                    self._on_member(left.group.key, left, now_s)
            case NodeSeen(node):
                self._on_node(node, now_s)
            case NodeGone(name):
                self._on_node_deleted(name, now_s)
            case ObjectSeen(obj):
                self._on_object(obj, now_s)
            case ObjectGone(kind, key):
                self._on_object_deleted(kind, key, now_s)
            case PodGroupSeen(group):
                self._on_pod_group(group, now_s)
            case PodGroupsServed(group_kind):
                self._state.groups.serve(group_kind)
            case PodGroupGone(key):
                self._state.groups.remove(key)
                self._on_member(key, None, now_s)
            case _:
                assert_never(event)

    def forget(self, uid: str, now_s: float) -> None:
        """Take an assumed pod off its node again, and wake the pods that wait for its room."""
        forgotten = self._state.forget(uid)
        if forgotten is not None:
            self._preemptions.on_leaving(uid, now_s)
            self._notify_queue(ASSIGNED_POD_DELETE, forgotten, None, now_s)

    def expire_kubelet_refusals(self, now_s: float) -> None:
        """End exclusions whose time is over, and wake the pods that wait for them."""
        if self._state.kubelet_refusals.expire(now_s):
            self._notify_queue(KUBELET_REFUSAL_OVER, None, None, now_s)

    def notify_of_object(self, kind: str, action: Action, old: object, new: object, now_s: float) -> None:
        """Wake the pods that a change of the object may let in."""
        resource = KINDS[kind].resource
        if resource is not None:
            self._notify_queue(ClusterEvent(resource, action), old, new, now_s)

    def _on_pod_group(self, group: PodGroup, now_s: float) -> None:
        groups, old = self._state.groups, self._state.groups.get(group.key)
        groups.upsert(group)
        self._on_member(group.key, None, now_s)
        if old is not None and (old.min_count, old.topology_key) != (group.min_count, group.topology_key):
            # The new minimum or topology key may let members in that the old one refused.
            for pod in list(groups.pending(group.key)):
                self._queue.activate(pod.uid, now_s)

    def _on_pod(self, pod: Pod, now_s: float) -> None:
        before = self._group_before(pod.uid)
        if pod.is_terminal:
            if pod.kubelet_refusal and pod.scheduler_name in self._profile_names:
                self._state.record_kubelet_refusal(pod.uid, pod.kubelet_refusal, now_s)
            self._on_pod_deleted(pod.uid, now_s)
        elif pod.node_name:
            self._on_assigned_pod(pod, now_s)
        elif pod.scheduler_name in self._profile_names:
            self._on_pending_pod(pod, now_s)
        if before is not None and before.key != _group_key(pod):
            # Its labels or annotations were changed.
            self._on_member(before.key, None, now_s)
            self._queue.rank(pod.uid, pod.priority)
        if before is not None and before != pod.group:
            self._queue.activate(pod.uid, now_s)
        if pod.group is not None:
            self._on_member(pod.group.key, pod, now_s)

    def _group_before(self, uid: str) -> GroupReference | None:
        """Return what the pod said of its group when it was seen last."""
        placed, pending = self._state.placed.get(uid), self._pending.get(uid)
        pod = pending if placed is None else placed.pod
        return None if pod is None else pod.group

    def _on_assigned_pod(self, pod: Pod, now_s: float) -> None:
        self._state.groups.remove_pending(self._pending.pop(pod.uid, pod))
        self._queue.delete(pod.uid)
        self._preemptions.on_placed(pod.uid, pod.node_name)
        self._fallbacks.forget(pod.uid)
        known = self._state.placed.get(pod.uid)
        # Read before upsert_pod, which changes `known`.
        counted, assumed = (None, False) if known is None else (known.pod, known.assumed)
        self._nominator.take_node(pod, pod.node_name, now_s)
        self._state.upsert_pod(pod)
        if pod.terminating and not pod.ends_at_once:
            self._preemptions.on_leaving(pod.uid, now_s)
        has_started = pod.phase == "Running" and counted is not None and counted.phase != "Running"
        if has_started and self._state.kubelet_refusals.forget(pod.spec, pod.node_name):
            self._notify_queue(KUBELET_REFUSAL_OVER, None, None, now_s)
        if counted is None or assumed:
            self._notify_queue(ASSIGNED_POD_ADD, None, pod, now_s)
        if counted is not None and counted.node_name != pod.node_name:
            # Assumed on one node, but bound to another by another scheduler: the first node is free again.
            self._notify_queue(ASSIGNED_POD_DELETE, counted, None, now_s)
        elif counted is not None and counted.resource_version != pod.resource_version:
            for action in pod_update_actions(counted, pod):
                self._notify_queue(ClusterEvent(Resource.ASSIGNED_POD, action), counted, pod, now_s)

    def _on_pending_pod(self, pod: Pod, now_s: float) -> None:
        old = self._pending.get(pod.uid)
        if old is not None and old.resource_version == pod.resource_version:
            return
        self._pending[pod.uid] = pod
        if old is not None and _group_key(old) != _group_key(pod):
            self._state.groups.remove_pending(old)
        self._state.groups.add_pending(pod)
        if self._state.is_assumed(pod.uid):
            if pod.terminating:
                # The API server does not bind a pod that is being deleted.
                self.forget(pod.uid, now_s)
            else:
                # Changed while its bind is in flight. Upstream counts the old object until the bind is seen.
                self._state.update_assumed(as_relaxed(pod, self._state.placed[pod.uid].pod.spec))
            return
        if (lost := self._state.remove_pod(pod.uid)) is not None:
            # Shown unbound although it was bound: the server was restored or lags behind.
            self._preemptions.on_leaving(pod.uid, now_s)
            self._notify_queue(ASSIGNED_POD_DELETE, lost, None, now_s)
        if pod.uid in self._binding:
            return
        nominated_before = self._state.nominated.node_of(pod.uid)
        self._note_nomination(old, pod)
        if old is None:
            self._queue.add(pod, now_s)
            return
        self._queue.update(old, pod, now_s)
        self._nominator.on_shown(old, nominated_before, now_s)

    def _note_nomination(self, old: Pod | None, pod: Pod) -> None:
        """Follow the nomination that the pod shows; one made here counts until a watch shows it, and then its end."""
        if old is None and pod.gates:
            # Upstream notes the nomination of a new pod when the pod becomes active, or changes.
            return
        node_name = pod.nominated_node_name
        if old is not None and not old.nominated_node_name and not node_name:
            node_name = self._state.nominated.node_of(pod.uid)
        self._state.nominate(pod, node_name)

    def _on_pod_deleted(self, uid: str, now_s: float) -> Pod | None:
        pending = self._pending.pop(uid, None)
        if pending is not None:
            self._state.groups.remove_pending(pending)
        self._queue.delete(uid)
        self._preemptions.on_gone(uid)
        self._fallbacks.forget(uid)
        placed = self._state.remove_pod(uid)
        self._preemptions.on_leaving(uid, now_s)
        if placed is not None:
            self._notify_queue(ASSIGNED_POD_DELETE, placed, None, now_s)
            self._wake_nominated(placed, now_s)
        elif pending is not None:
            self._nominator.nominate(pending, "", now_s)
        return pending or placed

    def _wake_nominated(self, left: Pod, now_s: float) -> None:
        """
        Wake the pods that are nominated to the node and may have waited for this one, which is gone.

        They are not woken for the sake of what rejected them alone: a pod that a port keeps out, and that is held until
        its last victim ends, hears of no victim that leaves the port before. Without this it waits, and keeps a
        nomination that may not come true, until upstream's flush.
        """
        for pod in list(self._state.nominated.on(left.node_name)):
            if left.priority < pod.priority:
                self._queue.wake(pod.uid, now_s)

    def _on_node(self, node: Node, now_s: float) -> None:
        old = self._state.node(node.name)
        self._state.upsert_node(node)
        if old is None:
            self._notify_queue(NODE_ADD, None, node, now_s)
            return
        actions = node_update_actions(old, node)
        for action in actions:
            self._notify_queue(ClusterEvent(Resource.NODE, action), old, node, now_s)
        if actions and self._state.kubelet_refusals.forget_node(node.name):
            self._notify_queue(KUBELET_REFUSAL_OVER, None, None, now_s)

    def _on_node_deleted(self, name: str, now_s: float) -> None:
        old = self._state.node(name)
        self._state.remove_node(name)
        self._state.kubelet_refusals.forget_node(name)
        if old is not None:
            self._notify_queue(NODE_DELETE, old, None, now_s)

    def _on_object(self, obj: WatchedObject, now_s: float) -> None:
        store = STORES[obj.kind]
        old = store.seen(self._state, obj.kind, obj.key)
        store.upsert(self._state, obj)
        # An update that changed nothing that is read, such as of a ReplicaSet's status, helps no pod.
        if old != obj:
            self.notify_of_object(obj.kind, Action.ADD if old is None else Action.UPDATE, old, obj, now_s)

    def _on_object_deleted(self, kind: str, key: str, now_s: float) -> None:
        store = STORES[kind]
        old = store.seen(self._state, kind, key)
        if old is not None:
            store.remove(self._state, kind, key)
            self.notify_of_object(kind, Action.DELETE, old, None, now_s)

    def _notify_queue(self, event: ClusterEvent, old: object, new: object, now_s: float) -> None:
        self._queue.on_event(event, old, new, now_s)


def _group_key(pod: Pod) -> GroupKey | None:
    return None if pod.group is None else pod.group.key
