"""
string.format, and the check of constant format strings when an expression is compiled.

Numbers of the clauses %f and %e are written as for American English. Source: cel-go ext/formatting.go.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from scheduler.engine.cel.conversions import string_of
from scheduler.engine.cel.functions import function, traversal
from scheduler.engine.cel.syntax_tree import Call, ListNode, Literal, MapNode, Node
from scheduler.engine.cel.types import Type
from scheduler.engine.cel.values import (
    CelError,
    Duration,
    Timestamp,
    Uint,
    Value,
    check_size,
    go_quote,
    key_value,
    type_name,
    weight,
)

_Argument = TypeVar("_Argument")

_DEFAULT_PRECISION: Final = 6
#: Upstream has no limit; a longer text would cost more than any selector may.
_MAX_PRECISION: Final = 10_000
_CLAUSE: Final = re.compile(r"%(?:(%)|(\.?)([0-9]*)(.)?)", re.S)
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


class FormatError(Exception):
    """A text that cannot be formatted; `node` is the argument at fault, if one is."""

    def __init__(self, message: str, node: Node | None = None) -> None:
        super().__init__(message)
        self.node = node


def _interpolate(
    text: str, arguments: Sequence[_Argument], write: Callable[[str, int | None, _Argument], str]
) -> tuple[str, int]:
    """Return the text with its clauses replaced by what `write` returns, and the number of clauses."""
    parts: list[str] = []
    position = count = 0
    for clause in _CLAUSE.finditer(text):
        parts.append(text[position : clause.start()])
        position = clause.end()
        if clause[1]:
            parts.append("%")
            continue
        if clause.end() - clause.start() > 1 and count >= len(arguments):
            raise FormatError(f"index {count} out of range")
        if clause.end() - clause.start() == 1:
            raise FormatError("unexpected end of string")
        prefix = "could not parse formatting clause: "
        digits, letter = (
            clause[3] if clause[2] else "",
            (clause[4] or "") if clause[2] else text[clause.start() + 1],
        )
        if clause[2] and not letter:
            raise FormatError(
                f"{prefix}error while parsing precision: could not find end of precision specifier"
            )
        if clause[2] and not 0 < len(digits) <= 18:
            reason = "value out of range" if digits else "invalid syntax"
            atoi = f"strconv.Atoi: parsing {go_quote(digits)}: {reason}"
            raise FormatError(
                f"{prefix}error while parsing precision: error while converting precision to integer: {atoi}"
            )
        if letter not in _CLAUSES and letter != "X":
            raise FormatError(f'{prefix}unrecognized formatting clause "{letter}"')
        try:
            check_size(sum(map(len, parts)))
            parts.append(write(letter, int(digits) if clause[2] else None, arguments[count]))
        except FormatError as error:
            raise FormatError(f"error during formatting: {error}", error.node) from None
        count += 1
    return "".join([*parts, text[position:]]), count


def _format(text: str, arguments: list[Value]) -> str:
    try:
        return _interpolate(text, arguments, _write)[0]
    except FormatError as error:
        raise CelError(str(error)) from None


def _write(letter: str, precision: int | None, value: Value) -> str:
    allowed, message = _CLAUSES[letter.lower() if letter == "X" else letter]
    name = type_name(value)
    if name not in allowed or (letter in "fe" and name == "string" and value not in _SPECIAL_TEXTS):
        raise FormatError(f"{message}, was given {name}")
    match letter:
        case "s":
            return _write_string(value)
        case "d":
            return str(int(value))
        case "f" | "e":
            return _write_double(letter, _DEFAULT_PRECISION if precision is None else precision, float(value))
        case "o":
            return f"{int(value):o}"
        case "b":
            return f"{int(value):b}"
        case _:
            if name in ("string", "bytes"):
                data: bytes = value if isinstance(value, bytes) else value.encode(errors="replace")
                return data.hex().upper() if letter == "X" else data.hex()
            return f"{int(value):{letter}}"


_SPECIAL_TEXTS: Final = ("NaN", "Infinity", "-Infinity")


def _write_double(letter: str, precision: int, value: float) -> str:
    if precision > _MAX_PRECISION:
        raise FormatError(f"a precision of more than {_MAX_PRECISION} digits is not supported")
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


def _write_string(value: Value) -> str:
    class_ = value.__class__
    if class_ is list:
        return f"[{', '.join(map(_write_element, value))}]"
    if isinstance(value, dict):
        return _write_map(value)
    if value is None:
        return "null"
    return string_of(value)


def _write_map(map_: dict[Value, Value]) -> str:
    entries = []
    for key, value in map_.items():
        shown = key_value(key)
        if shown.__class__ not in (str, bool, int, Uint):
            raise FormatError(f"no formatting function for map key of type {type_name(shown)}")
        entries.append((_write_element(shown), _write_element(value)))
    return f"{{{', '.join(f'{key}:{value}' for key, value in sorted(entries, key=lambda entry: entry[0]))}}}"


def _write_element(value: Value) -> str:
    """Return a value inside a list or map, as it is written in CEL."""
    class_ = value.__class__
    if class_ is str:
        return go_quote(value)
    if class_ is bytes:
        return f"b{go_quote(_write_string(value))}"
    if class_ is float:
        text = f"{value:.6f}"
        return {"inf": '"+Inf"', "-inf": '"-Inf"', "nan": '"NaN"'}.get(text, text)
    if class_ is Timestamp or class_ is Duration:
        return f"{'timestamp' if class_ is Timestamp else 'duration'}({go_quote(string_of(value))})"
    if type_name(value) not in _STRINGS:
        raise FormatError(f"no formatting function for {type_name(value)}")
    return _write_string(value)


def check_format_call(call: Call, type_of: Callable[[Node], Type]) -> tuple[Node, str] | None:
    """Return what is wrong with a call of a constant format string with a list of arguments, and where."""
    target, arguments = call.target, call.args[0]
    if (
        not isinstance(target, Literal)
        or not isinstance(target.value, str)
        or not isinstance(arguments, ListNode)
    ):
        return None
    text = target.value

    def write(letter: str, _precision: int | None, argument: Node) -> str:
        allowed, message = _CLAUSES[letter.lower() if letter == "X" else letter]
        bad = _bad_node(argument, allowed, type_of, is_deep=letter == "s")
        if bad is not None:
            raise FormatError(f"{message}, was given {type_of(bad).name}", bad)
        return ""

    try:
        count = _interpolate(text, arguments.elements, write)[1]
    except FormatError as error:
        return error.node or call, str(error)
    if len(arguments.elements) > count:
        given = len(arguments.elements)
        return call, f"too many arguments supplied to string.format (expected {count}, got {given})"
    return None


def _bad_node(
    node: Node, allowed: Sequence[str], type_of: Callable[[Node], Type], *, is_deep: bool
) -> Node | None:
    type_ = type_of(node)
    if type_.kind != "dyn" and type_.name not in allowed:
        return node
    inner: list[Node] = []
    if is_deep and isinstance(node, ListNode):
        inner = list(node.elements)
    elif is_deep and isinstance(node, MapNode):
        inner = [part for entry in node.entries for part in (entry.key, entry.value)]
    bad = (_bad_node(part, allowed, type_of, is_deep=True) for part in inner)
    return next((node for node in bad if node is not None), None)


def _format_cost(args: Sequence[Value]) -> int:
    return traversal(args) + weight(args[1]) - len(args[1])


OVERLOADS: Final = function(
    "format", "string.(list(dyn)) -> string", _format, cost=_format_cost, costs_by_name=False
)
