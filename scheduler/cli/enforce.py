"""`affinity-scheduler enforce`: evict pods that break enforced affinity rules, and report rules that do not hold."""

from __future__ import annotations

import argparse
import math
import os
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from scheduler.cli import server_flags, serving_flags, settings_flags
from scheduler.cli.flag_kinds import ONE_OR_MORE, TRUE_FALSE, add, add_choice, add_switch, duration_s, number
from scheduler.errors import SettingsError
from scheduler.tools.enforcer.limits import NAME, EvictionLimits, RebalanceLimits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.tools.enforcer.loop import BrokenRule, Options

#: The scheduler has 10259.
_PORT: Final = 10260
_LIMITS: Final = EvictionLimits()
_REBALANCE: Final = RebalanceLimits()
_COST_WRITES: Final = 60
#: Most pods that may move for one group.
_FOR_GROUPS: Final = partial(number, allowed=range(21), expected="0 to 20")
_DURATION: Final = partial(duration_s, such_as="60s", or_zero=True)
_HEAD: Final = ("POD", "ENFORCED", "RULE", "WHERE", "BESIDE", "WOULD EVICT")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    settings_flags.add_config(
        parser, "the scheduler's configuration, for its exemptNamespaces, clientConnection and leaderElection"
    )
    server_flags.add_server(parser)
    add_switch(parser, "--dry-run", "log and count the pods to evict, but evict none")
    add_switch(parser, "--once", "print the rules that are broken now and exit: code 0 if none is, else 1")
    _add_rebalancing(parser)
    _add_deletion_costs(parser)
    _add_limits(parser)
    add(parser, "--namespace", "NS", "kube-system", "namespace of the enforcer's Lease")
    add(parser, "--name", "NAME", NAME, "name of the enforcer's Lease")
    add_choice(parser, "--leader-elect", TRUE_FALSE, "true", "elect a leader on a Lease before evicting")
    server_flags.add_logging(parser)
    serving_flags.add_arguments(parser, port=_PORT)


def _add_limits(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("limits")
    grace = "grace period without a match for affinity, unless the pod sets its own"
    add(group, "--grace", "DURATION", f"{_LIMITS.grace_s:g}s", grace, _DURATION)
    share = (
        "if more than this share of a namespace's pods with enforced rules, and more than 3 pods, would be evicted "
        "for its rules, evict none; the same for its pods and the rules of other namespaces; 100%% for no limit"
    )
    add(group, "--max-share", "PERCENT", f"{_LIMITS.max_share:.0%}", share, _share)
    of_one = "per minute in one namespace, and for the rules of one"
    for flag, default, what in (
        ("--max-evictions-per-minute", _LIMITS.evictions, "per minute"),
        ("--max-evictions-per-namespace", _LIMITS.evictions_per_namespace, of_one),
        ("--max-evictions-per-node", _LIMITS.evictions_per_node, "per minute on one node"),
    ):
        add(group, flag, "N", default, f"maximum evictions {what}", ONE_OR_MORE)
    protected = "namespaces whose pods are never evicted"
    add(group, "--protected-namespaces", "NS", "kube-system", protected)


def _add_rebalancing(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("rebalancing")
    moves = "also move pods that the scheduler would place clearly better today, one at a time; try it with --dry-run"
    add_switch(group, "--rebalance", moves)
    gain = "fewest points of score, as explain shows them, for which a pod moves"
    add(group, "--rebalance-gain", "POINTS", _REBALANCE.min_gain, gain, ONE_OR_MORE)
    pods = "most pods that move so that one waiting pod group fits, each with its new place found first"
    add(group, "--rebalance-for-groups", "N", _REBALANCE.for_groups, pods, _FOR_GROUPS)
    on_node = "how long a pod has to be on its node before it moves"
    for flag, default_s, what in (
        ("--rebalance-hold", _REBALANCE.hold_s, "how long a better place has to hold before the pod moves"),
        ("--rebalance-pause", _REBALANCE.pause_s, "pause between two moves"),
        ("--rebalance-cool-down", _REBALANCE.cool_down_s, on_node),
    ):
        add(group, flag, "DURATION", f"{default_s:g}s", what, _DURATION)


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
    most = "maximum writes of costs per minute"
    add(group, "--max-cost-writes-per-minute", "N", _COST_WRITES, most, ONE_OR_MORE)


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
    from scheduler.daemon.settings.loading import checked_election, default_settings, load_settings
    from scheduler.tools.enforcer.loop import Options

    settings = load_settings(args.config) if args.config else default_settings()
    election = None
    if args.leader_elect == "true":
        election = checked_election(
            msgspec.structs.replace(
                settings.configuration.leader_election,
                resource_lock="leases",
                resource_namespace=args.namespace,
                resource_name=args.name,
            )
        )
    return Options(
        settings=server_flags.with_kubeconfig(settings, args.kubeconfig),
        election=election,
        limits=EvictionLimits(
            evictions=args.max_evictions_per_minute,
            evictions_per_namespace=args.max_evictions_per_namespace,
            evictions_per_node=args.max_evictions_per_node,
            max_share=args.max_share,
            grace_s=args.grace,
        ),
        rebalance=_rebalance_limits(args),
        protected=frozenset(name for name in args.protected_namespaces.split(",") if name),
        costs_per_minute=_costs_per_minute(args),
        writes_costs=args.deletion_costs == "write",
        dry_run=args.dry_run,
        master=args.master,
        serving=serving_flags.listening(args),
        verbosity=args.verbosity,
        log_format=args.log_format,
    )


def _rebalance_limits(args: argparse.Namespace) -> RebalanceLimits | None:
    """Return when pods move, None without --rebalance. Raises SettingsError."""
    limits = RebalanceLimits(
        min_gain=args.rebalance_gain,
        for_groups=args.rebalance_for_groups,
        hold_s=args.rebalance_hold,
        pause_s=args.rebalance_pause,
        cool_down_s=args.rebalance_cool_down,
    )
    if args.rebalance and args.once:
        raise SettingsError("--rebalance", "", "--once as well", "one of them")
    if not args.rebalance and limits != _REBALANCE:
        raise SettingsError("--rebalance", "", "only flags that say how", "--rebalance as well")
    return limits if args.rebalance else None


def _costs_per_minute(args: argparse.Namespace) -> int | None:
    """Return how many costs are written, None without --deletion-costs. Raises SettingsError."""
    flag, per_minute = "--deletion-costs", args.max_cost_writes_per_minute
    if args.deletion_costs and args.once:
        raise SettingsError(flag, "", "--once as well", "one of them")
    if not args.deletion_costs and per_minute != _COST_WRITES:
        raise SettingsError(flag, "", "only a flag that says how", f"{flag} as well")
    return per_minute if args.deletion_costs else None


def _share(flag: str, text: str) -> float:
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        percent = math.nan
    if not text.endswith("%") or not 0 <= percent <= 100:
        raise SettingsError(flag, "", text, "a percentage from 0% to 100%")
    return percent / 100
