"""
`affinity-scheduler simulate -f FILE --replicas N`: say how many replicas fit, on which nodes, and what stops the next.

The scheduler's own code places the replicas one after another on a copy of the cluster. Several documents are placed in
turn, each with the pods of the ones before it; members of a group are placed together, or none of them is, and it is
said how many more such groups fit. The JSON is a list of `scheduler.tools.explain.simulation.replicas.Simulation`,
one per document.

`--drain NODE...` and `--without-zone ZONE` say instead where the pods of these nodes would go. The JSON is a
`scheduler.tools.explain.simulation.drain.Drain`.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import structs

from scheduler.cli.query.drain import drain_lines, simulate_drain
from scheduler.cli.query.more_groups import beside_running, count_more, create_group, running_note
from scheduler.cli.query.priority_class import PriorityClass, add_priorities, read_priority_class
from scheduler.cli.query.sources import (
    add_manifest_argument,
    add_other_objects,
    add_source_arguments,
    read_cluster,
    read_manifest_file,
    settings_of,
)
from scheduler.daemon.settings.resolved import Settings
from scheduler.engine.framework.interface import Rng
from scheduler.engine.model.pod_groups import GroupKey
from scheduler.engine.model.pods import DEFAULT_SCHEDULER_NAME, Pod
from scheduler.engine.model.wire import MalformedObjectError
from scheduler.engine.syntax.plurals import counted
from scheduler.errors import SettingsError
from scheduler.tools.explain.answers import explain_pod, find_service
from scheduler.tools.explain.formats.manifests import Manifest
from scheduler.tools.explain.formats.table import table_lines
from scheduler.tools.explain.formats.terminal import Style, escape_control_characters
from scheduler.tools.explain.report import more_lines, print_answer, report_lines
from scheduler.tools.explain.simulation.groups import move_notes, rank_notes
from scheduler.tools.explain.simulation.loaded_cluster import LoadedCluster, new_world
from scheduler.tools.explain.simulation.replicas import PlacedReplicas, Simulation, place_replicas

#: About half a minute at 5,000 nodes.
_MAX_REPLICAS: Final = 100_000
#: Nodes and evicted pods in the tables unless they are wide.
_NODES: Final = 10
_VICTIMS: Final = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    what = parser.add_mutually_exclusive_group(required=True)
    add_manifest_argument(what, "the manifest")
    what.add_argument(
        "--drain",
        metavar="NODE",
        nargs="+",
        help="say where the pods of these nodes would go, and in which order PodDisruptionBudgets let them; names"
        " with spaces or commas between them",
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
    priority_class = read_priority_class(args)
    cluster, _ = read_cluster(args, settings)
    if priority_class is None:
        add_priorities(args, manifest_file, cluster)
    add_other_objects(manifest_file, cluster)
    rng = random.Random(args.seed)
    simulations = simulate_manifests(cluster, manifest_file.manifests, args.replicas, rng, priority_class)
    print_answer(
        simulations, args.output, lambda style: _text(simulations, style, wide=args.output == "wide")
    )
    return 0 if all(simulation.n_placed == simulation.n_replicas for simulation in simulations) else 1


def _run_drain(args: argparse.Namespace, settings: Settings) -> int:
    if args.priority_class is not None:
        raise SettingsError("--priority-class", "", args.priority_class, "only with -f FILE")
    if args.replicas is not None:
        raise SettingsError("--replicas", "", str(args.replicas), "only with -f FILE")
    cluster, _ = read_cluster(args, settings, budgets=args.drain is not None)
    nodes = [name for names in args.drain or () for name in names.split(",") if name]
    drain = simulate_drain(cluster, nodes, args.without_zone, random.Random(args.seed))
    wide = args.output == "wide"
    print_answer(drain, args.output, lambda style: "\n".join(drain_lines(drain, style, wide=wide)))
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

    Of a manifest replicas are placed until one does not fit, and all of a DaemonSet. They evict pods of lower priority,
    replicas of earlier manifests among them, by `priority_class` if one is given. Beside a group that runs, the
    manifests' own numbers of replicas are another group like it. Raises SettingsError.
    """
    groups = cluster.state.groups
    asked = beside_running(groups, manifests) if n_replicas is None else manifests
    names = {str(manifest.spec.get("schedulerName") or DEFAULT_SCHEDULER_NAME) for manifest in manifests}
    world = new_world(cluster.settings, cluster.state, rng, sorted(names))
    n_running = [len(cluster.running_pods(manifest)) for manifest in manifests]
    simulations: dict[int, Simulation] = {}
    placed_by: dict[int, PlacedReplicas] = {}
    complete_groups: dict[GroupKey, Mapping[int, list[Pod]]] = {}
    for index, manifest in enumerate(asked):
        if index in simulations:
            continue
        pods = _new_pods(cluster, manifest, n_replicas, priority_class)
        if pods:
            create_group(world, manifests[index].group, pods[0])
        key = groups.key_of(pods[0]) if pods else None
        running = running_note(groups, manifests[index].group, key)
        together = {index: pods}
        for later in range(index + 1, len(asked)) if key is not None else ():
            if asked[later].group == key:
                together[later] = _new_pods(cluster, asked[later], n_replicas, priority_class)
        everything = [pod for of_manifest in together.values() for pod in of_manifest]
        placed = place_replicas(everything, world, go_on=manifest.is_daemon_set)
        for number, of_manifest in together.items():
            placed_by[number] = placed if key is None else placed.of(of_manifest, has_victims=number == index)
            simulations[number] = _simulation(
                cluster, manifests[number], of_manifest, placed_by[number], n_running[number], key, everything
            )
        notes = (*running, *simulations[index].notes)
        if key is not None and len(placed.pods) == len(everything):
            complete_groups[key] = together
        elif key is not None and not manifest.is_daemon_set:
            notes = (*notes, *move_notes(key, world))
        simulations[index] = structs.replace(simulations[index], notes=notes)
    for key, of_group in complete_groups.items():
        members, first = [(manifests[index], len(pods)) for index, pods in of_group.items()], min(of_group)
        like = manifests[first].group or key
        more = count_more(cluster, like, members, rng, priority_class)
        ranks = rank_notes([placed for index in of_group for placed in placed_by[index].pods], world)
        notes = (*simulations[first].notes, *ranks, more.text(like))
        simulations[first] = structs.replace(simulations[first], n_more_groups=more.n_groups, notes=notes)
    return [
        _without_evicted(cluster, simulations[index], placed_by[index].pods)
        for index in range(len(manifests))
    ]


