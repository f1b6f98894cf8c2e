"""The flag `--plugins`, and the settings of a configuration that may name the plugins it finds."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from scheduler.model.semantics import Semantics
from scheduler.settings.loading import default_settings, load_settings
from scheduler.settings.out_of_tree_files import load_plugins
from scheduler.settings.resolved import Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --plugins."""
    parser.add_argument(
        "--plugins",
        metavar="FILE|FOLDER",
        action="append",
        default=[],
        help="plugins of your own, which the configuration can name; may be repeated",
    )


def settings(config: str | None, semantics: Semantics, plugins: Sequence[str]) -> Settings:
    """Return the settings of a file, or the default ones. Raises SettingsError with all mistakes of both."""
    loaded = load_plugins(plugins)
    return load_settings(config, semantics, loaded) if config else default_settings(semantics, loaded)
