"""Places a manifest's replicas one after another in a world."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

from scheduler.engine.model.pods import Pod, PodCondition
from scheduler.engine.model.stimuli import PodGone, PodSeen
from scheduler.engine.model.terms import ZONE_KEY
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.syntax.words import counted, first_names
from scheduler.tools.explain.formats.explanation import Answer, Explanation, JsonStruct
from scheduler.tools.explain.simulation.world import GROUP_REPORT_S, World

#: Nodes listed, those with most pods first.
_SHOWN_NODES: Final = 50
#: Virtual time for the attempts after the clock of a rule has run out.
_RETRY_S: Final = 60.0


class ZoneShare(JsonStruct, frozen=True):
    """The number of nodes in a zone, and of simulated pods placed there."""

    zone: str
    n_nodes: int
    n_pods: int


class NodeShare(JsonStruct, frozen=True):
    """The number of simulated pods placed on a node."""

    node: str
    zone: str
    n_pods: int


class Victim(JsonStruct, frozen=True):
    """A pod that is evicted for a simulated one; `budget`: the PodDisruptionBudget that this breaks, empty if none."""

    namespace: str
    name: str
    priority: int
    node: str
    budget: str


class Simulation(Answer, kw_only=True):
    """
    The result for one manifest; `-o json` prints a list of these.

    `zones`: every zone of the cluster by name; nodes without a zone label are left out. `next`: explains the first
    replica that did not fit; null if all fit. `notes`: assumptions about claims that do not exist yet, and replicas
    that need relaxed rules, among others. `victims`: the pods that are evicted for replicas, at most 100 of
    `n_evicted`. `n_more_groups`: how many more groups like the manifest's fit; null for another manifest of the group,
    and without a group that fits. `n_running`: pods with a node that the workload has already, by its namespace and its
    template's labels.
    """

    kind: str = "Simulation"
    manifest_kind: str
    namespace: str
    name: str
    n_replicas: int = 0
    n_placed: int = 0
    zones: tuple[ZoneShare, ...] = ()
    nodes: tuple[NodeShare, ...] = ()
    n_more_nodes: int = 0
    next: Explanation | None = None
    notes: tuple[str, ...] = ()
    n_evicted: int = 0
    victims: tuple[Victim, ...] = ()
    n_more_groups: int | None = None
    n_running: int = 0

    def put_on(self, node_names: Sequence[str], state: ClusterState) -> None:
        """Say that its replicas are on these nodes, one for each that has a place."""
        self.n_placed, self.zones = len(node_names), zone_shares(state, node_names)
        self.nodes, self.n_more_nodes = node_shares(state, node_names)


@dataclass(frozen=True, slots=True)
class PlacedReplicas:
    """
    The replicas that found a node, in order, and the first one that did not.

    `message`: why that one did not. `notes`: a sentence for each set of relaxed rules without which some found none.
    `victims`: the pods evicted for them, in order. `n_lists`: of how many lists all found a node.
    """

    pods: Sequence[tuple[Pod, str]]
    first_unplaced: Pod | None
    message: str = ""
    notes: tuple[str, ...] = ()
    victims: Sequence[Victim] = ()
    n_lists: int = 0

    def of(self, pods: Iterable[Pod], *, has_victims: bool) -> PlacedReplicas:
        """Return the part of the result that is about these pods of a group, with its victims or without."""
        uids = {pod.uid for pod in pods}
        placed = [(pod, node_name) for pod, node_name in self.pods if pod.uid in uids]
        return replace(self, pods=placed, victims=self.victims if has_victims else ())


def place_replicas(pods: Sequence[Pod], world: World, *, go_on: bool = False) -> PlacedReplicas:
    """Place pod after pod, but all of a group at once. See `place_lists`."""
    groups = world.state.groups
    alike = groupby(pods, lambda pod: groups.key_of(pod) or pod.uid)
    return place_lists((list(members) for _, members in alike), world, go_on=go_on)


def place_lists(
    lists: Iterable[Sequence[Pod]], world: World, *, go_on: bool = False, evicts: bool = True
) -> PlacedReplicas:
    """
    Create list after list of pods, each once the pods of the one before have places, until one of them finds none.

    With `go_on` also the lists after it, which may differ; without `evicts` a list for which pods are evicted is the
    last one. A pod without a place is deleted again. Gates are left out. Rules with fallbacks are taken to have kept
    the pods pending for a while: the first of their times is over.
    """
    placed: list[tuple[Pod, str]] = []
    first_unplaced: Pod | None = None
    message, n_evicted, n_lists = "", len(world.evictions), 0
    for together in lists:
        for pod in together:
            world.process(PodSeen(waited(pod)))
        world.run(longest_wait_s(together))
        homeless = [pod for pod in together if not world.node_of(pod.uid)]
        placed += [(pod, node_name) for pod in together if (node_name := world.node_of(pod.uid))]
        if homeless and first_unplaced is None:
            first_unplaced, message = homeless[0], why_unplaced(homeless[0], world)
        for pod in homeless:
            if pod.uid in world.unbound:
                world.process(PodGone(pod.uid))
        is_last = first_unplaced is not None or not (evicts or n_evicted == len(world.evictions))
        if is_last and not go_on:
            break
        n_lists += not homeless
    victims = [
        Victim(
            one.victim.namespace,
            one.victim.name,
            one.victim.priority,
            one.victim.node_name,
            one.broken_budget,
        )
        for one in world.evictions[n_evicted:]
    ]
    notes = tuple(relaxed_notes((pod for pod, _ in placed), "replica", world))
    return PlacedReplicas(placed, first_unplaced, message, notes, victims, n_lists)


def why_unplaced(pod: Pod, world: World) -> str:
    """Return why the pod, which the world could not place, waits; let a group that waits for members be reported."""
    if pod.group is not None and not world.message_of(pod.uid):
        world.pass_time(GROUP_REPORT_S)
    return world.message_of(pod.uid)


def relaxed_notes(pods: Iterable[Pod], what: str, world: World, n_named: int = 0) -> Iterator[str]:
    """Yield a sentence for each set of rules relaxed for some of these placed pods, which names so many of them."""
    by_text: dict[str, list[str]] = {}
    for pod in pods:
        if (placed := world.state.placed.get(pod.uid)) is not None and placed.pod.spec.relaxed:
            text = " and ".join(rule.text for rule in placed.pod.spec.relaxed)
            by_text.setdefault(text, []).append(pod.key)
    for text, keys in by_text.items():
        named = f": {first_names(keys, n_named)}" if n_named else ""
        yield f"{counted(len(keys), what)} {'fits' if len(keys) == 1 else 'fit'} only once {text}{named}"


def waited(pod: Pod) -> Pod:
    """Return the pod without gates, and as if it were unschedulable since the first of its fallbacks is due."""
    times_s = [rule.after_s for rule in pod.spec.fallbacks]
    # The world's time of day begins with 0.
    condition = PodCondition("False", "Unschedulable", "", -min(times_s)) if times_s else None
    return replace(pod, gates=(), scheduled_condition=condition)


def longest_wait_s(pods: Iterable[Pod]) -> float:
    """Return how long the pods wait for a place: until every rule with a fallback may be relaxed."""
    of_pods = ([rule.after_s for rule in pod.spec.fallbacks] for pod in pods)
    return max((max(times_s) - min(times_s) + _RETRY_S for times_s in of_pods if times_s), default=0.0)


def zone_shares(state: ClusterState, node_names: Iterable[str]) -> tuple[ZoneShare, ...]:
    """Return each zone's number of nodes and how often `node_names` names one of them."""
    n_nodes = Counter(
        node.labels[ZONE_KEY] for node in state.nodes.nodes if node is not None and ZONE_KEY in node.labels
    )
    n_pods = Counter(zone_of(state, name) for name in node_names)
    return tuple(ZoneShare(zone, n_nodes[zone], n_pods[zone]) for zone in sorted(n_nodes))


def node_shares(state: ClusterState, node_names: Iterable[str]) -> tuple[tuple[NodeShare, ...], int]:
    """Return how often each node is named, most often first, and the number of nodes left out."""
    counts = Counter(node_names)
    ordered = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    shares = tuple(NodeShare(name, zone_of(state, name), count) for name, count in ordered[:_SHOWN_NODES])
    return shares, len(ordered) - len(shares)


def zone_of(state: ClusterState, node_name: str) -> str:
    """Return the node's zone; empty if it has none."""
    node = state.node(node_name)
    return "" if node is None else node.labels.get(ZONE_KEY, "")
