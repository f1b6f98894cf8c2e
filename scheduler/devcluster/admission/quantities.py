"""
Resource quantities, exactly: `250m`, `1Gi`, `1e3`.

Source: apimachinery pkg/api/resource/quantity.go (kubernetes 1.36).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from typing import Final, Literal

_FORM: Final = re.compile(
    r"([+-]?(?:\d+\.?\d*|\.\d+))(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|n|u|[eE][+-]?\d{1,3})?"
)
#: What upstream says of text that is no quantity.
RULE: Final = r"quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_FACTORS: Final = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1),
    "k": Decimal(10**3), "M": Decimal(10**6), "G": Decimal(10**9), "T": Decimal(10**12),
    "P": Decimal(10**15), "E": Decimal(10**18),
    "Ki": Decimal(2**10), "Mi": Decimal(2**20), "Gi": Decimal(2**30), "Ti": Decimal(2**40),
    "Pi": Decimal(2**50), "Ei": Decimal(2**60),
}  # fmt: skip


def parse_quantity(value: object) -> Decimal | None:
    """The quantity's exact value; None where it is none."""
    parts = _FORM.fullmatch(str(value)) if isinstance(value, str | int | float) else None
    if parts is None:
        return None
    number, suffix = Decimal(parts.group(1)), parts.group(2) or ""
    if suffix in _FACTORS:
        return number * _FACTORS[suffix]
    return number * Decimal(10) ** int(suffix[1:])


#: How a quantity is printed: with Ki and Mi, with m and k, or with an exponent.
Form = Literal["binary", "decimal", "exponent"]
_DECIMAL_SUFFIXES: Final = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_BINARY_SUFFIXES: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


@dataclass(frozen=True, slots=True)
class Quantity:
    """An amount that remembers how it was written, and is printed so, in the shortest exact way."""

    value: Decimal = Decimal(0)
    form: Form = "decimal"

    @classmethod
    def of(cls, text: object) -> Quantity:
        """The quantity in `text`. Raises: ValueError where it is none."""
        value = parse_quantity(text)
        if value is None:
            raise ValueError(RULE)
        suffix = str(text).lstrip("+-0123456789.")
        return cls(value, "binary" if suffix[1:] == "i" else "exponent" if suffix[1:] else "decimal")

    def __add__(self, other: Quantity) -> Quantity:
        """Written as the first of both that is not zero."""
        return Quantity(self.value + other.value, self.form if self.value else other.form)

    def __str__(self) -> str:
        if self.form == "binary" and abs(self.value) >= 1024:
            return self._binary()
        number, power = self.value, 0
        while number and number % 1000 == 0 and power < 6:
            number, power = number / 1000, power + 1
        while number % 1 and power > -3:
            number, power = number * 1000, power - 1
        shown = f"{number.to_integral_value(ROUND_CEILING):f}"
        if self.form == "exponent":
            return f"{shown}e{3 * power}" if power else shown
        return shown + _DECIMAL_SUFFIXES[power + 3]

    def _binary(self) -> str:
        number, power = self.value.to_integral_value(ROUND_CEILING), 0
        while number % 1024 == 0 and power < len(_BINARY_SUFFIXES) - 1:
            number, power = number / 1024, power + 1
        return f"{number:f}" + _BINARY_SUFFIXES[power]
