"""`affinity-scheduler run`: the scheduler. Flags that kube-scheduler has too have the same names."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import os
from collections.abc import Callable
from typing import Final

from scheduler.cli import plugin_flags, server_flags, serving_flags
from scheduler.errors import SettingsError
from scheduler.settings.durations import parse_duration_ns
from scheduler.settings.feature_gates import parse_feature_gates
from scheduler.settings.resolved import LeaderElection
from scheduler.shell.app import Options, serve
from scheduler.shell.leader_election import ElectionSettings

#: kube-scheduler's port.
_PORT: Final = 10259


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="a KubeSchedulerConfiguration (v1); default: one profile named affinity-scheduler",
    )
    plugin_flags.add_arguments(parser)
    server_flags.add_server(parser)
    parser.add_argument(
        "--feature-gates", default="", metavar="A=true,B=false", help="feature gates to switch on or off"
    )
    parser.add_argument(
        "--pod-max-in-unschedulable-pods-duration",
        default="5m",
        metavar="DURATION",
        help="how long an unschedulable pod waits for an event before it is retried anyway (default %(default)s)",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=None,
        metavar="N",
        help="seed for the choice between nodes with equal scores",
    )
    server_flags.add_logging(parser)
    parser.add_argument(
        "--leader-elect",
        choices=("true", "false"),
        default=None,
        help="overrides leaderElection.leaderElect of the configuration (default true)",
    )
    parser.add_argument(
        "--event-loop",
        choices=("auto", "asyncio", "uvloop"),
        default="asyncio",
        help="auto is uvloop if that is installed; uvloop may exit uncleanly with TLS (default %(default)s)",
    )
    parser.add_argument(
        "--decision-annotations",
        choices=("true", "false"),
        default="true",
        help="record each decision in an annotation of the bound pod (default %(default)s)",
    )
    serving_flags.add_arguments(parser, port=_PORT)


def run(args: argparse.Namespace) -> int:
    """Schedule until SIGTERM or SIGINT. Return 0 after an orderly stop. Raises SettingsError for bad input."""
    gates = parse_feature_gates(args.feature_gates)
    settings = plugin_flags.settings(args.config, gates, args.plugins)
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
    """Return uvloop's event loop for `uvloop`, or for `auto` if it is installed; None for asyncio's own."""
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
    """Return the Lease for leader election, or None. The flag overrides the file, as in kube-scheduler."""
    if flag == "false" or (flag is None and not settings.leader_elect):
        return None
    return server_flags.election(settings, namespace=settings.resource_namespace, name=settings.resource_name)


def _duration_s(text: str) -> float:
    duration_ns = parse_duration_ns(text)
    if duration_ns is None or duration_ns <= 0:
        raise SettingsError("--pod-max-in-unschedulable-pods-duration", "", text, "a duration such as 5m")
    return duration_ns / 1e9
