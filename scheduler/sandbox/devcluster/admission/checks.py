"""Rules that many fields keep. Each yields an error for every breach."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from scheduler.engine.syntax import field_errors
from scheduler.engine.syntax.field_errors import FieldError
from scheduler.engine.syntax.quantity import Quantity, QuantityError, parse_quantity
from scheduler.sandbox.devcluster.kinds import JsonObject

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


def stated(obj: JsonObject, path: str, *names: str) -> Iterator[FieldError]:
    """Yield an error for each of these fields that is absent or empty; `path` ends with a dot, or is empty."""
    return (field_errors.required(f"{path}{name}") for name in names if not obj.get(name))


def one_of(value: object, path: str, supported: Sequence[str]) -> Iterator[FieldError]:
    """Yield an error unless the value is supported."""
    if value not in supported:
        yield field_errors.not_supported(path, value, supported)


def well_formed(text: str, path: str, faults: Callable[[str], list[str]]) -> Iterator[FieldError]:
    """Yield an error for every fault of a name, a label's key or a label's value."""
    return (field_errors.invalid(path, text, fault) for fault in faults(text))


def unused(name: str, path: str, seen: set[str]) -> Iterator[FieldError]:
    """Yield an error if the name was seen before, and add it to `seen`."""
    if name in seen:
        yield field_errors.duplicate(path, name)
    seen.add(name)


def at_least_zero(amount: object, path: str) -> Iterator[FieldError]:
    """Yield an error if the amount is negative; an absent amount is not."""
    parsed = quantity(amount)
    if parsed is not None and parsed.nano < 0:
        yield field_errors.invalid(path, amount, "must be greater than or equal to 0")
