"""
Whether a pod may preempt others at all.

Source: plugins/defaultpreemption/default_preemption.go, PodEligibleToPreemptOthers (kubernetes 1.36).
"""

from __future__ import annotations

from typing import Final

from scheduler.framework.diagnosis import FitError
from scheduler.framework.status import Code
from scheduler.model.pods import Pod
from scheduler.state.snapshot import Snapshot

NEVER: Final = "not eligible due to preemptionPolicy=Never."
VICTIMS_ARE_ENDING: Final = "not eligible due to a terminating pod on the nominated node."


def ineligibility(pod: Pod, fit_error: FitError, snapshot: Snapshot) -> str | None:
    """
    Return why the pod may not preempt others, None if it may.

    A pod whose victims still end on its nominated node waits for them, unless the node cannot help it any more.
    """
    if not pod.may_preempt:
        return NEVER
    row = snapshot.nodes.row_by_name.get(pod.nominated_node_name) if pod.nominated_node_name else None
    if row is None or not snapshot.alive.item(row):
        return None
    if fit_error.code_at(row) is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
        return None
    placed = (one.pod for one in snapshot.placed_on(row))
    if any(one.terminating and one.is_preempted and one.priority < pod.priority for one in placed):
        return VICTIMS_ARE_ENDING
    return None