def _without_evicted(
    cluster: LoadedCluster, simulation: Simulation, placed: Sequence[tuple[Pod, str]]
) -> Simulation:
    """Return the simulation without its replicas that were evicted for those of a later manifest."""
    left = [node_name for pod, node_name in placed if pod.uid in cluster.state.placed]
    if not (n_evicted := len(placed) - len(left)):
        return simulation
    note = f"{counted(n_evicted, 'replica')} would be evicted again for a manifest of higher priority"
    return structs.replace(simulation.on_nodes(left, cluster.state), notes=(*simulation.notes, note))


def _new_pods(
    cluster: LoadedCluster,
    manifest: Manifest,
    n_replicas: int | None,
    priority_class: PriorityClass | None,
) -> list[Pod]:
    if n_replicas is not None and manifest.is_daemon_set:
        expected = "a workload with a number of replicas: a DaemonSet has a pod for each node"
        raise SettingsError("--replicas", "", f"DaemonSet {manifest.name}", expected)
    n_replicas = manifest.n_replicas if n_replicas is None else n_replicas
    if n_replicas > _MAX_REPLICAS:
        raise SettingsError(
            f"{manifest.kind} {manifest.name}", "", f"{n_replicas} replicas", f"at most {_MAX_REPLICAS}"
        )
    try:
        pods = cluster.create_pods(manifest, n_replicas)
    except MalformedObjectError as error:
        raise SettingsError(
            f"{manifest.kind} {manifest.namespace}/{manifest.name}", "", f"a malformed {error}", "a valid pod"
        ) from error
    return pods if priority_class is None else [priority_class.applied_to(pod) for pod in pods]


def _simulation(
    cluster: LoadedCluster,
    manifest: Manifest,
    pods: Sequence[Pod],
    placed: PlacedReplicas,
    n_running: int,
    group: GroupKey | None,
    together: Sequence[Pod],
) -> Simulation:
    """Return the result for one manifest. `together`: the pods that are created with its pods."""
    explanation, unplaced = None, placed.first_unplaced
    notes = (*(_scheduler_notes(cluster, pods[0]) if pods else ()), *placed.notes())
    if unplaced is not None and group is None:
        explanation = explain_pod(cluster, unplaced, None, adds_replicas=True)
    elif unplaced is not None and len(placed.pods) < len(pods):
        notes = (*notes, placed.message)
        if any(pod.uid == unplaced.uid for pod in pods):
            placed_uids = {pod.uid for pod, _ in placed.pods}
            waiting = [pod for pod in together if pod.uid not in placed_uids]
            explanation = explain_pod(cluster, unplaced, None, together=waiting, adds_replicas=True)
    return Simulation.of(
        placed,
        cluster.state,
        manifest=(manifest.kind, manifest.namespace, manifest.name),
        n_replicas=len(pods),
        n_running=n_running,
        explanation=explanation,
        notes=(*cluster.assumptions, *notes),
    )


