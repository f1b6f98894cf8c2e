"""`affinity-scheduler check-config FILE`: print a configuration with its non-empty defaults, or all of its problems."""

import argparse
import sys
from functools import partial

from scheduler.cli import settings_flags
from scheduler.cli.flag_kinds import file_name
from scheduler.daemon.settings.feature_gates import DEFAULT_VERSION
from scheduler.errors import SettingsError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    parser.add_argument(
        "config",
        type=partial(file_name, "FILE"),
        metavar="FILE",
        help='a KubeSchedulerConfiguration, "-" for standard input',
    )
    settings_flags.add_plugins(parser)
    settings_flags.add_semantics(parser, DEFAULT_VERSION)


def run(args: argparse.Namespace) -> int:
    """Print the complete configuration and return 0, or print every problem to standard error and return 2."""
    from scheduler.daemon.settings.writing import resolved_yaml

    try:
        settings = settings_flags.settings(args).at(None)
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 2
    print(resolved_yaml(settings), end="")
    return 0
