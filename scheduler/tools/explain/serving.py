"""
Whether a scheduler serves a pod, by the pod's schedulerName and the Lease of the scheduler that has this name.

A Lease is looked for in every namespace, since an installation may have its own. Its times are compared with the clock
of who reads it: a holder that has not renewed it for its duration, and for `_SKEW_S` more, is gone. Of a scheduler that
is neither ours nor kube-scheduler only what it did can be seen: pods on nodes, and conditions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from scheduler.daemon.kube.requests import LeaseSpec, WatchPath, seconds_of
from scheduler.daemon.settings.resolved import Settings
from scheduler.engine.model import nesting
from scheduler.engine.model.pods import DEFAULT_SCHEDULER_NAME, Pod
from scheduler.engine.syntax.words import did_you_mean

#: Of kube-scheduler.
_KUBE_SCHEDULER: Final = "kube-scheduler"
#: Allows for clocks that differ.
_SKEW_S: Final = 5.0


class _Metadata(msgspec.Struct, frozen=True):
    namespace: str = ""
    name: str = ""


class SeenLease(msgspec.Struct, frozen=True):
    """What is read of a Lease."""

    metadata: _Metadata
    spec: LeaseSpec = LeaseSpec()

    def why_free(self, at_s: float) -> str:
        """Return why nobody holds it at this time; empty if somebody does, or if it does not say."""
        key = f"Lease {self.metadata.namespace}/{self.metadata.name}"
        if not self.spec.holder_identity:
            return f"{key} has been released"
        renewed_s = seconds_of(self.spec.renew_time or "")
        silent_s = 0.0 if renewed_s is None else at_s - renewed_s
        if silent_s <= (self.spec.lease_duration_seconds or 0) + _SKEW_S:
            return ""
        return f"{self.spec.holder_identity} last renewed {key} {age_text(silent_s)} ago"


_LEASE: Final = msgspec.json.Decoder(SeenLease)


def decode_lease(data: bytes | msgspec.Raw) -> SeenLease:
    """Return what is read of the JSON of a Lease, which any tenant may write. Raises msgspec.DecodeError."""
    return nesting.read(_LEASE.decode, data)


class Leases(msgspec.Struct, rename="camel"):
    """
    What was read of the Leases of schedulers; a snapshot has it as it is.

    Attributes:
        unknown: why nothing is known of those of a name; with the name '' of any.
        read_at: when they were read, as RFC 3339; '' if that is not known.
    """

    found: list[SeenLease] = []
    unknown: dict[str, str] = {}
    read_at: str = ""

    def why_unknown(self, name: str) -> str:
        """Return why nothing is known of the Leases of this name; empty if all are."""
        return self.unknown.get("") or self.unknown.get(name, "")


def lease_names(settings: Settings) -> tuple[str, ...]:
    """Return the names of the Leases to read."""
    return tuple(dict.fromkeys((settings.configuration.leader_election.resource_name, _KUBE_SCHEDULER)))


def leases_named(name: str) -> WatchPath:
    """Return the Leases of this name, in every namespace; a role may grant to list them by `resourceNames`."""
    return WatchPath("/apis/coordination.k8s.io/v1/leases", f"metadata.name={name}")


def service_of(
    pod: Pod, settings: Settings, leases: Leases, others: Iterable[Pod]
) -> tuple[str, tuple[str, ...]]:
    """
    Return why no scheduler serves the pod, empty if one does or if it is not known; and notes.

    `others`: all pods, by whose nodes and conditions schedulers without a known Lease are seen.
    """
    name = pod.scheduler_name
    profiles = [profile.scheduler_name for profile in settings.profiles]
    if name in profiles:
        if not settings.configuration.leader_election.leader_elect:
            return "", (f"{name} elects no leader: whether it runs cannot be seen",)
        return _by_lease(name, settings.configuration.leader_election.resource_name, leases)
    active = {each.scheduler_name for each in (*others, pod) if _was_decided(each)}
    if name == DEFAULT_SCHEDULER_NAME:
        has_lease = any(each.metadata.name == _KUBE_SCHEDULER for each in leases.found)
        if has_lease or leases.why_unknown(_KUBE_SCHEDULER) or name in active:
            return _by_lease(name, _KUBE_SCHEDULER, leases)
        return f"nothing is seen to serve {name}; did you mean schedulerName: {profiles[0]}?", ()
    if name in active:
        return "", (f"whether {name} runs now cannot be seen",)
    known = {*profiles, DEFAULT_SCHEDULER_NAME, *active}
    meant = did_you_mean(name, known) or "; if it is a profile of this one, name its --config"
    return f"no known scheduler has the name {name}{meant}", ()


def _was_decided(pod: Pod) -> bool:
    """Return whether a scheduler placed or refused the pod; the API server itself refuses one with gates."""
    condition = pod.scheduled_condition
    return bool(pod.node_name) or (condition is not None and condition.status == "False" and not pod.gates)


def _by_lease(name: str, lease: str, leases: Leases) -> tuple[str, tuple[str, ...]]:
    named = [each for each in leases.found if each.metadata.name == lease]
    reason = leases.why_unknown(lease)
    if not reason and not named and lease == _KUBE_SCHEDULER:
        # With leader election switched off, as in some distributions of one node, it has none.
        reason = f"there is no Lease {lease}"
    if reason:
        return "", (f"whether {name} runs is not known: {reason}",)
    if not named:
        return (
            f"{name} is not seen to run: there is no Lease {lease} (one without leader election has none)",
            (),
        )
    at_s = seconds_of(leases.read_at) or 0.0
    free = [each.why_free(at_s) for each in named]
    return f"{name} does not run: {' and '.join(free)}" if all(free) else "", ()


def age_text(seconds: float) -> str:
    """Return an age in its largest unit, as kubectl shows it in a narrow column."""
    for unit, name in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= 2 * unit:
            return f"{int(seconds // unit)}{name}"
    return f"{max(0, int(seconds))}s"
