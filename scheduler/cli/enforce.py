"""`affinity-scheduler enforce`: evict pods that break enforced affinity rules, and report rules that do not hold."""

from __future__ import annotations

import argparse
import math
import os
from typing import TYPE_CHECKING, Final

import msgspec

from scheduler.cli import server_flags, serving_flags, settings_flags
from scheduler.errors import SettingsError
from scheduler.tools.enforcer.limits import NAME, EvictionLimits, RebalanceLimits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.tools.enforcer.loop import BrokenRule, DeletionCostOptions, Options

#: The scheduler has 10259.
_PORT: Final = 10260
_NAMESPACE: Final = "kube-system"
_LIMITS: Final = EvictionLimits()
_REBALANCE: Final = RebalanceLimits()
_COST_WRITES: Final = 60
#: Most pods that may move for one group.
_MOST_FOR_GROUPS: Final = 20
_HEAD: Final = ("POD", "ENFORCED", "RULE", "WHERE", "BESIDE", "WOULD EVICT")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    settings_flags.add_config(
        parser, "the scheduler's configuration, for its exemptNamespaces, clientConnection and leaderElection"
    )
    server_flags.add_server(parser)
    parser.add_argument(
        "--dry-run", action="store_true", help="log and count the pods to evict, but evict none"
    )
    parser.add_argument(
        "--once",
        action="store_true",
        help="print the rules that are broken now and exit: code 0 if none is, else 1",
    )
    _add_rebalancing(parser)
    _add_deletion_costs(parser)
    _add_limits(parser)
    parser.add_argument(
        "--namespace",
        default=_NAMESPACE,
        metavar="NS",
        help="namespace of the enforcer's Lease (default %(default)s)",
    )
    parser.add_argument("--name", default=NAME, help="name of the enforcer's Lease (default %(default)s)")
    parser.add_argument(
        "--leader-elect",
        choices=("true", "false"),
        default="true",
        help="elect a leader on a Lease before evicting (default %(default)s)",
    )
    server_flags.add_logging(parser)
    serving_flags.add_arguments(parser, port=_PORT)


