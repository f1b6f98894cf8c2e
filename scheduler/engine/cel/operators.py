"""
Arithmetic and order: the operators whose operands decide at runtime what they do.

Integers have 64 bits and overflow into errors. Source: cel-go common/types/{int,uint,double,overflow,compare}.go.
"""

import math
import operator
from collections.abc import Callable
from typing import Any, Final

from scheduler.engine.cel.functions import function
from scheduler.engine.cel.values import (
    COMPARED,
    COMPARISON,
    COPY,
    INT_MAX,
    INT_MIN,
    MISSING,
    UINT_MAX,
    CelError,
    Duration,
    Meter,
    Timestamp,
    Uint,
    Value,
    compare_numbers,
    display,
    equal_or_unknown,
    lookup,
    map_key,
    type_name,
)

TIMESTAMP_MIN_S: Final = -62135596800
TIMESTAMP_MAX_S: Final = 253402300799


def checked_int(value: int) -> int:
    """Return the integer, or raise CelError where it has more than 64 bits."""
    if INT_MIN <= value <= INT_MAX:
        return value
    raise CelError("integer overflow")


def checked_uint(value: int) -> Uint:
    """Return the unsigned integer, or raise CelError where it is negative or has more than 64 bits."""
    if 0 <= value <= UINT_MAX:
        return Uint(value)
    raise CelError("unsigned integer overflow")


def checked_duration(ns: int) -> Duration:
    """Return the duration, or raise CelError where its nanoseconds have more than 64 bits."""
    if INT_MIN <= ns <= INT_MAX:
        return Duration(ns)
    raise CelError("duration overflow")


def checked_timestamp(ns: int, offset_s: int = 0) -> Timestamp:
    """Return the time, or raise CelError where it is not in the years 1 to 9999."""
    if TIMESTAMP_MIN_S <= ns // 10**9 <= TIMESTAMP_MAX_S:
        return Timestamp(ns, offset_s)
    raise CelError("timestamp overflow")


def add(meter: Meter, left: Value, right: Value) -> Value:
    """Return `left + right`."""
    class_, other = left.__class__, right.__class__
    if class_ is int and other is int:
        return checked_int(left + right)
    if class_ is Duration and other is Timestamp:
        left, right, class_, other = right, left, other, class_
    if class_ is Timestamp and other is Duration:
        return checked_timestamp(left.ns + right.ns, left.offset_s)
    if class_ is other and class_ in _SIZED:
        meter.charge(int((len(left) + len(right)) * COPY))
        return left + right
    if class_ in _SIZED or class_ is Timestamp:
        raise CelError("no such overload")
    return _calculated("_+_", operator.add, left, right)


def subtract(left: Value, right: Value) -> Value:
    """Return `left - right`."""
    if left.__class__ is Timestamp and right.__class__ is Duration:
        return checked_timestamp(left.ns - right.ns, left.offset_s)
    if left.__class__ is Timestamp and right.__class__ is Timestamp:
        return Duration(checked_int(left.ns - right.ns))
    if left.__class__ is Timestamp:
        raise CelError("no such overload")
    return _calculated("_-_", operator.sub, left, right)


def multiply(left: Value, right: Value) -> Value:
    """Return `left * right`."""
    if left.__class__ is Duration:
        raise CelError("no such overload: _*_")
    return _calculated("_*_", operator.mul, left, right)


def _calculated(name: str, calculate: Callable[[Any, Any], Any], left: Value, right: Value) -> Value:
    """Return what comes of two numbers or durations."""
    class_ = left.__class__
    if class_ is not Duration:
        _same_number(name, left, right)
    elif right.__class__ is not Duration:
        raise CelError("no such overload")
    if class_ is Duration:
        return checked_duration(calculate(left.ns, right.ns))
    if class_ is int:
        return checked_int(calculate(left, right))
    return checked_uint(calculate(int(left), int(right))) if class_ is Uint else calculate(left, right)


def divide(left: Value, right: Value) -> Value:
    """Return `left / right`; integers are rounded towards zero."""
    class_ = _same_number("_/_", left, right)
    if class_ is float:
        if right:
            return left / right
        if not left or left != left:
            return math.nan
        return math.copysign(math.inf, math.copysign(1.0, left) * math.copysign(1.0, right))
    if not right:
        raise CelError("division by zero")
    quotient = abs(int(left)) // abs(int(right))
    if class_ is Uint:
        return Uint(quotient)
    return checked_int(quotient if (left < 0) == (right < 0) else -quotient)


