"""Values of a manifest by type. The wrong type is an error that names the field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from scheduler.engine.model import nesting
from scheduler.engine.syntax.match_label_keys import Json

_OBJECT: Final = msgspec.json.Decoder(dict[str, object])


def object_in(body: bytes) -> Json:
    """Return the JSON object; an empty one if it is none."""
    try:
        return nesting.read(_OBJECT.decode, body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}


def mapping_or_empty(value: object) -> Json:
    """Return the value if it is an object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


class ManifestError(ValueError):
    """The document cannot create pods. Commands catch it and name the file."""

    def __init__(self, field: str, found: str, expected: str) -> None:
        self.field, self.found, self.expected = field, found, expected
        super().__init__(f"{field}: found {found}, expected {expected}")


def as_mapping(value: object, field: str) -> Json:
    """Return the value if it is an object; raise ManifestError if not."""
    if isinstance(value, Mapping):
        return value
    raise ManifestError(field, shown(value), "an object")


def as_list(value: object, field: str) -> Sequence[object]:
    """Return the value, a list; an absent one is empty. Raises ManifestError."""
    if value is None:
        return ()
    if isinstance(value, list):
        return value
    raise ManifestError(field, shown(value), "a list")


def as_number(spec: Json, field: str, default: int, path: str) -> int:
    """Return a number of pods. Raises ManifestError."""
    found = spec.get(field)
    if found is None:
        return default
    if not isinstance(found, int) or isinstance(found, bool) or found < 0:
        raise ManifestError(f"{path}.{field}", shown(found), "a number of pods")
    return found


def as_texts(values: Json) -> dict[str, str]:
    """Return those of the values that are text."""
    return {key: value for key, value in values.items() if isinstance(value, str)}


def shown(value: object) -> str:
    """Return the value in a few words."""
    if isinstance(value, Mapping):
        return "an object"
    return "nothing" if value is None else "a list" if isinstance(value, list) else repr(value)[:60]
