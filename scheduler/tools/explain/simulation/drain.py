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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from scheduler.engine.model.disruption_budgets import DisruptionBudget, guarding, refusing
from scheduler.engine.model.nodes import Node
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import ObjectGone, ObjectSeen
from scheduler.engine.model.terms import CORDON_TAINT_KEY, Taint
from scheduler.engine.model.volumes import StorageKind
from scheduler.engine.state.cluster import ClusterState
from scheduler.tools.explain.formats.explanation import Document, Explanation, JsonStruct, PodRef, Pods
from scheduler.tools.explain.simulation.claim_changes import renewed_claims
from scheduler.tools.explain.simulation.new_claims import new_claim
from scheduler.tools.explain.simulation.replicas import (
    longest_wait_s,
    relaxed_note,
    relaxed_text,
    waited,
    why_unplaced,
)
from scheduler.tools.explain.simulation.world import World
from scheduler.tools.explain.workloads import workload_of

#: Pods that a note names.
_NAMED: Final = 3

_CORDON: Final = Taint(CORDON_TAINT_KEY, "", "NoSchedule")


class Stay(StrEnum):
    """Why a pod of a drained node gets no replacement."""

    DAEMON_SET = "DaemonSet"
    #: Its owner is its Node: the kubelet runs it from a file.
    STATIC = "static"
    #: Nothing would make it anew; `kubectl drain` refuses it without --force.
    NO_CONTROLLER = "no controller"
    #: It leaves anyway, and its controller has replaced it or will.
    TERMINATING = "terminating"


class LeavingPod(JsonStruct, frozen=True, kw_only=True):
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
    workload: str = ""

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.pod}"


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


@dataclass(frozen=True, slots=True)
class Departures:
    """The pods of the nodes that have to leave, and the ones that get no replacement."""

    leaving: Sequence[Pod]
    staying: Sequence[tuple[Stay, Pod]]

    @property
    def n_pods(self) -> int:
        """All pods of the nodes."""
        return len(self.leaving) + len(self.staying)

    @property
    def replaceable(self) -> list[Pod]:
        """The pods that leave and those without a controller, to show where they could go; by priority."""
        lone = (pod for stay, pod in self.staying if stay is Stay.NO_CONTROLLER)
        return sorted((*self.leaving, *lone), key=_by_priority)


@dataclass(slots=True)
class Moves:
    """The outcome of `move_pods` by UID: new nodes, rounds, and the budgets that hold pods."""

    node_by_uid: dict[str, str] = field(default_factory=dict)
    round_by_uid: dict[str, int] = field(default_factory=dict)
    held_by: dict[str, str] = field(default_factory=dict)
    #: Pods that left and found no place, and the message of their last attempt.
    unplaced: dict[str, str] = field(default_factory=dict)
    #: Pods of lower priority that are evicted for replacements, in order.
    evicted: Sequence[Pod] = ()
    n_rounds: int = 0


def empty_nodes(state: ClusterState, node_names: Iterable[str], *, stays: bool) -> Departures:
    """
    Cordon the nodes if they stay, or remove them with all their pods, and return which pods have to leave.

    Terminating pods are removed in both cases.
    """
    leaving: list[Pod] = []
    staying: list[tuple[Stay, Pod]] = []
    for name in node_names:
        node = state.node(name)
        if node is None:
            continue
        for pod in [placed.pod for placed in state.placed_on(state.nodes.row_by_name[name])]:
            stay = stay_of(pod)
            if stay is None:
                leaving.append(pod)
            else:
                staying.append((stay, pod))
            if not stays or stay is Stay.TERMINATING:
                state.remove_pod(pod.uid)
        if stays:
            state.upsert_node(cordoned(node))
        else:
            state.remove_node(name)
    return Departures(
        sorted(leaving, key=_by_priority), sorted(staying, key=lambda entry: (entry[0], entry[1].key))
    )


def _by_priority(pod: Pod) -> tuple[int, str]:
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


def move_pods(leaving: Sequence[Pod], world: World, budgets: Iterable[DisruptionBudget]) -> Moves:
    """
    Let the pods leave and their replacements come to the world, round by round, until a round moves nothing.

    Cost: one cycle per pod, and one for each event that may help a pod without a place.
    """
    moves = Moves()
    of_namespace: dict[str, list[DisruptionBudget]] = {}
    for budget in budgets:
        of_namespace.setdefault(budget.namespace, []).append(budget)
    guards = {pod.uid: guarding(pod, of_namespace.get(pod.namespace, ())) for pod in leaving}
    held: Sequence[Pod] = leaving
    while True:
        let_go, held = _let_go(held, guards, moves)
        moves.n_rounds += bool(let_go)
        for pod in let_go:
            moves.round_by_uid[pod.uid] = moves.n_rounds
            world.delete(pod.uid)
            _renew_ephemeral_claims(pod, world)
            for event in list(renewed_claims(pod, world.state)):
                world.process(event)
        n_placed = len(moves.node_by_uid)
        _replace(let_go, world)
        _note_places(leaving, world, moves)
        if not let_go and len(moves.node_by_uid) == n_placed:
            moves.evicted = [eviction.victim for eviction in world.evictions]
            return moves


