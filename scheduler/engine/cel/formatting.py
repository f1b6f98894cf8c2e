"""
string.format.

Numbers of the clauses %f and %e are written as for American English. Source: cel-go ext/formatting.go.
"""

import re
from collections.abc import Sequence
from typing import Final

from scheduler.engine.cel.conversions import string_of
from scheduler.engine.cel.functions import SLOW, function
from scheduler.engine.cel.plans import ExpressionError, Plan
from scheduler.engine.cel.values import (
    COPY,
    CelError,
    Duration,
    Meter,
    Timestamp,
    Uint,
    Value,
    go_quote,
    key_value,
    type_name,
)

_DEFAULT_PRECISION: Final = 6
#: Upstream has no limit; a longer text would cost more than any selector may.
_MAX_PRECISION: Final = 10_000
_CLAUSE: Final = re.compile(r"%(?:(%)|(\.?)([0-9]*)(.)?)", re.S)
#: Steps of an element of a list, and of a character that is quoted.
_ELEMENT: Final = 16
_QUOTED_CHARACTER: Final = 4
_SUPERSCRIPT: Final = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")

_STRINGS: Final = ("string", "list", "map", "int", "uint", "double", "bool", "google.protobuf.Timestamp", "bytes",
    "google.protobuf.Duration", "type", "null_type")  # fmt: skip
#: What each clause takes, and what it says of anything else.
_CLAUSES: Final = {
    "s": (_STRINGS, "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, "
        "durations, and timestamps"),
    "d": (("int", "uint"), "decimal clause can only be used on integers"),
    "f": (("double", "string"), "fixed-point clause can only be used on doubles"),
    "e": (("double", "string"), "scientific clause can only be used on doubles"),
    "b": (("int", "uint", "bool"), "only integers and bools can be formatted as binary"),
    "x": (("int", "uint", "string", "bytes"), "only integers, byte buffers, and strings can be formatted as hex"),
    "o": (("int", "uint"), "octal clause can only be used on integers"),
}  # fmt: skip


def _format(meter: Meter, text: str, arguments: list[Value]) -> str:
    meter.charge(len(text))
    parts: list[str] = []
    position = count = 0
    for clause in _CLAUSE.finditer(text):
        parts.append(text[position : clause.start()])
        position = clause.end()
        if clause[1]:
            parts.append("%")
            continue
        if clause.end() - clause.start() == 1:
            raise CelError("unexpected end of string")
        if count >= len(arguments):
            raise CelError(f"index {count} out of range")
        letter, precision = _parse_clause(clause)
        parts.append(_write(meter, letter, precision, arguments[count]))
        count += 1
    return "".join([*parts, text[position:]])


def _fault(message: str) -> CelError:
    """Return the error of a value that a clause does not take."""
    return CelError(f"error during formatting: {message}")


def _parse_clause(clause: re.Match[str]) -> tuple[str, int | None]:
    """Return the letter and the precision of a clause."""
    prefix = "could not parse formatting clause: "
    digits, letter = (clause[3], clause[4] or "") if clause[2] else ("", clause[0][1])
    if clause[2] and not letter:
        reason = "could not find end of precision specifier"
        raise CelError(f"{prefix}error while parsing precision: {reason}")
    if clause[2] and not 0 < len(digits) <= 18:
        reason = "value out of range" if digits else "invalid syntax"
        atoi = f"strconv.Atoi: parsing {go_quote(digits)}: {reason}"
        raise CelError(
            f"{prefix}error while parsing precision: error while converting precision to integer: {atoi}"
        )
    if letter not in _CLAUSES and letter != "X":
        raise CelError(f'{prefix}unrecognized formatting clause "{letter}"')
    return letter, int(digits) if clause[2] else None


