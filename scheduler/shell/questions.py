"""
What the running scheduler says of its own pending pods: the last reasons of some, and any one explained as of now.

The answer is made on the live state between two turns of the loop, which it only reads. Changes that would help are
left out: they are tried on a copy, which takes a second at 50,000 pods, and that is for the command `explain`.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from scheduler.explain.explainer import ExplainRequest, explain
from scheduler.explain.explanation import API_VERSION, Explanation, JsonStruct
from scheduler.model.instructions import Attempted
from scheduler.queueing.pod_queue import PodQueue
from scheduler.queueing.queued_pod import QueuedPod
from scheduler.settings.resolved import Settings
from scheduler.shell.profiles import built_profiles, exempt_of
from scheduler.state.cluster import ClusterState

#: Pods whose last reason is kept, and so many characters of it: 2 MB in all.
MAX_KEPT: Final = 1000
MAX_MESSAGE: Final = 2048

_NOTE: Final = "without changes that would help: `affinity-scheduler explain` tries them"


class LastAttempt(JsonStruct, frozen=True):
    """How the last attempt ended; `message` as in the event, cut to `MAX_MESSAGE` characters."""

    result: str
    message: str
    seconds_ago: float


class PendingPod(JsonStruct, frozen=True):
    """A pod in the queue. `queue` as the label of `scheduler_pending_pods`; `last` is null where nothing is kept."""

    namespace: str
    pod: str
    queue: str
    attempts: int
    last: LastAttempt | None


class PendingPods(JsonStruct, frozen=True, kw_only=True):
    """The pods whose last reason is kept, the latest attempt first, and how many more are pending."""

    api_version: str = API_VERSION
    kind: str = "PendingPods"
    pods: tuple[PendingPod, ...]
    n_more: int


class PendingExplanation(JsonStruct, frozen=True, kw_only=True):
    """One pending pod, explained."""

    api_version: str = API_VERSION
    kind: str = "PendingExplanation"
    pending: PendingPod
    explanation: Explanation


@dataclass(frozen=True, slots=True)
class _Kept:
    result: str
    message: str
    at_s: float


class Questions:
    """
    Args:
        settings, state, queue: the scheduler's own.
        now_s: a monotonic clock.
    """

    def __init__(
        self, settings: Settings, state: ClusterState, queue: PodQueue, *, now_s: Callable[[], float]
    ) -> None:
        self._settings = settings
        self._state = state
        self._queue = queue
        self._now_s = now_s
        #: By the pod's UID, the latest attempt last.
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    def keep(self, attempt: Attempted) -> None:
        """The attempt is the pod's last; of a pod that was bound nothing is kept. O(1)."""
        uid = attempt.pod.uid
        self._kept.pop(uid, None)
        if attempt.result == "scheduled":
            return
        self._kept[uid] = _Kept(attempt.result, attempt.message[:MAX_MESSAGE], self._now_s())
        if len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)

    def answer(self, namespace: str, name: str) -> bytes | None:
        """
        JSON of the pending pod of that name, explained, or of all that is kept where the name is empty.

        None where no such pod is pending here. Cost: a decision, O(placed pods) for each rule that refuses nodes, and
        O(pending pods).
        """
        if not name:
            return msgspec.json.encode(self._all())
        found = next((queued for queued in self._pending() if _is(queued, namespace, name)), None)
        if found is None:
            return None
        return msgspec.json.encode(
            PendingExplanation(pending=self._told(found), explanation=self._explained(found))
        )

    def _pending(self) -> list[QueuedPod]:
        """Pods in the queue whose bind is not under way."""
        return [queued for queued in self._queue.pods() if queued.uid not in self._state.placed]

    def _all(self) -> PendingPods:
        pending = {queued.uid: queued for queued in self._pending()}
        pods = tuple(self._told(pending[uid]) for uid in reversed(self._kept) if uid in pending)
        return PendingPods(pods=pods, n_more=len(pending) - len(pods))

    def _told(self, queued: QueuedPod) -> PendingPod:
        kept = self._kept.get(queued.uid)
        pod, seconds_ago = queued.pod, 0.0 if kept is None else round(self._now_s() - kept.at_s, 3)
        last = None if kept is None else LastAttempt(kept.result, kept.message, seconds_ago)
        return PendingPod(pod.namespace, pod.name, queued.sub_queue.value, queued.attempts, last)

    def _explained(self, queued: QueuedPod) -> Explanation:
        name = queued.profile
        (profile,) = (each for each in self._settings.profiles if each.scheduler_name == name)
        return explain(
            ExplainRequest(
                pod=queued.pod,
                state=self._state,
                new_profile=lambda snapshot: built_profiles(self._settings, snapshot)[name],
                rng=random.Random(1),
                try_changes=False,
                pending_pods=[other.pod for other in self._pending()],
                exempt_namespaces=exempt_of(profile),
                notes=(_NOTE,),
            )
        )


def _is(queued: QueuedPod, namespace: str, name: str) -> bool:
    return queued.pod.name == name and queued.pod.namespace == namespace
