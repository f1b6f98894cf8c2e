"""
Conversions between types, such as int("12").

Source: cel-go common/stdlib/standard.go and ConvertToType of common/types.
"""

import re
from collections.abc import Callable
from typing import Final

from scheduler.engine.cel.functions import SLOW, Overload, function
from scheduler.engine.cel.operators import checked_int, checked_timestamp, checked_uint
from scheduler.engine.cel.times import format_seconds, format_timestamp, parse_timestamp
from scheduler.engine.cel.values import (
    INT_MAX,
    INT_MIN,
    UINT_MAX,
    CelError,
    Duration,
    Timestamp,
    TypeValue,
    Uint,
    Value,
    format_double,
    type_name,
)
from scheduler.engine.syntax.durations import parse_duration_ns

_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_DIGITS: Final = re.compile(r"[0-9]+")
_DECIMAL: Final = re.compile(
    r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(inf|infinity|nan)", re.I
)
_HEX: Final = re.compile(r"[+-]?0x([0-9a-f]+\.?[0-9a-f]*|\.[0-9a-f]+)p[+-]?[0-9]+", re.I)
_SEPARATOR: Final = re.compile(r"(?<=[0-9])_(?=[0-9])")
_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})
#: Longer digits are no number of 64 bits; it also bounds Python's own conversion.
_MAX_DIGITS: Final = 4000


def _failed(target: str) -> CelError:
    return CelError(f"type conversion error from 'string' to '{target}'")


def _int_of_string(text: str) -> int:
    if _INTEGER.fullmatch(text) and len(text) <= _MAX_DIGITS and INT_MIN <= int(text) <= INT_MAX:
        return int(text)
    raise _failed("int")


def _uint_of_string(text: str) -> Uint:
    if _DIGITS.fullmatch(text) and len(text) <= _MAX_DIGITS and int(text) <= UINT_MAX:
        return Uint(text)
    raise _failed("uint")


def _double_of_string(text: str) -> float:
    text = _SEPARATOR.sub("", text)
    if _DECIMAL.fullmatch(text):
        value = float(text)
        if value not in (float("inf"), float("-inf")) or "n" in text.lower():
            return value
    if _HEX.fullmatch(text):
        try:
            return float.fromhex(text)
        except OverflowError:
            pass
    raise _failed("double")


def _bool_of_string(text: str) -> bool:
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise _failed("bool")


def _int_of_double(value: float) -> int:
    if value != value or value <= float(INT_MIN) or value >= float(INT_MAX):
        raise CelError("integer overflow")
    return int(value)


def _uint_of_double(value: float) -> Uint:
    if value != value or value < 0 or value >= float(UINT_MAX):
        raise CelError("unsigned integer overflow")
    return Uint(value)


def _string_of_bytes(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise CelError("invalid UTF-8 in bytes, cannot convert to string") from None


def _duration_of_string(text: str) -> Duration:
    ns = parse_duration_ns(text)
    if ns is None:
        raise _failed("google.protobuf.Duration")
    return Duration(ns)


def _timestamp_of_string(text: str) -> Timestamp:
    timestamp = parse_timestamp(text)
    if timestamp is None:
        raise _failed("google.protobuf.Timestamp")
    return checked_timestamp(timestamp.ns, timestamp.offset_s)


def _identity(value: Value) -> Value:
    return value


#: By result: argument -> conversion.
_CONVERSIONS: Final[dict[str, dict[str, Callable[..., Value]]]] = {
    "bool": {"bool": _identity, "string": _bool_of_string},
    "bytes": {"bytes": _identity, "string": lambda text: text.encode(errors="surrogateescape")},
    "double": {"double": _identity, "int": float, "string": _double_of_string, "uint": float},
    "duration": {"duration": _identity, "int": Duration, "string": _duration_of_string},
    "int": {
        "int": _identity, "double": _int_of_double, "duration": lambda value: value.ns,
        "string": _int_of_string, "timestamp": lambda value: value.ns // 10**9,
        "uint": lambda value: checked_int(int(value)),
    },
    "string": {
        "string": _identity, "bool": lambda value: "true" if value else "false", "bytes": _string_of_bytes,
        "double": lambda value: format_double(value, max_digits=6), "duration": format_seconds, "int": str,
        "timestamp": format_timestamp, "uint": str,
    },
    "timestamp": {
        "timestamp": _identity, "int": lambda value: checked_timestamp(value * 10**9),
        "string": _timestamp_of_string,
    },
    "uint": {
        "uint": _identity, "double": _uint_of_double, "int": checked_uint, "string": _uint_of_string,
    },
}  # fmt: skip


def string_of(value: Value) -> str:
    """Return string(value); a type is written as its name."""
    if value.__class__ is TypeValue:
        return str(value.name)
    short = type_name(value).removeprefix("google.protobuf.").lower()
    return str(_CONVERSIONS["string"][short](value))


def _overloads() -> list[tuple[str, Overload]]:
    return [
        overload
        for result, by_argument in _CONVERSIONS.items()
        for argument, convert in by_argument.items()
        for overload in function(
            result,
            f"({argument}) -> {result}",
            convert,
            steps=SLOW if result in ("duration", "timestamp") else 12,
            per_item=1,
        )
    ]


OVERLOADS: Final = [
    *_overloads(),
    *function("dyn", "(A) -> dyn", _identity),
    *function("type", "(A) -> type", lambda value: TypeValue(type_name(value))),
]
