"""
Checks the JSON types of the fields that the embedded cluster reads.

Upstream decodes into Go structures and answers 400 for a wrong type; `schemas` has those structures. Unknown fields are
left alone, unless the client asks about them (`fieldValidation`), and every field may be absent or null, as in Go.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from scheduler.engine.syntax.quantity import Quantity, QuantityError, parse_quantity
from scheduler.sandbox.devcluster.kinds import JsonObject, Kind
from scheduler.sandbox.devcluster.schemas import BODIES, CUSTOM, PLAIN, STRUCTURES, WHOLE, Field
from scheduler.sandbox.devcluster.status import bad_request

#: What upstream says of text that is no quantity.
_QUANTITY_RULE: Final = (
    r"quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
#: Kinds whose shapes are kept; there are fewer.
_MAX_KINDS: Final = 256


class _Quantity:
    """Marks a field that holds a quantity."""


def quantity(value: object) -> Quantity | None:
    """Return the amount that a JSON value states; None if it is no quantity."""
    if not isinstance(value, str | int | float):
        return None
    try:
        return parse_quantity(value)
    except QuantityError:
        return None


def check_request(kind_name: str, body: JsonObject) -> None:
    """Raise StatusError 400 if a body that is no stored object has a field of the wrong JSON type."""
    if kind_name in BODIES:
        try:
            msgspec.convert(body, _shape(kind_name), dec_hook=_check_quantity)
        except msgspec.ValidationError as error:
            raise bad_request(f"{kind_name} cannot be handled as a {kind_name}: json: {error}") from error


def check_shape(kind: Kind, obj: JsonObject) -> None:
    """Raise StatusError 400 if a field that is read here has the wrong JSON type, or is no quantity."""
    try:
        shape = _CUSTOM_SHAPE if kind.is_custom else _shape(kind.kind)
        msgspec.convert(obj, shape, dec_hook=_check_quantity)
    except msgspec.ValidationError as error:
        why = f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: json: {error}'
        raise bad_request(why) from error


def unknown_fields(kind: Kind, body: JsonObject) -> list[str]:
    """
    Return the paths of fields that the kind does not have, such as `spec.replica`, in the order of the body.

    Directives of a strategic merge patch are none, and a status is not looked into. Of kinds that `schemas` does not
    know whole nothing is returned.
    """
    return list(_unknown(kind.kind, body, "")) if kind.kind in WHOLE and not kind.is_custom else []


def _unknown(structure: str, obj: JsonObject, path: str) -> Iterator[str]:
    fields = {field.name: field for field in STRUCTURES[structure]}
    of_object = ("apiVersion", "kind") if "metadata" in fields else ()
    for key, value in obj.items():
        at, field = f"{path}.{key}" if path else key, fields.get(key)
        if field is None:
            if key not in of_object and not key.startswith("$"):
                yield at
        elif field.type in STRUCTURES and key != "status":
            parts = (
                {f"{at}[{index}]": one for index, one in enumerate(value)}
                if isinstance(value, list)
                else {at: value}
            )
            for where, part in parts.items():
                if isinstance(part, dict):
                    yield from _unknown(field.type, part, where)


def _check_quantity(_: type, value: object) -> _Quantity:
    if quantity(value) is None:
        raise ValueError(_QUANTITY_RULE)
    return _Quantity()


_SCALARS: Final[Mapping[str, Any]] = {
    "s": str, "i": int, "b": bool, "y": str, "t": str, "q": _Quantity, "o": int | str, "j": dict[str, Any],
}  # fmt: skip


def _struct(name: str, fields: Iterable[Field]) -> Any:  # noqa: ANN401 - a class made at run time
    defined: list[Any] = []
    for field in fields:
        of_type: Any = _SCALARS.get(field.type) or _shape(field.type)
        if field.repeats:
            of_type = list[of_type]
        elif field.is_map:
            of_type = dict[str, of_type]
        defined.append((field.name, of_type | None, None))
    return msgspec.defstruct(name, [("apiVersion", str | None, None), ("kind", str | None, None), *defined])


@lru_cache(maxsize=_MAX_KINDS)
def _shape(name: str) -> Any:  # noqa: ANN401 - a class made at run time
    return _struct(name, STRUCTURES.get(name, PLAIN))


_CUSTOM_SHAPE: Final = _struct("custom", CUSTOM)
