"""
Values of CEL at runtime: which Python objects they are, their types' names, equality and size.

    bool, int, double, string, bytes, null   bool, int, float, str, bytes, None
    list, map                                list, dict (never changed after they are made; keys by `map_key`)
    the others                               the classes below, and those of the libraries

Source: cel-go common/types (as vendored by kubernetes 1.36).
"""

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from scheduler.engine.syntax.quantity import Quantity

#: Any of the classes above.
Value = Any

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1
UINT_MAX: Final = 2**64 - 1

#: Steps to compare two elements, to copy a character or an element, and to compare a character.
COMPARISON: Final = 8
COPY: Final = 0.12
COMPARED: Final = 0.02


class CelError(Exception):
    """An evaluation that has no value. The message is upstream's. `||` and `&&` may absorb it."""


class BudgetError(Exception):
    """The evaluation has no steps left. Nothing absorbs it."""


class Meter:
    """What an evaluation may still spend, in steps."""

    __slots__ = ("left",)

    left: int

    def charge(self, steps: int) -> None:
        """Spend so many steps, before memory is taken for what they make; raise BudgetError if there are none left."""
        self.left -= steps
        if self.left < 0:
            raise BudgetError


class Uint(int):
    """An unsigned integer of 64 bits."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A span of time in nanoseconds, within 64 bits."""

    ns: int


@dataclass(frozen=True, slots=True, order=True)
class Timestamp:
    """A time in nanoseconds since 1970-01-01 UTC; `offset_s`, of the zone it was written in, is not compared."""

    ns: int
    offset_s: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class TypeValue:
    """A type as a value."""

    name: str


@dataclass(frozen=True, slots=True)
class Optional:
    """A value that may be missing."""

    value: Value = None
    has_value: bool = True


class MapWithDefault(dict[str, Value]):
    """A map of a device by domain: a lookup of a domain that it does not have gives an empty map."""


class DerivedQuantity(Quantity):
    """A quantity that was calculated. Upstream refuses it to the right of `==` if the left one is not."""

    __slots__ = ()


NONE: Final = Optional(has_value=False)

#: Names of types by class; the libraries add theirs (`register_type`).
_TYPE_NAMES: Final[dict[type, str]] = {
    bool: "bool", int: "int", Uint: "uint", float: "double", str: "string", bytes: "bytes",
    type(None): "null_type", list: "list", dict: "map", MapWithDefault: "map", TypeValue: "type",
    Duration: "google.protobuf.Duration", Timestamp: "google.protobuf.Timestamp", Optional: "optional_type",
    Quantity: "kubernetes.Quantity", DerivedQuantity: "kubernetes.Quantity",
}  # fmt: skip
#: Classes whose values refuse to be compared with those of other classes.
_STRICT: Final[set[type]] = {Quantity, DerivedQuantity}
_NUMBERS: Final = (int, Uint, float)


def register_type(class_: type, name: str) -> None:
    """Give a library's class its name in CEL. Its values refuse `==` with values of other classes."""
    _TYPE_NAMES[class_] = name
    _STRICT.add(class_)


def go_type(value: Value) -> str:
    """Return the name that upstream's program has for the value's type."""
    name = type_name(value)
    short = name.rpartition(".")[2]
    if name.startswith(("kubernetes.", "net.")):
        return f"cel.{short}"
    return {"type": "*types.Type", "optional_type": "*types.Optional", "null_type": "types.Null"}.get(
        name, f"types.{short.capitalize()}"
    )


def type_name(value: Value) -> str:
    """Return the name of the value's type."""
    return _TYPE_NAMES[value.__class__]


def no_such_overload(function: str, *args: Value) -> CelError:
    """Return the error of a call whose arguments no overload takes."""
    return CelError(f"no such overload: {function}({', '.join(map(type_name, args))})")


def display(value: Value) -> str:
    """Return the value as messages about keys and elements show it."""
    if value.__class__ is bool:
        return "true" if value else "false"
    if isinstance(value, (list, dict)):
        return type_name(value)
    return format_double(value) if value.__class__ is float else str(value)


def format_double(value: float, *, max_digits: int = 21) -> str:
    """Return a double as Go writes it: with an exponent below 10^-4 and from 10^`max_digits` on."""
    if value != value or value in (float("inf"), float("-inf")):
        return "NaN" if value != value else "+Inf" if value > 0 else "-Inf"
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    text = "".join(map(str, digits))
    power = len(text) - 1 + int(exponent) if value else 0
    text = text.rstrip("0") or "0"
    minus = "-" if sign else ""
    if not -4 <= power < max_digits:
        tail = f".{text[1:]}" if len(text) > 1 else ""
        return f"{minus}{text[0]}{tail}e{'-' if power < 0 else '+'}{abs(power):02d}"
    if power < 0:
        return f"{minus}0.{'0' * (-power - 1)}{text}"
    text = text.ljust(power + 1, "0")
    tail = f".{text[power + 1 :]}" if len(text) > power + 1 else ""
    return f"{minus}{text[: power + 1]}{tail}"


