"""
Amounts of a resource ("100m", "1.5Gi", 2) as exact numbers, rounded as Kubernetes does.

Source: apimachinery/pkg/api/resource/{quantity,amount,suffix,math,scale_int}.go (kubernetes 1.36).
Differences: `value` and `milli_value` are clamped, where upstream's overflow. Text longer than `MAX_TEXT` is refused,
and exponents are clamped (see `_MAX_SCALE`), so that no object makes the scheduler compute with numbers of a billion
digits.
"""

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

#: Longest text that is read, in characters; the longest useful one (2^63-1 with nano digits) has 30.
MAX_TEXT: Final = 1024

_INT64_MAX: Final = 2**63 - 1
_NANO_EXPONENT: Final = 9
#: A compact number holds at most this many digits (math.go, maxInt64Factors).
_COMPACT_DIGITS: Final = 18
# Above 10^63 every multiple of a power of ten has 64 low zero bits, so neither `value` nor a sum's `value`
# can tell a larger exponent from this one.
_MAX_SCALE: Final = 100
#: The most of a resource that is counted, 1 PiB or as many milli-cpus: sums over a node's pods, and a hundred times as
#: much, fit into an int64.
MOST_COUNTED: Final = 1 << 50
#: What Go's strings.TrimSpace takes; str.strip() would also take U+001C..U+001F.
BLANKS: Final = (
    "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
)

# Possessive quantifiers: a hostile text of digits must fail in linear time.
_SHAPE: Final = re.compile(r"([+-]?+)([0-9]*+)(?:\.([0-9]*+))?+([eEinumkKMGTP]*+[+-]?+[0-9]*+)")
_DECIMAL_EXPONENT: Final = re.compile(r"[eE]([+-]?[0-9]+)")
_DECIMAL_SUFFIXES: Final = {
    "n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18,
}  # fmt: skip
_BINARY_SUFFIXES: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


class QuantityError(ValueError):
    """The text is no quantity. The message is one line and names the text."""


