"""Where a command's cluster and configuration come from: the API server or a snapshot, a file or the defaults."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from functools import partial

from scheduler.cli import server_flags
from scheduler.cli.asking.files import Manifests, read_manifests, read_snapshot
from scheduler.cli.asking.listing import (
    DEFAULT_NAMESPACE,
    connected,
    context_namespace,
    listed,
    pod_object,
)
from scheduler.cli.asking.paint import Counting
from scheduler.cli.asking.world import World
from scheduler.kube.client import KubeClient
from scheduler.settings.feature_gates import parse_feature_gates
from scheduler.settings.loading import default_settings, load_settings
from scheduler.settings.resolved import Settings

#: Forms of `-o`.
OUTPUTS = ("table", "wide", "json")


@dataclass(frozen=True, slots=True)
class Asked:
    """One pod of a cluster, as the server has it now: None where it has none, or where a snapshot was read."""

    namespace: str
    name: str
    stored: bytes | None = None


def add_source_arguments(parser: argparse.ArgumentParser) -> None:
    """The parser reads where the cluster is, and under which configuration to decide."""
    parser.add_argument("-n", "--namespace", metavar="NS", help="namespace; default: the current context's")
    parser.add_argument("--on", metavar="SNAPSHOT", help="ask a file of the command snapshot, not a cluster")
    add_cluster_arguments(parser)
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="the scheduler's KubeSchedulerConfiguration; without it, one profile named affinity-scheduler",
    )
    parser.add_argument(
        "--feature-gates",
        default="",
        metavar="A=true,B=false",
        help="feature gates as the scheduler has them",
    )
    parser.add_argument(
        "-o", "--output", choices=OUTPUTS, default="table", help="form of the answer (default %(default)s)"
    )


def add_cluster_arguments(parser: argparse.ArgumentParser) -> None:
    """The parser reads how to reach a cluster."""
    server_flags.add_kubeconfig(parser)
    parser.add_argument(
        "--context", metavar="NAME", help="context of the kubeconfig; default: the current one"
    )


def settings_of(args: argparse.Namespace) -> Settings:
    """The configuration to decide under. Raises SettingsError."""
    gates = parse_feature_gates(args.feature_gates)
    return load_settings(args.config, gates) if args.config else default_settings(gates)


def namespace_of(args: argparse.Namespace) -> str:
    """The namespace that the command is about."""
    if args.namespace:
        return str(args.namespace)
    return DEFAULT_NAMESPACE if args.on else context_namespace(args.kubeconfig, args.context, os.environ)


def manifests_of(args: argparse.Namespace, settings: Settings) -> Manifests:
    """What the manifest of `-f` would create. Raises SettingsError."""
    return read_manifests(args.filename, namespace=namespace_of(args), gates=settings.feature_gates)


async def read_world(
    args: argparse.Namespace, settings: Settings, asked: Asked | None
) -> tuple[World, Asked | None]:
    """
    The cluster, and the pod that is asked about as the server has it; nothing is listed where it has none.

    Raises SettingsError.
    """
    world = World(settings)
    if args.on:
        read_snapshot(args.on, world)
        return world, asked
    async with connected(args.kubeconfig, args.context, os.environ) as client:
        if asked is not None:
            stored = await pod_object(client, asked.namespace, asked.name)
            if stored is None:
                return world, asked
            asked = Asked(asked.namespace, asked.name, stored)
        await _list_all(client, world)
    return world, asked


async def _list_all(client: KubeClient, world: World) -> None:
    counting = Counting(sys.stderr, os.environ)
    try:
        for watched in world.kinds:
            stimuli = await listed(
                client,
                watched.resource,
                partial(world.decoded, watched),
                partial(counting.at, watched.kind),
            )
            for seen in stimuli:
                world.see(seen)
    finally:
        counting.done()
