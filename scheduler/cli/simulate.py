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

from scheduler.cli.source_flags import add_manifest_argument, add_source_arguments
from scheduler.errors import SettingsError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    what = parser.add_mutually_exclusive_group(required=True)
    add_manifest_argument(what, "the manifest")
    what.add_argument(
        "--drain",
        action="extend",
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
    """Print the simulations. Return 0 if all pods find a place, else 1. Raises SettingsError for bad input."""
    from scheduler.cli.query import simulating

    if args.filename is not None:
        return simulating.print_replicas(args)
    for flag, value in (("--priority-class", args.priority_class), ("--replicas", args.replicas)):
        if value is not None:
            raise SettingsError(flag, "", str(value), "only with -f FILE")
    return simulating.print_drain(args)
