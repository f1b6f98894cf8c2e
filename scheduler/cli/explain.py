"""
`affinity-scheduler explain POD...`: say why pods are pending, which pods and rules block them, and what would help.

Without a pod it prints a table of all that is pending, by workload. `kubectl affinity explain` is the same command. It
reads the cluster once, decides with the scheduler's own code, and writes nothing. The JSON is an object for a pod, as
`scheduler.tools.explain.formats.explanation` says, a list for a manifest, a workload or several pods, and
`scheduler.tools.explain.pending.PendingWorkloads` for the table.
"""

from __future__ import annotations

import argparse

from scheduler.cli.source_flags import add_manifest_argument, add_source_arguments
from scheduler.errors import SettingsError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    parser.add_argument(
        "pods",
        metavar="POD",
        nargs="*",
        help="a pod, NAMESPACE/POD, or a workload such as deploy/NAME; without one, a table of what is pending",
    )
    parser.add_argument(
        "-A", "--all-namespaces", action="store_true", help="a table of what is pending in all namespaces"
    )
    add_manifest_argument(parser, "explain the pods that a manifest would create")
    add_source_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print the explanations. Return 0 if the pods can be scheduled, are bound or finished, else 1."""
    if sum((bool(args.pods), args.filename is not None, args.all_namespaces)) > 1:
        given = [args.filename and "-f", args.all_namespaces and "-A", *args.pods]
        raise SettingsError("arguments", "", " ".join(filter(None, given)), "either POD, -f FILE or -A")
    from scheduler.cli.query import explaining

    if args.filename is not None:
        return explaining.print_file(args)
    return explaining.print_named(args) if args.pods else explaining.print_pending(args)
