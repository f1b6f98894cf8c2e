"""
Whether a pod may preempt others at all.

Source: plugins/defaultpreemption/default_preemption.go, PodEligibleToPreemptOthers (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from scheduler.framework.diagnosis import FitError
from scheduler.framework.status import Code
from scheduler.model.pods import Pod
from scheduler.state.cluster_view import ClusterView

NEVER: Final = "not eligible due to preemptionPolicy=Never."
VICTIMS_ARE_ENDING: Final = "not eligible due to a terminating pod on the nominated node."


def ineligibility(pod: Pod, fit_error: FitError, view: ClusterView) -> str | None:
    """
    Return why the pod may not preempt others, None if it may.

    A pod whose victims still end on its nominated node waits for them, unless the node cannot help it any more.
    """
    if not pod.may_preempt:
        return NEVER
    row = view.nodes.row_by_name.get(pod.nominated_node_name) if pod.nominated_node_name else None
    if row is None or not view.alive.item(row):
        return None
    if fit_error.code_at(row) is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
        return None
    return VICTIMS_ARE_ENDING if _has_ending_victims(row, pod.priority, view) else None


def group_ineligibility(members: Sequence[Pod], node_names: Collection[str], view: ClusterView) -> str | None:
    """Return as `ineligibility` for members of a group, nominated to these nodes."""
    if not all(pod.may_preempt for pod in members):
        return NEVER
    priority = min(pod.priority for pod in members)
    rows = [view.nodes.row_by_name.get(name) for name in node_names]
    live = [row for row in rows if row is not None and view.alive.item(row)]
    return VICTIMS_ARE_ENDING if any(_has_ending_victims(row, priority, view) for row in live) else None


def _has_ending_victims(row: int, priority: int, view: ClusterView) -> bool:
    placed = (one.pod for one in view.placed_on(row))
    return any(one.terminating and one.is_preempted and one.priority < priority for one in placed)
