"""
Optional values; `or` and `orValue`, which do not always evaluate their argument, are in `closures`.

Source: cel-go cel/library.go (version 2 of the library), common/types/optional.go.
"""

from typing import Final

from scheduler.engine.cel.functions import function
from scheduler.engine.cel.values import NONE, CelError, Duration, Optional, Value, display


def _of_non_zero(value: Value) -> Optional:
    is_zero = value is None or value == Duration(0) or (value.__class__ in _ZEROERS and not value)
    return NONE if is_zero or value == NONE else Optional(value)


_ZEROERS: Final = frozenset({bool, int, float, str, bytes, list, dict})


def _value(optional: Optional) -> Value:
    if not optional.has_value:
        raise CelError("optional.none() dereference")
    return optional.value


def _unwrap(optionals: list[Value]) -> list[Value]:
    for optional in optionals:
        if optional.__class__ is not Optional:
            raise CelError(f"value {display(optional)} is not optional")
    return [optional.value for optional in optionals if optional.has_value]


OVERLOADS: Final = [
    *function("optional.of", "(V) -> optional(V)", Optional),
    *function("optional.ofNonZeroValue", "(V) -> optional(V)", _of_non_zero),
    *function("optional.none", "() -> optional(V)", lambda: NONE),
    *function("value", "optional(V).() -> V", _value),
    *function("hasValue", "optional(V).() -> bool", lambda optional: optional.has_value),
    *function("last", "list(V).() -> optional(V)", lambda list_: Optional(list_[-1]) if list_ else NONE),
    *function("first", "list(V).() -> optional(V)", lambda list_: Optional(list_[0]) if list_ else NONE),
    *function("optional.unwrap", "(list(optional(V))) -> list(V)", _unwrap, per_item=2),
    *function("unwrapOpt", "list(optional(V)).() -> list(V)", _unwrap, per_item=2),
]
