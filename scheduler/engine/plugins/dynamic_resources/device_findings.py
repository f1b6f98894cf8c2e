"""Which devices of a node a request could take, and why it cannot take the others; for explanations."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final, NamedTuple

from scheduler.engine.cel import CompileError, EvaluationError
from scheduler.engine.framework.explaining import ExplainContext
from scheduler.engine.framework.status import Status
from scheduler.engine.model.device_requests import DeviceConstraint, ResourceClaim
from scheduler.engine.model.devices import DeviceAttribute, DeviceId, DeviceKind, DeviceTaintRule
from scheduler.engine.model.terms import Taint
from scheduler.engine.model.wording import taint_text
from scheduler.engine.plugins.dynamic_resources.checks import CheckedClaim, Checks, Query
from scheduler.engine.plugins.dynamic_resources.constraints import attribute_of
from scheduler.engine.plugins.dynamic_resources.counters import available, consuming, consumption_of
from scheduler.engine.plugins.dynamic_resources.filtering import DeviceFilter
from scheduler.engine.plugins.dynamic_resources.inputs import Candidate, Inputs, SearchError, TargetNode
from scheduler.engine.plugins.dynamic_resources.pool_index import PoolIndex
from scheduler.engine.plugins.dynamic_resources.pools import NodePools, Pool, PoolState, device_reaches
from scheduler.engine.plugins.dynamic_resources.selection import SelectorResults
from scheduler.engine.state.devices import Devices
from scheduler.engine.syntax.plurals import counted
from scheduler.engine.syntax.quantity_format import binary

#: How often as much may be evaluated as for one decision: 1.3 s in all.
_MAX_BUDGETS: Final = 10
#: Devices that are looked at, over all nodes and requests, 3 µs and 100 bytes each.
_MAX_DEVICES: Final = 400_000
#: What an expression reads of a device, as nearly every selector writes it.
_READ: Final = re.compile(r"""\b(attributes|capacity)\[(['"])([^'"]+)\2\]\.\??(\w+)""")
_BILLION: Final = 10**9
#: Capacities of a device that are named where it lacks the requested one.
_SHOWN_NAMES: Final = 4
_NO_USE: Final[Mapping[str, int]] = {}
#: What is missing of a device that another claim has.
_WHOLE: Final[Mapping[str, int]] = {"": 1}


class DeviceUse(NamedTuple):
    """A device that claims have, and what is free again without them; None for what each claim consumes of it."""

    device: DeviceId
    freed: Mapping[str, int] | None


@dataclass(frozen=True, slots=True)
class Obstacle:
    """
    Why a device is not taken.

    Attributes:
        why: in words that follow a number of devices.
        value: the value that was found, empty if there is none to name.
        short: how much is missing of what.
        uses: the devices whose claims may have it: this one, or others of its pool that consume the same counters.
        taint: the taint that is not tolerated.
        is_error: whether a selector has no answer for the device, which ends the search on the node.
    """

    why: str
    value: str = ""
    short: Mapping[str, int] = field(default_factory=dict, compare=False)
    uses: Sequence[DeviceUse] = field(default=(), compare=False)
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
    """
    What one query finds on a node: a request, or one of its alternatives.

    Attributes:
        free: the devices that it could take if nothing else were requested.
        refused: all others, each with the reason.
    """

    claim: ResourceClaim
    query: Query
    free: Sequence[Candidate]
    refused: Sequence[tuple[Candidate, Obstacle]]

    @property
    def n_missing(self) -> int:
        """How many more devices it needs; of all devices that mode All wants, those that are not free."""
        devices = self.query.devices
        if devices is None:
            return max(0, self.query.n_devices - len(self.free))
        free = set(self.free)
        return sum(candidate not in free for candidate in devices) or int(not devices)


@dataclass(frozen=True, slots=True)
class NodeFindings:
    """
    What the claims find on one node.

    Attributes:
        requests: of each claim the queries of each request.
        uses: devices that have counters of the node's pools, or capacity of devices that are free for a request.
        pool_problems: of pools that cannot be used: which one it is, and why.
        error: why there are no findings; empty if there are.
    """

    requests: Sequence[tuple[ResourceClaim, Sequence[Sequence[QueryFinding]]]] = ()
    uses: Sequence[DeviceUse] = ()
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
    """
    Looks at the devices of nodes, one after another, once for all nodes with the same slices.

    Attributes:
        n_budgets: how much may still be evaluated.
        n_devices: how many devices may still be looked at.
    """

    index: PoolIndex
    inputs: Inputs
    results: SelectorResults
    rules: Collection[DeviceTaintRule] = ()
    n_budgets: int = _MAX_BUDGETS
    n_devices: int = _MAX_DEVICES
    _counters_by_pool: dict[Pool, tuple[Mapping[tuple[str, str], int], Sequence[DeviceUse]]] = field(
        default_factory=dict
    )
    _by_pools: dict[tuple[NodePools, tuple[str, ...]], NodeFindings] = field(default_factory=dict)

    def look(self, node: TargetNode, claims: Sequence[ResourceClaim]) -> NodeFindings:
        """Return what the claims find on the node. O(its devices * requests)."""
        pools = self.index.pools(node)
        if isinstance(pools, SearchError):
            return NodeFindings(error=pools.text)
        # Of the claim for extended resources, nodes that serve some of them have other requests.
        names = tuple(f"{claim.key}/{request.name}" for claim in claims for request in claim.requests)
        findings = None if pools.selects_per_device else self._by_pools.get((pools, names))
        if findings is None:
            findings = self._by_pools[pools, names] = self._look(node, pools, claims)
        return findings

    def _look(self, node: TargetNode, pools: NodePools, claims: Sequence[ResourceClaim]) -> NodeFindings:
        self.n_devices -= len(pools.candidates) * sum(len(claim.requests) for claim in claims)
        if self.n_devices < 0:
            return NodeFindings(error="not looked at: the nodes before have too many devices")
        checks = Checks(node, pools, self.inputs, self.results)
        requests: list[tuple[ResourceClaim, Sequence[Sequence[QueryFinding]]]] = []
        for claim in claims:
            checked = checks.claim(claim)
            if isinstance(checked, SearchError):
                return NodeFindings(pool_problems=list(self._pool_problems(pools)), error=checked.text)
            requests.append((claim, self._requests(checked, node, pools)))
        found = NodeFindings(requests, pool_problems=list(self._pool_problems(pools)))
        of_pools = (self._counters_by_pool[pool][1] for pool in pools.pools if pool in self._counters_by_pool)
        shared = dict.fromkeys(
            DeviceUse(candidate.id, None)
            for query in found.queries
            for candidate in query.free
            if candidate.id in self.inputs.allocated.consumed
        )
        return replace(found, uses=(*chain.from_iterable(of_pools), *shared))

    def _requests(
        self, checked: CheckedClaim, node: TargetNode, pools: NodePools
    ) -> list[list[QueryFinding]]:
        return [
            [self._query(checked.claim, query, node, pools) for query in request.queries]
            for request in checked.requests
        ]

    def _query(self, claim: ResourceClaim, query: Query, node: TargetNode, pools: NodePools) -> QueryFinding:
        free: list[Candidate] = []
        refused: list[tuple[Candidate, Obstacle]] = []
        for pool in pools.pools:
            for candidate in pool.candidates:
                obstacle = self._obstacle(query, candidate, node, pool)
                if obstacle is None:
                    free.append(candidate)
                else:
                    refused.append((candidate, obstacle))
        return QueryFinding(claim, query, free, refused)

    def _obstacle(self, query: Query, candidate: Candidate, node: TargetNode, pool: Pool) -> Obstacle | None:
        """Return the first reason against the device, those first that no other pod could end."""
        device, allocated = candidate.device, self.inputs.allocated
        not_of_class = f"not of class {query.device_class.key}"
        obstacle = self._unselected(query.device_class.selectors, candidate, not_of_class) or (
            self._unselected(query.query.selectors, candidate, "not selected")
        )
        if obstacle is not None:
            return obstacle
        if candidate.slice.per_device_node_selection and device_reaches(node, device) is not True:
            return Obstacle("of other nodes")
        for taint in device.taints:
            if not query.tolerates((taint,)):
                text = taint_text(taint.key, taint.value, taint.effect)
                rules = ", ".join(rule.key for rule in self.rules if rule.taints(candidate.id, taint))
                text += f" by {DeviceKind.TAINT_RULE} {rules}" if rules else ""
                return Obstacle("tainted", text, taint=taint)
        wanted = query.wanted_of(device)
        if wanted is None:
            return Obstacle("without the requested capacity", ", ".join(_capacity_texts(query, candidate)))
        if not query.query.admin_access and candidate.id in allocated.dedicated:
            return Obstacle("in use", short=_WHOLE, uses=(DeviceUse(candidate.id, _WHOLE),))
        consumed = allocated.consumed.get(candidate.id, _NO_USE)
        short = {
            name: missing
            for name, amount in wanted.items()
            if (missing := amount.nano + consumed.get(name, 0) - device.capacity[name].value.nano) > 0
        }
        if short:
            uses = (DeviceUse(candidate.id, None),) if consumed else ()
            return Obstacle("short of capacity", _short_text(short), short, uses)
        return self._short_of_counters(candidate, pool)

    def _short_of_counters(self, candidate: Candidate, pool: Pool) -> Obstacle | None:
        consumption = consumption_of(candidate.device)
        is_charged = bool(consumption) and not (
            candidate.device.allow_multiple_allocations and candidate.id in self.inputs.allocated.consumed
        )
        if not is_charged:
            return None
        counters = self._counters_by_pool.get(pool)
        if counters is None:
            allocated = self.inputs.allocated
            consumers = [DeviceUse(each, _named(amounts)) for each, amounts in consuming(pool, allocated)]
            counters = self._counters_by_pool[pool] = available(pool, allocated), consumers
        left, uses = counters
        short = {
            counter: missing
            for counter, amount in left.items()
            if (missing := consumption.get(counter, 0) - amount) > 0
        }
        return (
            Obstacle("short of counters", _short_text(_named(short)), _named(short), uses) if short else None
        )

    def _unselected(self, selectors: Sequence[str | None], candidate: Candidate, why: str) -> Obstacle | None:
        """Return why one of the expressions does not select the device, with what it reads of it."""
        for expression in selectors:
            if expression is None:
                continue
            result = self._matches(expression, candidate)
            if isinstance(result, SearchError):
                return Obstacle("not looked at: the limit of evaluations was reached")
            if isinstance(result, CompileError | EvaluationError):
                return Obstacle(why, result.text, is_error=isinstance(result, EvaluationError))
            if not result:
                return Obstacle(why, ", ".join(_values_read(expression, candidate)))
        return None

    def _matches(
        self, expression: str, candidate: Candidate
    ) -> bool | CompileError | EvaluationError | SearchError:
        result = self.results.matches(expression, candidate)
        if isinstance(result, SearchError) and self.n_budgets > 0:
            self.n_budgets -= 1
            self.results.renew()
            result = self.results.matches(expression, candidate)
        return result

    def _pool_problems(self, pools: NodePools) -> Iterator[tuple[str, str]]:
        for pool in pools.pools:
            if pool.state is PoolState.INVALID:
                yield str(pool.id), f"is invalid: {pool.problem}"
            elif pool.state is PoolState.INCOMPLETE:
                slices = self.index.slices_of(pool.id)
                newest = max(each.generation for each in slices)
                of_newest = [each for each in slices if each.generation == newest]
                n_all = counted(of_newest[0].slice_count, "slice")
                yield str(pool.id), f"is incomplete: {len(of_newest)} of {n_all} of generation {newest}"


def applies(constraint: DeviceConstraint, query: Query) -> bool:
    """Return whether the constraint is for the devices of the query."""
    return not constraint.requests or not constraint.requests.isdisjoint((query.request, query.full_name))


def value_text(candidate: Candidate, attribute: str) -> str | None:
    """Return the value of an attribute of the device, by its qualified name; None if the device lacks it."""
    value = attribute_of(candidate, attribute)
    return None if value is None else _text(value)


def _text(value: DeviceAttribute) -> str:
    return str(value.value).lower() if isinstance(value.value, bool) else str(value.value)


def _values_read(expression: str, candidate: Candidate) -> Iterator[str]:
    """Yield what the expression reads of the device; its driver alone if the expression names another one."""
    driver = candidate.id.driver
    if "device.driver" in expression and driver not in expression:
        yield f"driver={driver}"
        return
    reads = dict.fromkeys((kind, domain, name) for kind, _, domain, name in _READ.findall(expression))
    for kind, domain, name in reads:
        value = (
            value_text(candidate, f"{domain}/{name}")
            if kind == "attributes"
            else _capacity_text(candidate, domain, name)
        )
        yield f"no {name}" if value is None else f"{name}={value}"


def _capacity_text(candidate: Candidate, domain: str, name: str) -> str | None:
    capacity = candidate.device.capacity
    value = capacity.get(f"{domain}/{name}") or (
        capacity.get(name) if domain == candidate.id.driver else None
    )
    return None if value is None else str(value.value)


def _capacity_texts(query: Query, candidate: Candidate) -> Iterator[str]:
    for name in query.query.capacity:
        capacity = candidate.device.capacity.get(name)
        yield f"no {name}" if capacity is None else f"{name}={capacity.value}"
    if others := sorted(candidate.device.capacity.keys() - query.query.capacity.keys()):
        yield f"but {' and '.join(others[:_SHOWN_NAMES])}"


def _named(counters: Mapping[tuple[str, str], int]) -> dict[str, int]:
    return {f"{counter_set}/{name}": amount for (counter_set, name), amount in counters.items()}


def _short_text(short: Mapping[str, int]) -> str:
    """Return what is missing, of amounts in billionths."""
    return ", ".join(f"{name} by {binary(-(-amount // _BILLION))}" for name, amount in short.items())


class RefusedNodes:
    """Looks at each node once."""

    def __init__(
        self, context: ExplainContext, device_filter: DeviceFilter, inspection: DeviceInspection
    ) -> None:
        self.context, self.filter = context, device_filter
        self._inspection = inspection
        self._by_row: dict[int, NodeFindings] = {}

    def findings(self, row: int) -> NodeFindings:
        """Return what the claims find on the row's node."""
        findings = self._by_row.get(row)
        if findings is None:
            findings = self._by_row[row] = self._look(row)
        return findings

    def _look(self, row: int) -> NodeFindings:
        node = self.context.view.node_at(row)
        if node is None:
            return NodeFindings()
        claims = self.filter.claims_at(node)
        if isinstance(claims, Status):
            return NodeFindings(error=claims.message)
        return self._inspection.look(TargetNode(node.name, node.labels), claims)


def claims_of(device: DeviceId, devices: Devices) -> Iterator[ResourceClaim]:
    """Yield the claims that have the device."""
    for key in devices.allocated.claims_of(device):
        claim = devices.claim(key)
        if claim is not None:
            yield claim
