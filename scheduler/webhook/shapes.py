"""
Terms and constraints in annotations: read as the API server reads the same JSON in a field.

What comes out has the shape in which the server stores it: no nulls, no empty lists, no fields that it does not know.
Only so can a term be found again once the server has read it and written it back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec

from scheduler.webhook.refusals import Json

#: An annotation longer than this is refused: all annotations of an object together may have 256 KiB.
LIMIT_BYTES: Final = 64 * 1024
#: Terms that one annotation may hold: each costs time in every decision.
LIMIT_TERMS: Final = 64

#: What decoding bytes of others raises: no JSON, another shape, too deep, no UTF-8.
UNREADABLE: Final = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)

_Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]

#: Unknown fields that a warning names.
_MAX_UNKNOWN: Final = 5

#: Objects that mean something although they are empty: `{}` selects everything, absence nothing.
_KEPT_EMPTY: Final = frozenset({"labelSelector", "namespaceSelector", "podAffinityTerm"})


class _Shape(msgspec.Struct, frozen=True, rename="camel"):
    """Camel-cased. What Go leaves out when empty may be null; what it always writes has Go's zero value."""


class _Expression(_Shape, frozen=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class _Selector(_Shape, frozen=True):
    match_labels: dict[str, str] | None = None
    match_expressions: tuple[_Expression, ...] | None = None


class Term(_Shape, frozen=True):
    """v1.PodAffinityTerm."""

    label_selector: _Selector | None = None
    namespaces: tuple[str, ...] | None = None
    topology_key: str = ""
    namespace_selector: _Selector | None = None
    match_label_keys: tuple[str, ...] | None = None
    mismatch_label_keys: tuple[str, ...] | None = None


class WeightedTerm(_Shape, frozen=True):
    """v1.WeightedPodAffinityTerm."""

    weight: _Int32 = 0
    pod_affinity_term: Term = Term()


class Constraint(_Shape, frozen=True):
    """v1.TopologySpreadConstraint."""

    max_skew: _Int32 = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: _Selector | None = None
    min_domains: _Int32 | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] | None = None


Shape = type[Term] | type[WeightedTerm] | type[Constraint]

_DECODERS: Final[Mapping[Shape, msgspec.json.Decoder[Any]]] = {
    Term: msgspec.json.Decoder(list[Term] | None),
    WeightedTerm: msgspec.json.Decoder(list[WeightedTerm] | None),
    Constraint: msgspec.json.Decoder(list[Constraint] | None),
}


@dataclass(frozen=True, slots=True)
class Declared:
    """What an annotation holds. `unknown`: JSON paths of fields that are ignored, the first few."""

    items: list[Json]
    unknown: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Malformed:
    """Why a text does not hold what it should: the JSON path, and what is wrong there."""

    problem: str


def declared(text: str, shape: Shape) -> Declared | Malformed:
    """The list of this shape that an annotation holds as JSON; null is an empty list. O(its length)."""
    size_bytes = len(text.encode())
    if size_bytes > LIMIT_BYTES:
        return Malformed(f"$: {size_bytes} bytes, expected at most {LIMIT_BYTES}")
    try:
        items = _DECODERS[shape].decode(text) or []
        written = msgspec.json.decode(text) or []
    except UNREADABLE as error:
        return Malformed(located(error))
    if len(items) > LIMIT_TERMS:
        return Malformed(f"$: {len(items)} items, expected at most {LIMIT_TERMS}")
    shaped = msgspec.to_builtins(items)
    return Declared([_pruned(item) for item in shaped], tuple(_unknown(written, shaped, "$"))[:_MAX_UNKNOWN])


def located(error: Exception) -> str:
    """What msgspec found wrong, its JSON path first."""
    cause, separator, path = str(error).rpartition(" - at `")
    return f"{path.rstrip('`')}: {cause}" if separator else f"$: {error}"


def canonical(item: object) -> object:
    """An item of a field as the API server writes it back: to compare with what was declared."""
    return _pruned(dict(item)) if isinstance(item, Mapping) else item


def _pruned(item: Mapping[str, object]) -> Json:
    kept: Json = {}
    for name, value in item.items():
        if isinstance(value, Mapping) and name != "matchLabels":
            value = _pruned(value)
        elif isinstance(value, (list, tuple)):
            value = [_pruned(each) if isinstance(each, Mapping) else each for each in value]
        if value in (None, [], {}) and not (name in _KEPT_EMPTY and value == {}):
            continue
        kept[name] = value
    return kept


def _unknown(written: object, shaped: object, path: str) -> list[str]:
    """Paths of the fields that were written and have no place in the shape."""
    if isinstance(written, dict) and isinstance(shaped, dict):
        here = [f"{path}.{name}" for name in written if name not in shaped]
        below = (
            _unknown(written[name], shaped[name], f"{path}.{name}") for name in written if name in shaped
        )
        return [*here, *(each for found in below for each in found)]
    if isinstance(written, list) and isinstance(shaped, (list, tuple)):
        pairs = enumerate(zip(written, shaped, strict=True))
        return [each for index, pair in pairs for each in _unknown(*pair, f"{path}[{index}]")]
    return []
