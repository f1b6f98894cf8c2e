"""
`affinity-scheduler snapshot -o FILE`: save what the scheduler reads of a cluster to a file for `--on`.

The file is a recording of the first lists: `scheduler.tools.explain.formats.recording_file` says what it has.
"""

from __future__ import annotations

import argparse
from functools import partial

from scheduler.cli import settings_flags
from scheduler.cli.flag_kinds import file_name
from scheduler.cli.source_flags import add_cluster_arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    parser.add_argument(
        "-o",
        "--output",
        type=partial(file_name, "-o"),
        metavar="FILE",
        default="-",
        help='file to write, compressed if its name ends in .gz ("-", the default: print)',
    )
    add_plugin_arguments(parser)
    add_cluster_arguments(parser)


def add_plugin_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that say which annotations of nodes are read."""
    settings_flags.add_plugins(parser)
    settings_flags.add_config(
        parser, "the scheduler's configuration, if its plugins read annotations of nodes"
    )


def run(args: argparse.Namespace) -> int:
    """Write the snapshot and return 0. Raises SettingsError for bad input."""
    from scheduler.cli.query.snapshots import save_snapshot

    save_snapshot(args)
    return 0
