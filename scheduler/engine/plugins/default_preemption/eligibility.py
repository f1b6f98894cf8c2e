"""
Whether a pod may preempt others at all.

Source: plugins/defaultpreemption/default_preemption.go, PodEligibleToPreemptOthers (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from scheduler.engine.framework.post_filter import UnfitPod
from scheduler.engine.framework.status import Code
from scheduler.engine.model.pods import Pod
from scheduler.engine.state.cluster_view import ClusterView

NEVER: Final = "not eligible due to preemptionPolicy=Never."
DEVICES_ARE_RELEASED: Final = "not eligible due to devices that are being released on the nominated node."
VICTIMS_ARE_ENDING: Final = "not eligible due to a terminating pod on the nominated node."


def ineligibility(unfit: UnfitPod, view: ClusterView) -> str | None:
    """Return why the pod may not preempt others, None if it may."""
    # A pod whose victims still end on its nominated node waits for them, unless the node can no longer help it. It also
    # waits for devices there that claims of pods that are gone will release (not upstream).
    pod, fit_error = unfit.context.pod, unfit.fit_error
    if not pod.may_preempt:
        return NEVER
    row = view.nodes.row_by_name.get(pod.nominated_node_name) if pod.nominated_node_name else None
    if row is None or not view.alive.item(row):
        return None
    if fit_error.code_at(row) is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
        return None
    if _has_ending_victims(row, unfit.evicts_below, view):
        return VICTIMS_ARE_ENDING
    if fit_error.prefilter is not None:
        return None
    trial = unfit.trials.at(row, view.nominated_above_on(row, pod))
    return DEVICES_ARE_RELEASED if trial.refusal() is None else None


def group_ineligibility(
    members: Sequence[Pod], priority: int, node_names: Collection[str], view: ClusterView
) -> str | None:
    """As `ineligibility`, for members of a group of this priority that are nominated to these nodes."""
    if not all(pod.may_preempt for pod in members):
        return NEVER
    rows = [view.nodes.row_by_name.get(name) for name in node_names]
    live = [row for row in rows if row is not None and view.alive.item(row)]
    return VICTIMS_ARE_ENDING if any(_has_ending_victims(row, priority, view) for row in live) else None


def _has_ending_victims(row: int, priority: int, view: ClusterView) -> bool:
    pods = (placed.pod for placed in view.state.placed_on(row))
    return any(
        pod.terminating and pod.is_preempted and view.state.groups.victim_priority(pod) < priority
        for pod in pods
    )