def _replace(pods: Iterable[Pod], world: World) -> None:
    """Create the replacements of the pods, and of those that are evicted for them, as their controllers do."""
    replacements = [waited(pod.recreated()) for pod in sorted(pods, key=lambda pod: -pod.priority)]
    for pod in replacements:
        world.create(pod)
    n_evicted = len(world.evictions)
    world.run(longest_wait_s(replacements))
    evicted = [eviction.victim for eviction in world.evictions[n_evicted:]]
    if evicted:
        _replace([pod for pod in evicted if stay_of(pod) is None], world)


def _note_places(leaving: Iterable[Pod], world: World, moves: Moves) -> None:
    """Note where the replacement of each pod that left is, or why it is nowhere."""
    for pod in leaving:
        if pod.uid not in moves.round_by_uid:
            continue
        moves.node_by_uid.pop(pod.uid, None)
        moves.unplaced.pop(pod.uid, None)
        if node_name := world.node_of(pod.uid):
            moves.node_by_uid[pod.uid] = node_name
        else:
            moves.unplaced[pod.uid] = why_unplaced(pod, world)


def _let_go(
    held: Sequence[Pod], guards: dict[str, list[DisruptionBudget]], moves: Moves
) -> tuple[list[Pod], list[Pod]]:
    """
    Return the pods that may leave now, and the others, whose budget is noted in `moves.held_by`.

    A budget allows what its controller last counted, less the pods that left and have no replacement yet.
    """
    used = Counter(budget.key for uid in moves.unplaced for budget in guards[uid])
    let_go: list[Pod] = []
    still_held: list[Pod] = []
    for pod in held:
        if held_by := refusing(guards[pod.uid], used):
            moves.held_by[pod.uid] = held_by
            still_held.append(pod)
            continue
        moves.held_by.pop(pod.uid, None)
        used.update(budget.key for budget in guards[pod.uid])
        let_go.append(pod)
    return let_go, still_held


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
        made = new_claim(fresh, volumes)
        world.process(ObjectSeen(made.claim))
        if made.volume is not None:
            world.process(ObjectSeen(made.volume))


def relaxed_notes(moves: Moves, world: World, leaving: Iterable[Pod] = ()) -> Iterator[str]:
    """Yield a sentence for each set of rules relaxed for replacements, with the names of those in `leaving`."""
    by_text: dict[str, list[str]] = {}
    for uid in moves.node_by_uid:
        if text := relaxed_text(uid, world):
            by_text.setdefault(text, []).append(uid)
    key_of = {pod.uid: pod.key for pod in leaving}
    for text, uids in by_text.items():
        keys = [key_of[uid] for uid in uids if uid in key_of]
        named = f": {', '.join(keys[:_NAMED])}" if keys else ""
        yield relaxed_note(len(uids), "pod", text) + named + (", ..." if len(keys) > _NAMED else "")


def leaving_pods(leaving: Iterable[Pod], moves: Moves) -> tuple[LeavingPod, ...]:
    """Return the place of each pod, or why it has none, in the order of rounds; pods that budgets hold come last."""
    found = [
        LeavingPod(
            namespace=pod.namespace,
            pod=pod.name,
            node=pod.node_name,
            to=moves.node_by_uid.get(pod.uid, ""),
            round=moves.round_by_uid.get(pod.uid, 0),
            held_by=moves.held_by.get(pod.uid, ""),
            message=moves.unplaced.get(pod.uid, ""),
            workload=workload_of(pod).text,
        )
        for pod in leaving
    ]
    return tuple(sorted(found, key=lambda pod: (pod.round == 0, pod.round)))


def staying_pods(departures: Departures, shown: int) -> tuple[StayingPods, ...]:
    """Return the pods without a replacement by reason, of each at most `shown` by name."""
    by_reason: dict[Stay, list[PodRef]] = {}
    for why, pod in departures.staying:
        by_reason.setdefault(why, []).append(PodRef(pod.namespace, pod.name, pod.node_name))
    return tuple(StayingPods(why, Pods(len(refs), tuple(refs[:shown]))) for why, refs in by_reason.items())
