"""What `simulate` prints of replicas, and of drained nodes."""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from scheduler.cli import settings_flags
from scheduler.cli.query.sources import read_cluster, read_with_manifests
from scheduler.daemon.settings.problems import printable
from scheduler.engine.syntax.words import counted, first_names
from scheduler.errors import SettingsError
from scheduler.tools.explain.formats.table import table_lines
from scheduler.tools.explain.formats.terminal import Style
from scheduler.tools.explain.report import cut_table, print_answer, report_lines
from scheduler.tools.explain.scenarios import MAX_REPLICAS, simulate_drain, simulate_manifests
from scheduler.tools.explain.sentences import reason_in
from scheduler.tools.explain.simulation.drain import Drain, LeavingPod, Stay, StayingPods
from scheduler.tools.explain.simulation.replicas import Simulation

#: Rows of the tables of nodes, of evicted pods and of a drain unless they are wide.
_NODES: Final = 10
_VICTIMS: Final = 10
_ROWS: Final = 20

_STAY_WORDS: Final = {
    Stay.DAEMON_SET: "of DaemonSets",
    Stay.STATIC: "static",
    Stay.NO_CONTROLLER: "without a controller: nothing makes them anew",
    Stay.TERMINATING: "terminating already",
}


def print_replicas(args: argparse.Namespace) -> int:
    """Place the replicas of the manifests of -f. Return 0 if all fit, else 1."""
    if args.replicas is not None and not 0 <= args.replicas <= MAX_REPLICAS:
        raise SettingsError("--replicas", "", str(args.replicas), f"a number from 0 to {MAX_REPLICAS}")
    cluster, manifests = read_with_manifests(args, args.priority_class)
    simulations = simulate_manifests(cluster, manifests, args.replicas, random.Random(args.seed))
    print_answer(simulations, args.output, partial(_all_lines, simulations))
    return 0 if all(simulation.n_placed == simulation.n_replicas for simulation in simulations) else 1


def print_drain(args: argparse.Namespace) -> int:
    """Drain the nodes, or take the zone away. Return 0 if all pods find a place, else 1."""
    cluster, _ = read_cluster(args, settings_flags.settings(args))
    nodes = [name for names in args.drain or () for name in names.strip(",").split(",")]
    drain = simulate_drain(cluster, nodes, args.without_zone, random.Random(args.seed))
    print_answer(drain, args.output, partial(_drain_lines, drain))
    return 0 if drain.is_ok else 1


def _all_lines(simulations: Sequence[Simulation], style: Style) -> list[str]:
    """
    Return the lines on each manifest; of several, at last a table of all and the total.

    Why a group has no places is in the report on its first manifest alone.
    """
    explained = _explained_before(simulations)
    lines: list[str] = []
    for index, simulation in enumerate(simulations):
        if simulation.n_placed or index not in explained:
            lines += [*_lines(simulation, style), ""]
    if len(simulations) > 1:
        n_placed = sum(simulation.n_placed for simulation in simulations)
        n_replicas = sum(simulation.n_replicas for simulation in simulations)
        total = _count_line(f"All {len(simulations)} manifests", n_placed, n_replicas, style)
        rows = []
        for index, each in enumerate(simulations):
            fit = each.n_placed == each.n_replicas
            reason = "" if fit else explained.get(index) or _first_reason(each)
            rows.append((_subject(each), each.n_running, each.n_replicas, each.n_placed, reason))
        table = table_lines(("WORKLOAD", "RUN", "NEW", "FIT", "WHY NOT MORE"), rows, columns=style.columns)
        lines += [style.heading("ALL MANIFESTS"), *table, "", total, ""]
    return lines[:-1]


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
    return printable(reason)


def _count_line(subject: str, n_placed: int, n_replicas: int, style: Style) -> str:
    """Return a heading such as `Deployment default/web: 2 of 3 replicas fit`."""
    replicas = counted(n_replicas, "replica")
    count = f"{n_placed} of {replicas} {'fits' if n_replicas == 1 else 'fit'}"
    return style.heading(f"{subject}: {style.good(count) if n_placed == n_replicas else style.bad(count)}")


