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
        """Count the pod, which was tried or goes, as nominated to the node and to no other; empty for none."""
        before = self._state.nominated.node_of(pod.uid)
        self._state.nominate(pod, node_name)
        self._wake_kept_out(pod, before, now_s, but=pod.uid)

    def withdraw(self, pod: Pod, now_s: float) -> None:
        """End the nomination of a waiting pod whose node another one takes, and let it be tried again."""
        before = self._state.nominated.node_of(pod.uid)
        self._state.nominate(pod, "")
        self._wake_kept_out(pod, before, now_s)

    def on_shown(self, pod: Pod, before: str, now_s: float) -> None:
        """Wake pods, also this one, if a watch showed that its nomination `before`, which counted, is over."""
        self._wake_kept_out(pod, before, now_s)

    def take_node(self, pod: Pod, node_name: str, now_s: float) -> None:
        """End the nomination of a pod that is about to be placed on the node; no event tells that another is free."""
        if self._state.nominated.node_of(pod.uid) not in ("", node_name):
            self.nominate(pod, "", now_s)

    def _wake_kept_out(self, pod: Pod, before: str, now_s: float, *, but: str = "") -> None:
        """Wake waiting pods of the pod's priority or lower if its nomination `before`, which kept them out, is over."""
        if not before or before == self._state.nominated.node_of(pod.uid):
            return
        left = replace(pod, nominated_node_name=before)

        def may_have_waited(waiting: Pod) -> bool:
            return waiting.priority <= left.priority and waiting.uid != but

        self._queue.on_event(ASSIGNED_POD_DELETE, left, None, now_s, only=may_have_waited)
