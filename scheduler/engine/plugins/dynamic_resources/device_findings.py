"""Which devices of a node a request could take, and why it cannot take the others; for explanations."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final, NamedTuple

from scheduler.engine.cel import CompileError, EvaluationError
from scheduler.engine.framework.explaining import ExplainContext
from scheduler.engine.framework.status import Status
from scheduler.engine.model.device_requests import ResourceClaim
from scheduler.engine.model.devices import DeviceId, DeviceKind
from scheduler.engine.model.nodes import Node
from scheduler.engine.model.terms import Taint
from scheduler.engine.model.wording import taint_text
from scheduler.engine.plugins.dynamic_resources.answers import UNFINISHED, NotAllocated
from scheduler.engine.plugins.dynamic_resources.capacity import NO_USE, missing_capacity
from scheduler.engine.plugins.dynamic_resources.checks import with_queries
from scheduler.engine.plugins.dynamic_resources.constraints import attribute_of
from scheduler.engine.plugins.dynamic_resources.counters import available, consuming, missing_counters
from scheduler.engine.plugins.dynamic_resources.filtering import DeviceFilter
from scheduler.engine.plugins.dynamic_resources.pool_index import PoolIndex
from scheduler.engine.plugins.dynamic_resources.pools import NodePools, Pool, PoolDevice
from scheduler.engine.plugins.dynamic_resources.selection import SelectorResults
from scheduler.engine.plugins.dynamic_resources.taking import NodeDevices, NodeQuery, Verdict
from scheduler.engine.state.devices import Devices
from scheduler.engine.syntax.quantity_format import binary

#: How many budgets of one decision may be spent on evaluations: 1.3 s in all.
_MAX_BUDGETS: Final = 10
#: Devices that are looked at, over all nodes and requests, 3 µs and 100 bytes each.
_MAX_DEVICES: Final = 400_000
#: Matches what an expression reads of a device, in the form of nearly every selector.
_READ: Final = re.compile(r"""\b(attributes|capacity)\[(['"])([^'"]+)\2\]\.\??(\w+)""")
_BILLION: Final = 10**9
#: Capacities of a device that are named where it lacks the requested one.
_SHOWN_NAMES: Final = 4
#: The shortage of a device that another claim has: the whole device.
_WHOLE: Final[Mapping[str, int]] = {"": 1}


class DeviceHolding(NamedTuple):
    """A device that claims have, and what comes free without them; None if each claim frees what it consumes."""

    device: DeviceId
    freed: Mapping[str, int] | None


@dataclass(frozen=True, slots=True)
class Obstacle:
    """
    Why a device is not taken, in words that follow a number of devices, and the value that was found.

    `short`: how much is missing of what. `uses`: the devices whose claims may have it: this one, or others of its pool
    that consume the same counters. `is_error`: whether a selector has no answer, which ends the search on the node.
    """

    why: str
    value: str = ""
    short: Mapping[str, int] = field(default_factory=dict, compare=False)
    uses: Sequence[DeviceHolding] = field(default=(), compare=False)
    taint: Taint | None = None
    is_error: bool = False

    @property
    def used(self) -> Iterator[DeviceId]:
        """The devices whose claims have what is missing."""
        return (
            device for device, freed in self.uses if freed is None or not self.short.keys().isdisjoint(freed)
        )


@dataclass(frozen=True, slots=True)
class QueryFinding:
    """What one query finds on a node. `free`: the devices that it could take if nothing else were requested."""

    query: NodeQuery
    free: Sequence[PoolDevice]
    refused: Sequence[tuple[PoolDevice, Obstacle]]

    @property
    def n_missing(self) -> int:
        """How many more devices it needs; in mode All, how many are not free."""
        devices = self.query.devices
        if devices is None:
            return max(0, self.query.n_devices - len(self.free))
        free = set(self.free)
        return sum(device not in free for device in devices) or int(not devices)


@dataclass(frozen=True, slots=True)
class NodeFindings:
    """
    What the claims find on one node. `requests`: by claim, the queries of each request. `error`: why nothing is found.

    `uses`: devices that have counters of the node's pools, or capacity of devices that are free for a request.
    """

    requests: Sequence[tuple[ResourceClaim, Sequence[Sequence[QueryFinding]]]] = ()
    uses: Sequence[DeviceHolding] = ()
    pool_problems: Sequence[tuple[str, str]] = ()
    error: str = ""

    @property
    def queries(self) -> Iterator[QueryFinding]:
        """The queries of all requests."""
        return (query for _, requests in self.requests for request in requests for query in request)

    @property
    def used(self) -> Iterator[DeviceId]:
        """The devices whose claims may be in the way."""
        for query in self.queries:
            for _, obstacle in query.refused:
                yield from obstacle.used
        yield from (use.device for use in self.uses)


@dataclass(slots=True)
class DeviceInspection:
    """Looks at the devices of nodes, within what is left of two budgets, once for all nodes with the same slices."""

    index: PoolIndex
    devices: Devices
    results: SelectorResults
    n_budgets: int = _MAX_BUDGETS
    n_devices: int = _MAX_DEVICES
    _counters_by_pool: dict[Pool, tuple[Mapping[tuple[str, str], int], Sequence[DeviceHolding]]] = field(
        default_factory=dict
    )
    _known: dict[tuple[NodePools, str, tuple[str, ...]], NodeFindings] = field(default_factory=dict)

    def look(self, node: Node, claims: Sequence[ResourceClaim]) -> NodeFindings:
        """Return what the claims find on the node. O(its devices * requests)."""
        pools = self.index.pools(node)
        if isinstance(pools, NotAllocated):
            return NodeFindings(error=pools.text)
        # The claim for extended resources has other requests on nodes that serve some of them.
        names = tuple(f"{claim.key}/{request.name}" for claim in claims for request in claim.requests)
        question = pools, node.name if pools.selects_per_device else "", names
        findings = self._known.get(question)
        if findings is None:
            findings = self._known[question] = self._look(node, pools, claims)
        return findings

    def _look(self, node: Node, pools: NodePools, claims: Sequence[ResourceClaim]) -> NodeFindings:
        self.n_devices -= len(pools.devices) * sum(len(claim.requests) for claim in claims)
        if self.n_devices < 0:
            return NodeFindings(error="not looked at: the nodes before have too many devices")
        problems = [(str(pool.id), pool.problem) for pool in pools.pools if pool.problem]
        allocated = self.devices.allocated
        of_node = NodeDevices(node, pools, allocated, self.results)
        requests: list[tuple[ResourceClaim, Sequence[Sequence[QueryFinding]]]] = []
        for number, claim in enumerate(claims):
            of_claim = with_queries(claim, number, self.devices.classes, of_node)
            if isinstance(of_claim, NotAllocated):
                return NodeFindings(pool_problems=problems, error=of_claim.text)
            found = [[self._find(query, of_node) for query in queries] for queries in of_claim.requests]
            requests.append((claim, found))
        findings = NodeFindings(requests, pool_problems=problems)
        of_pools = (self._counters_by_pool[pool][1] for pool in pools.pools if pool in self._counters_by_pool)
        shared = dict.fromkeys(
            DeviceHolding(device.id, None)
            for query in findings.queries
            for device in query.free
            if device.id in allocated.consumed
        )
        return replace(findings, uses=(*chain.from_iterable(of_pools), *shared))

    def _find(self, query: NodeQuery, devices: NodeDevices) -> QueryFinding:
        free: list[PoolDevice] = []
        refused: list[tuple[PoolDevice, Obstacle]] = []
        for pool in devices.pools.pools:
            for device in pool.devices:
                obstacle = self._obstacle(query, device, devices, pool)
                if obstacle is None:
                    free.append(device)
                else:
                    refused.append((device, obstacle))
        return QueryFinding(query, free, refused)

    def _obstacle(
        self, query: NodeQuery, device: PoolDevice, devices: NodeDevices, pool: Pool
    ) -> Obstacle | None:
        """Return the first reason against the device; reasons that no other pod could end come first."""
        verdict = devices.suits(query, device)
        while verdict is UNFINISHED and self.n_budgets > 0:
            self.n_budgets -= 1
            self.results.renew()
            verdict = devices.suits(query, device)
        match verdict:
            case Verdict.OF_OTHER_NODES:
                return Obstacle("of other nodes")
            case Verdict.TAINTED:
                taint = next(each for each in device.device.taints if not query.tolerates(each))
                text = taint_text(taint.key, taint.value, taint.effect)
                rules = self.devices.taint_rules.values()
                names = ", ".join(rule.key for rule in rules if rule.taints(device.id, taint))
                text += f" by {DeviceKind.TAINT_RULE} {names}" if names else ""
                return Obstacle("tainted", text, taint=taint)
            case Verdict.WITHOUT_CAPACITY:
                return Obstacle("without the requested capacity", ", ".join(_capacity_texts(query, device)))
            case Verdict.FREE:
                verdict = devices.left(query, device)
            case _:
                return self._unselected(query, device)
        if verdict is Verdict.FREE:
            return None
        if verdict is Verdict.IN_USE:
            return Obstacle("in use", short=_WHOLE, uses=(DeviceHolding(device.id, _WHOLE),))
        return self._short_of_capacity(query, device) or self._short_of_counters(device, pool)

    def _short_of_capacity(self, query: NodeQuery, device: PoolDevice) -> Obstacle | None:
        consumed = self.devices.allocated.consumed.get(device.id, NO_USE)
        short = missing_capacity(query.wanted_of(device.device) or {}, device.device, consumed)
        uses = (DeviceHolding(device.id, None),) if consumed else ()
        return Obstacle("short of capacity", _short_text(short), short, uses) if short else None

    def _short_of_counters(self, device: PoolDevice, pool: Pool) -> Obstacle:
        if pool not in self._counters_by_pool:
            allocated = self.devices.allocated
            consumers = [DeviceHolding(each, _named(amounts)) for each, amounts in consuming(pool, allocated)]
            self._counters_by_pool[pool] = available(pool, allocated), consumers
        left, uses = self._counters_by_pool[pool]
        short = _named(missing_counters(device.device, left))
        return Obstacle("short of counters", _short_text(short), short, uses)

    def _unselected(self, query: NodeQuery, device: PoolDevice) -> Obstacle:
        """Return which expression does not select the device, with what it reads of it."""
        of_class = [(each, f"not of class {query.device_class.key}") for each in query.device_class.selectors]
        for expression, why in (*of_class, *((each, "not selected") for each in query.query.selectors)):
            result = True if expression is None else self.results.matches(expression, device)
            if isinstance(result, CompileError | EvaluationError):
                return Obstacle(why, result.text, is_error=isinstance(result, EvaluationError))
            if expression is not None and result is False:
                return Obstacle(why, ", ".join(_values_read(expression, device)))
        return Obstacle("not looked at: the limit of evaluations was reached")


def value_text(device: PoolDevice, attribute: str) -> str | None:
    """Return the value of an attribute of the device, by its qualified name; None if the device lacks it."""
    found = attribute_of(device, attribute)
    if found is None:
        return None
    return str(found.value).lower() if isinstance(found.value, bool) else str(found.value)


def _values_read(expression: str, device: PoolDevice) -> Iterator[str]:
    """Yield what the expression reads of the device; its driver alone if the expression names another one."""
    driver = device.id.driver
    if "device.driver" in expression and driver not in expression:
        yield f"driver={driver}"
        return
    reads = dict.fromkeys((kind, domain, name) for kind, _, domain, name in _READ.findall(expression))
    for kind, domain, name in reads:
        value = (
            value_text(device, f"{domain}/{name}")
            if kind == "attributes"
            else _capacity_text(device, domain, name)
        )
        yield f"no {name}" if value is None else f"{name}={value}"


def _capacity_text(device: PoolDevice, domain: str, name: str) -> str | None:
    capacity = device.device.capacity
    value = capacity.get(f"{domain}/{name}") or (capacity.get(name) if domain == device.id.driver else None)
    return None if value is None else str(value.value)


def _capacity_texts(query: NodeQuery, device: PoolDevice) -> Iterator[str]:
    for name in query.query.capacity:
        capacity = device.device.capacity.get(name)
        yield f"no {name}" if capacity is None else f"{name}={capacity.value}"
    if others := sorted(device.device.capacity.keys() - query.query.capacity.keys()):
        yield f"but {' and '.join(others[:_SHOWN_NAMES])}"


def _named(counters: Mapping[tuple[str, str], int]) -> dict[str, int]:
    return {f"{counter_set}/{name}": amount for (counter_set, name), amount in counters.items()}


def _short_text(short: Mapping[str, int]) -> str:
    """Return what is missing, of amounts in billionths."""
    return ", ".join(f"{name} by {binary(-(-amount // _BILLION))}" for name, amount in short.items())


@dataclass(frozen=True, slots=True)
class RefusedNodes:
    """The nodes that a filter refuses to a pod with claims, and what the claims find there."""

    context: ExplainContext
    filter: DeviceFilter
    inspection: DeviceInspection

    def findings(self, row: int) -> NodeFindings:
        """Return what the claims find on the row's node."""
        node = self.context.view.nodes.live(row)
        claims = self.filter.claims_at(node)
        if isinstance(claims, Status):
            return NodeFindings(error=claims.message)
        return self.inspection.look(node, claims)


def claims_of(device: DeviceId, devices: Devices) -> Iterator[ResourceClaim]:
    """Yield the claims that have the device."""
    for key in devices.allocated.claims_of(device):
        claim = devices.claim(key)
        if claim is not None:
            yield claim
