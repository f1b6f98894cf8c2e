"""
Takes nodes out of a world, in which the replacements of their pods find new places.

    round   the pods that PodDisruptionBudgets let go leave together -> replacements are placed, by priority
    next    a placed replacement gives its budget the disruption back; a pod that found no place is tried again
    end     when a round moves nothing

A replacement is the pod without its node, with its labels and its claims: the volume plugins decide where bound
volumes let it go. Claims of ephemeral volumes are made anew, and rules with fallbacks are relaxed as for new replicas.
Source for pods that stay or go: `kubectl drain` (drain/filters.go) and the Eviction API (eviction.go), kubernetes 1.36.
All running pods count as ready.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from itertools import chain
from typing import Final, NamedTuple

import msgspec

from scheduler.engine.model.disruption_budgets import DisruptionBudget, guarding, refusing
from scheduler.engine.model.nodes import Node
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import ObjectGone, ObjectSeen, PodGone, PodSeen
from scheduler.engine.model.terms import CORDON_TAINT_KEY, Taint
from scheduler.engine.model.volumes import StorageKind
from scheduler.engine.state.cluster import ClusterState
from scheduler.tools.explain.formats.explanation import (
    Document,
    Explanation,
    JsonStruct,
    PodRef,
    Pods,
    json_name,
)
from scheduler.tools.explain.simulation.new_claims import new_claim, renewed_claims
from scheduler.tools.explain.simulation.replicas import longest_wait_s, waited, why_unplaced
from scheduler.tools.explain.simulation.world import World
from scheduler.tools.explain.workloads import workload_of

_CORDON: Final = Taint(CORDON_TAINT_KEY, "", "NoSchedule")
#: How often a pod is evicted for others and made anew.
_MOST_EVICTIONS: Final = 5


class Stay(StrEnum):
    """Why a pod of a drained node gets no replacement."""

    DAEMON_SET = "DaemonSet"
    #: Its owner is its Node: the kubelet runs it from a file.
    STATIC = "static"
    #: Nothing would make it anew; `kubectl drain` refuses it without --force.
    NO_CONTROLLER = "no controller"
    #: It leaves anyway, and its controller has replaced it or will.
    TERMINATING = "terminating"


class LeavingPod(msgspec.Struct, kw_only=True, rename=json_name):
    """
    A pod that has to leave `node`.

    `round`: when budgets let it go, from 1; 0 if they never do, and then `held_by` says which. `to`: its new node;
    empty if it finds none, and then `message` says why. `workload`: such as `deploy/shop`.
    """

    namespace: str
    pod: str
    node: str
    to: str = ""
    round: int = 0
    held_by: str = ""
    message: str = ""
    workload: str

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.pod}"

    @property
    def is_homeless(self) -> bool:
        """Whether it has left and has no place."""
        return self.round > 0 and not self.to


class StayingPods(JsonStruct, frozen=True):
    """Pods without a replacement, and why."""

    why: Stay
    pods: Pods


class Drain(Document, frozen=True, kw_only=True):
    """
    The result of `simulate --drain` and `--without-zone`; `-o json` prints it.

    `leaving`: all pods that have to leave, in the order of rounds; pods that budgets hold come last. `next`: explains
    the first pod that finds no place; null if there is none.
    """

    kind: str = "Drain"
    nodes: tuple[str, ...]
    #: The zone that is gone; empty for a drain.
    zone: str
    n_pods: int
    n_placed: int
    n_rounds: int
    leaving: tuple[LeavingPod, ...]
    staying: tuple[StayingPods, ...]
    next: Explanation | None
    notes: tuple[str, ...] = ()

    @property
    def n_leaving(self) -> int:
        """The pods that leave, with those that are lost, since they have no controller."""
        return self.n_pods + sum(each.pods.n_total for each in self.staying if each.why is Stay.NO_CONTROLLER)

    @property
    def is_ok(self) -> bool:
        """Whether every pod finds a place; a pod without a controller is lost."""
        return self.n_placed == self.n_leaving


class Move(NamedTuple):
    """A pod that has to leave its node, the budgets that count it, and what became of it."""

    pod: Pod
    budgets: Sequence[DisruptionBudget]
    shown: LeavingPod


def empty_nodes(
    state: ClusterState, node_names: Iterable[str], *, stays: bool
) -> tuple[list[Pod], list[tuple[Stay, Pod]]]:
    """
    Cordon the nodes if they stay, or remove them with all their pods; terminating pods are removed in both cases.

    Return the pods that have to leave, by priority, and those that get no replacement.
    """
    leaving: list[Pod] = []
    staying: list[tuple[Stay, Pod]] = []
    for node in filter(None, map(state.node, node_names)):
        for pod in [placed.pod for placed in state.placed_on(state.nodes.row_by_name[node.name])]:
            stay = stay_of(pod)
            if stay is None:
                leaving.append(pod)
            else:
                staying.append((stay, pod))
            if not stays or stay is Stay.TERMINATING:
                state.remove_pod(pod.uid)
        if stays:
            state.nodes.upsert(cordoned(node))
        else:
            state.nodes.remove(node.name)
    staying.sort(key=lambda entry: (entry[0], entry[1].key))
    return sorted(leaving, key=by_priority), staying


def by_priority(pod: Pod) -> tuple[int, str]:
    """Return the order in which pods are placed again."""
    return -pod.priority, pod.key


def cordoned(node: Node) -> Node:
    """Return the node as one that takes no further pods."""
    taints = node.taints if _CORDON in node.taints else (*node.taints, _CORDON)
    return replace(node, unschedulable=True, taints=taints)


def stay_of(pod: Pod) -> Stay | None:
    """Return why the pod of a drained or lost node gets no replacement, None if it gets one."""
    if pod.terminating:
        return Stay.TERMINATING
    if pod.owner is None:
        return Stay.NO_CONTROLLER
    return {"DaemonSet": Stay.DAEMON_SET, "Node": Stay.STATIC}.get(pod.owner.kind)


def move_pods(leaving: Sequence[Pod], world: World, budgets: Iterable[DisruptionBudget]) -> list[Move]:
    """Let the pods leave and their replacements come, round by round, until a round moves nothing; return the moves."""
    of_namespace: dict[str, list[DisruptionBudget]] = {}
    for budget in budgets:
        of_namespace.setdefault(budget.namespace, []).append(budget)
    moves = []
    for pod in leaving:
        shown = LeavingPod(
            namespace=pod.namespace, pod=pod.name, node=pod.node_name, workload=workload_of(pod).text
        )
        moves.append(Move(pod, guarding(pod, of_namespace.get(pod.namespace, ())), shown))
    n_rounds = 0
    while True:
        used = _used(moves, of_namespace, world)
        let_go = _let_go(moves, n_rounds + 1, used)
        for budget in chain.from_iterable(of_namespace.values()):
            # So that preemption counts them too.
            left = max(0, budget.disruptions_allowed - used[budget.key])
            world.process(ObjectSeen(replace(budget, disruptions_allowed=left)))
        n_rounds += bool(let_go)
        for pod in let_go:
            world.process(PodGone(pod.uid))
            _renew_ephemeral_claims(pod, world)
            for event in list(renewed_claims(pod, world.state)):
                world.process(event)
        n_placed = sum(bool(move.shown.to) for move in moves)
        _replace(let_go, world)
        for pod, _, shown in moves:
            if shown.round:
                shown.to = world.node_of(pod.uid)
                shown.message = "" if shown.to else why_unplaced(pod, world)
        if not let_go and n_placed == sum(bool(move.shown.to) for move in moves):
            return moves


def _replace(leaving: Iterable[Pod], world: World) -> None:
    """
    Create the replacements of the pods, and of those that are evicted for them, as their controllers do.

    A pod that is evicted again and again is not made anew: members of groups with other priorities than their own may
    evict each other for ever.
    """
    while True:
        replacements = [waited(pod.recreated()) for pod in sorted(leaving, key=lambda pod: -pod.priority)]
        for pod in replacements:
            world.process(PodSeen(pod))
        n_before = len(world.evictions)
        world.run(longest_wait_s(replacements))
        n_evicted = Counter(eviction.victim.uid for eviction in world.evictions)
        evicted = [eviction.victim for eviction in world.evictions[n_before:]]
        if not evicted:
            return
        leaving = [pod for pod in evicted if stay_of(pod) is None and n_evicted[pod.uid] <= _MOST_EVICTIONS]


def _used(
    moves: Iterable[Move], of_namespace: Mapping[str, Sequence[DisruptionBudget]], world: World
) -> Counter[str]:
    """Return, by budget, the pods that left or were evicted for others, and have no replacement yet."""
    homeless = {move.pod.uid: move.budgets for move in moves if move.shown.is_homeless}
    for victim in (eviction.victim for eviction in world.evictions):
        if not world.node_of(victim.uid):
            homeless[victim.uid] = guarding(victim, of_namespace.get(victim.namespace, ()))
    return Counter(budget.key for guards in homeless.values() for budget in guards)


def _let_go(moves: Iterable[Move], number: int, used: Counter[str]) -> list[Pod]:
    """
    Return the pods that may leave now, in the round of this number; of the others the budget that holds them is noted.

    A budget allows what its controller last counted, less what is used; that of the pods that leave is added.
    """
    let_go = []
    for pod, budgets, shown in (move for move in moves if not move.shown.round):
        shown.held_by = refusing(budgets, used)
        if not shown.held_by:
            used.update(budget.key for budget in budgets)
            shown.round = number
            let_go.append(pod)
    return let_go


def _renew_ephemeral_claims(pod: Pod, world: World) -> None:
    """Replace the claims of the pod's ephemeral volumes, which are deleted with the pod, by new ones."""
    volumes = world.state.volumes
    for volume in pod.spec.claim_volumes:
        claim = volumes.claim(f"{pod.namespace}/{volume.claim_name(pod.name)}")
        if not volume.is_ephemeral or claim is None:
            continue
        if claim.volume_name:
            world.process(ObjectGone(StorageKind.VOLUME, claim.volume_name))
        fresh = replace(claim, volume_name="", selected_node=None, is_bind_completed=False)
        for obj in new_claim(fresh, volumes)[0]:
            world.process(ObjectSeen(obj))


def staying_pods(staying: Iterable[tuple[Stay, Pod]], shown: int) -> tuple[StayingPods, ...]:
    """Return the pods without a replacement by reason, of each at most `shown` by name."""
    by_reason: dict[Stay, list[PodRef]] = {}
    for why, pod in staying:
        by_reason.setdefault(why, []).append(PodRef(pod.namespace, pod.name, pod.node_name))
    return tuple(StayingPods(why, Pods(len(refs), tuple(refs[:shown]))) for why, refs in by_reason.items())