def _write(meter: Meter, letter: str, precision: int | None, value: Value) -> str:
    allowed, message = _CLAUSES[letter.lower() if letter == "X" else letter]
    name = type_name(value)
    if name not in allowed or (letter in "fe" and name == "string" and value not in _SPECIAL_TEXTS):
        raise _fault(f"{message}, was given {name}")
    match letter:
        case "s":
            return _write_string(meter, value)
        case "d":
            return str(int(value))
        case "f" | "e":
            return _write_double(
                meter, letter, _DEFAULT_PRECISION if precision is None else precision, float(value)
            )
        case "o":
            return f"{int(value):o}"
        case "b":
            return f"{int(value):b}"
        case _:
            if name in ("string", "bytes"):
                meter.charge(len(value) // 2)
                data: bytes = value if isinstance(value, bytes) else value.encode(errors="replace")
                return data.hex().upper() if letter == "X" else data.hex()
            return f"{int(value):{letter}}"


_SPECIAL_TEXTS: Final = ("NaN", "Infinity", "-Infinity")


def _write_double(meter: Meter, letter: str, precision: int, value: float) -> str:
    if precision > _MAX_PRECISION:
        raise _fault(f"a precision of more than {_MAX_PRECISION} digits is not supported")
    meter.charge(precision)
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "∞" if value > 0 else "-∞"
    if letter == "f":
        return f"{value:,.{precision}f}"
    mantissa, _, exponent = f"{value:.{precision}e}".partition("e")
    power = int(exponent)
    shown = f"{power:03d}" if power < 0 else f"{power:02d}"
    return f"{mantissa}\u202f×\u202f10{shown.translate(_SUPERSCRIPT)}"


def _write_string(meter: Meter, value: Value) -> str:
    class_ = value.__class__
    if class_ is list:
        meter.charge(_ELEMENT * (1 + len(value)))
        return f"[{', '.join([_write_element(meter, element) for element in value])}]"
    if isinstance(value, dict):
        meter.charge(_ELEMENT * (1 + 2 * len(value)))
        return _write_map(meter, value)
    if class_ is str or class_ is bytes:
        meter.charge(int(len(value) * COPY))
    return "null" if value is None else string_of(value)


def _write_map(meter: Meter, map_: dict[Value, Value]) -> str:
    entries = []
    for key, value in map_.items():
        shown = key_value(key)
        if shown.__class__ not in (str, bool, int, Uint):
            raise _fault(f"no formatting function for map key of type {type_name(shown)}")
        entries.append((_write_element(meter, shown), _write_element(meter, value)))
    return f"{{{', '.join(f'{key}:{value}' for key, value in sorted(entries, key=lambda entry: entry[0]))}}}"


def _write_element(meter: Meter, value: Value) -> str:
    """Return a value inside a list or map, as it is written in CEL."""
    class_ = value.__class__
    if class_ is str or class_ is bytes:
        meter.charge(_ELEMENT // 2 + _QUOTED_CHARACTER * len(value))
        return go_quote(value) if class_ is str else f"b{go_quote(_write_string(meter, value))}"
    if class_ is float:
        text = f"{value:.6f}"
        return {"inf": '"+Inf"', "-inf": '"-Inf"', "nan": '"NaN"'}.get(text, text)
    if class_ is Timestamp or class_ is Duration:
        meter.charge(SLOW)
        return f"{'timestamp' if class_ is Timestamp else 'duration'}({go_quote(string_of(value))})"
    if type_name(value) not in _STRINGS:
        raise _fault(f"no formatting function for {type_name(value)}")
    return _write_string(meter, value)


def check_format(text: str, arguments: Sequence[Plan]) -> None:
    """Raise ExpressionError for more arguments than clauses, and for an attribute, whose type is not known."""
    n_clauses = sum(not clause[1] for clause in _CLAUSE.finditer(text))
    if len(arguments) > n_clauses:
        raise ExpressionError(f"format() has {len(arguments)} arguments for {n_clauses} clauses")
    if any(part.kind == "any" for part in arguments):
        raise ExpressionError("format() takes no attribute as it is: convert it, as in string(...)")


OVERLOADS: Final = function("format", "string.(list(dyn)) -> string", _format, steps=SLOW, takes_meter=True)
