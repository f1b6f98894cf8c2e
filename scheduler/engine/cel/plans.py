"""
How an expression is evaluated: closures over the frame of one evaluation, which has so many steps to spend.

A step takes 50 ns at most. What stands in the text is counted before the evaluation, the passes of a loop before the
loop, and what a function reads, compares or makes before it does.
"""

from collections.abc import Callable, Sequence
from typing import Final

from scheduler.engine.cel.values import Meter, Value

#: The most that one evaluation may spend. An API server lets through what costs 1,000,000 at most by its estimate
#: (resource/v1, CELSelectorExpressionMaxCost). Fields, comparisons and loops take 1 to 1.5 steps for a unit of it;
#: parsing, which costs as little there, takes up to 12.
MAX_STEPS: Final = 1_000_000
#: Nodes may nest this deep; upstream allows about 250. Each takes a few calls of Python's to evaluate.
MAX_DEPTH: Final = 150


class Frame(Meter):
    """One evaluation: the device, the variables of loops, and the steps that are left."""

    __slots__ = ("device", "slots")

    def __init__(self, device: Value, n_slots: int, left: int) -> None:
        self.left = left
        self.device = device
        self.slots: list[Value] = [None] * n_slots


Run = Callable[[Frame], Value]


class ExpressionError(Exception):
    """A text that is no selector. The message says why."""


class Plan:
    """
    How a part of an expression is evaluated. It lives as long as the text is parsed; its closure stays.

    Attributes:
        kind: the name of the type that every value of it has, as `type_name` gives it; "any" for an attribute of a
            device, "dyn" where the expression says so, empty where nothing is known.
        weight: steps of one evaluation, without those of loops and of what depends on sizes.
        value: of a constant; None for others.
        elements: the elements of a list that is written out.
        path: the constant keys that lead to it from the device.
        selected: the value and the field of it that is selected, for `has`.
    """

    def __init__(self, run: Run, kind: str = "", parts: "Sequence[Plan]" = (), own: int = 1) -> None:
        self.run, self.kind, self.parts = run, kind, parts
        self.weight, self.depth = own, 1
        for part in parts:
            self.weight += part.weight
            self.depth = max(self.depth, part.depth + 1)
        if self.depth > MAX_DEPTH:
            raise ExpressionError(f"it nests deeper than {MAX_DEPTH}")
        self.is_constant = False
        self.value: Value = None
        self.elements: Sequence[Plan] = ()
        self.path: tuple[str, ...] | None = None
        self.selected: tuple[Plan, str] | None = None


def constant(value: Value, kind: str) -> Plan:
    """Return the plan of a constant."""
    plan = Plan(lambda _frame: value, kind, own=0)
    plan.is_constant, plan.value = True, value
    return plan


def is_known(kind: str) -> bool:
    """Return whether a kind is that of all values."""
    return kind not in ("", "any", "dyn")


#: Steps of an error that is absorbed.
FAILURE: Final = 30
UNSET: Final = object()
