"""
Copies required rules of `affinity-scheduler.io/affinity` into the pod's spec, for programs that read no annotations.

Autoscalers decide by the spec whether a pod fits. A pod with `affinity-scheduler.io/mirror-to-spec: "true"` gets there
what the API has fields for: required terms, enforced ones and `maxPodsPerDomain: 1` included, and required node
affinity. The annotation stays. A second run changes nothing.

Terms with a fallback (`engine.model.fallback`) are copied too, so that an autoscaler tries before they are relaxed;
but not node affinity, which the kubelet checks again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from scheduler.engine.model.annotations import AFFINITY, MIRROR, MODE
from scheduler.engine.model.fallback import parse_fallbacks
from scheduler.engine.model.terms import Problem
from scheduler.engine.syntax.field_errors import FieldError
from scheduler.engine.syntax.json_fields import list_field, object_field
from scheduler.tools.webhook.affinity_annotation import SIDES, affinity_error, required_terms
from scheduler.tools.webhook.refusals import Json, annotation_error
from scheduler.tools.webhook.reviews import ReviewedPod
from scheduler.tools.webhook.term_json import normalized
from scheduler.tools.webhook.term_lists import KEY_LISTS, PREFERRED, REQUIRED

_LIMIT: Final = "maxPodsPerDomain"
_WEIGHTS: Final = "domainWeights"
_NODE: Final = "nodeAffinity"
_NODE_LISTS: Final = ("matchExpressions", "matchFields")
#: Node selector terms of the spec and the annotation together; see engine/model/annotations.py.
_MAX_NODE_TERMS: Final = 64


@dataclass(frozen=True, slots=True)
class Mirrored:
    """The pod's affinity with the rules of its annotation: how many were added, and which have no field."""

    affinity: Json
    n_added: int
    left_out: tuple[str, ...]


def mirror(pod: ReviewedPod, affinity: Json) -> Mirrored | FieldError | None:
    """Return the affinity with the annotation's rules; None if the pod does not ask, or it has errors."""
    asked = pod.annotations.get(MIRROR, "false")
    if asked not in ("true", "false"):
        return annotation_error(MIRROR, asked, 'expected "true" or "false"')
    if asked == "false" or AFFINITY not in pod.annotations or affinity_error(pod) is not None:
        return None  # other rules report a malformed annotation
    if pod.annotations.get(MODE) == "replace":
        return Mirrored(affinity, 0, ("the annotation replaces the spec",))
    annotated: Json = msgspec.json.decode(pod.annotations[AFFINITY], type=Json)
    left_out: dict[str, None] = {}
    mirrored, n_added = dict(affinity), 0
    for side in SIDES:
        new = list(_new_terms(annotated, affinity, side, left_out))
        if new:
            own = object_field(affinity, side)
            mirrored[side] = {**own, REQUIRED: [*list_field(own, REQUIRED), *new]}
            n_added += len(new)
        if list_field(object_field(annotated, side), PREFERRED):
            left_out[PREFERRED] = None
    fallbacks = parse_fallbacks(pod.annotations)
    if not isinstance(fallbacks, Problem) and any(one.kind == _NODE for one in fallbacks):
        left_out["nodeAffinity with a fallback"] = None
    elif (node_terms := _node_terms(affinity, annotated, left_out)) is not None:
        mirrored[_NODE] = {**object_field(affinity, _NODE), REQUIRED: {"nodeSelectorTerms": node_terms}}
        n_added += 1
    return Mirrored(mirrored, n_added, tuple(left_out))


def _new_terms(
    annotated: Json, affinity: Json, side: str, left_out: dict[str, None]
) -> Iterator[Mapping[str, object]]:
    """Yield the required terms that the spec lacks and has fields for. Add to `left_out` why others are not copied."""
    known = [normalized(term) for term in list_field(object_field(affinity, side), REQUIRED)]
    for term in required_terms(annotated, side):
        if not isinstance(term, Mapping):
            continue
        obstacles = [name for name in KEY_LISTS if list_field(term, name)]
        if term.get(_LIMIT) not in (None, 1):
            obstacles.append(f"{_LIMIT} {'in per cent' if isinstance(term[_LIMIT], str) else 'above 1'}")
        if term.get(_WEIGHTS):
            obstacles.append(_WEIGHTS)
        if obstacles:
            left_out.update(dict.fromkeys(obstacles))
            continue
        plain = normalized({name: value for name, value in term.items() if name != _LIMIT})
        if plain not in known and isinstance(plain, Mapping):
            known.append(plain)
            yield plain


def _node_terms(affinity: Json, annotated: Json, left_out: dict[str, None]) -> list[object] | None:
    """Return the node selector terms that hold for both, None if the terms of the spec do already."""
    own, asked = (
        [
            term
            for term in list_field(object_field(object_field(each, _NODE), REQUIRED), "nodeSelectorTerms")
            if isinstance(term, Mapping)
        ]
        for each in (affinity, annotated)
    )
    if list_field(object_field(annotated, _NODE), PREFERRED):
        left_out[PREFERRED] = None
    if not asked or (own and all(any(_includes(term, other) for other in asked) for term in own)):
        return None
    both = [_joined(term, other) for term in own for other in asked] if own else [dict(one) for one in asked]
    if len(both) > _MAX_NODE_TERMS:
        left_out[f"more than {_MAX_NODE_TERMS} node selector terms"] = None
        return None
    return list(both)


def _includes(term: Mapping[str, object], other: Mapping[str, object]) -> bool:
    return all(
        normalized(one) in [normalized(each) for each in list_field(term, name)]
        for name in _NODE_LISTS
        for one in list_field(other, name)
    )


def _joined(term: Mapping[str, object], other: Mapping[str, object]) -> Json:
    lists: dict[str, Sequence[object]] = {
        name: [*list_field(term, name), *list_field(other, name)] for name in _NODE_LISTS
    }
    return {name: values for name, values in lists.items() if values}
