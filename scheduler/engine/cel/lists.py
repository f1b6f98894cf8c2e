"""
Functions of lists and sets of values.

Source: cel-go ext/{lists,sets}.go, apiserver/pkg/cel/library/lists.go (kubernetes 1.36).
"""

from collections.abc import Callable
from functools import partial, reduce
from itertools import pairwise
from typing import Final

from scheduler.engine.cel.functions import Overload, function
from scheduler.engine.cel.operators import add, compare, contains
from scheduler.engine.cel.values import (
    COMPARISON,
    COPY,
    CelError,
    Duration,
    Meter,
    Uint,
    Value,
    equal_or_unknown,
)

_TYPES: Final = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")


def _compare(meter: Meter, left: Value, right: Value) -> int | None:
    meter.charge(COMPARISON)
    try:
        return compare(meter, "", left, right)
    except CelError:
        return None


def _is_sorted(meter: Meter, elements: list[Value]) -> bool:
    return all(_compare(meter, left, right) != 1 for left, right in pairwise(elements))


def _extreme(meter: Meter, name: str, sign: int, elements: list[Value]) -> Value:
    if not elements:
        raise CelError(f"{name} called on empty list")
    result = elements[0]
    for element in elements[1:]:
        if _compare(meter, result, element) == sign:
            result = element
    return result


def _index_of(meter: Meter, elements: list[Value], item: Value) -> int:
    meter.charge(COMPARISON * len(elements))
    return next(
        (index for index, element in enumerate(elements) if equal_or_unknown(element, item, meter)), -1
    )


def _last_index_of(meter: Meter, elements: list[Value], item: Value) -> int:
    position = _index_of(meter, elements[::-1], item)
    return len(elements) - 1 - position if position >= 0 else -1


def _slice(elements: list[Value], start: int, end: int) -> list[Value]:
    if start < 0 or end < 0:
        raise CelError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise CelError(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if len(elements) < end:
        raise CelError(f"cannot slice({start}, {end}), list is length {len(elements)}")
    return elements[start:end]


def _flatten(meter: Meter, elements: Value, depth: Value = 1) -> list[Value]:
    if depth < 0:
        raise CelError("level must be non-negative")
    result = elements
    while depth and any(element.__class__ is list for element in result):
        meter.charge(sum(1 + len(element) for element in result if element.__class__ is list) + len(result))
        flat: list[Value] = []
        for element in result:
            flat.extend(element if element.__class__ is list else [element])
        result, depth = flat, depth - 1
    return list(result)


def _distinct(meter: Meter, elements: list[Value]) -> list[Value]:
    unique: list[Value] = []
    for element in elements:
        if not contains(meter, element, unique):
            unique.append(element)
    return unique


def _range(meter: Meter, count: int) -> list[Value]:
    meter.charge(max(count, 0))
    return list(range(count))


def _sort(meter: Meter, elements: Value) -> list[Value]:
    if elements.__class__ is not list:
        raise CelError("no such overload: sort")
    return sort_by_keys(meter, elements, elements)


def sort_by_keys(meter: Meter, elements: Value, keys: list[Value]) -> list[Value]:
    """Return the elements in the order of their keys."""
    if elements.__class__ is not list:
        raise CelError("no such overload: @sortByAssociatedKeys")
    if not keys:
        return []
    if _compare(meter, keys[0], keys[0]) is None:
        raise CelError("list elements must be comparable")
    if any(key.__class__ is not keys[0].__class__ for key in keys):
        raise CelError("list elements must have the same type")
    meter.charge(2 * COMPARISON * len(keys))
    return [elements[index] for index in sorted(range(len(keys)), key=keys.__getitem__)]


def _set_contains(meter: Meter, elements: list[Value], sublist: list[Value]) -> bool:
    return all(contains(meter, element, elements) for element in sublist)


def _is_equivalent(meter: Meter, left: list[Value], right: list[Value]) -> bool:
    return _set_contains(meter, left, right) and _set_contains(meter, right, left)


def _intersects(meter: Meter, left: list[Value], right: list[Value]) -> bool:
    return any(contains(meter, element, right) for element in left)


def _by_type(name: str, result: str, call: Callable[..., Value]) -> list[tuple[str, Overload]]:
    signatures = ";".join(f"list({type_}).() -> {result or type_}" for type_ in _TYPES)
    return function(name, signatures, call, takes_meter=True)


def _sum(type_: str, zero: Value) -> list[tuple[str, Overload]]:
    def call(meter: Meter, elements: list[Value]) -> Value:
        meter.charge(COMPARISON * len(elements))
        return reduce(partial(add, meter), elements, zero)

    return function("sum", f"list({type_}).() -> {type_}", call, takes_meter=True)


OVERLOADS: Final = [
    *_by_type("isSorted", "bool", _is_sorted),
    *_sum("int", 0), *_sum("uint", Uint(0)), *_sum("double", 0.0), *_sum("duration", Duration(0)),
    *_by_type("max", "", lambda meter, elements: _extreme(meter, "max", -1, elements)),
    *_by_type("min", "", lambda meter, elements: _extreme(meter, "min", 1, elements)),
    *function("indexOf", "list(A).(A) -> int", _index_of, takes_meter=True),
    *function("lastIndexOf", "list(A).(A) -> int", _last_index_of, takes_meter=True),
    *function("slice", "list(T).(int, int) -> list(T)", _slice, per_item=COPY),
    *function("flatten", "list(list(T)).() -> list(T); list(dyn).(int) -> list(dyn)", _flatten, takes_meter=True),
    *function("distinct", "list(T).() -> list(T)", _distinct, takes_meter=True),
    *function("reverse", "list(T).() -> list(T)", lambda elements: elements[::-1], per_item=COPY),
    *function("lists.range", "(int) -> list(int)", _range, takes_meter=True),
    *function("sort", ";".join(f"list({type_}).() -> list({type_})" for type_ in _TYPES), _sort,
        takes_meter=True, is_guarded=False),
    *function("sets.contains", "(list(T), list(T)) -> bool", _set_contains, takes_meter=True),
    *function("sets.equivalent", "(list(T), list(T)) -> bool", _is_equivalent, takes_meter=True),
    *function("sets.intersects", "(list(T), list(T)) -> bool", _intersects, takes_meter=True),
]  # fmt: skip
