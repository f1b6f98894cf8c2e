"""
What the machine knows of each pod that it has something to do for: one record, in one map.

A pod has a record while a watch shows it unassigned, while its bind has no answer, and while it makes room for other
pods or other pods make room for it. `PodRecords.settle` alone ends records.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from scheduler.engine.model.fallback import RelaxedRule
from scheduler.engine.model.instructions import Bind
from scheduler.engine.model.pods import Pod
from scheduler.engine.queueing.queued_pod import QueuedPod
from scheduler.engine.state.cluster import ClusterState


class Phase(Enum):
    """Where a pod is in its life; `engine.core.pod_lifecycle` draws it. Three properties tell phases apart."""

    #: No watch shows it: not yet, or not any more.
    GONE = ("gone", False, False, False)
    #: Shown unassigned. The queue holds it, or one cycle does.
    PENDING = ("pending", True, False, False)
    #: Assumed on a node; its volumes and its claims are written and waited for.
    RESERVED = ("reserved", True, True, True)
    #: Assumed on a node; the bind has no answer.
    BINDING = ("binding", True, True, True)
    #: As BINDING, but a watch has shown that it ends, or is unassigned again: it counts nowhere.
    WITHDRAWN = ("withdrawn", True, False, True)
    #: As WITHDRAWN, but no watch shows it any more.
    LOST = ("lost", False, False, True)
    #: Shown on a node; the bind has no answer.
    CONFIRMED = ("confirmed", False, False, True)
    #: Assumed on a node; the API server has accepted the bind.
    BOUND = ("bound", True, True, False)
    #: Shown on a node.
    PLACED = ("placed", False, False, False)

    # Enum's own hash is computed in Python, several times per stimulus.
    __hash__ = object.__hash__

    def __init__(self, text: str, is_shown: bool, is_assumed: bool, is_unanswered: bool) -> None:  # noqa: FBT001
        self.text = text
        #: Whether a watch shows the pod unassigned.
        self.is_shown = is_shown
        #: Whether it counts on a node where no watch shows it.
        self.is_assumed = is_assumed
        #: Whether an answer to its bind, or to the write of what is reserved, is to come.
        self.is_unanswered = is_unanswered


@dataclass(frozen=True, slots=True)
class Relaxation:
    """A pod whose due rules count as preferred, and why."""

    pod: Pod
    rules: tuple[RelaxedRule, ...]

    def note(self) -> str:
        """Return which rules count as what, and why."""
        softened = {relaxed.name: relaxed.softened for relaxed in self.pod.spec.relaxed}
        return "; ".join(
            f"{relaxed.rule} counts as {softened[relaxed.rule]}: {relaxed.why}" for relaxed in self.rules
        )


@dataclass(frozen=True, slots=True)
class Binding:
    """A pod between assume and the result of its bind."""

    queued: QueuedPod
    bind: Bind
    n_evaluated: int
    n_feasible: int
    started_s: float
    #: The rules that were relaxed for it, None if none was.
    relaxation: Relaxation | None = None
    #: Whether what is reserved for it is written before the bind.
    is_reserved: bool = False


@dataclass(slots=True, eq=False)
class Preemption:
    """
    The evictions for a pod, or for a group.

    Attributes:
        preemptor: the pod, or a member of the group, in whose name pods are evicted.
        waiting: the UIDs of all pods that room is made for, and that are not tried meanwhile.
        node_name: where; empty for a group, whose members may go to several nodes.
        victims: the UIDs of all victims.
        left: the victim whose eviction begins last; None once it has begun, or will not.
        unanswered: victims whose eviction began, for this pod or for another pod that needs their room too.
        unseen: the UIDs of victims whose eviction began and has not failed, and that no watch has shown to end.
        is_given_up: whether an eviction failed or was not needed.
        number: of the decision, in their order.
    """

    preemptor: Pod
    waiting: frozenset[str]
    node_name: str
    victims: frozenset[str]
    left: Pod | None
    number: int
    unanswered: dict[str, Pod] = field(default_factory=dict)
    unseen: set[str] = field(default_factory=set)
    is_given_up: bool = False
    has_failed: bool = False


@dataclass(slots=True, eq=False)
class PodRecord:
    """
    One pod. `PodLifecycle` writes the attributes up to `binding`, `Fallbacks` the last, `Preemptions` the others.

    Attributes:
        phase: changed by the table of transitions alone.
        shown: the unassigned pod as last seen; None if no watch shows it so.
        binding: the decision whose bind has no answer.
        preemption: the evictions for the pod that are not over.
        evicted: the pods that were evicted for it, as namespace/name.
        room_on: their node; empty if that was for its group. It counts beside `evicted` alone.
        evicted_by: the UID of the pod in whose name it is being evicted itself.
        preemptors: the UIDs of the pods that it makes room for, until its eviction is answered and its end is seen.
        is_deleted: whether the API server deletes it, and no watch shows its end.
        is_kept_by_annotations: whether it would fit if no annotation declared affinity.
    """

    uid: str
    phase: Phase
    shown: Pod | None = None
    binding: Binding | None = None
    preemption: Preemption | None = None
    evicted: tuple[str, ...] = ()
    room_on: str = ""
    evicted_by: str = ""
    preemptors: tuple[str, ...] = ()
    is_deleted: bool = False
    is_kept_by_annotations: bool = False

    @property
    def is_idle(self) -> bool:
        """Whether the state says all that the record says."""
        return (
            (self.phase is Phase.PLACED or self.phase is Phase.GONE)
            and self.preemption is None
            and not (self.evicted or self.evicted_by or self.preemptors or self.is_deleted)
        )


class PodRecords:
    """The records by UID. `n_unanswered`: how many have a bind without an answer."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._by_uid: dict[str, PodRecord] = {}
        self.n_unanswered = 0

    def __iter__(self) -> Iterator[PodRecord]:
        return iter(self._by_uid.values())

    def get(self, uid: str) -> PodRecord | None:
        """Return the pod's record, None if it has none."""
        return self._by_uid.get(uid)

    def at(self, uid: str) -> PodRecord:
        """Return the pod's record, or a new one; `settle` it once it is written."""
        record = self._by_uid.get(uid)
        if record is None:
            record = PodRecord(uid, Phase.PLACED if uid in self._state.placed else Phase.GONE)
        return record

    def settle(self, record: PodRecord) -> None:
        """Keep the record if it says something, else end it."""
        if record.is_idle:
            self._by_uid.pop(record.uid, None)
        else:
            self._by_uid[record.uid] = record

    def shown(self, uid: str) -> Pod | None:
        """Return the unassigned pod as last seen; None if no watch shows it so."""
        record = self._by_uid.get(uid)
        return None if record is None else record.shown

    def is_unanswered(self, uid: str) -> bool:
        """Return whether the pod's bind has no answer."""
        record = self._by_uid.get(uid)
        return record is not None and record.binding is not None
