"""
Explains the scheduler's own pending pods for /debug/explain.

An explanation reads the live state between two iterations of the scheduling loop. It has no suggestions: the command
`explain` tries those on a copy of the state, which takes a second at 50,000 pods.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from scheduler.daemon.assembly.profiles import build_profiles
from scheduler.daemon.settings.resolved import Settings
from scheduler.engine.framework.profile import Profile
from scheduler.engine.model.instructions import Attempted
from scheduler.engine.queueing.pod_queue import PodQueue
from scheduler.engine.queueing.queued_pod import QueuedPod
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.tools.explain.explainer import ExplainRequest, explain
from scheduler.tools.explain.formats.explanation import Document, Explanation, JsonStruct

#: Limits on remembered failed attempts, one per pod, and on the characters of each message: 2 MB in all.
MAX_ATTEMPTS: Final = 1000
MAX_MESSAGE: Final = 2048

_NOTE: Final = "without changes that would help: `affinity-scheduler explain` tries them"


class LastAttempt(JsonStruct, frozen=True):
    """The last failed attempt; `message` is the event's, cut to `MAX_MESSAGE` characters."""

    result: str
    message: str
    seconds_ago: float


class PendingPod(JsonStruct, frozen=True):
    """A pod in the queue. `queue` has the values of the label in `scheduler_pending_pods`; `last` may be null."""

    namespace: str
    pod: str
    queue: str
    attempts: int
    last: LastAttempt | None


class PendingPods(Document, frozen=True, kw_only=True):
    """The pods whose last attempt is remembered, the latest first, and the number of other pending pods."""

    kind: str = "PendingPods"
    pods: tuple[PendingPod, ...]
    n_more: int


class PendingExplanation(Document, frozen=True, kw_only=True):
    """The explanation of one pending pod."""

    kind: str = "PendingExplanation"
    pending: PendingPod
    explanation: Explanation


@dataclass(frozen=True, slots=True)
class _FailedAttempt:
    result: str
    message: str
    at_s: float


class PendingPodExplainer:
    """Remembers failed attempts and explains pending pods. `now_s` is a monotonic clock."""

    def __init__(
        self,
        settings: Settings,
        state: ClusterState,
        queue: PodQueue,
        profiles: Mapping[str, Profile],
        *,
        now_s: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._state = state
        self._queue = queue
        self._profiles = profiles
        self._now_s = now_s
        #: By the pod's UID, the latest attempt last.
        self._failed_by_uid: OrderedDict[str, _FailedAttempt] = OrderedDict()

    def record(self, attempt: Attempted) -> None:
        """Remember the attempt if it failed, in place of the pod's previous one. O(1)."""
        uid = attempt.pod.uid
        self._failed_by_uid.pop(uid, None)
        if attempt.result == "scheduled":
            return
        message = attempt.message[:MAX_MESSAGE]
        self._failed_by_uid[uid] = _FailedAttempt(attempt.result, message, self._now_s())
        if len(self._failed_by_uid) > MAX_ATTEMPTS:
            self._failed_by_uid.popitem(last=False)

    def answer(self, namespace: str, name: str) -> bytes | None:
        """
        Return the explanation of a pending pod, or all remembered attempts if the name is '', as JSON.

        Return None if no such pod is pending. Cost: one decision, O(placed pods) for each rule that refuses nodes, and
        O(pending pods).
        """
        if not name:
            return msgspec.json.encode(self._all())
        queued = self.find(namespace, name)
        if queued is None:
            return None
        answer = PendingExplanation(pending=self._summary(queued), explanation=self.explain(queued))
        return msgspec.json.encode(answer)

    def messages(self) -> Mapping[str, str]:
        """Return the remembered messages by UID."""
        return {uid: attempt.message for uid, attempt in self._failed_by_uid.items()}

    def find(self, namespace: str, name: str) -> QueuedPod | None:
        """Return the pending pod, None if there is none. O(pending pods)."""
        for queued in self.pending():
            if queued.pod.name == name and queued.pod.namespace == namespace:
                return queued
        return None

    def pending(self) -> list[QueuedPod]:
        """Return the pods in the queue whose bind is not in flight."""
        return [queued for queued in self._queue.pods() if queued.uid not in self._state.placed]

    def _all(self) -> PendingPods:
        pending = {queued.uid: queued for queued in self.pending()}
        pods = tuple(self._summary(pending[uid]) for uid in reversed(self._failed_by_uid) if uid in pending)
        return PendingPods(pods=pods, n_more=len(pending) - len(pods))

    def _summary(self, queued: QueuedPod) -> PendingPod:
        failed, last = self._failed_by_uid.get(queued.uid), None
        if failed is not None:
            last = LastAttempt(failed.result, failed.message, round(self._now_s() - failed.at_s, 3))
        pod = queued.pod
        return PendingPod(pod.namespace, pod.name, queued.sub_queue.value, queued.attempts, last)

    def new_profiles(self, view: ClusterView) -> Mapping[str, Profile]:
        """Return the profiles for the view by name, in which the out-of-tree plugins that are shut off are."""
        profiles = build_profiles(self._settings, view)
        for name, profile in profiles.items():
            for plugin, running in zip(profile.out_of_tree, self._profiles[name].out_of_tree, strict=True):
                plugin.shut_off, plugin.unscored = running.shut_off, running.unscored
        return profiles

    def explain(self, queued: QueuedPod) -> Explanation:
        """Return the explanation of a pending pod, without changes that would help."""
        name = queued.profile
        return explain(
            ExplainRequest(
                pod=queued.pod,
                state=self._state,
                new_profile=lambda view: self.new_profiles(view)[name],
                rng=random.Random(1),
                try_changes=False,
                pending_pods=[other.pod for other in self.pending()],
                notes=(_NOTE,),
                now_s=self._now_s(),
                semantics=self._settings.semantics,
            )
        )
