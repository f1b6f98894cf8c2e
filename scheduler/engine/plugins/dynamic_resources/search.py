"""
The search for devices: depth first over claims, requests, alternatives and devices; the first that fits is taken.

The order of devices is upstream's, so that the same devices are allocated. The search is a stack of choices: a choice
that fails is taken back, and the next option is tried. Calls instead of a stack would be too deep for the
claims of a hostile pod.

Deviation: a device that is refused leaves nothing behind (upstream keeps its counters: kubernetes #140436).

Source: structured/internal/incubating/allocator_incubating.go, allocateOne and allocateDevice (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from scheduler.engine.model.devices import MAX_ALTERNATIVES, MAX_RESULTS
from scheduler.engine.plugins.dynamic_resources.answers import Answer, NotAllocated
from scheduler.engine.plugins.dynamic_resources.checks import CheckedClaim
from scheduler.engine.plugins.dynamic_resources.constraints import attribute_of
from scheduler.engine.plugins.dynamic_resources.counters import consumption_of
from scheduler.engine.plugins.dynamic_resources.pools import PoolDevice
from scheduler.engine.plugins.dynamic_resources.taking import NodeDevices, NodeQuery, Taken, Verdict


class Branch(Enum):
    """How the part of the search behind a choice ended."""

    FOUND = auto()
    FAILED = auto()
    #: The claim would get more devices than it may have, whichever it takes.
    TOO_MANY = auto()
    #: A new choice is on the stack and has to be made.
    OPEN = auto()


@dataclass(slots=True)
class Budget:
    """The devices that may be looked at again after a choice was taken back; for all nodes of a pod together."""

    n_left: int


@dataclass(slots=True, eq=False)
class _Devices:
    """The choice of one device for a query. `failed`: the classes of equal devices that were tried in vain."""

    request: int
    query: NodeQuery
    number: int
    next_index: int
    taken: Taken | None = None
    failed: set[int] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class _Alternatives:
    """The choice of an alternative. `all_too_many`: whether all that were tried ended with TOO_MANY."""

    claim: int
    request: int
    index: int = 0
    all_too_many: bool = True


class DeviceSearch:
    """
    One search on one node. It may go on in a later piece or cycle, as long as nothing changes that it has read.

    `taken`: the devices of each claim, in the order of the search. `n_steps`: how many devices were looked at again.
    """

    #: Of the cycle.
    _budget: Budget

    def __init__(self, claims: Sequence[CheckedClaim], devices: NodeDevices) -> None:
        self.claims, self.pools = claims, devices.pools
        self._devices = devices
        self.n_steps = 0
        #: How the last choice ended; None before the first.
        self._branch: Branch | None = None
        #: None is the border between two claims.
        self._stack: list[_Devices | _Alternatives | None] = []
        #: Made when a choice is first taken back.
        self._equal: _EqualDevices | None = None
        self.taken: list[list[Taken]] = [[] for _ in claims]
        self._has_backtracked = False

    @property
    def has_found(self) -> bool:
        """Whether `taken` holds the devices."""
        return self._branch is Branch.FOUND

    def run(self, budget: Budget) -> Branch | NotAllocated:
        """Search, or go on where the last call stopped; return FOUND, FAILED, or OPEN if a budget is spent."""
        self._budget, n_left = budget, budget.n_left
        branch = self._run(self._branch or self._descend(0, 0))
        self.n_steps += n_left - budget.n_left
        return branch

    def _run(self, branch: Branch) -> Branch | NotAllocated:
        while self._stack and branch is not Branch.FOUND:
            self._branch = branch
            if self._has_backtracked and self._budget.n_left <= 0:
                return Branch.OPEN
            choice = self._stack[-1]
            if isinstance(choice, _Devices):
                next_branch = self._next_device(choice, branch)
                if isinstance(next_branch, NotAllocated):
                    # The budget of evaluations is spent: the next piece makes this choice.
                    return Branch.OPEN if next_branch.answer is Answer.POSTPONED else next_branch
                branch = next_branch
            elif choice is not None:
                branch = self._next_alternative(choice, branch)
            else:
                # The next claim has too many devices: other alternatives of the claims before may need fewer.
                self._stack.pop()
                branch = Branch.FAILED
        self._branch = branch
        return Branch.FAILED if branch is Branch.TOO_MANY else branch

    def chosen(self, claim: int) -> list[NodeQuery]:
        """Return the query of each request of the claim that devices were taken for."""
        index_of = {
            choice.request: choice.index
            for choice in self._stack
            if isinstance(choice, _Alternatives) and choice.claim == claim
        }
        return [queries[index_of.get(at, 0)] for at, queries in enumerate(self.claims[claim].requests)]

    def score(self) -> int:
        """Return 8 less its index for each alternative that a device was taken for."""
        return sum(
            MAX_ALTERNATIVES - choice.index
            for choice in self._stack
            if isinstance(choice, _Alternatives)
            and self.claims[choice.claim].requests[choice.request][choice.index].n_devices
        )

    def _descend(
        self, claim: int, request: int, query: NodeQuery | None = None, number: int = 0, start: int = 0
    ) -> Branch:
        """Go on to the next choice, and put it on the stack; return how it ended if none is left or possible."""
        while True:
            if claim >= len(self.claims):
                return Branch.FOUND
            requests = self.claims[claim].requests
            if request >= len(requests):
                self._stack.append(None)
                claim, request, query, number, start = claim + 1, 0, None, 0, 0
                continue
            if query is None:
                query = requests[request][0]
                if query.alternative:
                    self._stack.append(_Alternatives(claim, request))
            if query.devices is not None and not query.devices:
                return Branch.FAILED
            if number < query.n_devices:
                break
            request, query, number, start = request + 1, None, 0, 0
        if len(self.taken[claim]) + query.n_devices - number > MAX_RESULTS:
            return Branch.TOO_MANY
        self._stack.append(_Devices(request, query, number, start))
        return Branch.OPEN

    def _next_alternative(self, choice: _Alternatives, branch: Branch) -> Branch:
        if branch is not Branch.TOO_MANY:
            choice.all_too_many = False
        choice.index += 1
        queries = self.claims[choice.claim].requests[choice.request]
        if choice.index < len(queries):
            return self._descend(choice.claim, choice.request, queries[choice.index])
        self._stack.pop()
        return Branch.TOO_MANY if choice.all_too_many else Branch.FAILED

    def _next_device(self, choice: _Devices, branch: Branch) -> Branch | NotAllocated:
        query = choice.query
        if choice.taken is not None:
            self._devices.give_back(choice.taken)
            self.taken[query.number].pop()
            choice.failed.add(self._class_of(choice.taken.device))
            choice.taken = None
            self._has_backtracked = True
            if query.devices is not None or branch is Branch.TOO_MANY:
                # Mode All takes its devices in one order only.
                self._stack.pop()
                return branch if branch is Branch.TOO_MANY else Branch.FAILED
        taken = self._first_device(choice)
        if isinstance(taken, NotAllocated):
            return taken
        if taken is None:
            self._stack.pop()
            return Branch.FAILED
        choice.taken = taken
        self.taken[query.number].append(taken)
        return self._descend(query.number, choice.request, query, choice.number + 1, choice.next_index)

    def _first_device(self, choice: _Devices) -> Taken | NotAllocated | None:
        """Take the first device from the next index on that can be taken."""
        query, devices = choice.query, self.pools.devices
        if query.devices is not None:
            return self._take(query, query.devices[choice.number])
        if self._has_backtracked:
            is_possible = self._has_enough(choice)
            if is_possible is not True:
                return is_possible or None
        for index in range(choice.next_index, len(devices)):
            if self._has_backtracked:
                self._budget.n_left -= 1
            device = devices[index]
            # A device that is in use runs no selectors.
            if self._devices.is_in_use(query, device):
                continue
            if choice.failed and self._class_of(device) in choice.failed:
                continue
            taken = self._take(query, device)
            if taken is not None:
                choice.next_index = index + 1
                return taken
        return None

    def _take(self, query: NodeQuery, device: PoolDevice) -> Taken | NotAllocated | None:
        """Take a device; return None if that is not possible now."""
        # If a constraint refuses a device that mode All takes, no other device would do: that is an error.
        verdict = self._devices.suits(query, device)
        if verdict is Verdict.FREE:
            verdict = self._devices.left(query, device)
        if isinstance(verdict, NotAllocated):
            return verdict
        if verdict is not Verdict.FREE and verdict is not Verdict.SHORT_OF_CAPACITY:
            return None
        if query.constraints and not all(each.accepts(device) for each in query.constraints):
            where = f"claim {query.claim.key}, request {query.query.name}"
            problem = f"cannot add device {device.id} because a claim constraint would not be satisfied"
            return None if query.devices is None else NotAllocated(f"{where}: {problem}")
        return self._devices.take(query, device) if verdict is Verdict.FREE else None

    def _class_of(self, device: PoolDevice) -> int:
        if self._equal is None:
            self._equal = _EqualDevices(self.claims, self._devices)
        return self._equal.class_of(device)

    def _has_enough(self, choice: _Devices) -> bool | NotAllocated:
        """Return whether enough selected devices are left for the query; if not, upstream tries them in vain."""
        query = choice.query
        n_missing = query.n_devices - choice.number
        for device in self.pools.devices[choice.next_index :]:
            if not n_missing:
                break
            self._budget.n_left -= 1
            if not self._devices.is_in_use(query, device):
                verdict = self._devices.suits(query, device)
                if isinstance(verdict, NotAllocated):
                    return verdict
                n_missing -= verdict is Verdict.FREE
        return not n_missing


class _EqualDevices:
    """
    The class of equal devices of each device of a node: if one fails, so does every other.

    Upstream tries every combination. A choice that skips an equal device finds the same first solution: in any solution
    with the second device the two can be exchanged.
    """

    def __init__(self, claims: Sequence[CheckedClaim], devices: NodeDevices) -> None:
        self._devices = devices
        self._queries = [query for each in claims for queries in each.requests for query in queries]
        constraints = [constraint for each in claims for constraint in each.claim.constraints]
        self._attributes = sorted({each.match_attribute for each in constraints if each.match_attribute})
        self._id_by_device: dict[PoolDevice, int] = {}
        self._id_by_signature: dict[Hashable, int] = {}
        # Values are remembered by request, by its last device alone: the order counts. All ends with an error at the
        # first device that a constraint refuses, which depends on what is in use; what is in use by admin access
        # depends on the claim.
        self._can_be_equal = not (
            any(each.distinct_attribute is not None for each in constraints)
            or any(query.devices is not None or query.query.admin_access for query in self._queries)
        )

    def class_of(self, device: PoolDevice) -> int:
        """Return the same number for equal devices. O(requests + constraints) for each device at first."""
        number = self._id_by_device.get(device)
        if number is None:
            number = self._id_by_device[device] = self._id_by_signature.setdefault(
                self._signature(device), len(self._id_by_signature)
            )
        return number

    def _signature(self, device: PoolDevice) -> Hashable:
        # The rest of a shared device depends on the amounts taken of it.
        if not self._can_be_equal or device.device.allow_multiple_allocations:
            return device
        consumption = frozenset(consumption_of(device.device).items())
        return (
            tuple(self._use(query, device) for query in self._queries),
            tuple(attribute_of(device, name) for name in self._attributes),
            # Equal counters of another pool are others.
            (device.slice.pool_id, consumption) if consumption else None,
        )

    def _use(self, query: NodeQuery, device: PoolDevice) -> Hashable:
        """Return whether the query can use the device while it is free; an error is a use of its own."""
        verdict = self._devices.suits(query, device)
        if isinstance(verdict, NotAllocated):
            # The budget of evaluations is spent: no other device is known to be equal.
            return device if verdict.answer is Answer.POSTPONED else verdict.text
        return verdict is Verdict.FREE and self._devices.has_capacity(query, device)
