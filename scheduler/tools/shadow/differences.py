"""What decisions say of a node, and the differences that follow."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
from msgspec.structs import replace as with_parts

from scheduler.engine.core.decide import CycleError, Decision, ScheduleResult
from scheduler.engine.framework.diagnosis import FitError
from scheduler.engine.model.pods import Pod
from scheduler.engine.state.cluster import ClusterState
from scheduler.tools.shadow.report import Cause, Difference

#: Longest explanation that is not cut: any user may write a message.
_MAX_EXPLANATION: Final = 4_096


def is_feasible(decision: Decision, row: int | None) -> bool:
    """Return whether the decision finds the row feasible; None for a node that is not there."""
    return (
        row is not None and isinstance(decision, ScheduleResult) and bool(decision.scores.feasible.mask[row])
    )


def count_best(decision: Decision, state: ClusterState, node: str) -> int:
    """Return how many nodes have the highest score if this node is one of them, else 0."""
    row = state.nodes.row_by_name.get(node)
    if not isinstance(decision, ScheduleResult) or not is_feasible(decision, row):
        return 0
    totals = decision.scores.totals
    most = totals.max()
    return int(np.count_nonzero(totals == most)) if totals[row] == most else 0


def reasons_of(decision: FitError | CycleError) -> str:
    """Return the message of the failure, without the outcome of PostFilter."""
    return (
        decision.message if isinstance(decision, CycleError) else replace(decision, postfilter=None).message()
    )


def says(decision: Decision, message: str) -> bool:
    """Return whether the decision gives the reasons of the message, to which PostFilter may have added."""
    return not isinstance(decision, ScheduleResult) and f"{message} ".startswith(f"{reasons_of(decision)} ")


def points_behind(decision: ScheduleResult, row: int) -> tuple[int, str, int]:
    """Return how many points the row is behind the chosen one, the plugin that adds most of them, and how many."""
    scores = decision.scores
    lacks = [
        (each.weight * (each.scores.item(scores.chosen) - each.scores.item(row)), each.plugin)
        for each in scores.by_plugin
    ]
    lack, plugin = max(lacks)
    return scores.totals.item(scores.chosen) - scores.totals.item(row), plugin, lack


def with_note(difference: Difference, note: str) -> Difference:
    """Return the difference with the note at the end of its explanation."""
    return with_parts(difference, explanation=f"{difference.explanation}; {note}")


def as_race(difference: Difference, other: str) -> Difference:
    """Return the difference as a race with the change of this object."""
    proven = with_note(difference, f"proven: not so if {other} came in the other order")
    return with_parts(proven, cause=Cause.RACE)


def difference_of(
    pod: Pod, cause: Cause, node: str, here: str, explanation: str, *, behind: int = 0, plugin: str = ""
) -> Difference:
    """Return the difference of a pod; a long explanation is cut."""
    return Difference(
        namespace=pod.namespace,
        pod=pod.name,
        cause=cause,
        node=node,
        here=here,
        behind=behind,
        plugin=plugin,
        explanation=explanation[:_MAX_EXPLANATION] + "..." * (len(explanation) > _MAX_EXPLANATION),
    )
