"""`affinity-scheduler run`: the scheduler. Flags that kube-scheduler has too have the same names."""

from __future__ import annotations

import argparse
import importlib
import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from scheduler.cli import election_flags, kube_scheduler_flags, server_flags, serving_flags, settings_flags
from scheduler.cli.flag_kinds import TRUE_FALSE, add, add_choice, duration_s, number
from scheduler.daemon.settings.resolved import ClientConnection, Settings
from scheduler.errors import SettingsError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

#: kube-scheduler's port.
_PORT: Final = 10259
_LONGEST_WAIT: Final = "--pod-max-in-unschedulable-pods-duration"
_PERCENTAGE: Final = partial(number, allowed=range(101), expected="a percentage from 0 to 100")
_BURST: Final = partial(number, allowed=range(1 << 62), expected="0 or more")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    settings_flags.add_config(
        parser, "a KubeSchedulerConfiguration (v1); default: one profile named affinity-scheduler"
    )
    settings_flags.add_plugins(parser)
    server_flags.add_server(parser)
    settings_flags.add_semantics(parser)
    longest = "how long an unschedulable pod waits for an event before it is retried anyway"
    add(parser, _LONGEST_WAIT, "DURATION", "5m", longest)
    share = (
        "while the cycles of one namespace's pods take more than this share of the time, pods of equal priority of "
        "other namespaces go first; 0 for kube-scheduler's order"
    )
    add(parser, "--namespace-share", "PERCENT", 25, share, _PERCENTAGE)
    parser.add_argument(
        "--seed", type=int, metavar="N", help="seed for the choice between nodes with equal scores"
    )
    server_flags.add_logging(parser)
    election_flags.add_arguments(parser)
    group = parser.add_argument_group(
        "rate limit of requests; without effect beside --config, as in kube-scheduler"
    )
    group.add_argument(
        "--kube-api-qps", type=float, metavar="N", help="requests per second (default: unlimited)"
    )
    burst = "requests at once above --kube-api-qps (default 100)"
    add(group, "--kube-api-burst", "N", None, burst, _BURST)
    loop = "auto is uvloop if that is installed; uvloop may exit uncleanly with TLS"
    add_choice(parser, "--event-loop", ("auto", "asyncio", "uvloop"), "asyncio", loop)
    record = "record each decision in an annotation of the bound pod"
    add_choice(parser, "--decision-annotations", TRUE_FALSE, "true", record)
    serving_flags.add_arguments(parser, port=_PORT)
    kube_scheduler_flags.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Schedule until SIGTERM or SIGINT. Return 0 after an orderly stop. Raises SettingsError for bad input."""
    import asyncio

    from scheduler.daemon.loop.app import Options, serve
    from scheduler.tools.page.cluster_page import ClusterPage

    settings = settings_of(args)
    election = settings.configuration.leader_election
    serving = serving_flags.listening(args)
    flags = {
        **kube_scheduler_flags.flag_values(args),
        **election_flags.values(election),
        "secure-port": str(serving.port),
    }
    options = Options(
        settings=settings,
        election=election if election.leader_elect else None,
        master=args.master,
        serving=serving,
        max_in_unschedulable_s=duration_s(
            _LONGEST_WAIT, args.pod_max_in_unschedulable_pods_duration, such_as="5m"
        ),
        seed=args.seed,
        verbosity=args.verbosity,
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
    settings = server_flags.with_kubeconfig(settings_flags.settings(args), args.kubeconfig)
    client, unset = settings.configuration.client_connection, ClientConnection()
    if not args.config and args.kube_api_qps is not None:
        client = msgspec.structs.replace(client, qps=args.kube_api_qps or unset.qps)
    if not args.config and args.kube_api_burst is not None:
        client = msgspec.structs.replace(client, burst=args.kube_api_burst or unset.burst)
    election = election_flags.overridden(settings.configuration.leader_election, args)
    notes = (*settings.notes, *kube_scheduler_flags.notes(args))
    return replace(settings.changed(client_connection=client, leader_election=election), notes=notes)
