"""
How functions are declared and called.

A signature is written "string.(int, int) -> string" (a member, the receiver before the dot) or "(int) -> string".
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from scheduler.engine.cel.plans import ExpressionError, Frame, Plan, Run, is_known
from scheduler.engine.cel.values import CelError, Value, key_value, no_such_overload, type_name

_NAMES: Final = {
    "duration": "google.protobuf.Duration", "timestamp": "google.protobuf.Timestamp", "null": "null_type",
    "optional": "optional_type", "ip": "net.IP", "cidr": "net.CIDR", "url": "kubernetes.URL",
    "named_format": "kubernetes.NamedFormat", "quantity": "kubernetes.Quantity", "semver": "kubernetes.Semver",
}  # fmt: skip
#: Steps to see which overload takes the arguments.
_DISPATCH: Final = 12
#: Steps of a call that parses a text or calculates with more than a few numbers.
SLOW: Final = 80


@dataclass(frozen=True, slots=True)
class Type:
    """A type of a signature. `name` is empty where any value will do; `params` are those of list and map."""

    name: str
    params: "tuple[Type, ...]" = ()

    def has(self, value: Value) -> bool:
        """Return whether a value is of the type, as far as upstream looks: the first element of a list or map."""
        if not self.name:
            return True
        if type_name(value) != self.name:
            return False
        if self.name == "list" and value:
            return self.params[0].has(value[0])
        if self.name == "map" and value:
            key, inner = next(iter(value.items()))
            return self.params[0].has(key_value(key)) and self.params[1].has(inner)
        return True


@dataclass(frozen=True, slots=True)
class Overload:
    """
    One signature of a function. `args` begin with the receiver of a member. `kind`: that of the result.

    `steps`: of a call, beside those of its arguments. `per_item`: steps for a character or an element of the first one.
    `takes_meter`: whether `call` takes the frame first. `is_guarded`: whether the types are checked before `call`.
    """

    is_member: bool
    args: tuple[Type, ...]
    kind: str
    call: Callable[..., Value]
    steps: int
    per_item: float
    takes_meter: bool
    is_guarded: bool


def function(
    name: str,
    signatures: str,
    call: Callable[..., Value],
    *,
    steps: int = 5,
    per_item: float = 0,
    takes_meter: bool = False,
    is_guarded: bool = True,
) -> list[tuple[str, Overload]]:
    """Return the overloads of a function that share an implementation; `signatures` are separated by ";"."""
    overloads = []
    for signature in signatures.split(";"):
        left, _, result = signature.strip().partition(" -> ")
        receiver, is_member, arguments = left.rpartition(".(") if ".(" in left else ("", "", left[1:])
        types = tuple(map(_parse_type, [*([receiver] if is_member else []), *_split(arguments[:-1])]))
        kind = "dyn" if result == "dyn" else _type_name(result.partition("(")[0])
        overload = Overload(bool(is_member), types, kind, call, steps, per_item, takes_meter, is_guarded)
        overloads.append((name, overload))
    return overloads


def _type_name(name: str) -> str:
    """Return the full name of a type; empty, any type, for `dyn` and for a type variable such as `A`."""
    return "" if name == "dyn" or name.isupper() else _NAMES.get(name, name)


def _parse_type(text: str) -> Type:
    """Return the type written in a signature, such as "map(string, list(A))"."""
    name, _, rest = text.partition("(")
    return Type(_type_name(name), tuple(map(_parse_type, _split(rest[:-1]))))


def _split(text: str) -> list[str]:
    """Return the parts of a list of types, split at commas outside parentheses."""
    return re.split(r",\s*(?![^(]*\))", text) if text else []


def call_plan(name: str, overloads: Sequence[Overload], args: list[Plan], *, is_member: bool) -> Plan:
    """Return the plan of a call: by the overload that takes the arguments; raise ExpressionError if none may."""
    kinds = [arg.kind.partition("(")[0] for arg in args]
    fitting = [
        overload for overload in overloads if overload.is_member == is_member and _fits(overload, kinds)
    ]
    if not fitting:
        raise ExpressionError(f"{name}({', '.join(kind or 'unknown' for kind in kinds)}) is no function")
    first = fitting[0]
    is_certain = len(fitting) == 1 and all(
        not type_.name or (type_.name == kind and not type_.params)
        for type_, kind in zip(first.args, kinds, strict=True)
    )
    kind = first.kind if all(overload.kind == first.kind for overload in fitting) else ""
    is_guarded = first.is_guarded and not is_certain
    call = _dispatch(name, fitting) if is_guarded else _call_of(first)
    steps = max(overload.steps for overload in fitting)
    if is_guarded:
        # Those that take the same first argument are tried one after the other.
        steps += _DISPATCH * max(Counter(overload.args[0].name for overload in fitting).values())
    return Plan(_applied(call, [arg.run for arg in args]), kind, args, steps)


def succeeds(parse: Callable[..., Value]) -> Callable[..., bool]:
    """Return a function that tells whether `parse` takes its arguments."""

    def call(*args: Value) -> bool:
        try:
            parse(*args)
        except CelError:
            return False
        return True

    return call


def _fits(overload: Overload, kinds: Sequence[str]) -> bool:
    return len(overload.args) == len(kinds) and all(
        not type_.name or type_.name == kind or not is_known(kind)
        for type_, kind in zip(overload.args, kinds, strict=True)
    )


#: Takes the frame of an evaluation and the arguments.
_Call = Callable[..., Value]


def _applied(call: _Call, runs: Sequence[Run]) -> Run:
    if len(runs) == 1:
        (only,) = runs
        return lambda frame: call(frame, only(frame))
    if len(runs) == 2:
        left, right = runs
        return lambda frame: call(frame, left(frame), right(frame))
    return lambda frame: call(frame, *[arg(frame) for arg in runs])


def _call_of(overload: Overload) -> _Call:
    """Return a call of an overload that charges for what it reads."""
    call, per_item = overload.call, overload.per_item
    if overload.takes_meter and not per_item:
        return call
    if not per_item:
        return lambda _frame, *values: call(*values)

    def charging(frame: Frame, first: Value, *rest: Value) -> Value:
        if isinstance(first, (str, bytes, list)):
            frame.charge(int(len(first) * per_item))
        return call(frame, first, *rest) if overload.takes_meter else call(first, *rest)

    return charging


def _dispatch(name: str, overloads: Sequence[Overload]) -> _Call:
    """Return a call of the overload that takes the arguments."""
    by_first: dict[str, list[tuple[Sequence[Type], _Call]]] = {}
    for overload in overloads:
        first = overload.args[0].name if overload.args else ""
        by_first.setdefault(first, []).append((overload.args, _call_of(overload)))

    def dispatching(frame: Frame, *values: Value) -> Value:
        for types, call in by_first.get(type_name(values[0]), ()):
            if all(type_.has(value) for type_, value in zip(types, values, strict=True)):
                return call(frame, *values)
        raise no_such_overload(name, *values)

    return dispatching
