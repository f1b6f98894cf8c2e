"""
Functions of lists and sets of values.

Source: cel-go ext/{lists,sets}.go, apiserver/pkg/cel/library/lists.go (kubernetes 1.36).
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

from scheduler.engine.cel.functions import Cost, Overload, function
from scheduler.engine.cel.operators import MAX_LIST, add, compare, contains
from scheduler.engine.cel.values import (
    CelError,
    CostLimitError,
    Duration,
    Uint,
    Value,
    equal_or_unknown,
    key_value,
    size_of,
    weight,
)

_COMPARABLE: Final = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
_NEW_LIST: Final = 10


def _reading(args: Sequence[Value]) -> int:
    """Return the cost of reading the first argument and all in it, at most what is too much."""
    cost, stack = 0, [args[0]]
    while stack and cost <= MAX_LIST:
        value = stack.pop()
        if isinstance(value, str):
            cost += int(len(value.encode(errors="replace")) * 0.1)
        elif isinstance(value, bytes):
            cost += int(len(value) * 0.1)
        elif isinstance(value, list):
            stack += value
        elif isinstance(value, dict):
            stack += [part for key, inner in value.items() for part in (key_value(key), inner)]
        else:
            cost += 1
        if len(stack) > MAX_LIST:
            raise CostLimitError
    return cost


def _output_size(result: Value) -> int:
    return 1 + _NEW_LIST + size_of(result)


def _flatten_cost(args: Sequence[Value]) -> int:
    return 1 + _NEW_LIST + int(size_of(args[0]) * float(args[1] if len(args) == 2 else 1))


def self_compare_cost(args: Sequence[Value]) -> int:
    """Return the cost of comparing all elements of the last argument with each other."""
    elements = args[-1]
    has_texts = bool(elements) and elements[0].__class__ in (str, bytes)
    return 1 + _NEW_LIST + int(weight(elements) ** 2 * (2.1 if has_texts else 2.0))


def _compare(left: Value, right: Value) -> int | None:
    try:
        return compare("", left, right)
    except CelError:
        return None


def _is_sorted(elements: list[Value]) -> bool:
    return all(_compare(left, right) != 1 for left, right in pairwise(elements))


def _sum_from(zero: Value, elements: list[Value]) -> Value:
    total = zero
    for element in elements:
        total = add(total, element)
    return total


def _extreme(name: str, sign: int, elements: list[Value]) -> Value:
    if not elements:
        raise CelError(f"{name} called on empty list")
    result = elements[0]
    for element in elements[1:]:
        if _compare(result, element) == sign:
            result = element
    return result


def _index_of(elements: list[Value], item: Value) -> int:
    return next((index for index, element in enumerate(elements) if equal_or_unknown(element, item)), -1)


def _last_index_of(elements: list[Value], item: Value) -> int:
    position = _index_of(elements[::-1], item)
    return len(elements) - 1 - position if position >= 0 else -1


def _slice(elements: list[Value], start: int, end: int) -> list[Value]:
    if start < 0 or end < 0:
        raise CelError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise CelError(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if len(elements) < end:
        raise CelError(f"cannot slice({start}, {end}), list is length {len(elements)}")
    return elements[start:end]


def _flatten(elements: Value, depth: Value = 1) -> list[Value]:
    if depth < 0:
        raise CelError("level must be non-negative")
    result = elements
    while depth and any(element.__class__ is list for element in result):
        flat: list[Value] = []
        for element in result:
            flat.extend(element if element.__class__ is list else [element])
            if len(flat) > MAX_LIST:
                raise CostLimitError
        result, depth = flat, depth - 1
    return list(result)


def _distinct(elements: list[Value]) -> list[Value]:
    unique: list[Value] = []
    for element in elements:
        if not any(equal_or_unknown(element, other) for other in unique):
            unique.append(element)
    return unique


def _range(count: int) -> list[Value]:
    if count > MAX_LIST:
        raise CostLimitError
    return list(range(count))


def _sort(elements: Value) -> list[Value]:
    if elements.__class__ is not list:
        raise CelError("no such overload: sort")
    return _sort_by_keys(elements, elements)


def _sort_by_keys(elements: Value, keys: list[Value]) -> list[Value]:
    if elements.__class__ is not list:
        raise CelError("no such overload: @sortByAssociatedKeys")
    if not keys:
        return []
    if _compare(keys[0], keys[0]) is None:
        raise CelError("list elements must be comparable")
    if any(key.__class__ is not keys[0].__class__ for key in keys):
        raise CelError("list elements must have the same type")
    order = sorted(range(len(keys)), key=keys.__getitem__)
    return [elements[index] for index in order]


def _set_contains(elements: list[Value], sublist: list[Value]) -> bool:
    return all(contains(element, elements) for element in sublist)


def _set_cost(factor: int) -> Cost:
    return lambda args: 1 + weight(args[0]) * weight(args[1]) * factor


def _by_type(
    name: str, result: str, call: Callable[..., Value], types: Sequence[str] = _COMPARABLE
) -> list[Overload]:
    signatures = ";".join(f"list({type_}).() -> {result or type_}" for type_ in types)
    return function(name, signatures, call, cost=_reading)


_SORTED: Final = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")

OVERLOADS: Final = [
    *_by_type("isSorted", "bool", _is_sorted),
    *_by_type("sum", "", lambda elements: _sum_from(0, elements), ("int",)),
    *_by_type("sum", "", lambda elements: _sum_from(Uint(0), elements), ("uint",)),
    *_by_type("sum", "", lambda elements: _sum_from(0.0, elements), ("double",)),
    *_by_type("sum", "", lambda elements: _sum_from(Duration(0), elements), ("duration",)),
    *_by_type("max", "", lambda elements: _extreme("max", -1, elements)),
    *_by_type("min", "", lambda elements: _extreme("min", 1, elements)),
    *function("indexOf", "list(A).(A) -> int", _index_of, cost=_reading),
    *function("lastIndexOf", "list(A).(A) -> int", _last_index_of, cost=_reading),
    *function("slice", "list(T).(int, int) -> list(T)", _slice, cost=0, result_cost=_output_size, costs_by_name=False),
    *function("flatten", "list(list(T)).() -> list(T); list(dyn).(int) -> list(dyn)", _flatten,
        cost=_flatten_cost, costs_by_name=False),
    *function("distinct", "list(T).() -> list(T)", _distinct, cost=self_compare_cost, costs_by_name=False),
    *function("reverse", "list(T).() -> list(T)", lambda elements: elements[::-1], cost=0, result_cost=_output_size,
        costs_by_name=False),
    *function("lists.range", "(int) -> list(int)", _range, cost=0, result_cost=_output_size, costs_by_name=False),
    *function("sort", ";".join(f"list({type_}).() -> list({type_})" for type_ in _SORTED), _sort,
        cost=self_compare_cost, is_guarded=False, costs_by_name=False),
    *function("@sortByAssociatedKeys", ";".join(f"list(T).(list({type_})) -> list(T)" for type_ in _SORTED),
        _sort_by_keys, cost=self_compare_cost, is_guarded=False, costs_by_name=False),
    *function("sets.contains", "(list(T), list(T)) -> bool", _set_contains, cost=_set_cost(1)),
    *function("sets.equivalent", "(list(T), list(T)) -> bool",
        lambda left, right: _set_contains(left, right) and _set_contains(right, left), cost=_set_cost(2)),
    *function("sets.intersects", "(list(T), list(T)) -> bool",
        lambda left, right: any(contains(element, right) for element in left), cost=_set_cost(1)),
]  # fmt: skip
