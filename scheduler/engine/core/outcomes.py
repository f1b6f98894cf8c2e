"""
Instructions that report an attempt: events, the PodScheduled condition, and the figures for metrics.

Source: pkg/scheduler/schedule_one.go, handleSchedulingFailure and truncateMessage (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from scheduler.engine.core.pod_records import Binding, Relaxation
from scheduler.engine.model.annotations import DECISION_ANNOTATION
from scheduler.engine.model.instructions import (
    Attempted,
    EmitEvent,
    Instruction,
    PatchCondition,
    PatchPodGroup,
)
from scheduler.engine.model.pod_groups import PodGroup
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.unread_names import unread_notes
from scheduler.engine.queueing.queued_pod import QueuedPod

#: The longest note that the Events API accepts. A longer one is cut and ends with `_NOTE_TAIL`, as upstream.
_NOTE_LIMIT_BYTES: Final = 1024
_NOTE_TAIL: Final = " ..."

#: Victims that the report of an attempt names.
_SHOWN_VICTIMS: Final = 10


def report_bound(binding: Binding) -> list[Instruction]:
    """Return the events of a bound pod, and its attempt."""
    pod, node_name, relaxation = binding.bind.pod, binding.bind.node_name, binding.relaxation
    note = f"Successfully assigned {pod.key} to {node_name}"
    return [
        EmitEvent(pod, "Normal", "Scheduled", "Binding", note),
        *([] if relaxation is None else [_relaxed_event(pod, relaxation)]),
        attempted(
            binding.queued,
            "scheduled",
            binding.started_s,
            node_name,
            n_evaluated=binding.n_evaluated,
            n_feasible=binding.n_feasible,
            record=binding.bind.annotations.get(DECISION_ANNOTATION, ""),
            relaxed=() if relaxation is None else tuple(each.kind for each in relaxation.pod.spec.relaxed),
        ),
    ]


def report_failure(
    pod: Pod,
    result: Literal["unschedulable", "error"],
    message: str,
    *,
    nominated: str | None = "",
    shown_nomination: str | None = None,
) -> list[Instruction]:
    """
    Return the event of a failed attempt, and the condition if it or the nomination changed.

    `pod`: with the nomination that counted. `nominated`: the node that it is nominated to from now on, empty for none;
    None leaves its nomination. `shown_nomination`: the nomination that a watch shows, if it may differ from the counted
    one: a write that no watch shows yet may have failed.
    """
    reason: Final = "Unschedulable" if result == "unschedulable" else "SchedulerError"
    instructions: list[Instruction] = [failed_event(pod, message)]
    condition = pod.scheduled_condition
    wanted = ("False", reason, message)
    unchanged = condition is not None and (condition.status, condition.reason, condition.message) == wanted
    shown = pod.nominated_node_name if shown_nomination is None else shown_nomination
    changed = None if nominated == pod.nominated_node_name == shown else nominated
    if not unchanged or changed is not None:
        instructions.append(PatchCondition(pod, reason, message, changed))
    return instructions


def report_failed_attempt(
    queued: QueuedPod,
    pod: Pod,
    result: Literal["unschedulable", "error"],
    message: str,
    started_s: float,
    *,
    nominated: str | None = "",
    shown_nomination: str | None,
    tried_preemption: bool = False,
    victims: Sequence[Pod] = (),
) -> list[Instruction]:
    """Return the attempt, and what `report_failure` returns of it."""
    attempt = attempted(
        queued,
        result,
        started_s,
        message,
        tried_preemption=tried_preemption,
        victims=victims,
        nominated=nominated,
    )
    failure = report_failure(pod, result, message, nominated=nominated, shown_nomination=shown_nomination)
    return [attempt, *failure]


def report_group(
    group: PodGroup | None, reason: Literal["Scheduled", "Unschedulable", "SchedulerError"], message: str = ""
) -> list[Instruction]:
    """Return the condition of a PodGroup whose status is ours to write, if it changes; True stays True."""
    if group is None or not group.api_version or group.was_scheduled:
        return []
    known = group.scheduled_condition
    if known is not None and (known.reason, known.message) == (reason, message):
        return []
    return [PatchPodGroup(group, reason == "Scheduled", reason, message)]


def failed_event(pod: Pod, note: str) -> EmitEvent:
    """Return the Warning event of a pod that was not scheduled, with the note cut to the Events API's limit."""
    return EmitEvent(pod, "Warning", "FailedScheduling", "Scheduling", _truncated(note))


def unread_event(pod: Pod) -> EmitEvent:
    """Return the Warning event of a pod with labels or annotations that nothing reads."""
    return EmitEvent(
        pod, "Warning", "UnreadAnnotation", "Scheduling", _truncated("; ".join(unread_notes(pod.unread)))
    )


def _relaxed_event(pod: Pod, relaxation: Relaxation) -> EmitEvent:
    return EmitEvent(pod, "Normal", "RuleRelaxed", "Binding", _truncated(relaxation.note()))


def _truncated(note: str) -> str:
    encoded = note.encode()
    if len(encoded) <= _NOTE_LIMIT_BYTES:
        return note
    start = encoded[: _NOTE_LIMIT_BYTES - len(_NOTE_TAIL)].decode(errors="ignore")
    return start + _NOTE_TAIL


def attempted(
    queued: QueuedPod,
    result: Literal["scheduled", "unschedulable", "error"],
    started_s: float,
    message: str,
    *,
    n_evaluated: int = 0,
    n_feasible: int = 0,
    tried_preemption: bool = False,
    victims: Sequence[Pod] = (),
    nominated: str | None = None,
    record: str = "",
    relaxed: tuple[str, ...] = (),
) -> Attempted:
    """
    Return the attempt for metrics and logs. A pod never active before became active at `started_s`.

    `victims`: the most important first; none if all end already. `nominated`: where they are; None for a group's.
    """
    return Attempted(
        pod=queued.pod,
        result=result,
        started_s=started_s,
        attempts=queued.attempts,
        first_active_s=started_s if queued.initial_attempt_s is None else queued.initial_attempt_s,
        after_flush=queued.after_flush,
        n_evaluated=n_evaluated,
        n_feasible=n_feasible,
        message=message,
        tried_preemption=tried_preemption,
        n_victims=len(victims),
        nominated_node_name=(nominated or "") if victims else "",
        victims=tuple((victim.namespace, victim.name) for victim in victims[:_SHOWN_VICTIMS]),
        record=record,
        relaxed=relaxed,
    )
