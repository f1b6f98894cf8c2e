"""
`affinity-scheduler simulate -f FILE --replicas N`: say how many replicas fit, on which nodes, and what stops the next.

The scheduler's own code places the replicas one after another on a copy of the cluster. Several documents are placed in
turn, each with the pods of the ones before it; members of a group are placed together, or none of them is, and it is
said how many more such groups fit. The JSON is a list of `scheduler.explain.simulation.Simulation`, one per document.

`--drain NODE...` and `--without-zone ZONE` say instead where the pods of these nodes would go. The JSON is a
`scheduler.explain.drain.Drain`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec

from scheduler.assembly.loaded_cluster import LoadedCluster
from scheduler.cli.explain import explain_pod
from scheduler.cli.query.drain import drain_lines, simulate_drain
from scheduler.cli.query.input_files import ManifestFile
from scheduler.cli.query.more_groups import count_more
from scheduler.cli.query.priority_class import PriorityClass, add_priorities, read_priority_class
from scheduler.cli.query.report import report_lines
from scheduler.cli.query.sources import add_source_arguments, read_cluster, read_manifest_file, settings_of
from scheduler.cli.query.table import table_lines
from scheduler.cli.query.terminal import Style, escape_control_characters
from scheduler.errors import SettingsError
from scheduler.explain.groups import GroupPlaces, group_of, place_group
from scheduler.explain.simulation import (
    SHOWN_VICTIMS,
    PlacedReplicas,
    Simulation,
    Victim,
    node_shares,
    place_replicas,
    zone_shares,
)
from scheduler.formats.manifests import Manifest
from scheduler.framework.interface import Rng
from scheduler.model.pod_groups import GroupKey
from scheduler.model.pods import Pod
from scheduler.model.wire import MalformedObjectError
from scheduler.settings.resolved import Settings
from scheduler.state.cluster_view import ClusterView
from scheduler.syntax.plurals import counted

#: About half a minute at 5,000 nodes.
_MAX_REPLICAS: Final = 100_000
#: Nodes and evicted pods in the tables unless they are wide.
_NODES: Final = 10
_VICTIMS: Final = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "-f",
        "--filename",
        metavar="FILE",
        help='the manifest, or a folder of manifests ("-": standard input)',
    )
    what.add_argument(
        "--drain",
        metavar="NODE",
        nargs="+",
        help="say where the pods of these nodes would go, and in which order PodDisruptionBudgets let them",
    )
    what.add_argument(
        "--without-zone",
        metavar="ZONE",
        help="say where the pods of the zone's nodes would go if the zone were gone; budgets hold none of them",
    )
    parser.add_argument(
        "--replicas",
        type=int,
        metavar="N",
        help="number of new replicas, beside those that run; default: the manifest's",
    )
    parser.add_argument(
        "--priority-class",
        metavar="CLASS",
        help="name or value of the new pods' PriorityClass, by default the manifest's; pods of lower priority are"
        " evicted where that is needed",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=1,
        metavar="N",
        help="seed for the choice between nodes with equal scores (default %(default)s)",
    )
    add_source_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print the simulations. Return 0 if all replicas fit, else 1. Raises SettingsError for bad input."""
    if args.replicas is not None and not 0 <= args.replicas <= _MAX_REPLICAS:
        raise SettingsError("--replicas", "", str(args.replicas), f"a number from 0 to {_MAX_REPLICAS}")
    settings = settings_of(args)
    if args.filename is None:
        return _run_drain(args, settings)
    manifest_file = read_manifest_file(args, settings)
    priority_class, cluster = asyncio.run(_read(args, settings, manifest_file))
    manifest_file.add_other_objects(cluster)
    rng = random.Random(args.seed)
    simulations = simulate_manifests(cluster, manifest_file.manifests, args.replicas, rng, priority_class)
    if args.output == "json":
        print(msgspec.json.format(msgspec.json.encode(simulations), indent=2).decode())
    else:
        style = Style(sys.stdout, os.environ)
        wide = args.output == "wide"
        reports = ["\n".join(_lines(simulation, style, wide=wide)) for simulation in simulations]
        if len(simulations) > 1:
            reports.append(_total_line(simulations, style))
        print(style.wrapped("\n\n".join(reports)))
    return 0 if all(simulation.n_placed == simulation.n_replicas for simulation in simulations) else 1


async def _read(
    args: argparse.Namespace, settings: Settings, manifest_file: ManifestFile
) -> tuple[PriorityClass | None, LoadedCluster]:
    priority_class = await read_priority_class(args)
    cluster, _ = await read_cluster(args, settings, None)
    if priority_class is None:
        await add_priorities(args, manifest_file, cluster)
    return priority_class, cluster


