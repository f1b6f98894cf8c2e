"""
Which devices a request selects: the selectors of its class, then its own.

Source: structured/internal/incubating/allocator_incubating.go, isSelectable and selectorsMatch (kubernetes 1.36).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable
from typing import Final, TypeAlias

from scheduler.engine.cel import MAX_STEPS, CompiledSelector, CompileError, EvaluationError, compile_selector
from scheduler.engine.model.devices import Device, variable_of
from scheduler.engine.plugins.dynamic_resources.answers import UNFINISHED, AuditWindow, NotAllocated
from scheduler.engine.plugins.dynamic_resources.pools import PoolDevice

#: Steps of evaluations for a pod in a cycle, over all nodes: 19 ms at up to 50 ns each. The first evaluation may cost
#: any amount, so that each try gets further.
MAX_COST: Final = MAX_STEPS * 3 // 8
#: Steps for preparing a device for expressions. It takes 13 µs, but a first decision over 5,000 nodes, with a
#: selector of the class and one of the claim, must not be cut short.
_COST_OF_DEVICE: Final = 30
#: A search goes on at once if an evaluation and its device cost no more than this.
_CHEAP: Final = 192
#: The most results that are kept of one expression: 2,000 slices with the most devices.
_MAX_RESULTS: Final = 262_144


class ExpressionResults:
    """A compiled CEL expression, and its results by driver and device, which never change."""

    def __init__(self, expression: str) -> None:
        self.selector = compile_selector(expression)
        self.by_driver: defaultdict[str, dict[Device, bool | EvaluationError]] = defaultdict(dict)
        self._audited = AuditWindow()

    @property
    def nbytes(self) -> int:
        """Bytes of the expression, and 64 of each result."""
        own = self.selector.nbytes if isinstance(self.selector, CompiledSelector) else 2000
        return own + 64 * sum(map(len, self.by_driver.values()))

    def same_as(self, fresh: ExpressionResults) -> bool:
        """Return whether the next few results equal those of a new evaluation; for the audit."""
        known = [(driver, device) for driver, results in self.by_driver.items() for device in results]
        return all(
            isinstance(fresh.selector, CompiledSelector)
            and fresh.selector.evaluate(variable_of(driver, device))[0] == self.by_driver[driver][device]
            for driver, device in self._audited.of(known)
        )


#: Returns the value of a key, which it makes if there is none, as `ClusterView.kept`.
Keep: TypeAlias = Callable[[Hashable, Callable[[], ExpressionResults]], ExpressionResults]


class SelectorResults:
    """The results of CEL expressions for one pod: bounded in a cycle, and kept, so that the next one gets further."""

    def __init__(self, keep: Keep = lambda _key, make: make()) -> None:
        self._keep = keep
        #: What may still be evaluated for the pod.
        self._cost_left, self._n_evaluated = MAX_COST, 0
        self._opened: dict[str, ExpressionResults] = {}

    @property
    def is_spent_on_few(self) -> bool:
        """Whether the budget of evaluations is spent by costly expressions, not by the number of devices."""
        return self._cost_left <= 0 and self._n_evaluated * _CHEAP < MAX_COST

    def renew(self) -> None:
        """Give the pod its whole budget of evaluations again."""
        self._cost_left, self._n_evaluated = MAX_COST, 0

    def all_match(
        self, selectors: tuple[str | None, ...], device: PoolDevice, kind: str, owner: str
    ) -> bool | NotAllocated:
        """Return whether all selectors are true for the device; the first that is false or fails decides."""
        # `kind`, `owner`: the object that has the selectors.
        for index, expression in enumerate(selectors):
            if expression is None:
                problem = "CEL expression empty (unsupported selector type?)"
                return NotAllocated(f"{kind} {owner}: selector #{index}: {problem}")
            result = self.matches(expression, device)
            if result is True:
                continue
            if result is False:
                return False
            if isinstance(result, CompileError | EvaluationError):
                problem = "compile" if isinstance(result, CompileError) else "runtime"
                return NotAllocated(f"{kind} {owner}: selector #{index}: CEL {problem} error: {result.text}")
            return result
        return True

    def matches(
        self, expression: str, device: PoolDevice
    ) -> bool | CompileError | EvaluationError | NotAllocated:
        """Return whether the expression is true for the device, or why it has no answer."""
        opened = self._opened.get(expression)
        if opened is None:
            opened = self._opened[expression] = self._keep(
                ("selector of devices", expression), lambda: ExpressionResults(expression)
            )
        results = opened.by_driver[device.id.driver]
        result = results.get(device.device)
        if result is not None:
            return result
        if isinstance(opened.selector, CompileError):
            return opened.selector
        if len(results) >= _MAX_RESULTS:
            results.clear()
        if self._cost_left <= 0:
            return UNFINISHED
        limit = MAX_STEPS if self._cost_left == MAX_COST else self._cost_left
        result, cost = opened.selector.evaluate(variable_of(device.id.driver, device.device), limit)
        self._cost_left -= _COST_OF_DEVICE + cost
        self._n_evaluated += 1
        if cost > limit and limit < MAX_STEPS:
            return UNFINISHED
        results[device.device] = result
        return result
