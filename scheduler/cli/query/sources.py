"""Arguments of commands that explain, and the cluster, configuration and manifests that they name."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from functools import partial

from scheduler.assembly.loaded_cluster import LoadedCluster
from scheduler.assembly.watched_kinds import kinds_asked_by
from scheduler.cli import server_flags, settings_flags
from scheduler.cli.query.input_files import ManifestFile, parse_manifest_file, read_snapshot
from scheduler.cli.query.listing import (
    DEFAULT_NAMESPACE,
    connect,
    context_namespace,
    list_kind,
    read_pod,
)
from scheduler.cli.query.terminal import ReadProgress
from scheduler.framework.kinds import Asker
from scheduler.kube.client import KubeClient
from scheduler.settings.resolved import Settings

#: Forms of `-o`.
OUTPUTS = ("table", "wide", "json")


@dataclass(frozen=True, slots=True)
class PodQuery:
    """The pod to explain. `stored`: its JSON from the API server; None if there is no such pod or for a snapshot."""

    namespace: str
    name: str
    stored: bytes | None = None


def add_source_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name the cluster, the configuration and the output format."""
    parser.add_argument("-n", "--namespace", metavar="NS", help="namespace; default: the current context's")
    parser.add_argument(
        "--on", metavar="SNAPSHOT", help="read a file made by `snapshot` instead of a cluster"
    )
    add_cluster_arguments(parser)
    settings_flags.add_config(
        parser, "the scheduler's KubeSchedulerConfiguration; default: one profile named affinity-scheduler"
    )
    settings_flags.add_plugins(parser)
    settings_flags.add_feature_gates(parser)
    parser.add_argument(
        "-o", "--output", choices=OUTPUTS, default="table", help="output format (default %(default)s)"
    )


def add_cluster_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name the cluster."""
    server_flags.add_kubeconfig(parser)
    parser.add_argument(
        "--context", metavar="NAME", help="context of the kubeconfig; default: the current one"
    )


def settings_of(args: argparse.Namespace) -> Settings:
    """Return the scheduler's configuration. Raises SettingsError."""
    return settings_flags.settings(args.config, args.plugins, args.feature_gates)


def namespace_of(args: argparse.Namespace) -> str:
    """Return the namespace that the command is about. Raises SettingsError."""
    if args.namespace:
        return str(args.namespace)
    return DEFAULT_NAMESPACE if args.on else context_namespace(args.kubeconfig, args.context, os.environ)


def read_manifest_file(args: argparse.Namespace, settings: Settings) -> ManifestFile:
    """Return the documents of `-f`. Raises SettingsError."""
    return parse_manifest_file(args.filename, namespace=namespace_of(args), semantics=settings.semantics)


async def read_cluster(
    args: argparse.Namespace, settings: Settings, query: PodQuery | None, *, budgets: bool = False
) -> tuple[LoadedCluster, PodQuery | None]:
    """
    Return the cluster, and the query with the pod's JSON. If there is no such pod, nothing else is read.

    With `budgets`, PodDisruptionBudgets are read even if no profile preempts.

    Raises SettingsError.
    """
    cluster = LoadedCluster(settings)
    if budgets and all(watched.asked_by is not Asker.PREEMPTION for watched in cluster.kinds):
        cluster.kinds += kinds_asked_by(Asker.PREEMPTION)
    if args.on:
        read_snapshot(args.on, cluster)
        return cluster, query
    async with connect(args.kubeconfig, args.context, os.environ) as client:
        if query is not None:
            stored = await read_pod(client, query.namespace, query.name)
            if stored is None:
                return cluster, query
            query = PodQuery(query.namespace, query.name, stored)
        await _list_all(client, cluster)
    return cluster, query


async def _list_all(client: KubeClient, cluster: LoadedCluster) -> None:
    progress = ReadProgress(sys.stderr, os.environ)
    try:
        for watched in cluster.kinds:
            listed = await list_kind(client, watched, partial(cluster.decode, watched), progress)
            for seen in listed or ():
                cluster.apply(seen)
            if listed is not None:
                cluster.apply(watched.on_served)
    finally:
        progress.clear()
