"""
Parses terms and constraints in annotations as the API server parses the same JSON in a field.

The result is what the API server would store: without nulls, empty lists and unknown fields. So a later run finds a
term in the field again, after the API server has decoded and encoded it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from scheduler.engine.model.pod_wire import WireSpreadConstraint
from scheduler.engine.model.terms import Problem
from scheduler.engine.model.wire import Int32, LabelSelector, Wire, read
from scheduler.tools.webhook.refusals import Json

#: A longer annotation is refused. All annotations of an object together may have 256 KiB.
MAX_ANNOTATION_BYTES: Final = 64 * 1024
#: An annotation with more terms is refused, since each costs time in every decision.
MAX_TERMS: Final = 64

#: What decoding can raise: no JSON, wrong types, too deep, no UTF-8.
DECODE_ERRORS: Final = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)

#: Unknown fields named in warnings.
_MAX_UNKNOWN: Final = 5

#: Objects that mean something although they are empty: an empty selector selects everything, a missing one nothing.
_MEANINGFUL_EMPTY: Final = frozenset({"labelSelector", "namespaceSelector", "podAffinityTerm"})


# Go's omitempty fields may be None; others default to Go's zero value.


class Term(Wire, frozen=True):
    """v1.PodAffinityTerm."""

    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] | None = None
    topology_key: str = ""
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] | None = None
    mismatch_label_keys: tuple[str, ...] | None = None


class WeightedTerm(Wire, frozen=True):
    """v1.WeightedPodAffinityTerm."""

    weight: Int32 = 0
    pod_affinity_term: Term = Term()


class Constraint(WireSpreadConstraint, frozen=True):
    """v1.TopologySpreadConstraint."""

    max_skew: Int32 = 0
    min_domains: Int32 | None = None


TermType = type[Term] | type[WeightedTerm] | type[Constraint]

_DECODERS: Final[Mapping[TermType, msgspec.json.Decoder[Any]]] = {
    Term: msgspec.json.Decoder(list[Term] | None),
    WeightedTerm: msgspec.json.Decoder(list[WeightedTerm] | None),
    Constraint: msgspec.json.Decoder(list[Constraint] | None),
}


@dataclass(frozen=True, slots=True)
class ParsedTerms:
    """The items of an annotation. `unknown`: JSON paths of the first few unknown fields."""

    items: list[Json]
    unknown: tuple[str, ...]


def parse_terms(text: str, term_type: TermType) -> ParsedTerms | Problem:
    """Return the terms of this type in the JSON text, null for none; or the path and cause of a problem. O(length)."""
    size_bytes = len(text.encode())
    if size_bytes > MAX_ANNOTATION_BYTES:
        return Problem(f"$: {size_bytes} bytes, expected at most {MAX_ANNOTATION_BYTES}")
    try:
        items = read(_DECODERS[term_type].decode, text.encode()) or []
        written = msgspec.json.decode(text) or []
    except DECODE_ERRORS as error:
        return Problem(with_json_path(error))
    if len(items) > MAX_TERMS:
        return Problem(f"$: {len(items)} items, expected at most {MAX_TERMS}")
    shaped = msgspec.to_builtins(items)
    return ParsedTerms(
        [_without_empty(item) for item in shaped], tuple(_unknown(written, shaped, "$"))[:_MAX_UNKNOWN]
    )


def with_json_path(error: Exception) -> str:
    """Return msgspec's message with the JSON path first."""
    cause, separator, path = str(error).rpartition(" - at `")
    return f"{path.rstrip('`')}: {cause}" if separator else f"$: {error}"


def normalized(item: object) -> object:
    """Return the item as the API server would encode it, for comparison with parsed terms."""
    return _without_empty(dict(item)) if isinstance(item, Mapping) else item


def _without_empty(item: Mapping[str, object]) -> Json:
    result: Json = {}
    for name, value in item.items():
        if isinstance(value, Mapping) and name != "matchLabels":
            value = _without_empty(value)
        elif isinstance(value, (list, tuple)):
            value = [_without_empty(each) if isinstance(each, Mapping) else each for each in value]
        if value in (None, [], {}) and not (name in _MEANINGFUL_EMPTY and value == {}):
            continue
        result[name] = value
    return result


def _unknown(written: object, shaped: object, path: str) -> list[str]:
    """Return the paths of the fields in `written` that the type does not have; null counts as absent."""
    if isinstance(written, dict) and isinstance(shaped, dict):
        here = [f"{path}.{name}" for name in written if name not in shaped and written[name] is not None]
        below = (
            _unknown(written[name], shaped[name], f"{path}.{name}") for name in written if name in shaped
        )
        return [*here, *(each for found in below for each in found)]
    if isinstance(written, list) and isinstance(shaped, (list, tuple)):
        pairs = enumerate(zip(written, shaped, strict=True))
        return [each for index, pair in pairs for each in _unknown(*pair, f"{path}[{index}]")]
    return []
