"""Proposals for a pod with claims: pods that would free devices, a tolerated taint, a claim without a constraint."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

import numpy as np

from scheduler.engine.framework.explaining import holdings, pods_to_remove, removal
from scheduler.engine.model.changes import Changes, DropDeviceConstraint, TolerateDeviceTaint
from scheduler.engine.model.device_requests import DeviceConstraint, ResourceClaim
from scheduler.engine.model.devices import DeviceId
from scheduler.engine.model.pods import Pod
from scheduler.engine.plugins.dynamic_resources.device_findings import (
    Obstacle,
    QueryFinding,
    RefusedNodes,
    claims_of,
    value_text,
)
from scheduler.engine.plugins.dynamic_resources.pools import PoolDevice
from scheduler.engine.state.allocated_devices import AllocatedDevices
from scheduler.engine.state.arrays import Fractions, Rows

#: The most sets of pods that are proposed for one node, and the most values of an attribute to search sets for.
_MAX_REMOVALS: Final = 3
_MAX_VALUES: Final = 16

_Selects = Callable[[QueryFinding, PoolDevice], bool]


class DeviceRepairs:
    """What would lift the refusals of a row; of a request with alternatives, what the first of them lacks."""

    def __init__(self, nodes: RefusedNodes) -> None:
        self._nodes = nodes
        self._context = nodes.context
        #: By claim, request and device, the pods whose end frees the device for the request; empty if there are none.
        self._pods_by_device: dict[tuple[str, str, DeviceId], tuple[Pod, ...]] = {}

    def effort(self, rows: Rows) -> Fractions:
        """Return for each row how many devices are missing, infinite if no change can give them."""
        return np.array([self._effort(row) for row in rows.tolist()], dtype=np.float64)

    def alternatives(self, row: int) -> list[Changes]:
        """Return tolerations, a claim without a constraint, and sets of pods that hold devices, the smallest first."""
        queries = self._queries(row)
        removals = [self._removal(queries, selects) for selects in _selections(queries)]
        if not any(removals) and not any(query.n_missing for query in queries):
            removals = list(map(self._taking, self._in_the_way(row, queries)))
        return [*_claim_changes(queries), *sorted(filter(None, removals), key=len)[:_MAX_REMOVALS]]

    def _queries(self, row: int) -> list[QueryFinding]:
        requests = self._nodes.findings(row).requests
        return [query for _, of_claim in requests for request in of_claim for query in request[:1]]

    def _effort(self, row: int) -> float:
        queries = self._queries(row)
        if not queries or self._nodes.filter.missing(row):
            return np.inf
        n_changes = 0
        for query in queries:
            n_within_reach = sum(bool(each.uses) or each.taint is not None for _, each in query.refused)
            if query.n_missing > n_within_reach:
                return np.inf
            n_changes += query.n_missing
        return max(1, n_changes)

    def _removal(self, queries: Sequence[QueryFinding], selects: _Selects) -> Changes:
        """Return pods whose end frees as many of the selected devices as are missing; nothing if there are none."""
        short: dict[str, int] = {}
        freed: list[tuple[tuple[Pod, ...], Mapping[str, int]]] = []
        for number, finding in enumerate(queries):
            request = str(number)
            n_free = sum(selects(finding, device) for device in finding.free)
            if n_free < finding.query.n_devices:
                short[request] = finding.query.n_devices - n_free
            for device, obstacle in finding.refused:
                if obstacle.uses and selects(finding, device):
                    freed.append((self._pods(finding, device.id, obstacle), {request: 1}))
        return self._taking(pods_to_remove(self._context, holdings(freed), short))

    def _taking(self, pods: Iterable[Pod]) -> Changes:
        located = filter(None, (self._context.placed(pod.uid) for pod in pods))
        return tuple(removal(pod, node_name) for pod, node_name in located)

    def _in_the_way(self, row: int, queries: Sequence[QueryFinding]) -> Iterator[tuple[Pod, ...]]:
        """Yield the pods that may be in the way if each request alone has enough devices: the users of each device."""
        pods = [
            self._pods(finding, device.id, obstacle)
            for finding in queries
            for device, obstacle in finding.refused
            if obstacle.uses
        ]
        devices = self._context.view.devices
        pods += [tuple(self._users(claims_of(use.device, devices))) for use in self._nodes.findings(row).uses]
        by_uids = {tuple(pod.uid for pod in each): each for each in pods}
        yield from (each for each in by_uids.values() if not any(map(self._context.must_stay, each)))

    def _pods(self, finding: QueryFinding, device: DeviceId, obstacle: Obstacle) -> tuple[Pod, ...]:
        """Return the pods whose end frees the device for the request; empty if there are none."""
        key = finding.query.claim.key, finding.query.full_name, device
        if key not in self._pods_by_device:
            held = holdings(self._uses(obstacle))
            self._pods_by_device[key] = pods_to_remove(self._context, held, obstacle.short)
        return self._pods_by_device[key]

    def _uses(self, obstacle: Obstacle) -> Iterator[tuple[Iterable[Pod], Mapping[str, int]]]:
        """Yield the pods that have to leave together, and what is free without them."""
        for device, freed in obstacle.uses:
            claims = list(claims_of(device, self._context.view.devices))
            if freed is None:
                yield from ((self._users([claim]), _consumed(claim, device)) for claim in claims)
            else:
                yield self._users(claims), freed

    def _users(self, claims: Iterable[ResourceClaim]) -> list[Pod]:
        """Return the placed pods that the claims are reserved for; none if a claim has none, or also other holders."""
        users: list[Pod] = []
        for claim in claims:
            placed = [self._context.placed(each.uid) for each in claim.reserved_for]
            known = [pod for pod, _ in filter(None, placed)]
            if not known or len(known) < len(placed):
                return []
            users += known
        return users


def _consumed(claim: ResourceClaim, device: DeviceId) -> Mapping[str, int]:
    """Return what the claim consumes of the device."""
    allocated = AllocatedDevices()
    if claim.allocation is not None:
        allocated.count(claim.allocation, claim.key, 1)
    return allocated.consumed.get(device, {})


def _claim_changes(queries: Sequence[QueryFinding]) -> Iterator[Changes]:
    """Yield changes of claims; a claim that is to be created for extended resources cannot be changed."""
    of_user = [finding for finding in queries if not finding.query.claim.is_special]
    taints = tuple(
        TolerateDeviceTaint(
            finding.query.claim.namespace,
            finding.query.claim.name,
            finding.query.full_name,
            taint.key,
            taint.value,
            taint.effect,
        )
        for finding in of_user
        if finding.n_missing
        for taint in dict.fromkeys(obstacle.taint for _, obstacle in finding.refused)
        if taint is not None
    )
    if taints:
        yield taints
    constrained = {
        (finding.query.claim.namespace, finding.query.claim.name, attribute)
        for finding in of_user
        for constraint in finding.query.claim.constraints
        if (attribute := constraint.match_attribute or constraint.distinct_attribute) is not None
    }
    yield from ((DropDeviceConstraint(*constraint),) for constraint in sorted(constrained))


def _selections(queries: Sequence[QueryFinding]) -> Iterator[_Selects]:
    """Yield which devices may be taken together: with a matchAttribute the devices of each value, else all."""
    for finding in queries:
        for constraint in finding.query.claim.constraints:
            attribute = constraint.match_attribute
            if attribute is not None and finding.query.is_named_in(constraint.requests):
                devices = [*finding.free, *(device for device, _ in finding.refused)]
                values = dict.fromkeys(value_text(each, attribute) for each in devices)
                for value in islice(values, _MAX_VALUES):
                    if value is not None:
                        yield _with_value(finding.query.claim.key, constraint, attribute, value)
                return
    yield lambda _, __: True


def _with_value(claim: str, constraint: DeviceConstraint, attribute: str, value: str) -> _Selects:
    return lambda finding, device: (
        finding.query.claim.key != claim
        or not finding.query.is_named_in(constraint.requests)
        or value_text(device, attribute) == value
    )
