"""
Changes nominations, and wakes the pods that a nomination kept out once it counts no more.

Upstream wakes them when a watch shows the change (eventhandlers.go, updatePodInSchedulingQueue, kubernetes 1.36). Here
a nomination counts before it is written, and may end before it was: then no watch shows it. A pod that takes another
node than it was nominated to wakes nobody upstream (kubernetes #134859).
"""

from __future__ import annotations

from dataclasses import replace

from scheduler.engine.framework.events import ASSIGNED_POD_DELETE
from scheduler.engine.model.pods import Pod
from scheduler.engine.queueing.pod_queue import PodQueue
from scheduler.engine.state.cluster import ClusterState


class Nominator:
    """Changes the nominations of the machine's state; wakes pods of its queue."""

    def __init__(self, state: ClusterState, queue: PodQueue) -> None:
        self._state, self._queue = state, queue

    def nominate(self, pod: Pod, node_name: str, now_s: float) -> None:
        """Let the pod count as nominated to this node alone, to none if the name is empty. It was tried, or goes."""
        self._change(pod, node_name, now_s, but=pod.uid)

    def withdraw(self, pod: Pod, now_s: float) -> None:
        """End the nomination of a waiting pod whose node another pod takes, and let it be tried again."""
        self._change(pod, "", now_s)

    def show(self, old: Pod | None, pod: Pod) -> str:
        """
        Follow the nomination that a watch shows. Return the nomination that counted before, for `wake_kept_out`.

        A nomination that was made here counts until a watch shows it, and from then on until a watch shows its end.
        """
        before = self._state.nominated.node_of(pod.uid)
        if old is None and pod.gates:
            # Upstream notes the nomination of a new pod when the pod becomes active, or changes.
            return before
        node_name = pod.nominated_node_name
        if old is not None and not old.nominated_node_name and not node_name:
            node_name = before
        self._state.nominate(pod, node_name)
        return before

    def take_node(self, pod: Pod, node_name: str, now_s: float) -> None:
        """End the nomination of a pod that is placed on the node; no event tells that another node is free."""
        before = self._state.nominated.node_of(pod.uid)
        if before:
            self._state.nominate(pod, "")
        if before != node_name:
            self.wake_kept_out(pod, before, now_s, but=pod.uid)

    def leave_node(self, node_name: str, now_s: float) -> list[Pod]:
        """
        End the nominations to a node that is gone, and try their pods at once; return these.

        Upstream leaves them to their next attempt; until then an autoscaler counts them as placed and adds no node.
        """
        pods = list(self._state.nominated.on(node_name))
        for pod in pods:
            self._state.nominate(pod, "")
        self._queue.activate_each((pod.uid for pod in pods), now_s)
        return pods

    def wake_kept_out(self, pod: Pod, before: str, now_s: float, *, but: str = "") -> None:
        """Wake the pods, of its priority or lower, that its nomination `before` kept out, if that is over."""
        if not before or before == self._state.nominated.node_of(pod.uid):
            return

        def kept_out(waiting: Pod) -> bool:
            return waiting.priority <= pod.priority and waiting.uid != but

        left = replace(pod, nominated_node_name=before)
        self._queue.on_event(ASSIGNED_POD_DELETE, left, None, now_s, kept_out=kept_out)

    def _change(self, pod: Pod, node_name: str, now_s: float, *, but: str = "") -> None:
        before = self._state.nominated.node_of(pod.uid)
        if before or node_name:
            self._state.nominate(pod, node_name)
            self.wake_kept_out(pod, before, now_s, but=but)
