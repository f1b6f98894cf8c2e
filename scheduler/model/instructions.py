"""Everything the core can order. The shell carries it out; results come back as stimuli."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from scheduler.model.pods import Pod


@dataclass(frozen=True, slots=True)
class Bind:
    """Bind the pod of this UID to the node, which also gives it the annotations; ends in BindDone or BindFailed."""

    pod: Pod
    node_name: str
    annotations: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class PatchCondition:
    """Set PodScheduled=False on the pod; `clear_nomination` also empties status.nominatedNodeName."""

    pod: Pod
    reason: Literal["Unschedulable", "SchedulerError"]
    message: str
    clear_nomination: bool


@dataclass(frozen=True, slots=True)
class EmitEvent:
    """Record an event about the pod; reported under the profile's name."""

    pod: Pod
    type: Literal["Normal", "Warning"]
    reason: Literal["Scheduled", "FailedScheduling"]
    action: Literal["Binding", "Scheduling"]
    note: str


@dataclass(frozen=True, slots=True)
class Attempted:
    """
    An attempt has ended: what the metrics of attempts are made of.

    Seconds are of the same clock as `now_s`. `first_active_s` is when the pod could first be tried.
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


Instruction = Bind | PatchCondition | EmitEvent | Attempted
