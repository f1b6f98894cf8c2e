"""
The static types of CEL, how they are written in messages, and when a value of one may stand for another.

Source: cel-go common/types/types.go, checker/{types,format,mapping}.go (v0.26, as vendored by kubernetes 1.36).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

Kind = Literal["simple", "any", "dyn", "error", "null", "struct", "opaque", "list", "map", "type", "param"]


@dataclass(frozen=True, slots=True)
class Type:
    """A type. `name` is its name at runtime; `params` are those of list, map, type and opaque types."""

    kind: Kind
    name: str
    params: "tuple[Type, ...]" = ()

    def __str__(self) -> str:
        if self.kind == "param":
            return f"<{self.name}>"
        return f"{self.name}({', '.join(map(str, self.params))})" if self.params else self.name

    @property
    def is_dyn(self) -> bool:
        """Return whether any value may be of the type."""
        return self.kind in ("any", "dyn")

    @property
    def is_dyn_or_error(self) -> bool:
        """Return whether nothing is known about the type."""
        return self.kind in ("any", "dyn", "error")


BOOL: Final = Type("simple", "bool")
INT: Final = Type("simple", "int")
UINT: Final = Type("simple", "uint")
DOUBLE: Final = Type("simple", "double")
STRING: Final = Type("simple", "string")
BYTES: Final = Type("simple", "bytes")
DURATION: Final = Type("simple", "google.protobuf.Duration")
TIMESTAMP: Final = Type("simple", "google.protobuf.Timestamp")
NULL: Final = Type("null", "null_type")
ANY: Final = Type("any", "google.protobuf.Any")
DYN: Final = Type("dyn", "dyn")
ERROR: Final = Type("error", "*error*")
QUANTITY: Final = Type("struct", "kubernetes.Quantity")
DEVICE: Final = Type("struct", "kubernetes.DRADevice")

_SHORT_NAMES: Final = {
    DURATION: "duration", TIMESTAMP: "timestamp", NULL: "null", ANY: "any", ERROR: "!error!",
}  # fmt: skip
_SIGNATURE_NAMES: Final = {
    "bool": BOOL, "int": INT, "uint": UINT, "double": DOUBLE, "string": STRING, "bytes": BYTES,
    "duration": DURATION, "timestamp": TIMESTAMP, "null": NULL, "any": ANY, "dyn": DYN,
    "ip": Type("opaque", "net.IP"), "cidr": Type("opaque", "net.CIDR"),
    "url": Type("struct", "kubernetes.URL"), "named_format": Type("struct", "kubernetes.NamedFormat"),
    "quantity": QUANTITY, "semver": Type("struct", "kubernetes.Semver"),
}  # fmt: skip


def list_of(element: Type) -> Type:
    """Return the type of lists of `element`."""
    return Type("list", "list", (element,))


def map_of(key: Type, value: Type) -> Type:
    """Return the type of maps from `key` to `value`."""
    return Type("map", "map", (key, value))


def optional_of(value: Type) -> Type:
    """Return the type of optional values of `value`."""
    return Type("opaque", "optional_type", (value,))


def type_of(value: Type) -> Type:
    """Return the type of `value` as a value."""
    return Type("type", "type", (value,))


def unwrap_optional(type_: Type) -> tuple[Type, bool]:
    """Return the type inside an optional and True, or the type itself and False."""
    return (type_.params[0], True) if type_.name == "optional_type" else (type_, False)


def format_type(type_: Type) -> str:
    """Return the type as messages of the checker write it."""
    if type_ in _SHORT_NAMES:
        return _SHORT_NAMES[type_]
    if not type_.params or type_.kind == "param":
        return type_.name
    return f"{type_.name}({', '.join(map(format_type, type_.params))})"


def format_arguments(arguments: Sequence[Type], *, is_member: bool) -> str:
    """Return the argument types of a call, the receiver before a dot."""
    texts = [format_type(argument) for argument in arguments]
    return f"{texts[0]}.({', '.join(texts[1:])})" if is_member else f"({', '.join(texts)})"


@lru_cache(maxsize=256)
def parse_type(text: str) -> Type:
    """Return the type written in a signature, such as "map(string, list(A))"; a capital is a parameter."""
    name, _, rest = text.partition("(")
    if not rest:
        return _SIGNATURE_NAMES.get(name) or Type("param", name)
    params = tuple(parse_type(part) for part in split_types(rest[:-1]))
    kind: Kind = {"list": "list", "map": "map", "type": "type"}.get(name, "opaque")  # type: ignore[assignment]
    return Type(kind, "optional_type" if name == "optional" else name, params)


def split_types(text: str) -> list[str]:
    """Return the parts of a list of types, split at commas outside parentheses."""
    parts, depth, start = [], 0, 0
    for index, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if character == "," and not depth:
            parts.append(text[start:index].strip())
            start = index + 1
    last = text[start:].strip()
    return [*parts, last] if last else parts


class Substitutions:
    """What type parameters stand for. An assignment that fails leaves it unchanged."""

    __slots__ = ("_types",)

    def __init__(self) -> None:
        self._types: dict[Type, Type] = {}

    def assign_all(self, targets: Sequence[Type], values: Sequence[Type]) -> bool:
        """Return whether each target may hold the value; record what the parameters must stand for."""
        before = dict(self._types)
        if len(targets) == len(values) and all(map(self._assignable, targets, values)):
            return True
        self._types = before
        return False

    def assign(self, target: Type, value: Type) -> bool:
        """Return whether `target` may hold `value`; record what the parameters must stand for."""
        return self.assign_all((target,), (value,))

    def apply(self, type_: Type, *, free_is_dyn: bool = False) -> Type:
        """Return the type with its parameters replaced; free ones become dyn if `free_is_dyn`."""
        if type_.kind == "param":
            bound = self._types.get(type_)
            if bound is not None:
                return self.apply(bound, free_is_dyn=free_is_dyn)
            return DYN if free_is_dyn else type_
        if not type_.params:
            return type_
        params = tuple(self.apply(param, free_is_dyn=free_is_dyn) for param in type_.params)
        return Type(type_.kind, type_.name, params)

    def _assignable(self, target: Type, value: Type) -> bool:
        if value.kind == "param":
            is_valid, is_bound = self._can_stand_for(target, value)
            if is_valid or is_bound:
                return is_valid
        if target.kind == "param":
            return self._can_stand_for(value, target)[0]
        if target.is_dyn_or_error or value.is_dyn_or_error:
            return True
        if target.kind == "null" or value.kind == "null":
            other = value if target.kind == "null" else target
            return other.kind in ("null", "opaque", "struct") or other in (DURATION, TIMESTAMP)
        if target.kind == "type":
            return value.kind == "type"
        if target.kind != value.kind or target.name != value.name or len(target.params) != len(value.params):
            return False
        return all(map(self._assignable, target.params, value.params))

    def _can_stand_for(self, type_: Type, param: Type) -> tuple[bool, bool]:
        """Return whether `param` may stand for `type_`, and whether it stood for something before."""
        if type_ == param:
            return True, True
        bound = self._types.get(param)
        if bound is not None:
            if type_ == bound:
                return True, True
            if not self._assignable(type_, bound):
                return False, True
            general = most_general(type_, bound)
            if self._is_free_of(param, general):
                self._types[param] = general
            return True, True
        if self._is_free_of(param, type_):
            self._types[param] = type_
            return True, False
        return False, False

    def _is_free_of(self, param: Type, within: Type) -> bool:
        if param == within:
            return False
        if within.kind == "param":
            bound = self._types.get(within)
            return bound is None or self._is_free_of(param, bound)
        return all(self._is_free_of(param, inner) for inner in within.params)


def most_general(first: Type, second: Type) -> Type:
    """Return the more general one of two types of which one is assignable to the other."""
    return first if _is_at_most_as_specific(first, second) else second


def _is_at_most_as_specific(first: Type, second: Type) -> bool:
    if first.is_dyn or first.kind == "param":
        return True
    if second.is_dyn or second.kind == "param" or first.kind != second.kind:
        return False
    if first.kind == "type":
        return True
    if first.name != second.name or len(first.params) != len(second.params):
        return False
    return all(map(_is_at_most_as_specific, first.params, second.params))
