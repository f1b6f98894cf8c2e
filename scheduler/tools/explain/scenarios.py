"""
What would happen: where the pods of manifests would go, and those of nodes that are drained or gone.

A scenario changes the cluster that it is given, and asks its world where pods find places. It ends with an explanation
of the first pod that finds none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from scheduler.engine.framework.interface import Rng
from scheduler.engine.model.pod_groups import GroupKey
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.terms import ZONE_KEY
from scheduler.engine.model.unread_names import unread_notes
from scheduler.engine.syntax.words import counted, first_names
from scheduler.errors import SettingsError
from scheduler.tools.explain.answers import explain_pod
from scheduler.tools.explain.formats.manifests import Manifest
from scheduler.tools.explain.notes import rules_without_effect
from scheduler.tools.explain.serving import service_of
from scheduler.tools.explain.simulation.drain import Drain, Move, empty_nodes, move_pods, staying_pods
from scheduler.tools.explain.simulation.groups import (
    beside_running,
    count_more,
    create_group,
    move_notes,
    rank_notes,
    running_note,
)
from scheduler.tools.explain.simulation.loaded_cluster import LoadedCluster, profile_for
from scheduler.tools.explain.simulation.replicas import (
    PlacedReplicas,
    Simulation,
    place_replicas,
    relaxed_notes,
)
from scheduler.tools.explain.simulation.world import World

#: About half a minute at 5,000 nodes.
MAX_REPLICAS: Final = 100_000
#: Evicted pods listed, in the order in which they have to go.
_VICTIMS: Final = 100
#: Zones in an error.
_ZONES: Final = 10
#: Pods without a replacement that are named, of each reason; pods that a note names.
_STAYING: Final = 50
_NAMED: Final = 3


def simulate_manifests(
    cluster: LoadedCluster,
    manifests: Sequence[Manifest],
    n_replicas: int | None,
    rng: Rng,
    *,
    try_changes: bool = True,
) -> list[Simulation]:
    """
    Place the manifests' replicas in the cluster, one manifest after the other, but all of a group at once.

    Of a manifest replicas are placed until one does not fit, and all of a DaemonSet. They evict pods of lower priority,
    replicas of earlier manifests among them. Beside a group that runs, the manifests' own numbers of replicas are
    another group like it. Without `try_changes` neither what would help is looked for, nor how many more groups fit.

    Raises SettingsError.
    """
    groups = cluster.state.groups
    asked = beside_running(groups, manifests) if n_replicas is None else manifests
    world = cluster.world(rng, (manifest.scheduler_name for manifest in manifests))
    simulations = [
        Simulation(
            manifest_kind=each.kind,
            namespace=each.namespace,
            name=each.name,
            n_running=len(cluster.running_pods(each)),
        )
        for each in manifests
    ]
    placed_by: dict[int, PlacedReplicas] = {}
    complete_groups: dict[GroupKey, Mapping[int, list[Pod]]] = {}
    for index, manifest in enumerate(asked):
        if index in placed_by:
            continue
        pods, named = _new_pods(cluster, manifest, n_replicas), manifests[index].group
        if pods:
            create_group(world, named, pods[0])
        key = groups.key_of(pods[0]) if pods else None
        running = running_note(groups, named, key)
        together = {index: pods}
        for later in range(index + 1, len(asked)) if key is not None else ():
            if asked[later].group == key:
                together[later] = _new_pods(cluster, asked[later], n_replicas)
        everything = [pod for of_manifest in together.values() for pod in of_manifest]
        placed = place_replicas(everything, world, go_on=manifest.is_daemon_set)
        for number, of_manifest in together.items():
            part = placed if key is None else placed.of(of_manifest, has_victims=number == index)
            _fill(simulations[number], cluster, of_manifest, part, everything, try_changes=try_changes)
            placed_by[number] = part
        first = simulations[index]
        first.notes = (*running, *first.notes)
        if key is not None and len(placed.pods) == len(everything):
            complete_groups[key] = together
        elif key is not None and not manifest.is_daemon_set and try_changes:
            first.notes += move_notes(key, world)
    for key, of_group in complete_groups.items() if try_changes else ():
        members, index = [(manifests[each], len(pods)) for each, pods in of_group.items()], min(of_group)
        ranks = rank_notes([one for each in of_group for one in placed_by[each].pods], world)
        first = simulations[index]
        first.n_more_groups, more = count_more(cluster, manifests[index].group or key, members, rng)
        first.notes += (*ranks, more)
    for index, simulation in enumerate(simulations):
        _leave_out_evicted(cluster, simulation, placed_by[index].pods)
    return simulations


def simulate_copies(cluster: LoadedCluster, pod: Pod, n_replicas: int, rng: Rng) -> Simulation:
    """Place pods like this one, which have no node yet; of one that fits nowhere no change is tried."""
    new = replace(pod.recreated(), terminating=False, gates=())
    pods = [
        replace(new, uid=f"copied/{pod.uid}/{number}", name=f"{pod.name}-{number}")
        for number in range(n_replicas)
    ]
    placed = place_replicas(pods, cluster.world(rng, (pod.scheduler_name,)))
    simulation = Simulation(manifest_kind="Pod", namespace=pod.namespace, name=pod.name)
    _fill(simulation, cluster, pods, placed, pods, try_changes=False)
    return simulation


def _leave_out_evicted(
    cluster: LoadedCluster, simulation: Simulation, placed: Sequence[tuple[Pod, str]]
) -> None:
    """Leave out the replicas that were evicted for those of a later manifest."""
    left = [node_name for pod, node_name in placed if pod.uid in cluster.state.placed]
    if n_evicted := len(placed) - len(left):
        simulation.put_on(left, cluster.state)
        evicted = counted(n_evicted, "replica")
        simulation.notes += (f"{evicted} would be evicted again for a manifest of higher priority",)


def _new_pods(cluster: LoadedCluster, manifest: Manifest, n_replicas: int | None) -> list[Pod]:
    if n_replicas is not None and manifest.is_daemon_set:
        expected = "a workload with a number of replicas: a DaemonSet has a pod for each node"
        raise SettingsError("--replicas", "", f"DaemonSet {manifest.name}", expected)
    n_replicas = manifest.n_replicas if n_replicas is None else n_replicas
    if n_replicas > MAX_REPLICAS:
        where = f"{manifest.kind} {manifest.name}"
        raise SettingsError(where, "", f"{n_replicas} replicas", f"at most {MAX_REPLICAS}")
    return cluster.create_pods(manifest, n_replicas)


def _fill(
    simulation: Simulation,
    cluster: LoadedCluster,
    pods: Sequence[Pod],
    placed: PlacedReplicas,
    together: Sequence[Pod],
    *,
    try_changes: bool,
) -> None:
    """Fill in what became of these pods. `together`: the pods, and the others that are created with them."""
    unplaced, notes = placed.first_unplaced, placed.notes
    if pods:
        without_effect = rules_without_effect(pods[0], cluster.state)
        notes = (*_scheduler_notes(cluster, pods[0]), *notes, *unread_notes(pods[0].unread), *without_effect)
    waiting: Sequence[Pod] = ()
    if unplaced is not None and cluster.state.groups.key_of(unplaced) is not None:
        is_whole = len(placed.pods) == len(pods)
        notes = notes if is_whole else (*notes, placed.message)
        placed_uids = {pod.uid for pod, _ in placed.pods}
        waiting = [pod for pod in together if pod.uid not in placed_uids]
        # Why a group has no places is explained for the manifest of the refused member alone.
        if is_whole or all(pod.uid != unplaced.uid for pod in pods):
            unplaced = None
    if unplaced is not None:
        simulation.next = explain_pod(
            cluster, unplaced, None, together=waiting, adds_replicas=True, try_changes=try_changes
        )
    simulation.n_replicas, simulation.notes = len(pods), (*cluster.assumptions, *notes)
    simulation.n_evicted, simulation.victims = len(placed.victims), tuple(placed.victims[:_VICTIMS])
    simulation.put_on([node_name for _, node_name in placed.pods], cluster.state)


def _scheduler_notes(cluster: LoadedCluster, pod: Pod) -> tuple[str, ...]:
    """Return the notes on a pod that is of no profile; first, if no scheduler is seen to serve it, that."""
    notes = profile_for(pod, cluster.settings)[1]
    if not notes or cluster.leases is None:
        return notes
    unserved, _ = service_of(pod, cluster.settings, cluster.leases, cluster.pods.values())
    return (unserved, *notes) if unserved else notes


def simulate_drain(
    cluster: LoadedCluster, drained: Sequence[str], zone: str | None, rng: Rng, *, try_changes: bool = True
) -> Drain:
    """
    Drain the nodes, or take the zone away if one is named, and place the pods elsewhere in the cluster.

    Without `try_changes` what would help is not looked for. Raises SettingsError for an unknown node or zone.
    """
    names = _known_nodes(cluster, drained) if zone is None else _nodes_of_zone(cluster, zone)
    leaving, staying = empty_nodes(cluster.state, names, stays=zone is None)
    stand_ins = Counter(pod.scheduler_name for pod in leaving if profile_for(pod, cluster.settings)[1])
    world = cluster.world(rng, stand_ins)
    namespaces = () if zone is not None else {pod.namespace for pod in leaving}
    budgets = [budget for name in namespaces for budget in cluster.state.budgets.within(name)]
    moves = move_pods(leaving, world, budgets)
    homeless = next((move.pod.recreated() for move in moves if move.shown.is_homeless), None)
    placed = [move.pod for move in moves if move.shown.to]
    shown_moves = sorted((move.shown for move in moves), key=lambda shown: (not shown.round, shown.round))
    decided_with = (
        f"{counted(count, 'pod')} of {name}: decided with profile {world.profiles[name].scheduler_name}"
        for name, count in sorted(stand_ins.items())
    )
    relaxed = relaxed_notes(placed, "pod", world, _NAMED)
    return Drain(
        nodes=tuple(names),
        zone=zone or "",
        n_pods=len(moves),
        n_placed=len(placed),
        n_rounds=max((shown.round for shown in shown_moves), default=0),
        leaving=tuple(shown_moves),
        staying=staying_pods(staying, _STAYING),
        next=None
        if homeless is None
        else explain_pod(cluster, homeless, None, names, try_changes=try_changes),
        notes=(*decided_with, *relaxed, *_eviction_notes(moves, world)),
    )


def _eviction_notes(moves: Sequence[Move], world: World) -> tuple[str, ...]:
    """Return a note about the pods of lower priority that make room, none if there are none."""
    if not world.evictions:
        return ()
    moved = {move.pod.uid for move in moves if move.shown.round}
    left = {each.victim.uid: each.victim.key for each in world.evictions if each.victim.uid not in moved}
    homeless = [key for uid, key in left.items() if not world.node_of(uid)]
    named = f"{len(homeless)} of them: {first_names(homeless, _NAMED)}"
    lost = f"; there is no other place for {named}" if homeless else ""
    return (f"{counted(len(world.evictions), 'pod')} of lower priority would be evicted for these{lost}",)


def _known_nodes(cluster: LoadedCluster, names: Sequence[str]) -> list[str]:
    for name in names:
        if cluster.state.node(name) is None:
            raise SettingsError("--drain", "", repr(name), "the name of a node of the cluster")
    return list(dict.fromkeys(names))


def _nodes_of_zone(cluster: LoadedCluster, zone: str) -> list[str]:
    by_zone: dict[str, list[str]] = {}
    for node in cluster.state.nodes.nodes:
        if node is not None and ZONE_KEY in node.labels:
            by_zone.setdefault(node.labels[ZONE_KEY], []).append(node.name)
    if zone not in by_zone:
        known = first_names(sorted(by_zone), _ZONES) or "none"
        raise SettingsError("--without-zone", "", repr(zone), f"a zone of the cluster ({known})")
    return sorted(by_zone[zone])
