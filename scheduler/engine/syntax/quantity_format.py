"""
Quantities with the suffixes in which they are written: "1Gi", not "1073741824".

Source: apimachinery/pkg/api/resource/quantity.go, CanonicalizeBytes (kubernetes 1.36).
"""

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Final

from scheduler.engine.syntax.quantity import Quantity, parse_quantity

_NANO: Final = 10**9
_DECIMAL: Final = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


class Format(Enum):
    """How an amount is written."""

    DECIMAL = "DecimalSI"
    BINARY = "BinarySI"
    EXPONENT = "DecimalExponent"


@dataclass(frozen=True, slots=True)
class FormattedQuantity:
    """An amount and how it is written."""

    amount: Quantity
    format: Format

    @property
    def nano(self) -> int:
        """The amount in billionths of a unit."""
        return self.amount.nano

    def is_same_struct(self, other: "FormattedQuantity") -> bool:
        """
        Return whether Go's == takes both for the same: the same number in the same format.

        It compares pointers where a number does not fit a compact one, so such a number equals no other.
        """
        scale = self.amount.compact_scale
        return scale is not None and scale == other.amount.compact_scale and self == other

    def __str__(self) -> str:
        """Return the canonical text."""
        nano = self.amount.nano
        if nano == 0:
            return "0"
        # A small or broken number in binary is written as a decimal one, which keeps its precision.
        if self.format is Format.BINARY and abs(nano) >= 1024 * _NANO and nano % _NANO == 0:
            return _binary_text(nano // _NANO)
        return _decimal_text(nano, exponent=self.format is Format.EXPONENT)


def binary(value: int) -> FormattedQuantity:
    """Return a number of whole units in binary format."""
    return FormattedQuantity(Quantity(value * _NANO, 0), Format.BINARY)


@lru_cache(maxsize=4096)
def parse_formatted(value: str | int | float) -> FormattedQuantity:
    """Return the amount that a JSON string or number states, and how; raise QuantityError as `parse_quantity` does."""
    amount = parse_quantity(value)
    text = (value if isinstance(value, str) else repr(value)).strip()
    if text.endswith("i"):
        # A number below 1 is kept as a decimal one.
        is_whole = amount.nano == 0 or abs(amount.nano) >= _NANO
        return FormattedQuantity(amount, Format.BINARY if is_whole else Format.DECIMAL)
    written_exponent = "e" in text or ("E" in text and not text.endswith("E"))
    return FormattedQuantity(amount, Format.EXPONENT if written_exponent else Format.DECIMAL)


def _binary_text(units: int) -> str:
    power = 0
    while units % 1024 == 0 and power < len(_BINARY) - 1:
        units //= 1024
        power += 1
    return f"{units}{_BINARY[power]}"


def _decimal_text(nano: int, *, exponent: bool) -> str:
    power = -9
    while nano % 1000 == 0 and (power < 18 or exponent):
        nano //= 1000
        power += 3
    if exponent:
        return f"{nano}e{power}" if power else str(nano)
    return f"{nano}{_DECIMAL[power]}"
