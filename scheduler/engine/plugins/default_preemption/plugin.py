"""
DefaultPreemption: if a pod fits nowhere, find the node where the fewest and least important pods have to leave for it.

Here: the plugin, whether a pod may preempt, and its part of the message. `candidates`: the victims on one node, and the
harm; `dry_runs`: of many nodes at once. `search`: which nodes are asked. The machine acts on it.

Source: plugins/defaultpreemption/default_preemption.go, framework/preemption/preemption.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import ClassVar, Final

from scheduler.engine.framework.diagnosis import PostFiltered, fit_message
from scheduler.engine.framework.events import ClusterEventWithHint
from scheduler.engine.framework.interface import PluginContext, PreEnqueuePlugin, Rng
from scheduler.engine.framework.post_filter import EvictionUnit, GroupPreemptor, PostFilterPlugin, UnfitPod
from scheduler.engine.framework.status import SUCCESS, Code, Status, failed, unschedulable
from scheduler.engine.model.pods import Pod
from scheduler.engine.plugins.default_preemption.candidates import Candidate, candidate_at, reprieve_order
from scheduler.engine.plugins.default_preemption.search import DefaultPreemptionArgs, Search, find_candidates
from scheduler.engine.state.batches import Pieces
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.errors import InvariantViolation

NAME: Final = "DefaultPreemption"

NOT_HELPFUL: Final = "Preemption is not helpful for scheduling"
NEVER: Final = "not eligible due to preemptionPolicy=Never."
DEVICES_ARE_RELEASED: Final = "not eligible due to devices that are being released on the nominated node."
VICTIMS_ARE_ENDING: Final = "not eligible due to a terminating pod on the nominated node."


class DefaultPreemption(PreEnqueuePlugin, PostFilterPlugin, GroupPreemptor):
    """Nominates a pod to a node, and names the pods that have to leave it."""

    name = NAME
    extension_points: ClassVar = ("preEnqueue", "postFilter")
    args_type: ClassVar = DefaultPreemptionArgs

    def __init__(self, args: DefaultPreemptionArgs, context: PluginContext) -> None:
        self.args = args
        self._is_preempting = context.is_preempting

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """Return nothing: the machine lets a pod hear of events again once no pod is being evicted for it."""
        # Upstream registers deleted pods with a hint that never helps, and after each deletion checks every held pod.
        return ()

    def admits(self, pod: Pod) -> bool:
        """Return whether no pod is being evicted for the pod."""
        return not self._is_preempting(pod)

    def postfilter(self, unfit: UnfitPod, view: ClusterView, rng: Rng) -> Pieces[PostFiltered]:
        """Return the nomination and its victims, or why preemption does not help. O(pods) at most."""
        reason = ineligibility(unfit, view)
        if reason is not None:
            return PostFiltered(unschedulable(f"preemption: {reason}"))
        search = yield from find_candidates(unfit, view, self.args, rng)
        if search.candidates:
            best = _best_of(search)
            return PostFiltered(SUCCESS, view.nodes.name_of(best.row), best.victims)
        if search.errors:
            return PostFiltered(failed(f"preemption: {_joined(search.errors)}"))
        return PostFiltered(unschedulable(f"preemption: {_message(search)}"), "")

    def group_ineligibility(
        self, members: Sequence[Pod], priority: int, node_names: Collection[str], view: ClusterView
    ) -> str | None:
        """Return why the members, of this priority and nominated to these nodes, may not preempt; None if they may."""
        if not all(pod.may_preempt for pod in members):
            return NEVER
        rows = [view.nodes.row_by_name.get(name) for name in node_names]
        live = [row for row in rows if row is not None and view.alive.item(row)]
        return VICTIMS_ARE_ENDING if any(_has_ending_victims(row, priority, view) for row in live) else None

    def reprieve_order(self, units: Sequence[EvictionUnit], view: ClusterView) -> list[EvictionUnit]:
        """Return the units in the order of their reprieve: first the ones that budgets protect."""
        violating, others = reprieve_order(units, view)
        return [*violating, *others]


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


def _has_ending_victims(row: int, priority: int, view: ClusterView) -> bool:
    pods = (placed.pod for placed in view.state.placed_on(row))
    return any(
        pod.terminating and pod.is_preempted and view.state.groups.victim_priority(pod) < priority
        for pod in pods
    )


def _best_of(search: Search) -> Candidate:
    """Return the candidate that does the least harm."""
    best = min(search.candidates, key=lambda each: each.harm)
    answer = candidate_at(best.row, search.unfit, search.view)
    if isinstance(answer, Status):
        raise InvariantViolation(f"{search.unfit.context.pod.key}: a node that was a candidate is none")
    return answer


def _message(search: Search) -> str:
    reasons, n_nodes = search.reasons.copy(), search.view.n_nodes
    if n_others := n_nodes - search.n_asked:
        reasons[NOT_HELPFUL] += n_others
    return fit_message(n_nodes, reasons)


def _joined(errors: list[str]) -> str:
    """Return the errors as upstream's aggregate writes them: each once, in brackets if there are several."""
    distinct = list(dict.fromkeys(errors))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"
