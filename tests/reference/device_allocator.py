"""
Which devices claims get on a node, by trying every combination in order, with all state counted anew at each step.

Two known defects of upstream are left out: state of a refused device, and counters by the pool's name alone.

Source: structured/internal/incubating/allocator_incubating.go (kubernetes 1.36).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from tests.reference.device_capacity import Amounts, wanted
from tests.reference.device_pools import NodePool, declared_counters, devices, pools_of, selects
from tests.reference.quantity import parse
from tests.reference.question import Object
from tests.reference.tolerations import tolerates

#: Whether an expression selects a device of a driver; a text is the error of its evaluation.
Matches = Callable[[str, str, Object], bool | str]
Key = tuple[str, str, str]


class AllocationError(Exception):
    """An error that ends the search; the text is upstream's."""


#: Tries after which an allocation ends: seconds, for one in some thousand drawn clusters.
MAX_TRIES = 20_000


class TooLongError(Exception):
    """More than MAX_TRIES devices were tried."""


class TooManyError(Exception):
    """The claim would get more than 32 devices."""


@dataclass
class Entry:
    """A device that the node reaches, and its place in the order."""

    index: int
    key: Key
    device: Object
    slice: Object
    pool: NodePool


@dataclass
class Taken:
    """A device taken for a request."""

    claim: int
    request: str
    alternative: str
    query: Object
    entry: Entry

    @property
    def full_name(self) -> str:
        """The request as the result names it."""
        return f"{self.request}/{self.alternative}" if self.alternative else self.request


@dataclass
class Allocated:
    """What is allocated already, from the allocations of claims."""

    dedicated: set[Key] = field(default_factory=set)
    shared: set[Key] = field(default_factory=set)
    consumed: dict[Key, Amounts] = field(default_factory=dict)

    def add(self, allocation: Object) -> None:
        """Count one allocation."""
        for result in allocation["devices"].get("results") or []:
            key = (result["driver"], result["pool"], result["device"])
            if result.get("adminAccess"):
                continue
            if "shareID" not in result:
                self.dedicated.add(key)
                continue
            self.shared.add(key)
            for name, amount in (result.get("consumedCapacity") or {}).items():
                consumed = self.consumed.setdefault(key, {})
                consumed[name] = consumed.get(name, Fraction(0)) + parse(amount)