def _run_drain(args: argparse.Namespace, settings: Settings) -> int:
    if args.priority_class is not None:
        raise SettingsError("--priority-class", "", args.priority_class, "only with -f FILE")
    if args.replicas is not None:
        raise SettingsError("--replicas", "", str(args.replicas), "only with -f FILE")
    cluster, _ = asyncio.run(read_cluster(args, settings, None, budgets=args.drain is not None))
    drain = simulate_drain(cluster, args.drain or (), args.without_zone, random.Random(args.seed))
    if args.output == "json":
        print(msgspec.json.format(msgspec.json.encode(drain), indent=2).decode())
    else:
        style = Style(sys.stdout, os.environ)
        print(style.wrapped("\n".join(drain_lines(drain, style, wide=args.output == "wide"))))
    return 0 if drain.is_ok else 1


def simulate_manifests(
    cluster: LoadedCluster,
    manifests: Sequence[Manifest],
    n_replicas: int | None,
    rng: Rng,
    priority_class: PriorityClass | None = None,
) -> list[Simulation]:
    """
    Place the manifests' replicas in the cluster, one manifest after the other, but all of a group at once.

    Of a manifest replicas are placed until one does not fit, and all of a DaemonSet. With a
    PriorityClass, theirs or the given one, they evict pods of lower priority, replicas of earlier manifests among
    them; members of a group evict no pod. Raises SettingsError.
    """
    simulations: list[Simulation] = []
    #: For each simulation: the replicas that found a node, and its name.
    placed_by: list[Sequence[tuple[Pod, str]]] = []
    found_by_group: dict[GroupKey, GroupPlaces] = {}
    #: By group: the number of each of its manifests, of its pods, and of those that have places.
    manifests_of: dict[GroupKey, list[tuple[int, int, int]]] = {}
    #: The pods of manifests whose group is placed with an earlier one.
    created: dict[int, list[Pod]] = {}
    for index, manifest in enumerate(manifests):
        pods = created.get(index)
        if pods is None:
            pods = _new_pods(cluster, manifest, n_replicas)
        key = group_of(pods[0], cluster.state) if pods else None
        if key is None:
            simulation, placed = _simulate(cluster, manifest, pods, rng, priority_class)
            simulations.append(simulation)
            placed_by.append(placed)
            continue
        if key not in found_by_group:
            for later in range(index + 1, len(manifests)):
                if manifests[later].group == key:
                    created[later] = _new_pods(cluster, manifests[later], n_replicas)
            others = (pod for later in created.values() for pod in later)
            members = [*pods, *(pod for pod in others if group_of(pod, cluster.state) == key)]
            profile, _ = cluster.profile_for(pods[0])
            new_profile = partial(cluster.build_profile, profile)
            found_by_group[key] = place_group(key, members, cluster.state, new_profile, rng)
        found = found_by_group[key]
        uids = {pod.uid for pod in pods}
        placed = [(pod, node_name) for pod, node_name in found.nodes if pod.uid in uids]
        notes = (found.message,) if len(placed) < len(pods) else ()
        if pods:
            notes = (*cluster.profile_for(pods[0])[1], *notes)
        manifests_of.setdefault(key, []).append((index, len(pods), len(placed)))
        simulations.append(_simulation(cluster, manifest, len(pods), placed, notes=notes))
        placed_by.append(placed)
    for key, of_group in manifests_of.items():
        if all(n_pods == n_placed for _, n_pods, n_placed in of_group):
            more = count_more(cluster, key, [(manifests[index], n) for index, n, _ in of_group], rng)
            first = of_group[0][0]
            told = (*simulations[first].notes, more.text(key))
            simulations[first] = msgspec.structs.replace(
                simulations[first], n_more_groups=more.n_groups, notes=told
            )
    return [_without_evicted(cluster, *one) for one in zip(simulations, placed_by, strict=True)]


def _without_evicted(
    cluster: LoadedCluster, simulation: Simulation, placed: Sequence[tuple[Pod, str]]
) -> Simulation:
    """Return the simulation without its replicas that were evicted for those of a later manifest."""
    left = [node_name for pod, node_name in placed if pod.uid in cluster.state.placed]
    if not (n_evicted := len(placed) - len(left)):
        return simulation
    nodes, n_more_nodes = node_shares(cluster.state, left)
    note = f"{counted(n_evicted, 'replica')} would be evicted again for a manifest of higher priority"
    return msgspec.structs.replace(
        simulation,
        n_placed=len(left),
        zones=zone_shares(cluster.state, left),
        nodes=nodes,
        n_more_nodes=n_more_nodes,
        notes=(*simulation.notes, note),
    )


def _new_pods(cluster: LoadedCluster, manifest: Manifest, n_replicas: int | None) -> list[Pod]:
    if n_replicas is not None and manifest.is_daemon_set:
        expected = "a workload with a number of replicas: a DaemonSet has a pod for each node"
        raise SettingsError("--replicas", "", f"DaemonSet {manifest.name}", expected)
    n_replicas = manifest.n_replicas if n_replicas is None else n_replicas
    if n_replicas > _MAX_REPLICAS:
        raise SettingsError(
            f"{manifest.kind} {manifest.name}", "", f"{n_replicas} replicas", f"at most {_MAX_REPLICAS}"
        )
    try:
        return cluster.create_pods(manifest, n_replicas)
    except MalformedObjectError as error:
        raise SettingsError(
            f"{manifest.kind} {manifest.namespace}/{manifest.name}", "", f"a malformed {error}", "a valid pod"
        ) from error