def modulo(left: Value, right: Value) -> Value:
    """Return the remainder of `left / right`, with the sign of `left`."""
    if left.__class__ is float:
        raise CelError("no such overload: _%_")
    class_ = _same_number("_%_", left, right)
    if not right:
        raise CelError("modulus by zero")
    if left == INT_MIN and right == -1:
        raise CelError("integer overflow")
    remainder = abs(int(left)) % abs(int(right))
    return Uint(remainder) if class_ is Uint else -remainder if left < 0 else remainder


def _same_number(name: str, left: Value, right: Value) -> type:
    class_ = left.__class__
    if class_ is not int and class_ is not Uint and class_ is not float:
        raise CelError(f"no such overload: {name}")
    if class_ is not right.__class__:
        raise CelError("no such overload")
    return class_  # type: ignore[no-any-return]


def negate(value: Value) -> Value:
    """Return `-value`."""
    class_ = value.__class__
    if class_ is int:
        return checked_int(-value)
    if class_ is float:
        return -value
    if class_ is Duration:
        return checked_duration(-value.ns)
    raise CelError("no such overload" if class_ in (bool, str) else "no such overload: -_")


def logical_not(value: Value) -> bool:
    """Return `!value`."""
    if value is True or value is False:
        return not value
    raise CelError("no such overload")


def compare(meter: Meter, sign: str, left: Value, right: Value) -> int:
    """Return -1, 0 or 1 for less, equal or greater; raise CelError if the values have no order."""
    class_, other = left.__class__, right.__class__
    if class_ in _NUMBERS:
        if other not in _NUMBERS:
            raise CelError("no such overload")
        if left != left or right != right:
            raise CelError("NaN values cannot be ordered")
        return compare_numbers(left, right)
    if class_ not in _ORDERED:
        raise CelError(f"no such overload: {sign}")
    if class_ is not other:
        raise CelError("no such overload")
    if class_ is str or class_ is bytes:
        meter.charge(int(len(left) * COMPARED))
    return int(left > right) - int(left < right)


def contains(meter: Meter, element: Value, container: Value) -> bool:
    """Return `element in container`: an element of a list, a key of a map."""
    class_ = container.__class__
    if class_ is list:
        meter.charge(COMPARISON * len(container))
        return any(equal_or_unknown(element, other, meter) for other in container)
    if isinstance(container, dict):
        return (element if element.__class__ is str else map_key(element)) in container
    raise CelError("no such overload")


def size(value: Value) -> int:
    """Return the number of characters, bytes, elements or entries."""
    if value.__class__ in _SIZED or isinstance(value, dict):
        return len(value)
    raise CelError("no such overload: size")


def insert(map_: dict[Value, Value], key: Value, value: Value) -> None:
    """Add an entry to the map that a loop builds; a key may not be there twice."""
    if map_key(key) in map_:
        raise CelError(f"insert failed: key {key} already exists")
    map_[map_key(key)] = value


_NUMBERS: Final = frozenset({int, Uint, float})
_ORDERED: Final = frozenset({bool, str, bytes, Timestamp, Duration})
_SIZED: Final = frozenset({str, bytes, list})


OVERLOADS: Final = function(
    "size",
    "(bytes) -> int; bytes.() -> int; (list(A)) -> int; list(A).() -> int; (map(A, B)) -> int; map(A, B).() -> int;"
    "(string) -> int; string.() -> int",
    size,
    is_guarded=False,
)


def index(container: Value, key: Value) -> Value:
    """Return `container[key]`, or MISSING; raise CelError if the key is no index of a list."""
    if isinstance(container, dict):
        return lookup(container, key)
    if container.__class__ is not list:
        return MISSING
    class_ = key.__class__
    if class_ not in _NUMBERS:
        raise CelError(f"unsupported index type '{type_name(key)}' in list")
    if (class_ is float and not key.is_integer()) or abs(key) > INT_MAX:
        raise CelError(f"unsupported index value {display(key)} in list")
    position = int(key)
    return container[position] if 0 <= position < len(container) else MISSING
