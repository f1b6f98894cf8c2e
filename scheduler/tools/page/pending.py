"""The pods of the queue, grouped by what keeps them there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from heapq import nsmallest
from typing import Final

from scheduler.engine.framework.profile import GANG_SCHEDULING
from scheduler.engine.model.pods import Pod
from scheduler.engine.queueing.queued_pod import QueuedPod, SubQueue
from scheduler.engine.state.batches import Pieces, batches
from scheduler.tools.explain.formats.explanation import Document, JsonStruct
from scheduler.tools.explain.sentences import reason_in, refusals_in

#: Groups in an answer, and pods by name in each.
MAX_GROUPS: Final = 200
MAX_SHOWN: Final = 100
#: Begins the message of a member of a pod group that waits.
GROUP_WAITS: Final = "pod group "


class Waiting(JsonStruct, frozen=True, kw_only=True):
    """One pod. `created`: as the API server wrote it, in RFC 3339. `message`: of its last attempt, or ''."""

    namespace: str
    pod: str
    queue: str
    attempts: int
    created: str
    priority: int
    message: str


class PendingGroup(JsonStruct, frozen=True, kw_only=True):
    """Pods with the same reason, the oldest first. `oldest`: when the oldest was created, '' if no pod says when."""

    reason: str
    queue: str
    n_pods: int
    oldest: str
    shown: tuple[Waiting, ...]


class Pending(Document, frozen=True, kw_only=True):
    """The groups with the oldest pod first. `n_pods`: pods in the queue; `n_matching`: pods that the search finds."""

    kind: str = "Pending"
    groups: tuple[PendingGroup, ...]
    n_more_groups: int
    n_pods: int
    n_matching: int


@dataclass(frozen=True, slots=True)
class PodQuery:
    """Parts of names, and labels `key=value` or `key`; empty ones match every pod."""

    namespace: str = ""
    name: str = ""
    label: str = ""

    def matches(self, pod: Pod) -> bool:
        """Return whether the search finds the pod."""
        if self.namespace not in pod.namespace or self.name not in pod.name:
            return False
        if not self.label:
            return True
        key, has_value, value = self.label.partition("=")
        return pod.labels.get(key) == value if has_value else key in pod.labels


def grouped(pods: Iterable[QueuedPod], messages: Mapping[str, str], search: PodQuery) -> Pieces[Pending]:
    """
    Return the groups, in steps that yield. O(pods).

    `messages`: of the last attempts, by UID. Other pods have the message of their PodScheduled condition, which on a
    standby is the leader's.
    """
    waiting = list(pods)
    groups: dict[tuple[str, str], list[QueuedPod]] = {}
    for few in batches(waiting):
        for queued in few:
            if search.matches(queued.pod):
                reason = reason_of(queued, messages)
                groups.setdefault((reason, queued.sub_queue.value), []).append(queued)
        yield
    answered = [_answer(reason, queue, group, messages) for (reason, queue), group in groups.items()]
    answered.sort(key=lambda group: (group.oldest, -group.n_pods, group.reason))
    return Pending(
        groups=tuple(answered[:MAX_GROUPS]),
        n_more_groups=max(0, len(answered) - MAX_GROUPS),
        n_pods=len(waiting),
        n_matching=sum(map(len, groups.values())),
    )


def message_of(pod: Pod, messages: Mapping[str, str]) -> str:
    """Return the message of the pod's last attempt; '' if it had none."""
    remembered = messages.get(pod.uid)
    if remembered is not None:
        return remembered
    condition = pod.scheduled_condition
    return condition.message if condition is not None and condition.status == "False" else ""


def reason_of(queued: QueuedPod, messages: Mapping[str, str]) -> str:
    """
    Return the pod's message without numbers of nodes and without its part on preemption.

    Pods that wait for the same reason have the same text then. The message of a pod group is the same for its members.
    """
    message = message_of(queued.pod, messages)
    refusals = refusals_in(message)
    if refusals.startswith(GROUP_WAITS):
        return refusals.rstrip(".")
    if queued.sub_queue is SubQueue.GATED and queued.gating_plugin == GANG_SCHEDULING and queued.pod.group:
        return refusals or f"{GROUP_WAITS}{queued.pod.group.key.text} is not complete"
    if queued.sub_queue is SubQueue.GATED:
        gates = ", ".join(queued.pod.gates) or queued.gating_plugin
        return f"scheduling gates: {gates}"
    if not message:
        return "not tried yet"
    return reason_in(message)


def _answer(reason: str, queue: str, pods: list[QueuedPod], messages: Mapping[str, str]) -> PendingGroup:
    # RFC 3339 in UTC, as the API server writes it: the order of texts is the order of times.
    oldest = nsmallest(MAX_SHOWN, pods, key=lambda queued: (queued.pod.created, queued.pod.key))
    return PendingGroup(
        reason=reason,
        queue=queue,
        n_pods=len(pods),
        oldest=min(filter(None, (queued.pod.created for queued in pods)), default=""),
        shown=tuple(
            Waiting(
                namespace=queued.pod.namespace,
                pod=queued.pod.name,
                queue=queued.sub_queue.value,
                attempts=queued.attempts,
                created=queued.pod.created,
                priority=queued.pod.priority,
                message=message_of(queued.pod, messages),
            )
            for queued in oldest
        ),
    )