def _simulate(
    cluster: LoadedCluster,
    manifest: Manifest,
    pods: Sequence[Pod],
    rng: Rng,
    priority_class: PriorityClass | None,
) -> tuple[Simulation, Sequence[tuple[Pod, str]]]:
    """Place one manifest's replicas; return the result, and the replicas that found a node with its name."""
    if priority_class is not None:
        pods = [priority_class.applied_to(pod) for pod in pods]
    placed = PlacedReplicas([], None)
    notes: tuple[str, ...] = ()
    if pods:
        profile, stand_in = cluster.profile_for(pods[0])
        placed = place_replicas(
            pods,
            cluster.state,
            cluster.build_profile(profile, ClusterView(cluster.state)),
            rng,
            go_on=manifest.is_daemon_set,
            preempts=priority_class is not None or "priority" in manifest.spec,
        )
        notes = (*stand_in, *placed.notes())
    simulation = _simulation(
        cluster, manifest, len(pods), placed.pods, placed.first_unplaced, notes=notes, victims=placed.victims
    )
    return simulation, placed.pods


def _simulation(
    cluster: LoadedCluster,
    manifest: Manifest,
    n_replicas: int,
    placed: Sequence[tuple[Pod, str]],
    first_unplaced: Pod | None = None,
    *,
    notes: tuple[str, ...] = (),
    victims: Sequence[Victim] = (),
) -> Simulation:
    node_names = [node_name for _, node_name in placed]
    shares, n_more = node_shares(cluster.state, node_names)
    return Simulation(
        manifest_kind=manifest.kind,
        namespace=manifest.namespace,
        name=manifest.name,
        n_replicas=n_replicas,
        n_placed=len(node_names),
        zones=zone_shares(cluster.state, node_names),
        nodes=shares,
        n_more_nodes=n_more,
        next=None if first_unplaced is None else explain_pod(cluster, first_unplaced, None),
        notes=(*cluster.assumptions, *notes),
        n_evicted=len(victims),
        victims=tuple(victims[:SHOWN_VICTIMS]),
    )


def _total_line(simulations: Sequence[Simulation], style: Style) -> str:
    n_placed = sum(simulation.n_placed for simulation in simulations)
    n_replicas = sum(simulation.n_replicas for simulation in simulations)
    return _count_line(f"All {len(simulations)} manifests", n_placed, n_replicas, style)


def _count_line(subject: str, n_placed: int, n_replicas: int, style: Style) -> str:
    """Return a heading such as `Deployment default/web: 2 of 3 replicas fit`."""
    replicas = counted(n_replicas, "replica")
    count = f"{n_placed} of {replicas} {'fits' if n_replicas == 1 else 'fit'}"
    return style.heading(f"{subject}: {style.good(count) if n_placed == n_replicas else style.bad(count)}")


def _lines(simulation: Simulation, style: Style, *, wide: bool) -> list[str]:
    subject = f"{simulation.manifest_kind} {simulation.namespace}/{simulation.name}"
    lines = [_count_line(subject, simulation.n_placed, simulation.n_replicas, style)]
    lines += [style.faint(f"  note: {escape_control_characters(note)}") for note in simulation.notes]
    zones = table_lines(("ZONE", "NODES", "PODS"), [(z.zone, z.n_nodes, z.n_pods) for z in simulation.zones])
    shown = simulation.nodes if wide else simulation.nodes[:_NODES]
    nodes = table_lines(("NODE", "ZONE", "PODS"), [(n.node, n.zone or "-", n.n_pods) for n in shown])
    left = len(simulation.nodes) - len(shown) + simulation.n_more_nodes
    if left:
        nodes.append(f"  ... and {left} more node{'s' if left > 1 else ''}")
    victims = _victim_lines(simulation, wide=wide)
    for table in (zones, nodes, victims):
        lines += ["", *table] if table else []
    if simulation.next is not None:
        lines += [
            "",
            style.heading("WHY THE NEXT REPLICA DOES NOT FIT"),
            "",
            *report_lines(simulation.next, style, wide=wide),
        ]
    return lines


def _victim_lines(simulation: Simulation, *, wide: bool) -> list[str]:
    """Return the table of the pods that are evicted, none if there are none."""
    shown = simulation.victims if wide else simulation.victims[:_VICTIMS]
    rows = [(f"{one.namespace}/{one.name}", one.priority, one.node, one.budget or "-") for one in shown]
    lines = table_lines(("EVICTED", "PRIORITY", "NODE", "BREAKS BUDGET"), rows)
    if left := simulation.n_evicted - len(shown):
        lines.append(f"  ... and {counted(left, 'more pod')}")
    return lines
