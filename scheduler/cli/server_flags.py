"""Flags of commands that talk to an API server: connection, logging and leader election."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Final

import msgspec

from scheduler.daemon.settings.resolved import LeaderElection, Settings
from scheduler.engine.syntax.durations import parse_duration_ns
from scheduler.errors import SettingsError

#: Jitter alone could miss a deadline shorter than this many retry periods (client-go, JitterFactor).
_RETRIES_IN_DEADLINE: Final = 1.2


def add_kubeconfig(parser: argparse.ArgumentParser) -> None:
    """Add --kubeconfig."""
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="kubeconfig of the API server; default: KUBECONFIG, ~/.kube/config, then in-cluster",
    )


def add_server(parser: argparse.ArgumentParser) -> None:
    """Add --kubeconfig and --master."""
    add_kubeconfig(parser)
    parser.add_argument(
        "--master", metavar="URL", help="address of the API server; overrides the kubeconfig's"
    )


def add_logging(parser: argparse.ArgumentParser, *, note: str = "") -> None:
    """Add -v and --log-format; `note` follows in the help of -v."""
    parser.add_argument(
        "-v",
        "--v",
        dest="verbosity",
        type=int,
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


def verbosity(args: argparse.Namespace) -> int:
    """Return the value of -v. Raises SettingsError."""
    level: int = args.verbosity
    if not 0 <= level <= 10:
        raise SettingsError("-v", "", str(level), "a verbosity from 0 to 10")
    return level


def duration_s(flag: str, text: str, *, such_as: str, or_zero: bool = False) -> float:
    """Return the value of a flag with a duration, in seconds. Raises SettingsError."""
    duration_ns = parse_duration_ns(text)
    if duration_ns is None or duration_ns < 0 or (duration_ns == 0 and not or_zero):
        raise SettingsError(flag, "", text, f"a duration such as {such_as}")
    return duration_ns / 1e9


def optional_duration_s(flag: str, text: str | None, *, such_as: str) -> float | None:
    """Return the same, None without the flag."""
    return None if text is None else duration_s(flag, text, such_as=such_as)


def with_kubeconfig(settings: Settings, kubeconfig: str | None) -> Settings:
    """Return the settings with --kubeconfig, if given. Unlike here, kube-scheduler ignores the flag beside --config."""
    if not kubeconfig:
        return settings
    return replace(
        settings, client_connection=msgspec.structs.replace(settings.client_connection, kubeconfig=kubeconfig)
    )


def checked_election(settings: LeaderElection) -> LeaderElection:
    """Return the settings. Raises SettingsError if their durations cannot work."""
    if settings.renew_deadline_s <= _RETRIES_IN_DEADLINE * settings.retry_period_s:
        raise SettingsError(
            "leaderElection",
            "renewDeadline",
            f"{settings.renew_deadline_s:g}s",
            f"more than {_RETRIES_IN_DEADLINE} times the retryPeriod of {settings.retry_period_s:g}s",
        )
    return settings