def _lines(simulation: Simulation, style: Style) -> list[str]:
    lines = [_count_line(_subject(simulation), simulation.n_placed, simulation.n_replicas, style)]
    lines += [style.faint(f"  note: {printable(note)}") for note in simulation.notes]
    by_zone = [(z.zone, z.n_nodes, z.n_pods) for z in simulation.zones]
    zones = table_lines(("ZONE", "NODES", "PODS"), by_zone, columns=style.columns)
    by_node = [(n.node, n.zone or "-", n.n_pods) for n in simulation.nodes]
    head = ("NODE", "ZONE", "PODS")
    nodes = cut_table(style, head, by_node, _NODES, "node", simulation.n_more_nodes)
    evicted = [
        (f"{one.namespace}/{one.name}", one.priority, one.node, one.budget or "-")
        for one in simulation.victims
    ]
    head_of_evicted = ("EVICTED", "PRIORITY", "NODE", "BREAKS BUDGET")
    n_unlisted = simulation.n_evicted - len(evicted)
    victims = cut_table(style, head_of_evicted, evicted, _VICTIMS, "pod", n_unlisted)
    for table in (zones, nodes, victims):
        lines += ["", *table] if table else []
    if simulation.next is not None:
        title = style.heading("WHY THE NEXT REPLICA DOES NOT FIT")
        lines += ["", title, "", *report_lines(simulation.next, style)]
    return lines


def _drain_lines(drain: Drain, style: Style) -> list[str]:
    placed = [pod for pod in drain.leaving if pod.to]
    unplaced = [pod for pod in drain.leaving if pod.message]
    held = [pod for pod in drain.leaving if pod.held_by]
    nodes = f"node {drain.nodes[0]}" if len(drain.nodes) == 1 else counted(len(drain.nodes), "node")
    what = f"Without zone {drain.zone}" if drain.zone else f"Drain of {nodes}"
    finds = "finds a place" if drain.n_leaving == 1 else "find a place"
    count = f"{drain.n_placed} of {counted(drain.n_leaving, 'pod')} {finds} elsewhere"
    lines = [style.heading(f"{what}: {style.good(count) if drain.is_ok else style.bad(count)}")]
    lines += [style.faint(f"  note: {printable(note)}") for note in drain.notes]
    lines += [f"  {_stays(pods, gone=bool(drain.zone))}" for pods in drain.staying]
    tables = (
        (
            "WHERE THEY GO" if drain.zone else "WHERE THEY GO, AS BUDGETS ALLOW",
            ("ROUND", "POD", "FROM", "TO"),
            [(pod.round, pod.key, pod.node, pod.to) for pod in placed],
        ),
        ("NO PLACE", *_refused(unplaced, "WHY", lambda pod: pod.message, wide=style.is_wide)),
        ("NEVER LET GO", *_refused(held, "PODDISRUPTIONBUDGET", lambda pod: pod.held_by, wide=style.is_wide)),
    )
    for title, head, rows in tables:
        if rows:
            table = cut_table(style, head, rows, _ROWS, head[-3].lower())
            lines += ["", style.heading(title), *map(printable, table)]
    if drain.next is not None:
        title = f"WHY {drain.next.namespace}/{drain.next.pod} FINDS NO PLACE"
        lines += ["", style.heading(title), "", *report_lines(drain.next, style)]
    return lines


def _refused(
    pods: Sequence[LeavingPod], why: str, why_of: Callable[[LeavingPod], str], *, wide: bool
) -> tuple[tuple[str, ...], Sequence[Sequence[str | int]]]:
    """Return the head and rows of a table of pods without a place: a row for those that are alike, unless wide."""
    if wide:
        return ("ROUND", "POD", "FROM", why), [(pod.round, pod.key, pod.node, why_of(pod)) for pod in pods]
    alike: dict[tuple[str, str], list[str]] = {}
    for pod in pods:
        key = f"{pod.namespace}/{pod.workload}", reason_in(why_of(pod))
        alike.setdefault(key, []).append(pod.node)
    rows = [
        (len(nodes), workload, first_names(list(dict.fromkeys(nodes))), reason)
        for (workload, reason), nodes in alike.items()
    ]
    return ("PODS", "WORKLOAD", "FROM", why), rows


def _stays(staying: StayingPods, *, gone: bool) -> str:
    """Return a line about pods without a replacement, such as `2 pods stay: of DaemonSets`."""
    leave = gone or staying.why in (Stay.NO_CONTROLLER, Stay.TERMINATING)
    one = staying.pods.n_total == 1
    verb = ("leaves" if one else "leave") if leave else ("stays" if one else "stay")
    line = f"{counted(staying.pods.n_total, 'pod')} {verb}: {_STAY_WORDS[staying.why]}"
    if staying.why is Stay.NO_CONTROLLER:
        line += f" ({first_names([ref.key for ref in staying.pods.shown])})"
        if not gone:
            line += f"; kubectl drain refuses {'it' if one else 'them'} without --force"
    return printable(line)
