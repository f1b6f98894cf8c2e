"""`affinity-scheduler run`: the scheduler. Flags that kube-scheduler has too have the same names."""

from __future__ import annotations

import argparse
import importlib
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec

from scheduler.cli import election_flags, kube_scheduler_flags, server_flags, serving_flags, settings_flags
from scheduler.daemon.settings.resolved import ClientConnection, Settings
from scheduler.errors import SettingsError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

#: kube-scheduler's port.
_PORT: Final = 10259


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    settings_flags.add_config(
        parser, "a KubeSchedulerConfiguration (v1); default: one profile named affinity-scheduler"
    )
    settings_flags.add_plugins(parser)
    server_flags.add_server(parser)
    settings_flags.add_semantics(parser)
    parser.add_argument(
        "--pod-max-in-unschedulable-pods-duration",
        default="5m",
        metavar="DURATION",
        help="how long an unschedulable pod waits for an event before it is retried anyway (default %(default)s)",
    )
    parser.add_argument(
        "--namespace-share",
        type=int,
        default=25,
        metavar="PERCENT",
        help="while the cycles of one namespace's pods take more than this share of the time, pods of equal priority"
        " of other namespaces go first; 0 for kube-scheduler's order (default %(default)s)",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=None,
        metavar="N",
        help="seed for the choice between nodes with equal scores",
    )
    server_flags.add_logging(parser)
    election_flags.add_arguments(parser)
    _add_rate_limit(parser)
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
    kube_scheduler_flags.add_arguments(parser)


def _add_rate_limit(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "rate limit of requests; without effect beside --config, as in kube-scheduler"
    )
    group.add_argument(
        "--kube-api-qps", type=float, metavar="N", help="requests per second (default: unlimited)"
    )
    group.add_argument(
        "--kube-api-burst", type=int, metavar="N", help="requests at once above --kube-api-qps (default 100)"
    )


def run(args: argparse.Namespace) -> int:
    """Schedule until SIGTERM or SIGINT. Return 0 after an orderly stop. Raises SettingsError for bad input."""
    import asyncio

    from scheduler.daemon.loop.app import Options, serve
    from scheduler.tools.page.cluster_page import ClusterPage

    settings = settings_of(args)
    election = settings.leader_election
    serving = serving_flags.listening(args)
    if not 0 <= args.namespace_share <= 100:
        raise SettingsError("--namespace-share", "", str(args.namespace_share), "a percentage from 0 to 100")
    flags = {
        **kube_scheduler_flags.flag_values(args),
        **election_flags.values(election),
        "secure-port": str(serving.port),
    }
    options = Options(
        settings=settings,
        election=server_flags.checked_election(election) if election.leader_elect else None,
        master=args.master,
        serving=serving,
        max_in_unschedulable_s=server_flags.duration_s(
            "--pod-max-in-unschedulable-pods-duration",
            args.pod_max_in_unschedulable_pods_duration,
            such_as="5m",
        ),
        seed=args.seed,
        verbosity=server_flags.verbosity(args),
        log_format=args.log_format,
        decision_annotations=args.decision_annotations == "true",
        namespace_share=args.namespace_share / 100,
        flags=flags,
    )
    with asyncio.Runner(loop_factory=_loop_factory(args.event_loop)) as runner:
        return runner.run(serve(options, os.environ, ClusterPage))


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


def settings_of(args: argparse.Namespace) -> Settings:
    """Return the configuration with the flags that override it. Raises SettingsError."""
    settings = settings_flags.settings(args.config, args.plugins, args.feature_gates, args.emulated_version)
    settings = server_flags.with_kubeconfig(settings, args.kubeconfig)
    if not args.config:
        settings = _with_rate_limit(settings, args)
    return replace(
        settings,
        leader_election=election_flags.overridden(settings.leader_election, args),
        notes=(*settings.notes, *kube_scheduler_flags.notes(args)),
    )


def _with_rate_limit(settings: Settings, args: argparse.Namespace) -> Settings:
    """Return the settings with --kube-api-qps and --kube-api-burst. Raises SettingsError."""
    client = settings.client_connection
    if args.kube_api_qps is not None:
        client = msgspec.structs.replace(client, qps=args.kube_api_qps or ClientConnection().qps)
    if args.kube_api_burst is not None:
        if args.kube_api_burst < 0:
            raise SettingsError("--kube-api-burst", "", str(args.kube_api_burst), "0 or more")
        client = msgspec.structs.replace(client, burst=args.kube_api_burst or ClientConnection().burst)
    return replace(settings, client_connection=client)
