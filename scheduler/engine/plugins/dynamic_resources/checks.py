"""
What is checked and counted before the search: each request's class, mode and number of devices.

Source: structured/internal/incubating/allocator_incubating.go, Allocate and validateDeviceRequest (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from scheduler.engine.model.device_requests import ALL, EXACT_COUNT, DeviceQuery, DeviceRequest, ResourceClaim
from scheduler.engine.model.devices import MAX_RESULTS, NO_EXECUTE, NO_SCHEDULE, Device, DeviceClass
from scheduler.engine.model.terms import Taint
from scheduler.engine.plugins.dynamic_resources.capacity import Wanted, is_left, wanted_of
from scheduler.engine.plugins.dynamic_resources.constraints import ClaimConstraints, constraints_of
from scheduler.engine.plugins.dynamic_resources.inputs import Candidate, Inputs, SearchError, TargetNode
from scheduler.engine.plugins.dynamic_resources.pools import NodePools, PoolState, device_reaches
from scheduler.engine.plugins.dynamic_resources.selection import SelectorResults, all_match

_BLOCKING_EFFECTS: Final = frozenset({NO_SCHEDULE, NO_EXECUTE})
_NO_USE: Final[Mapping[str, int]] = {}


@dataclass(slots=True, eq=False)
class Query:
    """
    A request without alternatives, or one alternative of a request, on one node.

    Attributes:
        request: the name of the request.
        alternative: its own name; empty if the request has no alternatives.
        devices: those that mode All takes; None in mode ExactCount.
        selected: by device whether it is selected, as far as it is known.
    """

    request: str
    alternative: str
    query: DeviceQuery
    device_class: DeviceClass
    n_devices: int = 0
    devices: tuple[Candidate, ...] | None = None
    selected: dict[Candidate, bool] = field(default_factory=dict)
    wanted: dict[Device, Wanted | None] = field(default_factory=dict)

    @property
    def full_name(self) -> str:
        """The request as results and constraints name it."""
        return f"{self.request}/{self.alternative}" if self.alternative else self.request

    @property
    def takes_all(self) -> bool:
        """Whether it takes all devices that it selects."""
        return self.devices is not None

    def wanted_of(self, device: Device) -> Wanted | None:
        """Return how much of the device's capacities it takes; None if the device cannot serve that."""
        if device not in self.wanted:
            self.wanted[device] = wanted_of(self.query, device)
        return self.wanted[device]

    def tolerates(self, taints: tuple[Taint, ...]) -> bool:
        """Return whether it tolerates all taints that keep requests off a device."""
        return all(
            taint.effect not in _BLOCKING_EFFECTS
            or any(each.tolerates(taint) for each in self.query.tolerations)
            for taint in taints
        )


@dataclass(frozen=True, slots=True, eq=False)
class CheckedRequest:
    """A request: one query, or several alternatives."""

    queries: tuple[Query, ...]
    has_alternatives: bool


@dataclass(frozen=True, slots=True, eq=False)
class CheckedClaim:
    """A claim for whose requests devices are searched on one node."""

    claim: ResourceClaim
    requests: tuple[CheckedRequest, ...]
    constraints: ClaimConstraints


