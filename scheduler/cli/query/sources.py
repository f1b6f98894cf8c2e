"""Arguments of commands that explain, and the cluster, configuration and manifests that they name."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from scheduler.cli import server_flags, settings_flags
from scheduler.daemon.assembly.watched_kinds import kinds_asked_by
from scheduler.daemon.kube.kubeconfig import kubeconfig_paths, resolve_context
from scheduler.daemon.settings.resolved import Settings
from scheduler.engine.framework.kinds import Asker
from scheduler.engine.model.semantics import Version
from scheduler.tools.explain.input_files import ManifestFile, parse_manifest_file, read_snapshot
from scheduler.tools.explain.simulation.loaded_cluster import LoadedCluster

#: Forms of `-o`.
OUTPUTS = ("table", "wide", "json")

_DEFAULT_NAMESPACE: Final = "default"


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
        "--on", metavar="SNAPSHOT", help="read a file made by `snapshot` or `bundle` instead of a cluster"
    )
    add_cluster_arguments(parser)
    settings_flags.add_config(
        parser, "the scheduler's KubeSchedulerConfiguration; default: one profile named affinity-scheduler"
    )
    settings_flags.add_plugins(parser)
    settings_flags.add_semantics(parser)
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
    return settings_flags.settings(args.config, args.plugins, args.feature_gates, args.emulated_version)


def namespace_of(args: argparse.Namespace) -> str:
    """Return the namespace that the command is about: without -n the context's, as kubectl. Raises SettingsError."""
    if args.namespace:
        return str(args.namespace)
    if args.on:
        return _DEFAULT_NAMESPACE
    paths = kubeconfig_paths(args.kubeconfig, os.environ)
    return (resolve_context(paths, args.context).namespace if paths else "") or _DEFAULT_NAMESPACE


def read_manifest_file(args: argparse.Namespace, settings: Settings) -> ManifestFile:
    """Return the documents of `-f`. Raises SettingsError."""
    return parse_manifest_file(args.filename, namespace=namespace_of(args), semantics=settings.semantics)


def read_cluster(
    args: argparse.Namespace,
    settings: Settings,
    queries: Sequence[PodQuery] = (),
    *,
    budgets: bool = False,
) -> tuple[LoadedCluster, list[PodQuery]]:
    """
    Return the cluster, and the queries with the pods' JSON. If one of the pods does not exist, nothing else is read.

    With `budgets`, PodDisruptionBudgets are read even if no profile preempts. Without a flag for it, the version to
    emulate is that of the API server; a snapshot does not have it.

    Raises SettingsError.
    """

    def new_cluster(server: Version | None) -> LoadedCluster:
        cluster = LoadedCluster(settings.at(server))
        if budgets and all(watched.asked_by is not Asker.PREEMPTION for watched in cluster.kinds):
            cluster.kinds += kinds_asked_by(Asker.PREEMPTION)
        return cluster

    if args.on:
        cluster = new_cluster(None)
        read_snapshot(args.on, cluster)
        return cluster, list(queries)
    from scheduler.cli.query import listing

    names = [(query.namespace, query.name) for query in queries]
    cluster, stored = listing.read_cluster(new_cluster, names, args.kubeconfig, args.context)
    return cluster, [replace(query, stored=found) for query, found in zip(queries, stored, strict=True)]
