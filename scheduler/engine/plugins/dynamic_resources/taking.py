"""
Whether a request may take a device of a node; the search and explanations ask here.

Source: structured/internal/incubating/allocator_incubating.go, isSelectable and allocateDevice (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from scheduler.engine.model.device_requests import DeviceQuery, ResourceClaim
from scheduler.engine.model.devices import Device, DeviceClass
from scheduler.engine.model.nodes import Node
from scheduler.engine.model.terms import Taint
from scheduler.engine.plugins.dynamic_resources.answers import NotAllocated
from scheduler.engine.plugins.dynamic_resources.capacity import NO_USE, Wanted, missing_capacity, wanted_of
from scheduler.engine.plugins.dynamic_resources.constraints import AttributeConstraint
from scheduler.engine.plugins.dynamic_resources.counters import available, consumption_of, missing_counters
from scheduler.engine.plugins.dynamic_resources.pools import NodePools, Pool, PoolDevice, device_reaches
from scheduler.engine.plugins.dynamic_resources.selection import SelectorResults
from scheduler.engine.state.allocated_devices import AllocatedDevices
from scheduler.engine.state.node_masks import HARD_EFFECTS


class Verdict(Enum):
    """Whether a query may take a device; if not, the first reason."""

    FREE = auto()
    # Whatever else is allocated.
    NOT_SELECTED = auto()
    OF_OTHER_NODES = auto()
    TAINTED = auto()
    #: It lacks a requested capacity, or does not give out such amounts.
    WITHOUT_CAPACITY = auto()
    # Because other claims have it, or a part of it.
    IN_USE = auto()
    SHORT_OF_COUNTERS = auto()
    SHORT_OF_CAPACITY = auto()


#: Mode All does not take the device; it fails if it cannot take one of the others.
UNSELECTED: Final = frozenset({Verdict.NOT_SELECTED, Verdict.OF_OTHER_NODES})


@dataclass(slots=True, eq=False)
class NodeQuery:
    """
    A request without alternatives, or one alternative of a request, on one node.

    `number`: the claim's in the search. `alternative`: its name; empty if the request has none. `devices`: those that
    mode All takes; None in mode ExactCount. `verdicts`: whether each device suits it, as far as it is known.
    """

    claim: ResourceClaim
    number: int
    request: str
    alternative: str
    query: DeviceQuery
    device_class: DeviceClass
    n_devices: int = 0
    devices: tuple[PoolDevice, ...] | None = None
    constraints: tuple[AttributeConstraint, ...] = ()
    verdicts: dict[PoolDevice, Verdict] = field(default_factory=dict)
    _wanted: dict[Device, Wanted | None] = field(default_factory=dict)

    @property
    def full_name(self) -> str:
        """The request as results and constraints name it."""
        return f"{self.request}/{self.alternative}" if self.alternative else self.request

    def is_named_in(self, requests: frozenset[str]) -> bool:
        """Return whether something for these requests is for the query; no names are all requests."""
        return not requests or self.request in requests or self.full_name in requests

    def wanted_of(self, device: Device) -> Wanted | None:
        """Return how much of the device's capacities it takes; None if the device cannot serve that."""
        if device not in self._wanted:
            self._wanted[device] = wanted_of(self.query, device)
        return self._wanted[device]

    def tolerates(self, taint: Taint) -> bool:
        """Return whether the taint keeps it off no device."""
        return taint.effect not in HARD_EFFECTS or any(
            each.tolerates(taint) for each in self.query.tolerations
        )


@dataclass(slots=True, eq=False)
class Taken:
    """A device that was taken for a query. `wanted`: how much of its capacities; None if it is not shared."""

    query: NodeQuery
    device: PoolDevice
    wanted: Wanted | None
    has_counters: bool


