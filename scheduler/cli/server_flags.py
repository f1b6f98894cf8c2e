"""Flags of commands that talk to an API server: connection and logging."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Final

import msgspec

from scheduler.cli.flag_kinds import add, number
from scheduler.daemon.settings.resolved import Settings

_VERBOSITY: Final = partial(number, "-v", allowed=range(11), expected="a verbosity from 0 to 10")


def add_kubeconfig(parser: argparse.ArgumentParser) -> None:
    """Add --kubeconfig."""
    which = "kubeconfig of the API server; default: KUBECONFIG, ~/.kube/config, then in-cluster"
    add(parser, "--kubeconfig", "FILE", None, which)


def add_server(parser: argparse.ArgumentParser) -> None:
    """Add --kubeconfig and --master."""
    add_kubeconfig(parser)
    add(parser, "--master", "URL", None, "address of the API server; overrides the kubeconfig's")


def add_logging(parser: argparse.ArgumentParser, *, note: str = "") -> None:
    """Add -v and --log-format; `note` follows in the help of -v."""
    parser.add_argument(
        "-v",
        "--v",
        dest="verbosity",
        type=_VERBOSITY,
        default=2,
        metavar="LEVEL",
        help=f"log verbosity, 0 to 10{note} (default %(default)s)",
    )
    parser.add_argument(
        "--log-format",
        "--logging-format",
        choices=("text", "json"),
        default="text",
        help="log format (default %(default)s)",
    )


def with_kubeconfig(settings: Settings, kubeconfig: str | None) -> Settings:
    """Return the settings with --kubeconfig, if given. Unlike here, kube-scheduler ignores the flag beside --config."""
    if not kubeconfig:
        return settings
    client = msgspec.structs.replace(settings.configuration.client_connection, kubeconfig=kubeconfig)
    return settings.changed(client_connection=client)
