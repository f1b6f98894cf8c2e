"""Flags of commands that ask about a cluster: which one, its configuration, and the form of the answer."""

from __future__ import annotations

import argparse
import os
from functools import partial
from typing import Final

from scheduler.cli import server_flags, settings_flags
from scheduler.cli.flag_kinds import add, add_output, file_name

_DEFAULT_NAMESPACE: Final = "default"


def add_source_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name the cluster, the configuration and the output format."""
    parser.add_argument("-n", "--namespace", metavar="NS", help="namespace; default: the current context's")
    snapshot = "read a file made by `snapshot` or `bundle` instead of a cluster"
    add(parser, "--on", "SNAPSHOT", None, snapshot, file_name)
    add_cluster_arguments(parser)
    settings_flags.add_config(
        parser, "the scheduler's KubeSchedulerConfiguration; default: one profile named affinity-scheduler"
    )
    settings_flags.add_plugins(parser)
    settings_flags.add_semantics(parser)
    add_output(parser, ("table", "wide", "json", "yaml"), "output format")


def add_manifest_argument(parser: argparse._ActionsContainer, text: str) -> None:
    """Add `-f`, which may be given several times."""
    parser.add_argument(
        "-f",
        "--filename",
        type=partial(file_name, "-f"),
        metavar="FILE",
        action="append",
        help=f'{text}: a file, a folder, a URL, or "-" for standard input; may be repeated',
    )


def add_cluster_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name the cluster."""
    server_flags.add_kubeconfig(parser)
    add(parser, "--context", "NAME", None, "context of the kubeconfig; default: the current one")


def namespace_of(args: argparse.Namespace) -> str:
    """Return the namespace that the command is about: without -n the context's, as kubectl. Raises SettingsError."""
    if args.namespace:
        return str(args.namespace)
    if args.on is not None:
        return _DEFAULT_NAMESPACE
    from scheduler.daemon.kube.kubeconfig import kubeconfig_paths, resolve_context

    paths = kubeconfig_paths(args.kubeconfig, os.environ)
    return (resolve_context(paths, args.context).namespace if paths else "") or _DEFAULT_NAMESPACE
