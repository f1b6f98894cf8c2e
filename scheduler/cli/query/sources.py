"""The cluster, configuration and manifests that the arguments of a command name."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from scheduler.cli import settings_flags
from scheduler.cli.source_flags import namespace_of
from scheduler.tools.explain.formats.manifest_documents import ManifestFile
from scheduler.tools.explain.formats.terminal import LiveLines
from scheduler.tools.explain.input_files import add_other_objects, parse_manifest_files
from scheduler.tools.explain.priority_classes import PriorityClass, ReadClass, add_priorities
from scheduler.tools.explain.recordings import read_snapshot
from scheduler.tools.explain.simulation.loaded_cluster import LoadedCluster

if TYPE_CHECKING:
    from scheduler.daemon.settings.resolved import Settings
    from scheduler.engine.model.semantics import Version


def settings_of(args: argparse.Namespace) -> Settings:
    """Return the scheduler's configuration. Raises SettingsError."""
    return settings_flags.settings(args.config, args.plugins, args.feature_gates, args.emulated_version)


def class_reader(args: argparse.Namespace) -> ReadClass | None:
    """Return what reads PriorityClasses of the cluster; None for a snapshot, which has none."""
    if args.on is not None:
        return None
    from scheduler.cli.query import listing

    return partial(listing.read_priority_class, kubeconfig=args.kubeconfig, context=args.context)


def read_manifest_file(args: argparse.Namespace, settings: Settings) -> ManifestFile:
    """Return the documents of all `-f`. Raises SettingsError."""
    from scheduler.cli.query.downloads import download

    return parse_manifest_files(
        args.filename, download, namespace=namespace_of(args), semantics=settings.semantics
    )


def add_to_cluster(
    args: argparse.Namespace,
    file: ManifestFile,
    cluster: LoadedCluster,
    priority_class: PriorityClass | None = None,
) -> None:
    """Add what the manifests have beside pods to the cluster; say on standard error what was read and left out."""
    add_priorities(file, cluster, class_reader(args), priority_class)
    if text := add_other_objects(file, cluster):
        print(text, file=sys.stderr)


def read_cluster(
    args: argparse.Namespace,
    settings: Settings,
    pods: Sequence[tuple[str, str]] = (),
    *,
    budgets: bool = False,
) -> tuple[LoadedCluster, list[bytes | None]]:
    """
    Return the cluster, and the JSON of the pods of these namespaces and names: None where there is no such pod, or for
    a snapshot. If one of them does not exist, nothing else is read.

    With `budgets`, PodDisruptionBudgets are read even if no profile preempts. Without a flag for it, the version to
    emulate is that of the API server; a snapshot does not have it.

    Raises SettingsError.
    """

    def new_cluster(server: Version | None) -> LoadedCluster:
        cluster = LoadedCluster(settings.at(server), reads_budgets=budgets)
        cluster.on_step = LiveLines(sys.stderr, os.environ).say
        return cluster

    if args.on is not None:
        cluster = new_cluster(None)
        read_snapshot(args.on, cluster)
        return cluster, [None] * len(pods)
    from scheduler.cli.query import listing

    return listing.read_cluster(new_cluster, pods, args.kubeconfig, args.context)
