"""The flags --config, --plugins and --feature-gates, and the settings of a configuration with them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from scheduler.settings.feature_gates import parse_feature_gates
from scheduler.settings.loading import default_settings, load_settings
from scheduler.settings.out_of_tree_files import load_plugins
from scheduler.settings.resolved import Settings


def add_config(parser: argparse.ArgumentParser, text: str) -> None:
    """Add --config, with this text as its help."""
    parser.add_argument("--config", metavar="FILE", help=text)


def add_plugins(parser: argparse.ArgumentParser) -> None:
    """Add --plugins."""
    parser.add_argument(
        "--plugins",
        metavar="FILE|FOLDER",
        action="append",
        default=[],
        help="plugins of your own, which the configuration can name; may be repeated",
    )


def add_feature_gates(parser: argparse.ArgumentParser) -> None:
    """Add --feature-gates."""
    parser.add_argument(
        "--feature-gates",
        action="append",
        default=[],
        metavar="A=true,B=false",
        help="feature gates to switch on or off; may be repeated",
    )


def settings(config: str | None, plugins: Sequence[str], feature_gates: Sequence[str] = ()) -> Settings:
    """Return the settings of a file, or the default ones. Raises SettingsError with all mistakes of both."""
    # Upstream has components in front of gates, and every gate here is kube's.
    semantics = parse_feature_gates(",".join(feature_gates).replace("kube:", ""))
    loaded = load_plugins(plugins)
    return load_settings(config, semantics, loaded) if config else default_settings(semantics, loaded)