@dataclass(frozen=True, slots=True, order=True)
class Quantity:
    """
    An exact amount in billionths of a unit. Equality, order and hash look at the amount alone.

    `+` is exact; `max` and `min` work. Amounts are immutable and may be shared.
    """

    #: Billionths of a unit: "1" is 10^9, "100m" is 10^8.
    nano: int
    #: Power of ten of the last digit while upstream would hold the number in an int64 (-9..100), else None.
    #: CEL shows it.
    compact_scale: int | None = field(default=0, compare=False, repr=False)

    def __add__(self, other: "Quantity") -> "Quantity":
        if self.compact_scale is None or other.compact_scale is None:
            return Quantity(self.nano + other.nano, None)
        if not other.nano:
            return self
        if not self.nano:
            return other
        total = self.nano + other.nano
        scale = min(self.compact_scale, other.compact_scale)
        largest = max(abs(self.nano), abs(other.nano), abs(total))
        compact = largest <= _INT64_MAX * _power_of_ten(scale + _NANO_EXPONENT)
        return Quantity(total, scale if compact else None)

    def value(self) -> int:
        """Return whole units, rounded away from zero and clamped to an int64. Source: quantity.go Value (1.36)."""
        return self._scaled(0)

    def milli_value(self) -> int:
        """Return thousandths of a unit, rounded and clamped as in `value`. Source: quantity.go MilliValue (1.36)."""
        return self._scaled(-3)

    def _scaled(self, scale: int) -> int:
        rounded = -(-abs(self.nano) // _power_of_ten(scale + _NANO_EXPONENT))
        return min(rounded, _INT64_MAX) if self.nano >= 0 else max(-rounded, -_INT64_MAX - 1)


ZERO: Final = Quantity(0)


def counted(resource: str, amount: Quantity) -> int:
    """Return the amount as nodes and pods count it: thousandths of cpu, units of others, at most `MOST_COUNTED`."""
    return min(amount.milli_value() if resource == "cpu" else amount.value(), MOST_COUNTED)


def parse_quantity(value: str | int | float) -> Quantity:
    """
    Return the exact amount that a JSON string or number states; finer than 10^-9 it is rounded away from zero.

    Surrounding blanks are ignored. A float counts as its shortest decimal text, as it stood in the JSON.
    Binary-suffixed amounts are capped at 2^63-1. Raises QuantityError, for a text above `MAX_TEXT` too.

    Source: quantity.go ParseQuantity, UnmarshalJSON (kubernetes 1.36).
    """
    if isinstance(value, str):
        return _parse_text(value) if len(value) <= MAX_TEXT else _parse_text(value.strip(BLANKS))
    if isinstance(value, bool):
        raise QuantityError(f"{str(value).lower()} is not a quantity")
    if isinstance(value, int) and value.bit_length() > 3 * MAX_TEXT:
        raise QuantityError(f"a number of {value.bit_length()} bits is not a quantity")
    return _parse_text(repr(value))


def non_negative_quantity(value: str | int | float | None) -> Quantity:
    """Return what `parse_quantity` does, 0 for null; a negative amount, which no API server stores, is refused too."""
    quantity = parse_quantity(0 if value is None else value)
    if quantity.nano < 0:
        raise QuantityError(f"{str(value)[:64]!r} is not an amount of at least 0")
    return quantity


def amount_of(resource: str, value: str | int | float | None) -> Quantity:
    """Return what `non_negative_quantity` does; its error names the resource."""
    try:
        return non_negative_quantity(value)
    except QuantityError as error:
        raise QuantityError(f"{resource[:64]!r}: {error}") from error


@lru_cache(maxsize=4096)
def _parse_text(text: str) -> Quantity:
    if len(text) > MAX_TEXT:
        raise QuantityError(f"a quantity of {len(text)} characters, more than {MAX_TEXT}")
    trimmed = text.strip(BLANKS)
    shape = _SHAPE.fullmatch(trimmed)
    if not trimmed or shape is None:
        raise _refusal(text, "quantities are a number and a suffix such as m, k, Mi or e3")
    sign, digits, fraction, suffix = shape.group(1, 2, 3, 4)
    # Upstream counts digits before the dot without leading zeros.
    significant, fraction = digits.lstrip("0") or "0", fraction or ""
    if suffix in _BINARY_SUFFIXES:
        magnitude = _binary(significant, fraction, _BINARY_SUFFIXES[suffix])
    else:
        magnitude = _decimal(significant, fraction, _decimal_exponent(text, suffix))
    if magnitude.compact_scale is None and not digits and not fraction:
        # Upstream notices it only outside its int64 path.
        raise _refusal(text, "the numeric part has no digits")
    return Quantity(-magnitude.nano, magnitude.compact_scale) if sign == "-" else magnitude


def _decimal_exponent(text: str, suffix: str) -> int:
    exponent = _DECIMAL_SUFFIXES.get(suffix)
    if exponent is not None:
        return exponent
    written = _DECIMAL_EXPONENT.fullmatch(suffix)
    if written is None or not -(2**63) <= int(written[1]) < 2**63:
        raise _refusal(text, f"unknown suffix {suffix!r}")
    return (int(written[1]) + 2**31) % 2**32 - 2**31  # upstream narrows it to an int32


def _decimal(significant: str, fraction: str, exponent: int) -> Quantity:
    scale, unscaled = exponent - len(fraction), int(significant + fraction)
    if len(significant) + len(fraction) <= _COMPACT_DIGITS and scale >= -_NANO_EXPONENT:
        scale = min(scale, _MAX_SCALE)
        return Quantity(unscaled * _power_of_ten(scale + _NANO_EXPONENT), scale)
    return Quantity(_nano(unscaled, scale), None)


def _binary(significant: str, fraction: str, exponent: int) -> Quantity:
    # An estimate of the product's digits by which upstream chooses its int64 path.
    if not fraction and len(significant) + exponent * 3 // 10 + 1 <= 15:
        return Quantity((int(significant) << exponent) * 10**_NANO_EXPONENT, 0)
    nano = _nano(int(significant + fraction) << exponent, -len(fraction))
    return Quantity(min(nano, _INT64_MAX * 10**_NANO_EXPONENT), None)


def _nano(unscaled: int, scale: int) -> int:
    """Return `unscaled` * 10^`scale` in billionths, rounded up; `unscaled` >= 0. Cost: bounded by `MAX_TEXT`."""
    shift = min(scale, _MAX_SCALE) + _NANO_EXPONENT
    if shift >= 0:
        return unscaled * _power_of_ten(shift)
    return -(-unscaled // _power_of_ten(min(-shift, 2 * MAX_TEXT)))


def _power_of_ten(exponent: int) -> int:
    return int(10**exponent)  # typed: for a variable exponent the checker knows only Any


def _refusal(text: str, why: str) -> QuantityError:
    shown = text if len(text) <= 64 else text[:61] + "..."
    return QuantityError(f"{shown!r} is not a quantity: {why}")