def _add_limits(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("limits")
    group.add_argument(
        "--grace",
        default=f"{_LIMITS.grace_s:g}s",
        metavar="DURATION",
        help="grace period without a match for affinity, unless the pod sets its own (default %(default)s)",
    )
    group.add_argument(
        "--max-share",
        default=f"{_LIMITS.max_share:.0%}",
        metavar="PERCENT",
        help="if more than this share of a namespace's pods with enforced rules, and more than 3 pods, would be "
        "evicted for its rules, evict none; the same for its pods and the rules of other namespaces; 100%% for no "
        "limit (default %(default)s)",
    )
    for flag, default, what in (
        ("--max-evictions-per-minute", _LIMITS.evictions, "per minute"),
        (
            "--max-evictions-per-namespace",
            _LIMITS.evictions_per_namespace,
            "per minute in one namespace, and for the rules of one",
        ),
        ("--max-evictions-per-node", _LIMITS.evictions_per_node, "per minute on one node"),
    ):
        group.add_argument(
            flag,
            type=int,
            default=default,
            metavar="N",
            help=f"maximum evictions {what} (default %(default)s)",
        )
    group.add_argument(
        "--protected-namespaces",
        default="kube-system",
        metavar="NS",
        help="namespaces whose pods are never evicted (default %(default)s)",
    )


def _add_rebalancing(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("rebalancing")
    group.add_argument(
        "--rebalance",
        action="store_true",
        help="also move pods that the scheduler would place clearly better today, one at a time; try it with --dry-run",
    )
    group.add_argument(
        "--rebalance-gain",
        type=int,
        default=_REBALANCE.min_gain,
        metavar="POINTS",
        help="fewest points of score, as explain shows them, for which a pod moves (default %(default)s)",
    )
    group.add_argument(
        "--rebalance-for-groups",
        type=int,
        default=_REBALANCE.for_groups,
        metavar="N",
        help="most pods that move so that one waiting pod group fits, each with its new place found first (default "
        "%(default)s)",
    )
    for flag, default, what in (
        ("--rebalance-hold", _REBALANCE.hold_s, "how long a better place has to hold before the pod moves"),
        ("--rebalance-pause", _REBALANCE.pause_s, "pause between two moves"),
        (
            "--rebalance-cool-down",
            _REBALANCE.cool_down_s,
            "how long a pod has to be on its node before it moves",
        ),
    ):
        group.add_argument(
            flag, default=f"{default:g}s", metavar="DURATION", help=f"{what} (default %(default)s)"
        )


def _add_deletion_costs(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("scale-down")
    group.add_argument(
        "--deletion-costs",
        nargs="?",
        choices=("log", "write"),
        const="log",
        help="log, or write as pod-deletion-cost, which pods of a ReplicaSet with rules about domains should go first "
        "(log if no value is given)",
    )
    group.add_argument(
        "--max-cost-writes-per-minute",
        type=int,
        default=_COST_WRITES,
        metavar="N",
        help="maximum writes of costs per minute (default %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    """Enforce until SIGTERM or SIGINT, or print the broken rules once. Raises SettingsError for bad input."""
    import asyncio

    from scheduler.tools.enforcer.loop import check_once, serve

    options = _options(args)
    if args.once:
        broken = asyncio.run(check_once(options, os.environ))
        print("\n".join(table(broken)))
        return 1 if broken else 0
    return asyncio.run(serve(options, os.environ))


def table(broken: Sequence[BrokenRule]) -> list[str]:
    """Return a table with one line per broken rule; one sentence if there is none."""
    from scheduler.tools.explain.formats.table import table_lines

    if not broken:
        return ["Every required rule of every running pod holds."]
    rows = [
        (
            each.pod.key,
            "yes" if each.report.enforced else "no",
            each.report.rule,
            each.report.domain,
            "-" if each.report.other is None else each.report.other.key,
            ", ".join(pod.key for pod in each.would_evict) or "-",
        )
        for each in broken
    ]
    return table_lines(_HEAD, rows, indent="")


def _options(args: argparse.Namespace) -> Options:
    from scheduler.daemon.settings.loading import default_settings, load_settings
    from scheduler.tools.enforcer.loop import Options

    settings = load_settings(args.config) if args.config else default_settings()
    election = None
    if args.leader_elect == "true":
        lease = msgspec.structs.replace(
            settings.leader_election, resource_namespace=args.namespace, resource_name=args.name
        )
        election = server_flags.checked_election(lease)
    return Options(
        settings=server_flags.with_kubeconfig(settings, args.kubeconfig),
        election=election,
        limits=_limits(args),
        rebalance=_rebalance_limits(args),
        protected=frozenset(name for name in args.protected_namespaces.split(",") if name),
        deletion_costs=_deletion_costs(args),
        dry_run=args.dry_run,
        master=args.master,
        serving=serving_flags.listening(args),
        verbosity=server_flags.verbosity(args),
        log_format=args.log_format,
    )


def _limits(args: argparse.Namespace) -> EvictionLimits:
    for flag in ("max_evictions_per_minute", "max_evictions_per_namespace", "max_evictions_per_node"):
        if getattr(args, flag) < 1:
            name = f"--{flag.replace('_', '-')}"
            raise SettingsError(name, "", str(getattr(args, flag)), "1 or more")
    return EvictionLimits(
        evictions=args.max_evictions_per_minute,
        evictions_per_namespace=args.max_evictions_per_namespace,
        evictions_per_node=args.max_evictions_per_node,
        max_share=_share(args.max_share),
        grace_s=_seconds("--grace", args.grace),
    )


def _rebalance_limits(args: argparse.Namespace) -> RebalanceLimits | None:
    """Return when pods move, None without --rebalance. Raises SettingsError."""
    if args.rebalance_gain < 1:
        raise SettingsError("--rebalance-gain", "", str(args.rebalance_gain), "1 or more")
    if not 0 <= args.rebalance_for_groups <= _MOST_FOR_GROUPS:
        expected = f"0 to {_MOST_FOR_GROUPS}"
        raise SettingsError("--rebalance-for-groups", "", str(args.rebalance_for_groups), expected)
    limits = RebalanceLimits(
        min_gain=args.rebalance_gain,
        for_groups=args.rebalance_for_groups,
        hold_s=_seconds("--rebalance-hold", args.rebalance_hold),
        pause_s=_seconds("--rebalance-pause", args.rebalance_pause),
        cool_down_s=_seconds("--rebalance-cool-down", args.rebalance_cool_down),
    )
    if args.rebalance and args.once:
        raise SettingsError("--rebalance", "", "--once as well", "one of them")
    if not args.rebalance and limits != _REBALANCE:
        raise SettingsError("--rebalance", "", "only flags that say how", "--rebalance as well")
    return limits if args.rebalance else None


def _deletion_costs(args: argparse.Namespace) -> DeletionCostOptions | None:
    """Return how costs are written, None without --deletion-costs. Raises SettingsError."""
    if args.max_cost_writes_per_minute < 1:
        raise SettingsError(
            "--max-cost-writes-per-minute", "", str(args.max_cost_writes_per_minute), "1 or more"
        )
    if args.deletion_costs and args.once:
        raise SettingsError("--deletion-costs", "", "--once as well", "one of them")
    if not args.deletion_costs:
        if args.max_cost_writes_per_minute != _COST_WRITES:
            raise SettingsError(
                "--deletion-costs", "", "only a flag that says how", "--deletion-costs as well"
            )
        return None
    from scheduler.tools.enforcer.loop import DeletionCostOptions

    return DeletionCostOptions(
        writes=args.deletion_costs == "write", per_minute=args.max_cost_writes_per_minute
    )


def _seconds(flag: str, text: str) -> float:
    return server_flags.duration_s(flag, text, such_as="60s", or_zero=True)


def _share(text: str) -> float:
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        percent = math.nan
    if not text.endswith("%") or not 0 <= percent <= 100:
        raise SettingsError("--max-share", "", text, "a percentage from 0% to 100%")
    return percent / 100