class Checks:
    """The checks of claims for one node."""

    def __init__(self, node: TargetNode, pools: NodePools, inputs: Inputs, results: SelectorResults) -> None:
        self._node = node
        self._pools = pools
        self._inputs = inputs
        self._results = results

    def claim(self, claim: ResourceClaim) -> CheckedClaim | SearchError:
        """Return the claim with its queries, or the first problem."""
        requests: list[CheckedRequest] = []
        n_devices = 0
        for request in claim.requests:
            checked = self._request(claim, request)
            if isinstance(checked, SearchError):
                return checked
            n_devices += min(query.n_devices for query in checked.queries)
            requests.append(checked)
        if n_devices > MAX_RESULTS:
            return SearchError(
                f"claim {claim.key}: number of requested devices {n_devices} "
                f"exceeds the claim limit of {MAX_RESULTS}"
            )
        constraints = constraints_of(claim)
        if isinstance(constraints, SearchError):
            return constraints
        return CheckedClaim(claim, tuple(requests), constraints)

    def selects(self, claim: ResourceClaim, query: Query, candidate: Candidate) -> bool | SearchError:
        """Return whether a query selects a device, which in a slice with selection per device has to be the node's."""
        selected = query.selected.get(candidate)
        if selected is not None:
            return selected
        result = self._selects(claim, query, candidate)
        if not isinstance(result, SearchError):
            query.selected[candidate] = result
        return result

    def has_capacity(self, query: Query, candidate: Candidate) -> bool:
        """Return whether the device has the capacities that a query takes, before anything is taken."""
        wanted = query.wanted_of(candidate.device)
        return wanted is not None and is_left(
            wanted, candidate.device, self._inputs.allocated.consumed.get(candidate.id, _NO_USE)
        )

    def _selects(self, claim: ResourceClaim, query: Query, candidate: Candidate) -> bool | SearchError:
        device_class = query.device_class
        of_class = all_match(
            device_class.selectors, candidate, self._results, owner=f"class {device_class.key}"
        )
        if of_class is not True:
            return of_class
        of_request = all_match(query.query.selectors, candidate, self._results, owner=f"claim {claim.key}")
        if of_request is not True:
            return of_request
        if candidate.slice.per_device_node_selection:
            return device_reaches(self._node, candidate.device)
        return True

    def _request(self, claim: ResourceClaim, request: DeviceRequest) -> CheckedRequest | SearchError:
        has_alternatives = bool(request.first_available)
        alternatives = request.first_available or (request.exactly,)
        queries: list[Query] = []
        for alternative in alternatives:
            # PreFilter refuses a request of neither kind, and one without a class.
            query = self._query(claim, request.name, alternative, has_alternatives=has_alternatives)
            if isinstance(query, SearchError):
                return query
            queries.append(query)
        return CheckedRequest(tuple(queries), has_alternatives)

    def _query(
        self, claim: ResourceClaim, request: str, query: DeviceQuery | None, *, has_alternatives: bool
    ) -> Query | SearchError:
        if query is None:
            return SearchError(f"claim {claim.key}, request {request}: unknown request type")
        where = f"claim {claim.key}, request {query.name}"
        for index, expression in enumerate(query.selectors):
            if expression is None:
                return SearchError(
                    f"{where}, selector #{index}: CEL expression empty (unsupported selector type?)"
                )
        if not query.class_name:
            return SearchError(f"{where}: missing device class name (unsupported request type?)")
        device_class = self._inputs.classes.get(query.class_name)
        if device_class is None:
            return SearchError(
                f"{where}: could not retrieve device class {query.class_name}: "
                f'deviceclass.resource.k8s.io "{query.class_name}" not found'
            )
        checked = Query(request, query.name if has_alternatives else "", query, device_class)
        if query.mode == EXACT_COUNT:
            checked.n_devices = query.count
            return checked
        if query.mode != ALL:
            return SearchError(f"{where}: unsupported count mode {query.mode}")
        devices = self._all_devices(claim, checked, where)
        if isinstance(devices, SearchError):
            return devices
        checked.devices = devices
        checked.n_devices = len(devices)
        return checked

    def _all_devices(
        self, claim: ResourceClaim, query: Query, where: str
    ) -> tuple[Candidate, ...] | SearchError:
        """Return the devices that All takes, whether they are in use or not."""
        devices: list[Candidate] = []
        for pool in self._pools.pools:
            # As upstream, a pool of any driver ends the pod's cycle here (kubernetes #141898).
            if pool.state is PoolState.INCOMPLETE:
                return SearchError(
                    f"{where}: asks for all devices, but resource pool {pool.id} is currently being updated"
                )
            if pool.state is PoolState.INVALID:
                return SearchError(
                    f"{where}: asks for all devices, but resource pool {pool.id} is currently invalid"
                )
            for candidate in pool.candidates:
                selected = self.selects(claim, query, candidate)
                if isinstance(selected, SearchError):
                    return selected
                if selected and self.has_capacity(query, candidate):
                    devices.append(candidate)
        return tuple(devices)
