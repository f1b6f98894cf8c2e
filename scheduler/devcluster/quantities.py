"""
Resource quantities, exactly: `250m`, `1Gi`, `1e3`.

Source: apimachinery pkg/api/resource/quantity.go (kubernetes 1.36).
"""

import re
from decimal import Decimal
from typing import Final

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