class DeviceAllocator:
    """One call of the allocator for one node."""

    def __init__(
        self,
        node: Object,
        claims: Sequence[Object],
        slices: Sequence[Object],
        classes: Sequence[Object],
        allocated: Allocated,
        matches: Matches,
    ) -> None:
        self.node, self.claims, self.slices, self.allocated, self.matches = (
            node,
            claims,
            slices,
            allocated,
            matches,
        )
        #: By claim and request: its alternatives, or the one query that it is.
        self.queries = [[_queries(each) for each in _requests(claim)] for claim in claims]
        self.classes = {each["metadata"]["name"]: each for each in classes}
        self.pools = pools_of(node, slices)
        self.entries = [
            Entry(0, (*pool.key, device["name"]), device, each, pool)
            for pool in self.pools
            for each in pool.slices
            for device in each["spec"].get("devices") or []
        ]
        for index, entry in enumerate(self.entries):
            entry.index = index
        #: By claim, constraint and request the value that a distinctAttribute remembers.
        self.remembered: dict[tuple[int, int], dict[str, Object]] = {}
        self.n_tries = 0

    def allocate(self) -> list[list[Taken]] | str:
        """Return what each claim gets, or the message of the node; raises TooLongError."""
        try:
            self._check()
            taken = self._claim(0, [])
        except AllocationError as error:
            return str(error)
        except TooManyError:
            taken = None
        if taken is None:
            invalid = any(pool.state == "invalid" for pool in self.pools)
            return "invalid resource pools were encountered" if invalid else "cannot allocate all claims"
        return [[each for each in taken if each.claim == index] for index in range(len(self.claims))]

    # Before the search.

    def _check(self) -> None:
        self.all_devices: dict[int, list[Entry]] = {}
        for claim, requests in zip(self.claims, self.queries, strict=True):
            total = sum(min(self._count(claim, query) for query in queries) for queries in requests)
            if total > 32:
                raise AllocationError(
                    f"claim {_name(claim)}: number of requested devices {total} exceeds the claim limit of 32"
                )

    def _count(self, claim: Object, query: Object) -> int:
        if query.get("allocationMode") != "All":
            return int(query["count"])
        where = f"claim {_name(claim)}, request {query['name']}"
        found: list[Entry] = []
        for pool in self.pools:
            if pool.state != "usable":
                state = "being updated" if pool.state == "incomplete" else "invalid"
                key = "/".join(pool.key)
                raise AllocationError(
                    f"{where}: asks for all devices, but resource pool {key} is currently {state}"
                )
            found += [
                entry
                for entry in self.entries
                if entry.pool is pool
                and self._is_selected(claim, query, entry)
                and self._is_left(query, entry, [])
            ]
        self.all_devices[id(query)] = found
        return len(found)

    # The search.

    def _claim(self, claim: int, taken: list[Taken]) -> list[Taken] | None:
        if claim == len(self.claims):
            return taken
        return self._request(claim, 0, taken)

    def _request(self, claim: int, request: int, taken: list[Taken]) -> list[Taken] | None:
        requests = _requests(self.claims[claim])
        if request == len(requests):
            try:
                return self._claim(claim + 1, taken)
            except TooManyError:
                return None
        if "exactly" in requests[request]:
            return self._devices(claim, request, self.queries[claim][request][0], 0, 0, taken)
        n_too_many = 0
        for query in self.queries[claim][request]:
            try:
                result = self._devices(claim, request, query, 0, 0, taken)
            except TooManyError:
                n_too_many += 1
                continue
            if result is not None:
                return result
        if n_too_many == len(self.queries[claim][request]):
            raise TooManyError
        return None

    def _devices(
        self, claim: int, request: int, query: Object, number: int, start: int, taken: list[Taken]
    ) -> list[Taken] | None:
        is_all = query.get("allocationMode") == "All"
        wanted_devices = self.all_devices[id(query)] if is_all else None
        count = int(query["count"]) if wanted_devices is None else len(wanted_devices)
        if wanted_devices is not None and not wanted_devices:
            return None
        if number == count:
            return self._request(claim, request + 1, taken)
        if sum(each.claim == claim for each in taken) + count - number > 32:
            raise TooManyError
        for entry in self.entries[start:] if wanted_devices is None else [wanted_devices[number]]:
            self.n_tries += 1
            if self.n_tries > MAX_TRIES:
                raise TooLongError
            each = self._taken(claim, request, query, entry)
            if not self._can_take(each, taken, must=is_all):
                continue
            self._remember(each)
            try:
                result = self._devices(claim, request, query, number + 1, entry.index + 1, [*taken, each])
            except (TooManyError, AllocationError):
                self._forget(each)
                raise
            if result is not None:
                return result
            self._forget(each)
        return None

    def _taken(self, claim: int, request: int, query: Object, entry: Entry) -> Taken:
        raw = _requests(self.claims[claim])[request]
        return Taken(claim, raw["name"], "" if "exactly" in raw else query["name"], query, entry)

    def _can_take(self, each: Taken, taken: list[Taken], *, must: bool) -> bool:
        entry, query, claim = each.entry, each.query, self.claims[each.claim]
        if self._is_in_use(each, taken):
            return False
        if not must and not (self._is_selected(claim, query, entry) and self._is_left(query, entry, taken)):
            return False
        if not self._has_counters([*taken, each]):
            return False
        for taint in entry.device.get("taints") or []:
            if taint["effect"] in ("NoSchedule", "NoExecute") and not any(
                tolerates(toleration, taint) for toleration in query.get("tolerations") or []
            ):
                return False
        if not self._satisfies(each, taken):
            if must:
                raise AllocationError(
                    f"claim {_name(claim)}, request {query['name']}: cannot add device {'/'.join(entry.key)} "
                    "because a claim constraint would not be satisfied"
                )
            return False
        return self._is_left(query, entry, taken)

    def _is_in_use(self, each: Taken, taken: list[Taken]) -> bool:
        others = [
            other
            for other in taken
            if other.entry is each.entry and not other.entry.device.get("allowMultipleAllocations")
        ]
        if each.query.get("adminAccess"):
            return any(other.claim == each.claim for other in others)
        return bool(others) or each.entry.key in self.allocated.dedicated

    def _is_selected(self, claim: Object, query: Object, entry: Entry) -> bool:
        name = query["deviceClassName"]
        for owner, selectors in (
            (f"class {name}", self.classes[name]["spec"].get("selectors")),
            (f"claim {_name(claim)}", query.get("selectors")),
        ):
            for index, selector in enumerate(selectors or []):
                result = self.matches(selector["cel"]["expression"], entry.key[0], entry.device)
                if isinstance(result, str):
                    raise AllocationError(f"{owner}: selector #{index}: CEL runtime error: {result}")
                if not result:
                    return False
        return not entry.slice["spec"].get("perDeviceNodeSelection") or selects(entry.device, self.node)

    def _is_left(self, query: Object, entry: Entry, taken: list[Taken]) -> bool:
        amounts = wanted((query.get("capacity") or {}).get("requests") or {}, entry.device)
        if amounts is None:
            return False
        total = dict(self.allocated.consumed.get(entry.key, {}))
        for other in taken:
            if other.entry is entry and entry.device.get("allowMultipleAllocations"):
                for name, amount in consumed_by(other).items():
                    total[name] = total.get(name, Fraction(0)) + amount
        return all(
            total.get(name, Fraction(0)) + amount <= parse(entry.device["capacity"][name]["value"])
            for name, amount in amounts.items()
        )

    def _has_counters(self, taken: list[Taken]) -> bool:
        """Return whether the last device taken fits: all counters of its pool, if it is charged for any."""
        last = taken[-1].entry
        if not last.device.get("consumesCounters") or not self._is_charged(taken[-1], taken[:-1]):
            return True
        left = {name: parse(value) for name, value in declared_counters(last.pool, self.slices).items()}
        for device in devices(last.pool.slices + last.pool.elsewhere):
            key = (*last.pool.key, device["name"])
            if key in self.allocated.dedicated or key in self.allocated.shared:
                _consume(left, device)
        for index, each in enumerate(taken):
            if each.entry.pool is last.pool and self._is_charged(each, taken[:index]):
                _consume(left, each.entry.device)
        return all(amount >= 0 for amount in left.values())

    def _is_charged(self, each: Taken, before: list[Taken]) -> bool:
        if not each.entry.device.get("allowMultipleAllocations"):
            return True
        return each.entry.key not in self.allocated.consumed and all(
            other.entry is not each.entry for other in before
        )

    # Constraints.

    def _constraints(self, each: Taken) -> Iterator[tuple[int, Object]]:
        for index, constraint in enumerate(
            self.claims[each.claim]["spec"]["devices"].get("constraints") or []
        ):
            names = constraint.get("requests")
            if not names or each.request in names or each.full_name in names:
                yield index, constraint

    def _satisfies(self, each: Taken, taken: list[Taken]) -> bool:
        for index, constraint in self._constraints(each):
            if "matchAttribute" in constraint:
                value = _attribute(each.entry, constraint["matchAttribute"])
                others = [
                    _attribute(other.entry, constraint["matchAttribute"])
                    for other in taken
                    if other.claim == each.claim and any(index == i for i, _ in self._constraints(other))
                ]
                if value is None or any(other != value for other in others):
                    return False
            else:
                value = _attribute(each.entry, constraint["distinctAttribute"])
                if value is None or value in self.remembered.get((each.claim, index), {}).values():
                    return False
        return True

    def _remember(self, each: Taken) -> None:
        for index, constraint in self._constraints(each):
            if "distinctAttribute" in constraint:
                value = _attribute(each.entry, constraint["distinctAttribute"])
                self.remembered.setdefault((each.claim, index), {})[each.request] = value or {}

    def _forget(self, each: Taken) -> None:
        for index, constraint in self._constraints(each):
            if "distinctAttribute" in constraint:
                self.remembered[each.claim, index].pop(each.request, None)


def consumed_by(taken: Taken) -> Amounts:
    return wanted((taken.query.get("capacity") or {}).get("requests") or {}, taken.entry.device) or {}


def _requests(claim: Object) -> Sequence[Object]:
    requests: Sequence[Object] = claim["spec"]["devices"].get("requests") or []
    return requests


def _queries(request: Object) -> list[Object]:
    if "exactly" in request:
        return [{**request["exactly"], "name": request["name"]}]
    return list(request["firstAvailable"])


def _consume(left: dict[tuple[str, str], Fraction], device: Object) -> None:
    for consumption in device.get("consumesCounters") or []:
        for counter, value in consumption["counters"].items():
            left[consumption["counterSet"], counter] -= parse(value["value"])


def _attribute(entry: Entry, name: str) -> Object | None:
    attributes = entry.device.get("attributes") or {}
    domain, _, identifier = name.partition("/")
    value: Object | None = attributes.get(name)
    if value is None and domain == entry.key[0]:
        value = attributes.get(identifier)
    return value


def _name(claim: Object) -> str:
    return f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"
