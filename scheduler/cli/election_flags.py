"""The flags --leader-elect*, which override `leaderElection` of the configuration as in kube-scheduler."""

from __future__ import annotations

import argparse
from typing import Final

import msgspec

from scheduler.cli.flag_kinds import duration_s
from scheduler.cli.kube_scheduler_flags import add_boolean
from scheduler.daemon.settings.resolved import LeaderElection
from scheduler.engine.syntax.durations import format_duration

#: The field and what `--help` says, by flag. Fields of durations end with `_s`.
_FIELDS: Final = {
    "lease-duration": ("lease_duration_s", "standbys wait so long for a renewal before they take over"),
    "renew-deadline": ("renew_deadline_s", "the leader ends if it has not renewed the Lease for so long"),
    "retry-period": ("retry_period_s", "time between two attempts"),
    "resource-lock": ("resource_lock", "kind of the lock, leases"),
    "resource-name": ("resource_name", "name of the Lease"),
    "resource-namespace": ("resource_namespace", "namespace of the Lease"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    group = parser.add_argument_group("leader election; each overrides a field of the configuration")
    add_boolean(group, "leader-elect", "elect a leader before scheduling (default true)")
    for name, (field, text) in _FIELDS.items():
        default, metavar = getattr(LeaderElection(), field), "NS" if name.endswith("namespace") else "NAME"
        if field.endswith("_s"):
            default, metavar = f"{default:g}s", "DURATION"
        group.add_argument(f"--leader-elect-{name}", metavar=metavar, help=f"{text} (default {default})")


def overridden(settings: LeaderElection, args: argparse.Namespace) -> LeaderElection:
    """Return the settings with the given flags. Raises SettingsError for values that cannot work."""
    from scheduler.daemon.settings.loading import checked_election

    changes: dict[str, object] = {}
    if args.leader_elect is not None:
        changes["leader_elect"] = args.leader_elect == "true"
    for name, (field, _) in _FIELDS.items():
        flag = f"--leader-elect-{name}"
        if (text := getattr(args, flag.strip("-").replace("-", "_"))) is not None:
            changes[field] = duration_s(flag, text, such_as="15s") if field.endswith("_s") else text
    found = msgspec.structs.replace(settings, **changes)
    return checked_election(found) if found.leader_elect else found


def values(settings: LeaderElection) -> dict[str, str]:
    """Return the values in effect by flag, without dashes in front."""
    found = {"leader-elect": "true" if settings.leader_elect else "false"}
    for name, (field, _) in _FIELDS.items():
        value = getattr(settings, field)
        found[f"leader-elect-{name}"] = format_duration(value) if field.endswith("_s") else value
    return found
