"""
The nodes on which a pod would fit if some pods of lower priority left, and which pods these are.

On each node all pods of lower priority leave first. If the pod fits then, as many of them as possible are reprieved,
one by one: first the pods whose removal would break a PodDisruptionBudget, then the others, and among both the most
important first.

The node where evicting pods does the least harm is chosen.

Source: plugins/defaultpreemption/default_preemption.go, SelectVictimsOnNode and filterPodsWithPDBViolation;
framework/preemption/preemption.go, pickOneNodeForPreemption (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from scheduler.framework.node_trial import NodeUnderTrial
from scheduler.framework.post_filter import UnfitPod
from scheduler.framework.status import Status, failed, unresolvable
from scheduler.model.pods import Pod
from scheduler.state.cluster import PlacedPod
from scheduler.state.cluster_view import ClusterView

NO_VICTIMS: Final = unresolvable("No preemption victims found for incoming pod")

#: Makes every priority positive, so that a node with more pods of a negative priority is not better.
LOWEST_PRIORITY: Final = 1 << 31

#: Fewest broken budgets, lowest priority of the first victim, smallest sum of priorities, fewest victims, and latest
#: start of the victims of the highest priority: the smaller, the less harm. Upstream takes any of equal nodes.
Harm = tuple[int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node, the pods that have to leave it, the most important first, and how many of these break a budget."""

    row: int
    victims: tuple[Pod, ...]
    n_violations: int

    @property
    def harm(self) -> Harm:
        """Return the harm of evicting the victims, of which there is at least one."""
        first, n_victims = self.victims[0], len(self.victims)
        total = sum(victim.priority for victim in self.victims) + LOWEST_PRIORITY * n_victims
        return self.n_violations, first.priority, total, n_victims, -first.start_rank


def candidate_at(row: int, unfit: UnfitPod, view: ClusterView) -> Candidate | Status:
    """
    Return the pods that the pod would evict from the row, or why evicting does not help.

    Cost: 10 µs, and 3 µs for each pod of lower priority.
    """
    pod = unfit.context.pod
    lower = [placed for placed in view.placed_on(row) if placed.pod.priority < pod.priority]
    if not lower:
        return NO_VICTIMS
    trial = unfit.trials.at(row, view.nominated_above_on(row, pod))
    for placed in lower:
        trial.remove_pod(placed.pod)
    if (refusal := trial.refusal()) is not None:
        return refusal.status
    violating, others = reprieve_order(lower, view)
    evicted = _reprieve(violating, trial)
    n_violations = len(evicted)
    evicted += _reprieve(others, trial)
    if not evicted and unfit.fit_error.prefilter is None:
        # It waits for devices alone, which pods that are gone held.
        return NO_VICTIMS
    if not evicted:
        # All may stay although the node refuses the pod: a PreFilter refused it, which no eviction changes.
        return failed(f'expected at least one victim pod on node "{view.nodes.name_of(row)}"')
    if violating and others:
        evicted.sort(key=importance)
    return Candidate(row, tuple(evicted), n_violations)


def reprieve_order(pods: Iterable[PlacedPod], view: ClusterView) -> tuple[list[PlacedPod], list[PlacedPod]]:
    """Return the pods whose removal would break a budget, and the others, both with the most important first."""
    # Equally important pods have no order upstream: sort.Slice leaves them as NodeInfo.Pods has them (beyond 12 pods
    # not even that), where pods are appended as watches bring them and the last pod fills the gap that another leaves.
    # Here the name decides, so that a restart changes no decision; the recorded decisions agree with this direction.
    ordered = sorted(pods, key=lambda placed: placed.pod.key, reverse=True)
    ordered.sort(key=lambda placed: importance(placed.pod))
    return _by_violation(ordered, view)


def importance(pod: Pod) -> tuple[int, int]:
    """Return a key that sorts pods by importance: a higher priority first, then an earlier start (MoreImportantPod)."""
    return -pod.priority, pod.start_rank


def _reprieve(pods: Iterable[PlacedPod], trial: NodeUnderTrial) -> list[Pod]:
    """Reprieve each pod beside which the incoming one still fits. Return the others."""
    evicted = []
    for placed in pods:
        trial.add_pod(placed.pod)
        if trial.refusal() is not None:
            trial.remove_pod(placed.pod)
            evicted.append(placed.pod)
    return evicted


def _by_violation(pods: Sequence[PlacedPod], view: ClusterView) -> tuple[list[PlacedPod], list[PlacedPod]]:
    """Return the pods whose removal would break a budget, if they left in this order; and the others."""
    allowed: dict[str, int] = {}
    violating: list[PlacedPod] = []
    others: list[PlacedPod] = []
    for placed in pods:
        (violating if _breaks_a_budget(placed, allowed, view) else others).append(placed)
    return violating, others


def _breaks_a_budget(placed: PlacedPod, allowed: dict[str, int], view: ClusterView) -> bool:
    """Take the pod from the disruptions that each of its budgets allows. Return whether a budget allows none."""
    is_broken = False
    for budget in view.budgets_of(placed.label_set):
        # A pod that is being evicted already is counted out.
        if placed.pod.name in budget.disrupted_pods:
            continue
        left = allowed.get(budget.key, budget.disruptions_allowed) - 1
        allowed[budget.key] = left
        is_broken |= left < 0
    return is_broken
