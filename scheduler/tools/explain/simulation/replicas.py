"""Places a manifest's replicas one after another in a world."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Final

from msgspec import structs

from scheduler.engine.model.pods import Pod, PodCondition
from scheduler.engine.model.terms import ZONE_KEY
from scheduler.engine.model.unread_names import unread_notes
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.syntax.plurals import counted
from scheduler.tools.explain.formats.explanation import Document, Explanation, JsonStruct
from scheduler.tools.explain.simulation.world import GROUP_REPORT_S, Eviction, World

#: Nodes listed, those with most pods first.
_SHOWN_NODES: Final = 50
#: Evicted pods listed, in the order in which they have to go.
_SHOWN_VICTIMS: Final = 100
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
    """
    A pod that is evicted for a simulated one, which takes its place.

    `budget`: the PodDisruptionBudget that its eviction breaks, empty if none.
    """

    namespace: str
    name: str
    priority: int
    node: str
    budget: str


class Simulation(Document, frozen=True, kw_only=True):
    """
    The result for one manifest; `-o json` prints a list of these.

    `zones`: every zone of the cluster by name; nodes without a zone label are left out. `next`: explains the first
    replica that did not fit; null if all fit. `victims`: the pods that are evicted for replicas, at most 100 of
    `n_evicted`. `n_running`: pods with a node that the workload has already, by its namespace and its
    template's labels. `n_more_groups`: how many more groups like the manifest's fit; null for another manifest of the
    group, and without a group that fits.
    """

    kind: str = "Simulation"
    manifest_kind: str
    namespace: str
    name: str
    n_replicas: int
    n_placed: int
    zones: tuple[ZoneShare, ...]
    nodes: tuple[NodeShare, ...]
    n_more_nodes: int
    next: Explanation | None
    #: Assumptions about claims that do not exist yet, and replicas that need relaxed rules.
    notes: tuple[str, ...] = ()
    n_evicted: int = 0
    victims: tuple[Victim, ...] = ()
    n_more_groups: int | None = None
    n_running: int = 0

    @classmethod
    def of(
        cls,
        placed: PlacedReplicas,
        state: ClusterState,
        *,
        manifest: tuple[str, str, str],
        n_replicas: int,
        n_running: int = 0,
        explanation: Explanation | None = None,
        notes: tuple[str, ...] = (),
    ) -> Simulation:
        """Return the result for the replicas. `manifest`: its kind, namespace and name. `explanation`: `next`."""
        kind, namespace, name = manifest
        return Simulation(
            manifest_kind=kind,
            namespace=namespace,
            name=name,
            n_replicas=n_replicas,
            n_running=n_running,
            n_placed=0,
            zones=(),
            nodes=(),
            n_more_nodes=0,
            next=explanation,
            notes=notes,
            n_evicted=len(placed.victims),
            victims=tuple(placed.victims[:_SHOWN_VICTIMS]),
        ).on_nodes([node_name for _, node_name in placed.pods], state)

    def on_nodes(self, node_names: Sequence[str], state: ClusterState) -> Simulation:
        """Return the result with these nodes of its replicas, one for each that has a place."""
        shares, n_more_nodes = node_shares(state, node_names)
        zones = zone_shares(state, node_names)
        return structs.replace(
            self, n_placed=len(node_names), zones=zones, nodes=shares, n_more_nodes=n_more_nodes
        )


@dataclass(frozen=True, slots=True)
class PlacedReplicas:
    """
    The replicas that found a node, in order, and the first one that did not.

    `message`: why that one did not. `relaxed`: how many of them found it only with rules relaxed, by which these are.
    `victims`: the pods evicted for them, in order.
    """

    pods: Sequence[tuple[Pod, str]]
    first_unplaced: Pod | None
    message: str = ""
    relaxed: Mapping[str, int] = field(default_factory=dict)
    victims: Sequence[Victim] = ()

    def of(self, pods: Iterable[Pod], *, has_victims: bool) -> PlacedReplicas:
        """Return the part of the result that is about these pods of a group, with its victims or without."""
        uids = {pod.uid for pod in pods}
        placed = [(pod, node_name) for pod, node_name in self.pods if pod.uid in uids]
        return replace(self, pods=placed, victims=self.victims if has_victims else ())

    def notes(self) -> tuple[str, ...]:
        """Return a sentence for each set of relaxed rules, and for each annotation that nothing reads."""
        first = self.pods[0][0] if self.pods else self.first_unplaced
        relaxed = (relaxed_note(n, "replica", text) for text, n in self.relaxed.items())
        return (*relaxed, *(() if first is None else unread_notes(first.unread)))


def place_replicas(pods: Sequence[Pod], world: World, *, go_on: bool = False) -> PlacedReplicas:
    """
    Create pod after pod, each once the one before is placed, until one finds no place; all of a group at once.

    With `go_on` also the pods after it, which may differ. A pod without a place is deleted again. Gates are left out.
    Rules with fallbacks are taken to have kept the pods pending for a while: the first of their times is over. Cost:
    0.5 ms per pod at 5,000 nodes.
    """
    placed: list[tuple[Pod, str]] = []
    relaxed: Counter[str] = Counter()
    first_unplaced: Pod | None = None
    message, n_evicted = "", len(world.evictions)
    for together in _together(pods, world):
        for pod in together:
            world.create(waited(pod))
        world.run(longest_wait_s(together))
        for pod in together:
            if node_name := world.node_of(pod.uid):
                placed.append((pod, node_name))
                if text := relaxed_text(pod.uid, world):
                    relaxed[text] += 1
            elif first_unplaced is None:
                first_unplaced, message = pod, why_unplaced(pod, world)
        for pod in together:
            if pod.uid in world.unbound:
                world.delete(pod.uid)
        if first_unplaced is not None and not go_on:
            break
    victims = [_victim(eviction) for eviction in world.evictions[n_evicted:]]
    return PlacedReplicas(placed, first_unplaced, message, relaxed, victims)


def why_unplaced(pod: Pod, world: World) -> str:
    """Return why the pod, which the world could not place, waits; let a group that waits for members be reported."""
    if pod.group is not None and not world.message_of(pod.uid):
        world.pass_time(GROUP_REPORT_S)
    return world.message_of(pod.uid)


def _together(pods: Sequence[Pod], world: World) -> Iterator[Sequence[Pod]]:
    """Yield the pods that are created together: the members of each group, and every other pod alone."""
    groups = world.state.groups
    for _, members in groupby(pods, lambda pod: groups.key_of(pod) or pod.uid):
        yield list(members)


def relaxed_text(uid: str, world: World) -> str:
    """Return what the relaxed rules of the placed pod count as, and since when; empty if none is relaxed."""
    return " and ".join(rule.text for rule in world.state.placed[uid].pod.spec.relaxed)


def relaxed_note(n: int, what: str, text: str) -> str:
    """Return a sentence about so many pods, named `what`. `text`: as of `relaxed_text`."""
    return f"{counted(n, what)} {'fits' if n == 1 else 'fit'} only once {text}"


def waited(pod: Pod) -> Pod:
    """Return the pod without gates, and as if it were unschedulable since the first of its fallbacks is due."""
    times_s = [rule.after_s for rule in pod.spec.fallbacks]
    # The world's time of day begins with 0.
    condition = PodCondition("False", "Unschedulable", "", -min(times_s)) if times_s else None
    return replace(pod, gates=(), scheduled_condition=condition)


def longest_wait_s(pods: Iterable[Pod]) -> float:
    """Return how long the pods wait for a place: until every rule with a fallback may be relaxed."""
    waits_s = [0.0]
    for pod in pods:
        times_s = [rule.after_s for rule in pod.spec.fallbacks]
        if pod.spec.fallbacks:
            waits_s.append(max(times_s, default=0) - min(times_s, default=0) + _RETRY_S)
    return max(waits_s)


def _victim(eviction: Eviction) -> Victim:
    victim = eviction.victim
    return Victim(victim.namespace, victim.name, victim.priority, victim.node_name, eviction.broken_budget)


def zone_shares(state: ClusterState, node_names: Iterable[str]) -> tuple[ZoneShare, ...]:
    """Return each zone's number of nodes and how often `node_names` names one of them."""
    n_nodes: Counter[str] = Counter()
    for node in state.nodes.nodes:
        if node is not None and ZONE_KEY in node.labels:
            n_nodes[node.labels[ZONE_KEY]] += 1
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
