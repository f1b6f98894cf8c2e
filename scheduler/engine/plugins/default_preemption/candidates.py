"""
The nodes on which a pod would fit if some pods of lower priority left, and which pods these are.

On each node all pods of lower priority leave first. If the pod fits then, as many of them as possible are reprieved,
one by one: first the pods whose removal would break a PodDisruptionBudget, then the others, and among both the most
important first. A group that its PodGroup disrupts as a whole is one unit: it leaves all nodes, or stays.

The node where evicting pods does the least harm is chosen.

Source: plugins/defaultpreemption/default_preemption.go, SelectVictimsOnNode and filterPodsWithPDBViolation;
framework/preemption/preemption.go, pickOneNodeForPreemption (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from scheduler.engine.framework.node_trial import NodeUnderTrial
from scheduler.engine.framework.post_filter import EvictionUnit, UnfitPod
from scheduler.engine.framework.status import Status, failed, unresolvable
from scheduler.engine.model.pods import Pod
from scheduler.engine.state.cluster import PlacedPod
from scheduler.engine.state.cluster_view import ClusterView

NO_VICTIMS: Final = unresolvable("No preemption victims found for incoming pod")

#: Makes every priority positive, so that a node with more pods of a negative priority is not better.
LOWEST_PRIORITY: Final = 1 << 31

#: Fewest broken budgets, lowest priority of the first victim, smallest sum of priorities, fewest victims, and latest
#: start of the victims of the highest priority: the smaller, the less harm. Upstream takes any of equal nodes.
Harm = tuple[int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class Candidate:
    """
    A node, and the pods that have to leave for the pod, the most important first.

    `priorities`: the priorities by which the victims were compared. `n_violations`: the pods, or groups that are
    evicted as a whole, whose eviction breaks a budget.
    """

    row: int
    victims: tuple[Pod, ...]
    priorities: tuple[int, ...]
    n_violations: int

    @property
    def harm(self) -> Harm:
        """Return the harm of evicting the victims. There is at least one."""
        n_victims, highest = len(self.victims), self.priorities[0]
        total = sum(self.priorities) + LOWEST_PRIORITY * n_victims
        # Not the first victim's: members of a group come in the order in which watches showed them, and a whole group
        # before single pods that started earlier (util/utils.go, GetEarliestPodStartTime).
        ranks = zip(self.priorities, self.victims, strict=True)
        earliest = min(victim.start_rank for priority, victim in ranks if priority == highest)
        return self.n_violations, highest, total, n_victims, -earliest


def candidate_at(row: int, unfit: UnfitPod, view: ClusterView) -> Candidate | Status:
    """Return the pods that the pod would evict from the row, or why evicting does not help."""
    lower = lower_units(view.state.placed_on(row), unfit, view)
    if not lower:
        return NO_VICTIMS
    violating, others = reprieve_order(lower, view)
    trial = unfit.trials.at(row, view.nominated_above_on(row, unfit.context.pod))
    for unit in (*violating, *others):
        _leave(unit, trial, row)
    if (refusal := trial.refusal()) is not None:
        return refusal.status
    evicted = _reprieve(violating, trial, row)
    n_violations = len(evicted)
    evicted += _reprieve(others, trial, row)
    if not evicted and unfit.fit_error.prefilter is None:
        # The pod only waits for devices, of pods that are gone.
        return NO_VICTIMS
    if not evicted:
        # All pods may stay although the node refused this one: a PreFilter refused it, and no eviction changes that.
        return failed(f'expected at least one victim pod on node "{view.nodes.name_of(row)}"')
    if violating and others:
        evicted.sort(key=lambda unit: importance(unit, view))
    victims = tuple(placed.pod for unit in evicted for placed in unit)
    return Candidate(row, victims, tuple(map(view.state.groups.victim_priority, victims)), n_violations)


def lower_units(pods: Iterable[PlacedPod], unfit: UnfitPod, view: ClusterView) -> list[EvictionUnit]:
    """Return the units that the pod evicts and that have one of these pods, each once."""
    seen: set[str] = set()
    units: list[EvictionUnit] = []
    for placed in pods:
        if placed.pod.group is None:
            if placed.pod.priority < unfit.evicts_below:
                units.append((placed,))
            continue
        if placed.pod.uid in seen or not view.is_lower(placed.pod, unfit.context.pod):
            continue
        unit = view.evicted_with(placed)
        seen.update(each.pod.uid for each in unit)
        units.append(unit)
    return units


def reprieve_order(
    units: Iterable[EvictionUnit], view: ClusterView
) -> tuple[list[EvictionUnit], list[EvictionUnit]]:
    """Return the units whose removal would break a budget, and the others, both with the most important first."""
    # Equally important pods have no order upstream: sort.Slice leaves them as NodeInfo.Pods has them (beyond 12 pods
    # not even that), where pods are appended as watches bring them and the last pod fills the gap that another leaves.
    # Here the name decides, so that a restart changes no decision; the recorded decisions agree with this direction.
    ordered = sorted(units, key=lambda unit: min(placed.pod.key for placed in unit), reverse=True)
    ordered.sort(key=lambda unit: importance(unit, view))
    return _by_violation(ordered, view)


def importance(unit: EvictionUnit, view: ClusterView) -> tuple[int, int, int]:
    """
    Return a key that sorts units by importance: a higher priority first, then a group before a pod, the larger group,
    and the earlier start.

    Source: framework/preemption/podgrouppreemption.go, moreImportantVictim (kubernetes 1.36).
    """
    pod = unit[0].pod
    if pod.group is None:
        return -pod.priority, 0, pod.start_rank
    n_members = len(unit) if view.state.groups.is_disrupted_whole(pod) else 0
    return -view.state.groups.victim_priority(pod), -n_members, min(placed.pod.start_rank for placed in unit)


def _reprieve(units: Iterable[EvictionUnit], trial: NodeUnderTrial, row: int) -> list[EvictionUnit]:
    """Reprieve each unit beside which the incoming pod still fits. Return the others."""
    evicted = []
    for unit in units:
        for placed in unit:
            if placed.row == row:
                trial.count(placed.pod, 1)
            else:
                trial.count_elsewhere(placed.pod, 1)
        if trial.refusal() is not None:
            _leave(unit, trial, row)
            evicted.append(unit)
    return evicted


def _leave(unit: EvictionUnit, trial: NodeUnderTrial, row: int) -> None:
    for placed in unit:
        if placed.row == row:
            trial.count(placed.pod, -1)
        else:
            trial.count_elsewhere(placed.pod, -1)


def _by_violation(
    units: Sequence[EvictionUnit], view: ClusterView
) -> tuple[list[EvictionUnit], list[EvictionUnit]]:
    """Return the units whose removal in this order would break a budget; and the others."""
    # Every pod takes from its budgets, even if an earlier pod of the unit has broken them.
    allowed: dict[str, int] = {}
    violating: list[EvictionUnit] = []
    others: list[EvictionUnit] = []
    for unit in units:
        breaks = False
        for placed in unit:
            breaks |= _breaks_a_budget(placed, allowed, view)
        (violating if breaks else others).append(unit)
    return violating, others


def _breaks_a_budget(placed: PlacedPod, allowed: dict[str, int], view: ClusterView) -> bool:
    """Take the pod from the disruptions that each of its budgets allows. Return whether a budget allows none."""
    is_broken = False
    for budget in view.budgets_of(placed.label_set):
        # The budget has already counted out a pod that is being evicted.
        if placed.pod.name in budget.disrupted_pods:
            continue
        left = allowed.get(budget.key, budget.disruptions_allowed) - 1
        allowed[budget.key] = left
        is_broken |= left < 0
    return is_broken
