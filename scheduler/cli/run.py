"""`affinity-scheduler run`: the daemon. Flags are named as kube-scheduler's where it has them."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import os
from collections.abc import Callable
from typing import Final

from scheduler.cli import server_flags, serving_flags
from scheduler.errors import SettingsError
from scheduler.settings.durations import parse_duration_ns
from scheduler.settings.feature_gates import parse_feature_gates
from scheduler.settings.loading import default_settings, load_settings
from scheduler.settings.resolved import LeaderElection
from scheduler.shell.app import Options, serve
from scheduler.shell.leader_election import ElectionSettings

#: kube-scheduler's port.
_PORT: Final = 10259


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Make `parser` read this command's arguments."""
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="KubeSchedulerConfiguration v1; without it, one profile named affinity-scheduler",
    )
    server_flags.add_server(parser)
    parser.add_argument(
        "--feature-gates", default="", metavar="A=true,B=false", help="feature gates to switch on or off"
    )
    parser.add_argument(
        "--pod-max-in-unschedulable-pods-duration",
        default="5m",
        metavar="DURATION",
        help="longest wait of an unschedulable pod for an event (default %(default)s)",
    )
    parser.add_argument(
        "--seed", type=int, default=None, metavar="N", help="draw ties between nodes repeatably"
    )
    server_flags.add_logging(parser)
    parser.add_argument(
        "--leader-elect",
        choices=("true", "false"),
        default=None,
        help="overrides the configuration's leaderElection.leaderElect, which is true by default",
    )
    parser.add_argument(
        "--event-loop",
        choices=("auto", "asyncio", "uvloop"),
        default="asyncio",
        help="auto takes uvloop where it is installed; with TLS it may end uncleanly (default %(default)s)",
    )
    parser.add_argument(
        "--decision-annotations",
        choices=("true", "false"),
        default="true",
        help="write why a node was chosen into the bound pod's annotations (default %(default)s)",
    )
    serving_flags.add_arguments(parser, port=_PORT)


def run(args: argparse.Namespace) -> int:
    """Schedule until SIGTERM or SIGINT. Exit code 0 after an orderly stop; raises SettingsError for bad input."""
    gates = parse_feature_gates(args.feature_gates)
    settings = load_settings(args.config, gates) if args.config else default_settings(gates)
    options = Options(
        settings=server_flags.with_kubeconfig(settings, args.kubeconfig),
        election=_election(settings.leader_election, args.leader_elect),
        master=args.master,
        serving=serving_flags.listening(args),
        max_in_unschedulable_s=_duration_s(args.pod_max_in_unschedulable_pods_duration),
        seed=args.seed,
        verbosity=server_flags.verbosity(args),
        log_format=args.log_format,
        decision_annotations=args.decision_annotations == "true",
    )
    with asyncio.Runner(loop_factory=_loop_factory(args.event_loop)) as runner:
        return runner.run(serve(options, os.environ))


def _loop_factory(choice: str) -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The loop of uvloop where it is asked for, or there and nothing was asked; None for asyncio's own."""
    if choice == "asyncio":
        return None
    try:
        uvloop = importlib.import_module("uvloop")
    except ImportError as error:
        if choice == "auto":
            return None
        raise SettingsError(
            "--event-loop", "", "uvloop, which is not installed", "pip install uvloop"
        ) from error
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def _election(settings: LeaderElection, flag: str | None) -> ElectionSettings | None:
    """The Lease to be elected on; the flag overrides the file, as kube-scheduler's does."""
    if flag == "false" or (flag is None and not settings.leader_elect):
        return None
    return server_flags.election(settings, namespace=settings.resource_namespace, name=settings.resource_name)


def _duration_s(text: str) -> float:
    duration_ns = parse_duration_ns(text)
    if duration_ns is None or duration_ns <= 0:
        raise SettingsError("--pod-max-in-unschedulable-pods-duration", "", text, "a duration such as 5m")
    return duration_ns / 1e9
