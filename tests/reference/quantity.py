"""
Resource quantities as exact fractions.

Source: apimachinery/pkg/api/resource/quantity.go (kubernetes 1.36).
"""

import re
from fractions import Fraction
from functools import lru_cache
from math import ceil, floor

_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_GRAMMAR = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([a-zA-Z]*|[eE][+-]?[0-9]+)", re.ASCII)
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)", re.ASCII)
_NANO = Fraction(1, 10**9)
_INT64_MAX = 2**63 - 1

Requests = dict[str, Fraction]


@lru_cache(maxsize=4096)
def parse(text: str | float | None) -> Fraction:
    """
    Return the exact value, rounded away from zero to a whole multiple of 10^-9; null is 0.

    Raises: ValueError where the text is no quantity.
    """
    if text is None:
        return Fraction(0)
    found = _GRAMMAR.fullmatch(str(text).strip())
    if found is None or not str(text).strip():
        raise ValueError(f"{text!r} is not a quantity")
    sign, whole, part, suffix = found.groups()
    digits = Fraction(int((whole + (part or "")) or "0"), 10 ** len(part or ""))
    if exponent := _EXPONENT.fullmatch(suffix):
        amount = digits * Fraction(10) ** int(exponent[1])
    elif suffix in _DECIMAL:
        amount = digits * Fraction(10) ** _DECIMAL[suffix]
    elif suffix in _BINARY:
        amount = min(digits * 2 ** _BINARY[suffix], Fraction(_INT64_MAX))
    else:
        raise ValueError(f"{text!r} is not a quantity: unknown suffix {suffix!r}")
    amount = ceil(amount / _NANO) * _NANO
    return -amount if sign == "-" else amount


def parse_all(quantities: dict[str, str | float] | None) -> Requests:
    """Return each named quantity of a resource list."""
    return {name: parse(text) for name, text in (quantities or {}).items()}


def whole_units(amount: Fraction) -> int:
    """Return the value rounded away from zero to units, clamped to an int64."""
    rounded = ceil(amount) if amount >= 0 else floor(amount)
    return max(-_INT64_MAX - 1, min(rounded, _INT64_MAX))


def whole_milli(amount: Fraction) -> int:
    """Return the value rounded away from zero to thousandths."""
    return whole_units(amount * 1000)


def scheduler_units(name: str, amount: Fraction) -> int:
    """Return the value in the scheduler's units: thousandths of cpu, units of everything else."""
    return whole_milli(amount) if name == "cpu" else whole_units(amount)