def _scheduler_notes(cluster: LoadedCluster, pod: Pod) -> tuple[str, ...]:
    """Return the notes on a pod that is of no profile; first, if no scheduler is seen to serve it, that."""
    notes = cluster.profile_for(pod)[1]
    if not notes or cluster.leases is None:
        return notes
    unserved = find_service(cluster, pod, cluster.leases).unserved
    return (unserved, *notes) if unserved else notes


def _text(simulations: Sequence[Simulation], style: Style, *, wide: bool) -> str:
    """
    Return the report on each manifest; of several, at last a table of all and the total.

    Why a group has no places is in the report on its first manifest alone.
    """
    explained = _explained_before(simulations)
    reports = [
        "\n".join(_lines(simulation, style, wide=wide))
        for index, simulation in enumerate(simulations)
        if simulation.n_placed or index not in explained
    ]
    if len(simulations) > 1:
        n_placed = sum(simulation.n_placed for simulation in simulations)
        n_replicas = sum(simulation.n_replicas for simulation in simulations)
        reports.append("\n".join(_summary_lines(simulations, style)))
        reports.append(_count_line(f"All {len(simulations)} manifests", n_placed, n_replicas, style))
    return "\n\n".join(reports)


def _summary_lines(simulations: Sequence[Simulation], style: Style) -> list[str]:
    """Return a table of all manifests; the reason is the first of the first replica that does not fit."""
    explained = _explained_before(simulations)
    rows = [
        (
            _subject(each),
            each.n_running,
            each.n_replicas,
            each.n_placed,
            "" if each.n_placed == each.n_replicas else explained.get(index) or _first_reason(each),
        )
        for index, each in enumerate(simulations)
    ]
    head = ("WORKLOAD", "RUN", "NEW", "FIT", "WHY NOT MORE")
    return [style.heading("ALL MANIFESTS"), *table_lines(head, rows, columns=style.columns)]


def _explained_before(simulations: Sequence[Simulation]) -> dict[int, str]:
    """Return the manifests whose group an earlier manifest explains, by index; the values are such as `as Pod ns/a`."""
    first: dict[str, str] = {}
    explained: dict[int, str] = {}
    for index, each in enumerate(simulations):
        if each.n_placed == each.n_replicas:
            continue
        if each.next is None and each.notes and each.notes[-1] in first:
            explained[index] = f"as {first[each.notes[-1]]}"
        for note in each.notes:
            first.setdefault(note, _subject(each))
    return explained


def _subject(simulation: Simulation) -> str:
    return f"{simulation.manifest_kind} {simulation.namespace}/{simulation.name}"


def _first_reason(simulation: Simulation) -> str:
    """Return the first row of REFUSED; else the message, which of a group is its last note."""
    if simulation.next is None:
        reason = simulation.notes[-1] if simulation.notes else ""
    else:
        reason = simulation.next.groups[0].reason if simulation.next.groups else simulation.next.message
    return escape_control_characters(reason)


def _count_line(subject: str, n_placed: int, n_replicas: int, style: Style) -> str:
    """Return a heading such as `Deployment default/web: 2 of 3 replicas fit`."""
    replicas = counted(n_replicas, "replica")
    count = f"{n_placed} of {replicas} {'fits' if n_replicas == 1 else 'fit'}"
    return style.heading(f"{subject}: {style.good(count) if n_placed == n_replicas else style.bad(count)}")


def _lines(simulation: Simulation, style: Style, *, wide: bool) -> list[str]:
    lines = [_count_line(_subject(simulation), simulation.n_placed, simulation.n_replicas, style)]
    lines += [style.faint(f"  note: {escape_control_characters(note)}") for note in simulation.notes]
    by_zone = [(z.zone, z.n_nodes, z.n_pods) for z in simulation.zones]
    zones = table_lines(("ZONE", "NODES", "PODS"), by_zone, columns=style.columns)
    shown = simulation.nodes if wide else simulation.nodes[:_NODES]
    by_node = [(n.node, n.zone or "-", n.n_pods) for n in shown]
    nodes = table_lines(("NODE", "ZONE", "PODS"), by_node, columns=style.columns)
    nodes += more_lines(len(simulation.nodes) - len(shown), simulation.n_more_nodes, "node")
    victims = _victim_lines(simulation, style.columns, wide=wide)
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


def _victim_lines(simulation: Simulation, columns: int | None, *, wide: bool) -> list[str]:
    """Return the table of the pods that are evicted, none if there are none."""
    shown = simulation.victims if wide else simulation.victims[:_VICTIMS]
    rows = [(f"{one.namespace}/{one.name}", one.priority, one.node, one.budget or "-") for one in shown]
    lines = table_lines(("EVICTED", "PRIORITY", "NODE", "BREAKS BUDGET"), rows, columns=columns)
    n_cut = len(simulation.victims) - len(shown)
    return lines + more_lines(n_cut, simulation.n_evicted - len(simulation.victims), "pod")
