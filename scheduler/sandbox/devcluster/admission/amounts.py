"""
Quantities that keep the notation they were written in, as the status of a quota shows them.

Source: apimachinery pkg/api/resource/quantity.go, CanonicalizeBytes (kubernetes 1.36).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from scheduler.engine.syntax.quantity import Quantity, QuantityError, parse_quantity

#: What upstream says of text that is no quantity.
QUANTITY_RULE: Final = (
    r"quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
_NANO_PER_UNIT: Final = 10**9
_DECIMAL_SUFFIXES: Final = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_BINARY_SUFFIXES: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def quantity(value: object) -> Quantity | None:
    """Return the amount that a JSON value states; None if it is no quantity."""
    if not isinstance(value, str | int | float):
        return None
    try:
        return parse_quantity(value)
    except QuantityError:
        return None


@dataclass(frozen=True, slots=True)
class Amount:
    """An amount in billionths of a unit, and its notation: with Ki and Mi, with m and k, or with an exponent."""

    nano: int = 0
    notation: Literal["binary", "decimal", "exponent"] = "decimal"

    @classmethod
    def of(cls, value: object) -> Amount:
        """Return the amount that a checked JSON value states. Raises: ValueError if it is no quantity."""
        found = quantity(value)
        if found is None:
            raise ValueError(QUANTITY_RULE)
        suffix = str(value).lstrip("+-0123456789.")
        return cls(found.nano, "binary" if suffix[1:] == "i" else "exponent" if suffix[1:] else "decimal")

    @property
    def is_whole(self) -> bool:
        """Return True if it has no fraction."""
        return self.nano % _NANO_PER_UNIT == 0

    def __add__(self, other: Amount) -> Amount:
        """Return the sum, in the notation of the first amount that is not zero."""
        return Amount(self.nano + other.nano, self.notation if self.nano else other.notation)

    def __str__(self) -> str:
        """Return the shortest exact text."""
        if self.notation == "binary" and abs(self.nano) >= 1024 * _NANO_PER_UNIT:
            return self._binary()
        if not self.nano:
            return "0"
        number, power = self.nano, -3
        while number % 1000 == 0 and power < 6:
            number, power = number // 1000, power + 1
        if self.notation == "exponent":
            return f"{number}e{3 * power}" if power else str(number)
        return f"{number}{_DECIMAL_SUFFIXES[power + 3]}"

    def _binary(self) -> str:
        number, power = -(-self.nano // _NANO_PER_UNIT), 0
        while number % 1024 == 0 and power < len(_BINARY_SUFFIXES) - 1:
            number, power = number // 1024, power + 1
        return f"{number}{_BINARY_SUFFIXES[power]}"
