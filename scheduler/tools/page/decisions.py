"""The last attempts to schedule a pod, and the last evictions, for the live feed."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import islice
from typing import Final

import msgspec

from scheduler.engine.core.decision_annotation import RankedNode, read_record
from scheduler.engine.model.instructions import Attempted
from scheduler.engine.model.pods import Pod
from scheduler.tools.explain.formats.explanation import Document, JsonStruct

#: Attempts and evictions that are remembered, at most 3 KB each.
MAX_DECISIONS: Final = 500
_MAX_MESSAGE: Final = 2048


class Decision(JsonStruct, frozen=True, kw_only=True):
    """
    One attempt. `number` grows by one with each; `at` is in seconds since the epoch, `seconds` until the bind's answer.

    `top` and `rejected` are those of the decision's record: the chosen node first, weighted scores by plugin, and
    numbers of refused nodes by reason. Both are empty for a pod that fits nowhere, whose `message` has the reasons.
    `n_victims`: pods that begin to be evicted for it; each is an eviction of its own once a watch shows it.
    """

    number: int
    at: float
    namespace: str
    pod: str
    profile: str
    result: str
    node: str
    message: str
    attempts: int
    seconds: float
    n_evaluated: int
    n_feasible: int
    n_victims: int
    top: tuple[RankedNode, ...]
    rejected: Mapping[str, int]
    #: The node where pods are evicted for this one, empty if none are or they are for its group; the first ten of them.
    nominated: str = ""
    evicted: tuple[str, ...] = ()


class Eviction(JsonStruct, frozen=True, kw_only=True):
    """
    One pod that was evicted from its node, numbered with the attempts.

    `reason`: of its condition DisruptionTarget, such as EvictionByEvictionAPI (the enforcer, a drain).
    """

    number: int
    at: float
    namespace: str
    pod: str
    node: str
    priority: int
    reason: str


class Decisions(Document, frozen=True, kw_only=True):
    """
    Attempts and evictions, each the newest first.

    `began`: when the scheduler started, in seconds since the epoch: numbers start again with it.
    """

    kind: str = "Decisions"
    decisions: tuple[Decision, ...]
    evictions: tuple[Eviction, ...]
    #: The number of the newest attempt or eviction of all, 0 before the first.
    newest: int
    began: float


class DecisionFeed:
    """The last `MAX_DECISIONS` attempts and evictions. Records are decoded for viewers alone."""

    def __init__(self, began_s: float) -> None:
        #: Attempts with their records, not decoded, and evictions; no pod, with all that is derived from it.
        self._entries: deque[tuple[Decision | Eviction, str]] = deque(maxlen=MAX_DECISIONS)
        self._began = round(began_s, 3)
        self.newest = 0

    def record(self, attempt: Attempted, seconds: float, at_s: float) -> None:
        """Remember the attempt, which took `seconds` and ended at `at_s` since the epoch."""
        self.newest += 1
        pod, is_bound = attempt.pod, attempt.result == "scheduled"
        message = attempt.message[:_MAX_MESSAGE]
        decision = Decision(
            number=self.newest,
            at=round(at_s, 3),
            namespace=pod.namespace,
            pod=pod.name,
            profile=pod.scheduler_name,
            result=attempt.result,
            node=message if is_bound else "",
            message="" if is_bound else message,
            attempts=attempt.attempts,
            seconds=round(seconds, 6),
            n_evaluated=attempt.n_evaluated,
            n_feasible=attempt.n_feasible,
            n_victims=attempt.n_victims,
            top=(),
            rejected={},
            nominated=attempt.nominated_node_name,
            evicted=tuple(map("/".join, attempt.victims)),
        )
        self._entries.append((decision, attempt.record))

    def record_eviction(self, pod: Pod, at_s: float) -> None:
        """Remember that the pod is evicted from its node."""
        self.newest += 1
        eviction = Eviction(
            number=self.newest,
            at=round(at_s, 3),
            namespace=pod.namespace,
            pod=pod.name,
            node=pod.node_name,
            priority=pod.priority,
            reason=pod.disruption,
        )
        self._entries.append((eviction, ""))

    def after(self, number: int, most: int) -> Decisions:
        """Return the newest entries with a greater number, at most `most`."""
        decisions: list[Decision] = []
        evictions: list[Eviction] = []
        for entry, record in islice(reversed(self._entries), most):
            if entry.number <= number:
                break
            if isinstance(entry, Eviction):
                evictions.append(entry)
            else:
                read = read_record(record) if record else None
                if read is not None:
                    entry = msgspec.structs.replace(entry, top=read.top, rejected=read.rejected)
                decisions.append(entry)
        return Decisions(
            decisions=tuple(decisions),
            evictions=tuple(evictions),
            newest=self.newest,
            began=self._began,
        )
