"""
What an attempt leads to: events, the PodScheduled condition, and the figures for metrics.

Source: pkg/scheduler/schedule_one.go, handleSchedulingFailure and truncateMessage (kubernetes 1.36).
"""

from __future__ import annotations

from typing import Final, Literal

from scheduler.model.instructions import Attempted, EmitEvent, Instruction, PatchCondition
from scheduler.model.pods import Pod
from scheduler.queueing.queued_pod import QueuedPod

#: Longest note that the Events API takes, and what upstream cuts a longer one to.
_NOTE_LIMIT_BYTES: Final = 1024
_NOTE_TAIL: Final = " ..."


def failure(pod: Pod, message: str, *, unschedulable: bool) -> list[Instruction]:
    """Return the event of a failed attempt and, if it says something new, the condition."""
    reason: Final = "Unschedulable" if unschedulable else "SchedulerError"
    instructions: list[Instruction] = [failed_event(pod, message)]
    known = pod.scheduled_condition
    wanted = ("False", reason, message)
    unchanged = known is not None and (known.status, known.reason, known.message) == wanted
    nominated = bool(pod.nominated_node_name)
    if not unchanged or nominated:
        instructions.append(PatchCondition(pod, reason, message, clear_nomination=nominated))
    return instructions


def failed_event(pod: Pod, note: str) -> EmitEvent:
    """Return the Warning event of a pod that was not scheduled; a note too long for the Events API is cut."""
    return EmitEvent(pod, "Warning", "FailedScheduling", "Scheduling", _fitting(note))


def _fitting(note: str) -> str:
    """Return the note, or its first 1020 bytes and ` ...`, without a character that the cut would split."""
    encoded = note.encode()
    if len(encoded) <= _NOTE_LIMIT_BYTES:
        return note
    kept = encoded[: _NOTE_LIMIT_BYTES - len(_NOTE_TAIL)].decode(errors="ignore")
    return kept + _NOTE_TAIL


def attempted(
    queued: QueuedPod,
    result: Literal["scheduled", "unschedulable", "error"],
    started_s: float,
    *,
    n_evaluated: int = 0,
    n_feasible: int = 0,
    message: str = "",
) -> Attempted:
    """Return the attempt for metrics and logs. A pod that was never active before has waited since `started_s`."""
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
    )
