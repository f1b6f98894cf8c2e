"""Fields of an API object as JSON that is not checked yet: a field of another type counts as absent."""

from collections.abc import Mapping, Sequence


def list_field(item: object, name: str) -> Sequence[object]:
    """Return the list in a field of an object; empty if there is none."""
    value = item.get(name) if isinstance(item, Mapping) else None
    return value if isinstance(value, (list, tuple)) else ()


def object_field(item: object, name: str) -> Mapping[str, object]:
    """Return the object in a field of an object; empty if there is none."""
    value = item.get(name) if isinstance(item, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def string_field(item: object, name: str) -> str:
    """Return the text in a field of an object; empty if there is none."""
    value = item.get(name) if isinstance(item, Mapping) else None
    return value if isinstance(value, str) else ""
