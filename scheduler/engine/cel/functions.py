"""
How functions are declared: an overload has a signature for the checker, an implementation and a cost.

A signature is written "string.(int, int) -> string" (a member, the receiver before the dot) or "(int) -> string".
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from scheduler.engine.cel.types import Type, parse_type, split_types
from scheduler.engine.cel.values import Value, size_of

#: A cost, or what calculates it from the arguments.
Cost = int | Callable[[Sequence[Value]], int]


class Meter(Protocol):
    """What an evaluation has cost so far. It ends once the cost is above the limit."""

    cost: int

    def charge(self, cost: int) -> None:
        """Add a cost; raise CostLimitError if it is too much."""


@dataclass(frozen=True, slots=True)
class Overload:
    """One signature of a function. `args` begin with the receiver of a member."""

    function: str
    is_member: bool
    args: tuple[Type, ...]
    result: Type
    call: Callable[..., Value]
    cost: Cost
    #: The cost of the result, charged after the call.
    result_cost: Callable[[Value], int] | None
    #: Whether a call checks its arguments' types first; if not, `call` does.
    is_guarded: bool
    #: Whether `call` takes a `Meter` first, since its arguments do not tell how long it takes.
    is_metered: bool
    #: Whether the cost holds for calls, too, whose overload is known only at runtime.
    costs_by_name: bool


def function(
    name: str,
    signatures: str,
    call: Callable[..., Value],
    *,
    cost: Cost = 1,
    result_cost: Callable[[Value], int] | None = None,
    is_guarded: bool = True,
    is_metered: bool = False,
    costs_by_name: bool = True,
) -> list[Overload]:
    """Return the overloads of a function that share an implementation; `signatures` has one a line or ";"."""
    overloads = []
    for signature in signatures.split(";"):
        left, _, result = signature.strip().partition(" -> ")
        receiver, is_member, arguments = left.rpartition(".(") if ".(" in left else ("", "", left[1:])
        args = [receiver] if is_member else []
        args += split_types(arguments[:-1])
        overloads.append(
            Overload(
                name, bool(is_member), tuple(map(parse_type, args)), parse_type(result), call, cost, result_cost,
                is_guarded, is_metered, costs_by_name,
            )
        )  # fmt: skip
    return overloads


def traversal(args: Sequence[Value]) -> int:
    """Return the cost of reading the first argument once."""
    return math.ceil(size_of(args[0]) * 0.1)


def double_traversal(args: Sequence[Value]) -> int:
    """Return the cost of reading the first argument and writing as much."""
    return math.ceil(size_of(args[0]) * 2 * 0.1)


def regex_cost(args: Sequence[Value]) -> int:
    """Return the cost of matching the first argument with the second."""
    return math.ceil((1.0 + size_of(args[0])) * 0.1) * math.ceil(size_of(args[1]) * 0.25)


def smaller_size(args: Sequence[Value]) -> int:
    """Return the cost of comparing two arguments."""
    return math.ceil(min(size_of(args[0]), size_of(args[1])) * 0.1)
