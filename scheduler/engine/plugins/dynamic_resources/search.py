"""
The search for devices: depth first over claims, requests, alternatives and devices; the first that fits is taken.

The order of devices is upstream's, so that the same devices are allocated. The search is a stack of choices: a choice
that leads nowhere is taken back, and the next one of it is tried.

Deviation: a device that is refused leaves nothing behind (upstream keeps its counters: kubernetes #140436).

Source: structured/internal/incubating/allocator_incubating.go, allocateOne and allocateDevice (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from scheduler.engine.model.devices import MAX_ALTERNATIVES, MAX_RESULTS, DeviceId
from scheduler.engine.plugins.dynamic_resources.capacity import Wanted, is_left
from scheduler.engine.plugins.dynamic_resources.checks import CheckedClaim, Checks, Query
from scheduler.engine.plugins.dynamic_resources.counters import Counters
from scheduler.engine.plugins.dynamic_resources.equal_devices import EqualDevices
from scheduler.engine.plugins.dynamic_resources.inputs import AllocatedView, Candidate, SearchError
from scheduler.engine.plugins.dynamic_resources.pools import NodePools

_NO_USE: Final[Mapping[str, int]] = {}


class Outcome(Enum):
    """How the part of the search behind a choice ended."""

    FOUND = auto()
    FAILED = auto()
    #: The claim would get more devices than it may have, whichever they are.
    TOO_MANY = auto()
    #: A new choice is on the stack and has to be made.
    OPEN = auto()


@dataclass(slots=True)
class Budget:
    """The devices that may be looked at once more, after a choice was taken back; for all nodes of a pod together."""

    n_left: int

    @property
    def is_spent(self) -> bool:
        """Whether nothing is left."""
        return self.n_left <= 0


@dataclass(slots=True, eq=False)
class Taken:
    """
    A device that was taken for a query.

    Attributes:
        wanted: how much of its capacities; None if the device is not shared.
        has_counters: whether its counters were consumed with it.
    """

    query: Query
    candidate: Candidate
    wanted: Wanted | None
    has_counters: bool


@dataclass(slots=True, eq=False)
class _Devices:
    """
    The choice of the device of this number for a query.

    Attributes:
        next_index: the device to try next.
        failed: the classes of equal devices that lead nowhere.
    """

    claim: int
    request: int
    query: Query
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


@dataclass(slots=True, eq=False)
class _ClaimEnd:
    """The border between two claims."""


class Search:
    """
    One search on one node. It may go on in a later cycle, as long as nothing changes that it has read.

    Attributes:
        n_steps: so many devices were looked at once more.
    """

    #: Of the cycle.
    _budget: Budget

    def __init__(
        self,
        claims: Sequence[CheckedClaim],
        pools: NodePools,
        checks: Checks,
        allocated: AllocatedView,
    ) -> None:
        self.claims = claims
        self.pools = pools
        self._checks = checks
        self._allocated = allocated
        self.n_steps = 0
        #: How the last choice ended; None before the first.
        self._outcome: Outcome | None = None
        self._counters = Counters(allocated)
        self._stack: list[_Devices | _Alternatives | _ClaimEnd] = []
        #: The claims, by index, that took each device as a whole.
        self._marks: dict[DeviceId, set[int]] = {}
        #: The amounts taken of each shared device; an empty mapping if it has no capacities.
        self._shared: dict[DeviceId, list[Wanted]] = {}
        #: Made where a choice is taken back.
        self._equal: EqualDevices | None = None
        self.taken: list[list[Taken]] = [[] for _ in claims]
        self._has_backtracked = False

    @property
    def has_found(self) -> bool:
        """Whether `taken` holds the devices."""
        return self._outcome is Outcome.FOUND

    def run(self, budget: Budget) -> Outcome | SearchError:
        """
        Search, or go on where the last call stopped.

        Return FOUND, and then `taken` holds the devices; or FAILED, or OPEN if the budget is spent, or what may be
        evaluated.
        """
        self._budget, n_left = budget, budget.n_left
        outcome = self._run(self._outcome or self._descend(0, 0))
        self.n_steps += n_left - budget.n_left
        return outcome

    def _run(self, outcome: Outcome) -> Outcome | SearchError:
        while self._stack and outcome is not Outcome.FOUND:
            self._outcome = outcome
            if self._has_backtracked and self._budget.is_spent:
                return Outcome.OPEN
            choice = self._stack[-1]
            if isinstance(choice, _Devices):
                next_outcome = self._next_device(choice, outcome)
                if isinstance(next_outcome, SearchError):
                    return Outcome.OPEN if next_outcome.is_limit else next_outcome
                outcome = next_outcome
            elif isinstance(choice, _Alternatives):
                outcome = self._next_alternative(choice, outcome)
            else:
                # The next claim has too many devices: other alternatives of the claims before may need fewer.
                self._stack.pop()
                outcome = Outcome.FAILED
        self._outcome = outcome
        return Outcome.FAILED if outcome is Outcome.TOO_MANY else outcome

    def alternatives(self) -> dict[tuple[int, int], int]:
        """Return the index of the alternative that was chosen, by the indices of claim and request."""
        return {
            (choice.claim, choice.request): choice.index
            for choice in self._stack
            if isinstance(choice, _Alternatives)
        }

    def score(self) -> int:
        """Return 8 less its index for each alternative of which a device was taken."""
        return sum(
            MAX_ALTERNATIVES - choice.index
            for choice in self._stack
            if isinstance(choice, _Alternatives)
            and self.claims[choice.claim].requests[choice.request].queries[choice.index].n_devices
        )

    def _descend(
        self, claim: int, request: int, query: Query | None = None, number: int = 0, start: int = 0
    ) -> Outcome:
        """Go on to the next choice, and put it on the stack; return how it ended if none is left or possible."""
        while True:
            if claim >= len(self.claims):
                return Outcome.FOUND
            checked = self.claims[claim]
            if request >= len(checked.requests):
                self._stack.append(_ClaimEnd())
                claim, request, query, number, start = claim + 1, 0, None, 0, 0
                continue
            current = checked.requests[request]
            if query is None:
                query = current.queries[0]
                if current.has_alternatives:
                    self._stack.append(_Alternatives(claim, request))
            if query.devices is not None and not query.devices:
                return Outcome.FAILED
            if number < query.n_devices:
                break
            request, query, number, start = request + 1, None, 0, 0
        if len(self.taken[claim]) + query.n_devices - number > MAX_RESULTS:
            return Outcome.TOO_MANY
        self._stack.append(_Devices(claim, request, query, number, start))
        return Outcome.OPEN

    def _next_alternative(self, choice: _Alternatives, outcome: Outcome) -> Outcome:
        if outcome is not Outcome.TOO_MANY:
            choice.all_too_many = False
        choice.index += 1
        queries = self.claims[choice.claim].requests[choice.request].queries
        if choice.index < len(queries):
            return self._descend(choice.claim, choice.request, queries[choice.index])
        self._stack.pop()
        return Outcome.TOO_MANY if choice.all_too_many else Outcome.FAILED

    def _next_device(self, choice: _Devices, outcome: Outcome) -> Outcome | SearchError:
        query = choice.query
        if choice.taken is not None:
            self._give_back(choice.claim, choice.taken)
            choice.failed.add(self._class_of(choice.taken.candidate))
            choice.taken = None
            self._has_backtracked = True
            if query.devices is not None or outcome is Outcome.TOO_MANY:
                # All takes its devices in one order alone.
                self._stack.pop()
                return outcome if outcome is Outcome.TOO_MANY else Outcome.FAILED
        taken = self._first_device(choice)
        if isinstance(taken, SearchError):
            # At the limit of what may be evaluated, the next cycle makes this choice.
            return taken
        if taken is None:
            self._stack.pop()
            return Outcome.FAILED
        choice.taken = taken
        return self._descend(choice.claim, choice.request, query, choice.number + 1, choice.next_index)

    def _first_device(self, choice: _Devices) -> Taken | SearchError | None:
        """Take the first device from the next index on that can be taken."""
        query = choice.query
        if query.devices is not None:
            return self._take(choice.claim, query, query.devices[choice.number], must=True)
        candidates = self.pools.candidates
        claim = self.claims[choice.claim].claim
        if self._has_backtracked:
            is_possible = self._has_enough(choice)
            if is_possible is not True:
                return is_possible or None
        for index in range(choice.next_index, len(candidates)):
            if self._has_backtracked:
                self._budget.n_left -= 1
            candidate = candidates[index]
            # A device that is in use runs no selectors.
            if self._is_in_use(choice.claim, query, candidate):
                continue
            if choice.failed and self._class_of(candidate) in choice.failed:
                continue
            selected = self._checks.selects(claim, query, candidate)
            if isinstance(selected, SearchError):
                return selected
            if selected:
                taken = self._take(choice.claim, query, candidate, must=False)
                if taken is not None:
                    choice.next_index = index + 1
                    return taken
        return None

    def _class_of(self, candidate: Candidate) -> int:
        if self._equal is None:
            self._equal = EqualDevices(self.claims, self._checks)
        return self._equal.class_of(candidate)

    def _has_enough(self, choice: _Devices) -> bool | SearchError:
        """Return whether enough selected devices are left for the query: if not, upstream tries them in vain."""
        query, claim = choice.query, self.claims[choice.claim].claim
        n_missing = query.n_devices - choice.number
        for candidate in self.pools.candidates[choice.next_index :]:
            if not n_missing:
                break
            self._budget.n_left -= 1
            if not self._is_in_use(choice.claim, query, candidate):
                selected = self._checks.selects(claim, query, candidate)
                if isinstance(selected, SearchError):
                    return selected
                n_missing -= selected
        return not n_missing

    def _is_in_use(self, claim: int, query: Query, candidate: Candidate) -> bool:
        marks = self._marks.get(candidate.id)
        if query.query.admin_access:
            return marks is not None and claim in marks
        return bool(marks) or candidate.id in self._allocated.dedicated

    def _take(
        self, claim: int, query: Query, candidate: Candidate, *, must: bool
    ) -> Taken | SearchError | None:
        """
        Take a device that is selected; return None if that is not possible now.

        With `must`, a constraint that refuses it is an error: no other device would do.
        """
        device, device_id = candidate.device, candidate.id
        if self._is_in_use(claim, query, candidate):
            return None
        has_counters = bool(device.consumes_counters) and self._is_charged(candidate)
        if has_counters and not self._counters.can_take(self.pools.pool_of(candidate), device):
            return None
        if device.taints and not query.tolerates(device.taints):
            return None
        checked = self.claims[claim]
        if not checked.constraints.accepts(query.request, query.alternative, candidate):
            if must:
                return SearchError(
                    f"claim {checked.claim.key}, request {query.query.name}: cannot add device {device_id} "
                    "because a claim constraint would not be satisfied"
                )
            return None
        wanted = query.wanted_of(device)
        if wanted is None or not is_left(
            wanted, device, self._allocated.consumed.get(device_id, _NO_USE), self._taken_of(device_id)
        ):
            return None
        taken = Taken(query, candidate, wanted if device.allow_multiple_allocations else None, has_counters)
        checked.constraints.add(query.request, query.alternative, candidate)
        if taken.wanted is not None:
            self._shared.setdefault(device_id, []).append(taken.wanted)
        else:
            self._marks.setdefault(device_id, set()).add(claim)
        if has_counters:
            self._counters.take(self.pools.pool_of(candidate), device)
        self.taken[claim].append(taken)
        return taken

    def _is_charged(self, candidate: Candidate) -> bool:
        """Return whether counters are consumed with the device: of a shared one only by the first share."""
        if not candidate.device.allow_multiple_allocations:
            return True
        # As upstream, a shared device without capacities is charged again for each claim (kubernetes #140433).
        return candidate.id not in self._allocated.consumed and candidate.id not in self._shared

    def _give_back(self, claim: int, taken: Taken) -> None:
        candidate, query = taken.candidate, taken.query
        self.claims[claim].constraints.remove(query.request, query.alternative, candidate)
        if taken.wanted is not None:
            shares = self._shared[candidate.id]
            shares.pop()
            if not shares:
                del self._shared[candidate.id]
        else:
            self._marks[candidate.id].discard(claim)
        if taken.has_counters:
            self._counters.give_back(self.pools.pool_of(candidate), candidate.device)
        self.taken[claim].pop()

    def _taken_of(self, device_id: DeviceId) -> Mapping[str, int]:
        shares = self._shared.get(device_id)
        if not shares:
            return _NO_USE
        total: dict[str, int] = {}
        for share in shares:
            for name, amount in share.items():
                total[name] = total.get(name, 0) + amount.nano
        return total
