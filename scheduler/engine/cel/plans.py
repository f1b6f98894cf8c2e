"""The state of one evaluation, and how a node is evaluated."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from scheduler.engine.cel.values import CostLimitError, Value

#: The most that one evaluation may cost (resource/v1, CELSelectorExpressionMaxCost).
COST_LIMIT: Final = 1_000_000


class Frame:
    """One evaluation: the device, the variables of loops, and the cost so far."""

    __slots__ = ("cost", "device", "slots")

    def __init__(self, device: Value, n_slots: int) -> None:
        self.device = device
        self.slots: list[Value] = [None] * n_slots
        self.cost = 0

    def charge(self, cost: int) -> None:
        """Add a cost; raise CostLimitError if it is too much."""
        self.cost += cost
        if self.cost > COST_LIMIT:
            raise CostLimitError


Run = Callable[[Frame], Value]


class InstantiationError(Exception):
    """A constant of a checked expression has no value."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How a node is evaluated. `base_cost` is what its use as a key or a branch of a conditional does not cost."""

    run: Run
    base_cost: int = 0
    is_attribute: bool = False
    is_constant: bool = False
    value: Value = None


def constant(value: Value) -> Plan:
    """Return how a constant is evaluated."""
    return Plan(lambda _frame: value, is_constant=True, value=value)


UNSET: Final = object()