class NodeDevices:
    """The devices of one node, while a search takes some and gives them back."""

    def __init__(
        self, node: Node, pools: NodePools, allocated: AllocatedDevices, results: SelectorResults
    ) -> None:
        self.pools = pools
        self._node, self._allocated, self._results = node, allocated, results
        #: The rest of the counters of each pool, in billionths.
        self._counters_by_pool: dict[Pool, dict[tuple[str, str], int]] = {}
        #: The claims, by number, that took each device as a whole.
        self._marks: dict[PoolDevice, set[int]] = {}
        #: The amounts taken of each shared device; an empty mapping if it has no capacities.
        self._shared: dict[PoolDevice, list[Wanted]] = {}

    def suits(self, query: NodeQuery, device: PoolDevice) -> Verdict | NotAllocated:
        """Return FREE if the device is what the query asks for, whoever has it, else the first reason why not."""
        known = query.verdicts.get(device)
        if known is not None:
            return known
        verdict = self._suits(query, device)
        if not isinstance(verdict, NotAllocated):
            query.verdicts[device] = verdict
        return verdict

    def _suits(self, query: NodeQuery, device: PoolDevice) -> Verdict | NotAllocated:
        device_class, results = query.device_class, self._results
        if device_class.selectors:
            of_class = results.all_match(device_class.selectors, device, "class", device_class.key)
            if of_class is not True:
                return of_class or Verdict.NOT_SELECTED
        if query.query.selectors:
            selected = results.all_match(query.query.selectors, device, "claim", query.claim.key)
            if selected is not True:
                return selected or Verdict.NOT_SELECTED
        if device.slice.per_device_node_selection:
            reached = device_reaches(self._node, device.device)
            if reached is not True:
                return reached or Verdict.OF_OTHER_NODES
        if device.device.taints and not all(map(query.tolerates, device.device.taints)):
            return Verdict.TAINTED
        if device.device.capacity:
            return Verdict.WITHOUT_CAPACITY if query.wanted_of(device.device) is None else Verdict.FREE
        return Verdict.WITHOUT_CAPACITY if query.query.capacity else Verdict.FREE

    def left(self, query: NodeQuery, device: PoolDevice) -> Verdict:
        """Return FREE if enough is left of a device that suits the query, else what is missing."""
        if self.is_in_use(query, device):
            return Verdict.IN_USE
        is_charged = device.device.consumes_counters and self._is_charged(device)
        if is_charged and missing_counters(device.device, self._counters_left(device)):
            return Verdict.SHORT_OF_COUNTERS
        return Verdict.FREE if self.has_capacity(query, device) else Verdict.SHORT_OF_CAPACITY

    def is_in_use(self, query: NodeQuery, device: PoolDevice) -> bool:
        """Return whether a claim has the device for itself; with admin access, whether its own claim took it."""
        marks = self._marks.get(device)
        if query.query.admin_access:
            return marks is not None and query.number in marks
        return bool(marks) or device.id in self._allocated.dedicated

    def has_capacity(self, query: NodeQuery, device: PoolDevice) -> bool:
        """Return whether the device has the capacities that the query takes, and they are left."""
        if not device.device.capacity:
            return not query.query.capacity
        wanted = query.wanted_of(device.device)
        if wanted is None:
            return False
        stored = self._allocated.consumed.get(device.id, NO_USE)
        return not missing_capacity(wanted, device.device, stored, self._taken_of(device))

    def take(self, query: NodeQuery, device: PoolDevice) -> Taken:
        """Take a device that suits the query and has enough left."""
        has_counters = bool(device.device.consumes_counters) and self._is_charged(device)
        wanted = query.wanted_of(device.device) if device.device.allow_multiple_allocations else None
        for constraint in query.constraints:
            constraint.add(query.request, device)
        if wanted is not None:
            self._shared.setdefault(device, []).append(wanted)
        else:
            self._marks.setdefault(device, set()).add(query.number)
        if has_counters:
            self._change_counters(device, -1)
        return Taken(query, device, wanted, has_counters)

    def give_back(self, taken: Taken) -> None:
        """Undo the last `take` that was not undone."""
        query, device = taken.query, taken.device
        for constraint in query.constraints:
            constraint.remove(query.request)
        if taken.wanted is not None:
            shares = self._shared[device]
            shares.pop()
            if not shares:
                del self._shared[device]
        else:
            self._marks[device].discard(query.number)
        if taken.has_counters:
            self._change_counters(device, 1)

    def _is_charged(self, device: PoolDevice) -> bool:
        """Return whether the device consumes counters when it is taken: a shared one only with its first share."""
        if not device.device.allow_multiple_allocations:
            return True
        # As upstream, a shared device without capacities is charged again for each claim (kubernetes #140433).
        return device.id not in self._allocated.consumed and device not in self._shared

    def _counters_left(self, device: PoolDevice) -> dict[tuple[str, str], int]:
        """Return what is left of the counters of the device's pool."""
        pool = self.pools.pool_of(device)
        left = self._counters_by_pool.get(pool)
        if left is None:
            left = self._counters_by_pool[pool] = available(pool, self._allocated)
        return left

    def _change_counters(self, device: PoolDevice, sign: int) -> None:
        """Consume the counters of the device (-1), or return them (1)."""
        left = self._counters_left(device)
        for counter, amount in consumption_of(device.device).items():
            left[counter] += sign * amount

    def _taken_of(self, device: PoolDevice) -> Mapping[str, int]:
        total: dict[str, int] = {}
        for share in self._shared.get(device, ()):
            for name, amount in share.items():
                total[name] = total.get(name, 0) + amount.nano
        return total
