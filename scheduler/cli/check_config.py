"""`affinity-scheduler check-config FILE`: print a configuration with all defaults, or all of its problems."""

import argparse
import sys

from scheduler.cli import plugin_flags
from scheduler.errors import SettingsError
from scheduler.settings.feature_gates import parse_feature_gates
from scheduler.settings.writing import resolved_yaml


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    parser.add_argument("file", metavar="FILE", help='a KubeSchedulerConfiguration, "-" for standard input')
    plugin_flags.add_arguments(parser)
    parser.add_argument(
        "--feature-gates", default="", metavar="A=true,B=false", help="feature gates to switch on or off"
    )


def run(args: argparse.Namespace) -> int:
    """Print the complete configuration and return 0, or print every problem to standard error and return 2."""
    try:
        settings = plugin_flags.settings(args.file, parse_feature_gates(args.feature_gates), args.plugins)
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 2
    print(resolved_yaml(settings), end="")
    return 0