def map_key(value: Value) -> Value:
    """Return the dict's key for a map's key. Equal numbers are one key; a bool, which is no number, is in a tuple."""
    if value.__class__ is bool:
        return (value,)
    return value if value.__class__ in _HASHABLE else _NO_KEY


_HASHABLE: Final = frozenset({str, int, Uint, float, bytes})
#: For a value that cannot be a key; equal to no key.
_NO_KEY: Final = (False, None)


def key_value(key: Value) -> Value:
    """Return the key of a map for a key of a dict."""
    return key[0] if key.__class__ is tuple else key


def equal(left: Value, right: Value, meter: Meter) -> bool:
    """Return whether two values are equal; raise CelError if the left one is of a library and the other is not."""
    class_, other = left.__class__, right.__class__
    if class_ is other:
        if class_ is int or class_ is bool:
            return bool(left == right)
        if class_ is str:
            meter.charge(int(len(left) * COMPARED))
        elif class_ is list:
            return _equal_lists(left, right, meter)
        elif class_ is dict or class_ is MapWithDefault:
            return _equal_maps(left, right, meter)
        else:
            meter.charge(4 * COMPARISON if class_ in _STRICT else COMPARISON)
            if class_ is Optional and left.has_value and right.has_value:
                return equal(left.value, right.value, meter)
            if class_ is DerivedQuantity:
                raise CelError("no such overload")
        return bool(left == right)
    meter.charge(COMPARISON)
    if left is None or right is None:
        return False
    if class_ in _NUMBERS and other in _NUMBERS:
        return compare_numbers(left, right) == 0 if left == left and right == right else False
    if class_ in _STRICT:
        if class_ is DerivedQuantity and other is Quantity:
            return bool(left.nano == right.nano)
        raise CelError("no such overload")
    if (class_ is MapWithDefault or class_ is dict) and (other is MapWithDefault or other is dict):
        return _equal_maps(left, right, meter)
    return False


def equal_or_unknown(left: Value, right: Value, meter: Meter) -> bool | None:
    """Return whether two values are equal, or None where that is an error."""
    try:
        return equal(left, right, meter)
    except CelError:
        meter.charge(2 * COMPARISON)
        return None


def _equal_lists(left: list[Value], right: list[Value], meter: Meter) -> bool:
    # Elements that cannot be compared count as equal (common/types/list.go, baseList.Equal).
    if len(left) != len(right):
        return False
    meter.charge(COMPARISON * (1 + len(left)))
    for mine, theirs in zip(left, right, strict=True):
        if mine.__class__ is int and theirs.__class__ is int:
            if mine != theirs:
                return False
        elif equal_or_unknown(mine, theirs, meter) is False:
            return False
    return True


def _equal_maps(left: dict[Value, Value], right: dict[Value, Value], meter: Meter) -> bool:
    if len(left) != len(right):
        return False
    meter.charge(2 * COMPARISON * (1 + len(left)))
    for key, value in left.items():
        other = lookup(right, key_value(key))
        if other is MISSING or equal_or_unknown(value, other, meter) is False:
            return False
    return True


def compare_numbers(left: float, right: float) -> int:
    """Return -1, 0 or 1; an integer is rounded to a double where the other number is one."""
    if left.__class__ is float and right.__class__ is not float:
        low, high = (0, UINT_MAX) if right.__class__ is Uint else (INT_MIN, INT_MAX)
        right = (
            float(right) if float(low) <= left <= float(high) else (1 if left < low else -1) * float("inf")
        )
    elif right.__class__ is float and left.__class__ is not float:
        return -compare_numbers(right, left)
    return (left > right) - (left < right)


#: What `lookup` returns for a missing key.
MISSING: Final = object()
EMPTY_MAP: Final[dict[Value, Value]] = {}


def lookup(map_: dict[Value, Value], key: Value) -> Value:
    """Return the value at a key, or MISSING."""
    value = map_.get(key if key.__class__ is str else map_key(key), MISSING)
    if value is MISSING and map_.__class__ is MapWithDefault:
        return EMPTY_MAP
    return value


def go_quote(text: str) -> str:
    """Return the text in double quotes as Go's %q writes it."""
    return '"' + "".join(map(_quoted_character, text)) + '"'


def _quoted_character(character: str) -> str:
    if character in GO_ESCAPES:
        return GO_ESCAPES[character]
    if character.isprintable() and (character == " " or not character.isspace()):
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


GO_ESCAPES: Final = {
    "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\", '"': '\\"',
}  # fmt: skip
