"""
Changes nominations, and wakes the pods that a nomination kept out once it counts no more.

Upstream wakes them when a watch shows the change (eventhandlers.go, updatePodInSchedulingQueue, kubernetes 1.36). Here
a nomination counts before it is written, and may end before it was: then no watch shows it. A pod that takes another
node than it was nominated to wakes nobody upstream (kubernetes #134859).
"""

from __future__ import annotations

from dataclasses import replace

from scheduler.framework.events import ASSIGNED_POD_DELETE
from scheduler.model.pods import Pod
from scheduler.queueing.pod_queue import PodQueue
from scheduler.state.cluster import ClusterState


class Nominator:
    """Changes the nominations of the machine's state; wakes pods of its queue."""

    def __init__(self, state: ClusterState, queue: PodQueue) -> None:
        self._state, self._queue = state, queue

    def nominate(self, pod: Pod, node_name: str, now_s: float) -> None:
        """Count the pending pod as nominated to the node from now on, and to no other; empty for none."""
        before = self._state.nominated.node_of(pod.uid)
        self._state.nominate(pod, node_name)
        self.wake_kept_out(pod, before, now_s)

    def wake_kept_out(self, pod: Pod, before: str, now_s: float) -> None:
        """
        Wake waiting pods of the pod's priority or lower, which its nomination `before` kept out, if it counts no more.

        The pod itself too: another one may have taken its node.
        """
        if not before or before == self._state.nominated.node_of(pod.uid):
            return
        left = replace(pod, nominated_node_name=before)
        self._queue.on_event(
            ASSIGNED_POD_DELETE, left, None, now_s, only=lambda waiting: waiting.priority <= left.priority
        )

    def take_node(self, pod: Pod, node_name: str, now_s: float) -> None:
        """End the nomination of a pod that is about to be placed on the node; no event tells that another is free."""
        if self._state.nominated.node_of(pod.uid) not in ("", node_name):
            self.nominate(pod, "", now_s)
