"""
What is written for a pod's claims before it is bound, what it waits for, and how that is undone.

Source: plugins/dynamicresources/dynamicresources.go, Reserve, PreBind, Unreserve (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

from scheduler.engine.framework.reserving import TIME_IS_OVER, Reservation
from scheduler.engine.model.allocations import Allocation
from scheduler.engine.model.claim_writes import (
    ClaimDeallocation,
    ClaimDeletion,
    ClaimRelease,
    ClaimReservation,
    is_reserved_for,
)
from scheduler.engine.model.device_requests import ResourceClaim, special_key
from scheduler.engine.model.devices import DeviceKind
from scheduler.engine.model.instructions import DevicesAwaited
from scheduler.engine.model.nodes import Node
from scheduler.engine.model.object_writes import ObjectWrite, StoredObject
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.resource_versions import is_older
from scheduler.engine.model.wording import named_to
from scheduler.engine.plugins.dynamic_resources.binding import (
    BINDING_FAILED,
    has_conditions,
    has_timed_out,
    readiness,
)
from scheduler.engine.plugins.dynamic_resources.claims import DeviceClaims
from scheduler.engine.plugins.dynamic_resources.extended_resources import Variant
from scheduler.engine.state.cluster_view import ClusterView

NAME: Final = "DynamicResources"

_Status: TypeAlias = Literal["success", "failure", "timeout", "error"]

#: How long the watch may take to show what was written.
_SHOWN_WITHIN_S: Final = 120.0
_TIMED_OUT: Final = "device binding timeout"
#: Parts of the message of a failed wait, and the status in its report.
_STATUS_BY_TEXT: Final[tuple[tuple[str, _Status], ...]] = (
    (_TIMED_OUT, "timeout"),
    (BINDING_FAILED, "failure"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservedClaims(Reservation):
    """The claims of a pod that exist, as the decision saw them. `binding_timeout_s`: for its devices."""

    plugin = NAME
    activity = _TIMED_OUT

    claims: tuple[ResourceClaim, ...]
    pod: Pod
    binding_timeout_s: float

    def is_done(self, versions: Sequence[str], node: Node, view: ClusterView) -> bool | str:
        """Return whether all writes are shown, and all devices are ready; or why they never will be."""
        # Once a write is shown, so is everything that another scheduler wrote before: if two claims have one device,
        # the one that was allocated later is given up.
        del node
        shown = self._shown(versions, view)
        if not isinstance(shown, list):
            return shown
        for claim in shown:
            if (other := view.devices.earlier_claim(claim)) is not None:
                holder = named_to(claim.namespace, "claim", other)
                return f"claim {claim.key} has a device that was allocated to {holder} before"
        for claim in shown:
            ready = readiness(claim)
            if ready is True:
                continue
            if not ready and has_timed_out(claim, self.binding_timeout_s, view.devices.epoch_s):
                return f"{_TIMED_OUT}: claim={claim.name}"
            return ready
        return True

    def failure(self, problem: str) -> str:
        """Return the problem; upstream names the timeout of a poll."""
        return f"{self.activity}: {problem}" if problem == TIME_IS_OVER else problem

    def waiting_note(self, node_name: str, view: ClusterView) -> str:
        """Return that the pod waits for conditions, if a device has some."""
        claims = (view.devices.claim(key) for key in self._keys())
        if any(claim is not None and has_conditions(claim) for claim in claims):
            return f"waiting for binding conditions for device on node {node_name}"
        return ""

    def wait_report(self, problem: str, waited_s: float, view: ClusterView) -> DevicesAwaited | None:
        """Return the report of a wait for binding conditions."""
        claims = (view.devices.claim(key) for key in self._keys())
        results = [
            (result.driver, bool(result.binding_conditions))
            for claim in claims
            if claim is not None and claim.allocation is not None
            for result in claim.allocation.devices.results
        ]
        if not any(has_conditions for _, has_conditions in results):
            return None
        outcomes = (status for text, status in _STATUS_BY_TEXT if text in problem)
        status: _Status = next(outcomes, "error") if problem else "success"
        return DevicesAwaited(self.pod, status, waited_s, tuple(results))

    def undo(self, objects: Sequence[StoredObject], *, is_preempted: bool) -> Sequence[ObjectWrite[Any]]:
        """Return the writes that take the pod out of its claims, and delete the claim that was created for it."""
        # The preemptor may count on the devices, which no controller takes from a claim that a scheduler released.
        newest = {obj.key: obj for obj in objects if isinstance(obj, ResourceClaim)}
        undone: list[ObjectWrite[Any]] = []
        for decided in self.claims:
            claim = newest.pop(decided.key, decided)
            if claim.allocation is not None and is_reserved_for(claim, self.pod):
                if is_preempted and len(claim.reserved_for) == 1:
                    undone.append(ClaimDeallocation(claim))
                undone.append(ClaimRelease(claim, self.pod))
        undone += [ClaimDeletion(created) for created in newest.values()]
        return undone

    def _keys(self) -> list[str]:
        keys = [claim.key for claim in self.claims]
        return keys + [write.obj.key for write in self.writes if not write.obj.resource_version]

    def _shown(self, versions: Sequence[str], view: ClusterView) -> list[ResourceClaim] | bool | str:
        """Return the claims as they count; False while one is not shown, a text if one is gone."""
        claims: list[ResourceClaim] = []
        for decided in self.claims:
            claim = view.devices.claim(decided.key)
            if claim is None:
                return f'could not find ResourceClaim "{decided.key}"'
            claims.append(claim)
        for write, version in zip(self.writes, versions, strict=True):
            if write.obj.resource_version:
                if not view.devices.is_shown(write.obj.key, version):
                    return False
                counted = view.devices.claim(write.obj.key)
                if counted is not None and not is_reserved_for(counted, self.pod):
                    return f"claim {counted.key} is not reserved for pod {self.pod.key} any more"
                continue
            created = view.devices.extended_claim(self.pod.uid)
            if created is None or is_older(created.resource_version, version):
                return False
            claims.append(created)
        return claims


def reserved_claims(
    pod: Pod,
    claims: DeviceClaims,
    allocated: Mapping[str, Allocation],
    variant: Variant | None,
    binding_timeout_s: float,
) -> ReservedClaims | None:
    """Return what is written for the pod; None if nothing is, and nothing is waited for."""
    # A claim that is reserved for the pod already is among the writes: what undoes an earlier attempt may take the pod
    # out of the claim, and no watch has shown it yet. `allocated`: by key what the decision allocates. `variant`: the
    # claim for extended resources, as on the chosen node.
    writes = [
        ClaimReservation(claims.pending[claim.key], pod, claim.allocation)
        if claim.key in claims.pending
        else ClaimReservation(claim, pod, allocated.get(claim.key))
        for claim in claims.of_user
    ]
    if variant is not None:
        created = replace(variant.claim, key=special_key(pod.namespace, pod.uid))
        writes.append(ClaimReservation(created, pod, allocated.get(variant.claim.key), variant.mappings))
    waits = any(map(has_conditions, claims.of_user)) or any(
        result.binding_conditions for each in allocated.values() for result in each.devices.results
    )
    if not writes:
        return None
    return ReservedClaims(
        tuple(writes),
        binding_timeout_s if waits else _SHOWN_WITHIN_S,
        tuple((DeviceKind.CLAIM, claim.key) for claim in claims.of_user),
        claims=claims.of_user,
        pod=pod,
        binding_timeout_s=binding_timeout_s,
    )
