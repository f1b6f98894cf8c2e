"""Instructions of the core to the daemon. Results come back as stimuli."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from scheduler.engine.model.object_writes import ObjectWrite
from scheduler.engine.model.pod_groups import PodGroup
from scheduler.engine.model.pods import Pod


@dataclass(frozen=True, slots=True)
class Bind:
    """Bind the pod to the node and set the annotations; answered by BindDone or BindFailed."""

    pod: Pod
    node_name: str
    annotations: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class WriteReservation:
    """
    Make the writes, in order, that the pod needs before it is bound to the node; answered by ReservationWritten.

    No write follows one that failed. `number`: of the reservation, which the answer repeats. `nominates`: whether the
    pod's status.nominatedNodeName is first set to the node; the writes follow even if that fails.
    """

    pod: Pod
    node_name: str
    writes: tuple[ObjectWrite[Any], ...]
    number: int = field(default=0, compare=False)
    nominates: bool = False


@dataclass(frozen=True, slots=True)
class WriteObjects:
    """
    Make each of these writes, which help the pod or undo what was reserved for it; not answered: watches show them.

    What is reserved for the pod later is written after them.
    """

    pod: Pod
    writes: tuple[ObjectWrite[Any], ...]


@dataclass(frozen=True, slots=True)
class PatchCondition:
    """Set PodScheduled=False on the pod, and status.nominatedNodeName: None leaves it, empty clears it."""

    pod: Pod
    reason: Literal["Unschedulable", "SchedulerError"]
    message: str
    nominated_node_name: str | None = None


@dataclass(frozen=True, slots=True)
class ClearNomination:
    """Clear the pod's status.nominatedNodeName."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class EvictVictim:
    """
    Say on the victim that the preemptor needs its place, and delete it; EvictionDue comes before each of these writes.

    Answered by EvictionEnded. `number`: of the decision; an earlier decision has a lower number.
    """

    preemptor: Pod
    victim: Pod
    number: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class ProceedWithEviction:
    """Send the write that EvictionDue asks about: the preemptor still needs the victim's place."""

    preemptor_uid: str
    victim_uid: str


@dataclass(frozen=True, slots=True)
class SpareVictim:
    """End the eviction that EvictionDue asks about; `ends`: whether the victim is known to end, or to be gone."""

    preemptor_uid: str
    victim_uid: str
    ends: bool


@dataclass(frozen=True, slots=True)
class EmitEvent:
    """Record an event about the pod, reported by the profile `reported_by`; by the pod's own if that is empty."""

    pod: Pod
    type: Literal["Normal", "Warning"]
    reason: Literal[
        "Scheduled",
        "FailedScheduling",
        "Preempted",
        "RuleRelaxed",
        "KeptByAnnotations",
        "UnreadAnnotation",
        "PodGroupNotWhole",
        "BindingConditionsPending",
    ]
    action: Literal["Binding", "Scheduling", "Preempting"]
    note: str
    reported_by: str = ""


@dataclass(frozen=True, slots=True)
class Attempted:
    """
    Report the end of a scheduling attempt, for metrics and logs.

    Attributes:
        started_s: when the attempt began, by the clock of `now_s`.
        first_active_s: when the pod first became active in the queue.
        after_flush: whether the timeout of unschedulable pods caused the attempt.
        tried_preemption: whether PostFilter ran.
        n_victims: pods that are evicted for this pod, or for its group.
        nominated_node_name: the node that the victims are evicted from; '' without victims, or if they are a group's.
        victims: namespace and name of the ten most important victims.
        record: the decision annotation of a bound pod; '' if it has none.
        relaxed: the kinds of the rules that were relaxed for a bound pod.
    """

    pod: Pod
    result: Literal["scheduled", "unschedulable", "error"]
    started_s: float
    attempts: int
    first_active_s: float
    after_flush: bool
    n_evaluated: int
    n_feasible: int
    message: str
    tried_preemption: bool = False
    n_victims: int = 0
    nominated_node_name: str = ""
    victims: tuple[tuple[str, str], ...] = ()
    record: str = ""
    relaxed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Evicted:
    """Report that a placed pod ends by a disruption (`Pod.disruption`), once per pod, for the page."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class PatchPodGroup:
    """Write a condition of a PodGroup. `condition_type`: empty for the one that says whether the group is placed."""

    group: PodGroup
    is_true: bool
    reason: Literal["Scheduled", "Unschedulable", "SchedulerError", "Whole", "MembersLost"]
    message: str
    condition_type: str = ""


@dataclass(frozen=True, slots=True)
class GroupAttempted:
    """Report the end of an attempt to place a group, for metrics; `n_decisions`: of the search, if there was one."""

    profile: str
    result: Literal["scheduled", "unschedulable", "error"]
    started_s: float
    n_decisions: int


@dataclass(frozen=True, slots=True)
class DevicesAwaited:
    """Report the end of a wait for devices, for metrics. `devices`: driver, and whether it has binding conditions."""

    pod: Pod
    status: Literal["success", "failure", "timeout", "error"]
    waited_s: float
    devices: tuple[tuple[str, bool], ...]


Instruction = (
    Bind
    | WriteReservation
    | WriteObjects
    | PatchCondition
    | PatchPodGroup
    | ClearNomination
    | EvictVictim
    | ProceedWithEviction
    | SpareVictim
    | EmitEvent
    | Attempted
    | Evicted
    | GroupAttempted
    | DevicesAwaited
)
