"""Rules that many fields keep. Each yields an error for every breach."""

from collections.abc import Callable, Iterator
from typing import Final

from scheduler.engine.syntax import field_errors
from scheduler.engine.syntax.field_errors import FieldError
from scheduler.engine.syntax.quantity import Quantity, QuantityError, parse_quantity

#: What upstream says of text that is no quantity.
QUANTITY_RULE: Final = (
    r"quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)


def quantity(value: object) -> Quantity | None:
    """Return the amount that a JSON value states; None if it is no quantity."""
    if not isinstance(value, str | int | float):
        return None
    try:
        return parse_quantity(value)
    except QuantityError:
        return None


def well_formed(text: str, path: str, faults: Callable[[str], list[str]]) -> Iterator[FieldError]:
    """Yield an error for every fault of a name, a label's key or a label's value."""
    return (field_errors.invalid(path, text, fault) for fault in faults(text))
