"""
Which devices a request selects: the selectors of its class, then its own.

Source: structured/internal/incubating/allocator_incubating.go, isSelectable and selectorsMatch (kubernetes 1.36).
"""

from __future__ import annotations

from typing import Final

from scheduler.cel import (
    COST_LIMIT,
    CompileError,
    EvaluationError,
    Selector,
    compile_selector,
)
from scheduler.model.device_fields import fields_of
from scheduler.model.devices import Device
from scheduler.plugins.dynamic_resources.inputs import Candidate, SearchError

ENDED_AT_LIMIT: Final = "search for devices ended at its limit"
#: What may be evaluated for a pod in a cycle, over all nodes: 19 ms at up to 0.15 µs a unit. The first evaluation may
#: cost as much as any, so that each try gets further.
MAX_COST: Final = COST_LIMIT // 8
#: To see a device as expressions do, in the same units. It takes 13 µs, but a first decision over 5,000 nodes, with a
#: selector of the class and one of the claim, is not to be cut short.
_COST_OF_DEVICE: Final = 5
#: The most expressions whose results are kept.
_MAX_EXPRESSIONS: Final = 256
#: The most results that are kept of one expression: 2,000 slices with the most devices.
_MAX_RESULTS: Final = 262_144


class SelectorResults:
    """
    The results of CEL expressions by device, which are kept as long as there is room.

    What may be evaluated for one pod is bounded. Results are kept, so that the next try gets further.
    """

    def __init__(self) -> None:
        #: What may still be evaluated for the pod.
        self._cost_left = MAX_COST
        self._selectors: dict[str, Selector | CompileError] = {}
        self._results: dict[str, dict[Device, bool | EvaluationError]] = {}

    @property
    def is_spent(self) -> bool:
        """Whether the pod has evaluated as much as it may."""
        return self._cost_left <= 0

    def start_pod(self) -> None:
        """Let the next pod evaluate as much as any other."""
        self._cost_left = MAX_COST

    def matches(
        self, expression: str, candidate: Candidate
    ) -> bool | CompileError | EvaluationError | SearchError:
        """Return whether the expression is true for the device, or why it has no answer."""
        results = self._results.get(expression)
        if results is None:
            results = self._opened(expression)
        result = results.get(candidate.device)
        if result is not None:
            return result
        selector = self._selectors[expression]
        if isinstance(selector, CompileError):
            return selector
        if len(results) >= _MAX_RESULTS:
            results.clear()
        if self._cost_left <= 0:
            return SearchError(ENDED_AT_LIMIT, is_limit=True)
        limit = COST_LIMIT if self._cost_left == MAX_COST else self._cost_left
        result, cost = selector.evaluate(fields_of(candidate.id.driver, candidate.device), limit)
        self._cost_left -= _COST_OF_DEVICE + cost
        if cost > limit and limit < COST_LIMIT:
            return SearchError(ENDED_AT_LIMIT, is_limit=True)
        results[candidate.device] = result
        return result

    def _opened(self, expression: str) -> dict[Device, bool | EvaluationError]:
        if len(self._results) >= _MAX_EXPRESSIONS:
            oldest = next(iter(self._results))
            del self._results[oldest], self._selectors[oldest]
        self._selectors[expression] = compile_selector(expression)
        results = self._results[expression] = {}
        return results


def all_match(
    selectors: tuple[str | None, ...], candidate: Candidate, results: SelectorResults, *, owner: str
) -> bool | SearchError:
    """Return whether all selectors are true for the device; the first that is false or fails decides."""
    for index, expression in enumerate(selectors):
        if expression is None:
            return SearchError(
                f"{owner}: selector #{index}: CEL expression empty (unsupported selector type?)"
            )
        result = results.matches(expression, candidate)
        if isinstance(result, SearchError):
            return result
        if isinstance(result, CompileError):
            return SearchError(f"{owner}: selector #{index}: CEL compile error: {result.text}")
        if isinstance(result, EvaluationError):
            return SearchError(f"{owner}: selector #{index}: CEL runtime error: {result.text}")
        if not result:
            return False
    return True
