"""The flags --config, --plugins, --emulated-version and --feature-gates, and the settings that follow from them."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from scheduler.cli.flag_kinds import file_name
from scheduler.daemon.settings.feature_gates import (
    KNOWN_VERSIONS,
    RequestedSemantics,
    read_emulated_version,
    read_feature_gates,
)
from scheduler.daemon.settings.resolved import Settings


def add_config(parser: argparse.ArgumentParser, text: str) -> None:
    """Add --config, with this text as its help."""
    parser.add_argument("--config", metavar="FILE", help=text)


def add_plugins(parser: argparse.ArgumentParser) -> None:
    """Add --plugins."""
    own = "plugins of your own, which the configuration can name; may be repeated"
    _add_list(parser, "--plugins", "FILE|FOLDER", own, partial(file_name, "--plugins"))


def add_semantics(parser: argparse.ArgumentParser, default: str = "that of the API server") -> None:
    """Add --emulated-version, with this text as its default, and --feature-gates."""
    version = f"the version of Kubernetes, {KNOWN_VERSIONS}, whose decisions to make; default: {default}"
    _add_list(parser, "--emulated-version", "kube=1.N", version)
    _add_list(
        parser, "--feature-gates", "A=true,B=false", "feature gates to switch on or off; may be repeated"
    )


def _add_list(
    parser: argparse.ArgumentParser, flag: str, metavar: str, text: str, kind: Callable[[str], str] = str
) -> None:
    parser.add_argument(flag, type=kind, metavar=metavar, action="append", default=[], help=text)


def settings(args: argparse.Namespace) -> Settings:
    """
    Return the settings of --config, or the default ones. Raises SettingsError with all mistakes, --plugins' too.

    Without a version, their semantics are not checked, but by `Settings.at`. A command may lack
    --emulated-version and --feature-gates.
    """
    from scheduler.daemon.settings.loading import default_settings, load_settings
    from scheduler.daemon.settings.out_of_tree_files import load_plugins

    requested = RequestedSemantics(
        read_emulated_version(getattr(args, "emulated_version", ())),
        read_feature_gates(",".join(getattr(args, "feature_gates", ()))),
    )
    semantics = requested.unchecked() if requested.version is None else requested.at(None)
    loaded = load_plugins(args.plugins)
    read = (
        load_settings(args.config, semantics, loaded) if args.config else default_settings(semantics, loaded)
    )
    return replace(read, requested=requested, notes=(*read.notes, *requested.notes))
