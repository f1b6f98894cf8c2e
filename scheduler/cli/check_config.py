"""`affinity-scheduler check-config FILE`: what a configuration file means, or everything that is wrong with it."""

import argparse
import sys

from scheduler.errors import SettingsError
from scheduler.settings.feature_gates import parse_feature_gates
from scheduler.settings.loading import load_settings
from scheduler.settings.writing import resolved_yaml


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Make `parser` read this command's arguments."""
    parser.add_argument("file", metavar="FILE", help='a KubeSchedulerConfiguration, "-" for standard input')
    parser.add_argument(
        "--feature-gates", default="", metavar="A=true,B=false", help="feature gates to switch on or off"
    )


def run(args: argparse.Namespace) -> int:
    """Print the completed configuration and return 0, or every problem on standard error and return 2."""
    try:
        settings = load_settings(args.file, parse_feature_gates(args.feature_gates))
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 2
    print(resolved_yaml(settings), end="")
    return 0
