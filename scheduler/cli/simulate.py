"""
`affinity-scheduler simulate -f FILE --replicas N`: how many replicas fit, where they go, and what stops the next.

The replicas are placed one after another by the scheduler's own core on a copy of the cluster that nobody else sees;
several documents are placed in turn, each beside those before it. JSON: a list of `scheduler.explain.simulation`'s
Simulation, one for each document.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
from typing import Final

import msgspec

from scheduler.cli.asking.columns import aligned
from scheduler.cli.asking.paint import Paint
from scheduler.cli.asking.report import report
from scheduler.cli.asking.sources import add_source_arguments, manifests_of, read_world, settings_of
from scheduler.cli.asking.world import World
from scheduler.cli.explain import explain_pod
from scheduler.core.node_scores import Rng
from scheduler.errors import SettingsError
from scheduler.explain.manifests import Manifest
from scheduler.explain.simulation import Simulation, node_shares, place_replicas, zone_shares
from scheduler.model.wire import MalformedObjectError
from scheduler.state.snapshot import Snapshot

#: About half a minute at 5,000 nodes.
_MOST_REPLICAS: Final = 100_000
#: Nodes listed in a table that is not wide.
_NODES: Final = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Make `parser` read this command's arguments."""
    parser.add_argument(
        "-f", "--filename", metavar="FILE", required=True, help='the manifest ("-": standard input)'
    )
    parser.add_argument(
        "--replicas", type=int, metavar="N", help="how many; default: as many as the manifest says"
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=1,
        metavar="N",
        help="draw ties between nodes by this seed (default %(default)s)",
    )
    add_source_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print what happened. Exit code 0: all fit; 1: not all; raises SettingsError for bad input."""
    if args.replicas is not None and not 0 <= args.replicas <= _MOST_REPLICAS:
        raise SettingsError("--replicas", "", str(args.replicas), f"a number from 0 to {_MOST_REPLICAS}")
    settings = settings_of(args)
    manifests = manifests_of(args, settings)
    world, _ = asyncio.run(read_world(args, settings, None))
    manifests.add_beside(world)
    chance = random.Random(args.seed)
    simulations = [simulate_plan(world, plan, args.replicas, chance) for plan in manifests.plans]
    if args.output == "json":
        print(msgspec.json.format(msgspec.json.encode(simulations), indent=2).decode())
    else:
        paint = Paint(sys.stdout, os.environ)
        wide = args.output == "wide"
        print("\n\n".join("\n".join(_lines(simulation, paint, wide=wide)) for simulation in simulations))
    return 0 if all(simulation.n_placed == simulation.n_replicas for simulation in simulations) else 1


def simulate_plan(world: World, plan: Manifest, n_replicas: int | None, chance: Rng) -> Simulation:
    """The plan's replicas are part of the world afterwards, as many as fit. Raises SettingsError."""
    wanted = plan.n_replicas if n_replicas is None else n_replicas
    if wanted > _MOST_REPLICAS:
        raise SettingsError(f"{plan.kind} {plan.name}", "", f"{wanted} replicas", f"at most {_MOST_REPLICAS}")
    try:
        pods = [world.pod_of(plan, number) for number in range(wanted)]
    except MalformedObjectError as error:
        raise SettingsError(f"{plan.kind} {plan.namespace}/{plan.name}", "", str(error), "a pod") from error
    node_names: list[str] = []
    stopped = None
    if pods:
        profile, _ = world.profile_for(pods[0])
        placed = place_replicas(pods, world.state, world.built(profile, Snapshot(world.state)), chance)
        node_names, stopped = [node_name for _, node_name in placed.pods], placed.first_unplaced
    shares, n_more = node_shares(world.state, node_names)
    return Simulation(
        manifest_kind=plan.kind,
        namespace=plan.namespace,
        name=plan.name,
        n_replicas=wanted,
        n_placed=len(node_names),
        zones=zone_shares(world.state, node_names),
        nodes=shares,
        n_more_nodes=n_more,
        next=None if stopped is None else explain_pod(world, stopped, None),
    )


def _lines(simulation: Simulation, paint: Paint, *, wide: bool) -> list[str]:
    count = f"{simulation.n_placed} of {simulation.n_replicas} replicas fit"
    fits = simulation.n_placed == simulation.n_replicas
    subject = f"{simulation.manifest_kind} {simulation.namespace}/{simulation.name}"
    lines = [paint.head(f"{subject}: {paint.good(count) if fits else paint.bad(count)}")]
    zones = aligned(("ZONE", "NODES", "PODS"), [(z.zone, z.n_nodes, z.n_pods) for z in simulation.zones])
    shown = simulation.nodes if wide else simulation.nodes[:_NODES]
    nodes = aligned(("NODE", "ZONE", "PODS"), [(n.node, n.zone or "-", n.n_pods) for n in shown])
    left = len(simulation.nodes) - len(shown) + simulation.n_more_nodes
    if left:
        nodes.append(f"  ... and {left} more node{'s' if left > 1 else ''}")
    for table in (zones, nodes):
        lines += ["", *table] if table else []
    if simulation.next is not None:
        lines += ["", paint.head("WHAT STOPS THE NEXT"), "", *report(simulation.next, paint, wide=wide)]
    return lines
