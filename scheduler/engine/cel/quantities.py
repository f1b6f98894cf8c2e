"""
Quantities, as in quantity("1.5Gi").

Source: apiserver/pkg/cel/library/quantity.go (kubernetes 1.36).
"""

from typing import Final

from scheduler.engine.cel.functions import SLOW, function, succeeds
from scheduler.engine.cel.values import INT_MAX, INT_MIN, CelError, DerivedQuantity
from scheduler.engine.syntax.quantity import Quantity, QuantityError, parse_quantity

_NOT_A_QUANTITY: Final = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
_NANO_DIGITS: Final = 9


def _quantity(text: str) -> Quantity:
    try:
        if text[:1].isascii() and text[-1:].isascii() and text == text.strip():
            return parse_quantity(text)
    except QuantityError:
        pass
    raise CelError(_NOT_A_QUANTITY)


def _whole(quantity: Quantity) -> int | None:
    """Return the quantity as an integer if upstream holds it as one, else None."""
    scale = quantity.compact_scale
    if scale is None or scale < 0:
        return None
    value = quantity.nano // 10**_NANO_DIGITS
    return value if INT_MIN <= value <= INT_MAX else None


def _as_integer(quantity: Quantity) -> int:
    value = _whole(quantity)
    if value is None:
        raise CelError("cannot convert value to integer")
    return value


def _as_float(quantity: Quantity) -> float:
    scale = quantity.compact_scale or 0
    if scale >= 0:
        return float(quantity.nano // 10 ** (_NANO_DIGITS + scale)) * float(10**scale)
    return float(quantity.nano // 10 ** (_NANO_DIGITS + scale)) * 10.0**scale


def _compare(left: Quantity, right: Quantity) -> int:
    return (left.nano > right.nano) - (left.nano < right.nano)


def _add(left: Quantity, right: Quantity | int) -> Quantity:
    total = left + (right if isinstance(right, Quantity) else Quantity(right * 10**_NANO_DIGITS))
    return DerivedQuantity(total.nano, total.compact_scale)


def _subtract(left: Quantity, right: Quantity | int) -> Quantity:
    return _add(left, -right if isinstance(right, int) else Quantity(-right.nano, right.compact_scale))


OVERLOADS: Final = [
    *function("quantity", "(string) -> quantity", _quantity, steps=SLOW, per_item=1),
    *function("isQuantity", "(string) -> bool", succeeds(_quantity), steps=SLOW, per_item=1),
    *function("sign", "(quantity) -> int", lambda quantity: (quantity.nano > 0) - (quantity.nano < 0)),
    *function("isGreaterThan", "quantity.(quantity) -> bool", lambda left, right: left.nano > right.nano),
    *function("isLessThan", "quantity.(quantity) -> bool", lambda left, right: left.nano < right.nano),
    *function("compareTo", "quantity.(quantity) -> int", _compare),
    *function("asApproximateFloat", "quantity.() -> double", _as_float),
    *function("asInteger", "quantity.() -> int", _as_integer),
    *function("isInteger", "quantity.() -> bool", lambda quantity: _whole(quantity) is not None),
    *function("add", "quantity.(quantity) -> quantity; quantity.(int) -> quantity", _add, steps=SLOW),
    *function("sub", "quantity.(quantity) -> quantity; quantity.(int) -> quantity", _subtract, steps=SLOW),
]
