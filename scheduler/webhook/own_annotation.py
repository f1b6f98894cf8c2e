"""
`affinity-scheduler.io/affinity` with its key lists merged: the annotation stays one, for the scheduler to read.

As in a field, the key lists stay and the selector beside them holds the values of the moment of creation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from scheduler.model.annotations import AFFINITY, GRACE, MODE, parse_affinity_annotation, parse_grace_period
from scheduler.model.match_label_keys import merged_affinity
from scheduler.model.terms import Problem
from scheduler.syntax.affinity_rules import term_errors, weighted_term_errors
from scheduler.syntax.field_errors import FieldError
from scheduler.syntax.json_fields import listed, mapped
from scheduler.webhook.refusals import Json, annotation_error
from scheduler.webhook.reviews import ReviewedPod
from scheduler.webhook.slots import KEY_LISTS, PREFERRED, REQUIRED, Labels

ENFORCED: Final = "requiredDuringSchedulingRequiredDuringExecution"
SIDES: Final = ("podAffinity", "podAntiAffinity")
_KINDS: Final = (REQUIRED, PREFERRED, ENFORCED)


@dataclass(frozen=True, slots=True)
class Completed:
    """The annotation's value with merged selectors, the keys that its terms list, and the rules that they break."""

    text: str
    keys: tuple[str, ...] = ()
    errors: tuple[FieldError, ...] = ()


def completed(pod: ReviewedPod, earlier: Labels | None) -> Completed | None:
    """
    The pod's annotation, merged; None where it has none. O(terms x keys).

    Args:
        pod: whose annotation it is.
        earlier: the label values that an earlier run merged into it, None if there was no earlier run.
    """
    text = pod.annotations.get(AFFINITY)
    if text is None:
        return None
    problem = own_error(pod)
    if problem is not None:
        return Completed(text, errors=(problem,))
    affinity: Json = msgspec.json.decode(text, type=Json)
    keys = tuple(key for term in _terms(affinity) for key in _keys(term))
    if not keys:
        return Completed(text)
    merged = _with_terms(affinity, lambda term: _merged(_unmerged(term, earlier or {}), pod.labels))
    written = text if merged == affinity else msgspec.json.encode(merged).decode()
    too_long = own_error(replace(pod, annotations={**pod.annotations, AFFINITY: written}))
    errors = (*_errors(merged), *([too_long] if too_long else []))
    return Completed(written, keys, errors)


def own_error(pod: ReviewedPod) -> FieldError | None:
    """Why the scheduler could not read the pod's annotation; None where it can, or there is none."""
    found = parse_affinity_annotation(pod.namespace, pod.labels, pod.annotations)
    return _located(pod, found) if isinstance(found, Problem) else None


def grace_error(pod: ReviewedPod) -> FieldError | None:
    """Why the enforcer could not read the pod's grace period; None where it can, or there is none."""
    found = parse_grace_period(pod.annotations)
    return _located(pod, found) if isinstance(found, Problem) else None


def required_terms(affinity: object, side: str) -> Iterator[object]:
    """The required terms of one side of the annotation, enforced ones included."""
    for kind in (REQUIRED, ENFORCED):
        yield from listed(mapped(affinity, side), kind)


def _located(pod: ReviewedPod, problem: Problem) -> FieldError:
    """The problem as one of the annotation that it is about."""
    name = next(
        (each for each in (MODE, GRACE) if problem.cause.startswith(f"annotation {each}: ")), AFFINITY
    )
    cause = problem.cause.removeprefix(f"annotation {name}: ")
    return annotation_error(name, pod.annotations.get(name, ""), cause)


def _terms(affinity: Json) -> Iterator[object]:
    for side in SIDES:
        yield from required_terms(affinity, side)
        for weighted in listed(mapped(affinity, side), PREFERRED):
            yield mapped(weighted, "podAffinityTerm")


def _keys(term: object) -> list[str]:
    return [str(key) for name in KEY_LISTS for key in listed(term, name)]


def _with_terms(affinity: Json, change: Callable[[Mapping[str, object]], Json]) -> Json:
    """The affinity with every term changed."""
    changed = dict(affinity)
    for side in SIDES:
        lists = dict(mapped(affinity, side))
        for kind in _KINDS:
            if kind in lists:
                lists[kind] = [_changed(item, kind, change) for item in listed(lists, kind)]
        if side in affinity:
            changed[side] = lists
    return changed


def _changed(item: object, kind: str, change: Callable[[Mapping[str, object]], Json]) -> object:
    if not isinstance(item, Mapping):
        return item
    if kind == PREFERRED:
        return {**item, "podAffinityTerm": change(mapped(item, "podAffinityTerm"))}
    return change(item)


def _merged(term: Mapping[str, object], labels: Labels) -> Json:
    affinity = merged_affinity({SIDES[0]: {REQUIRED: [term]}}, labels)
    (merged,) = listed(mapped(affinity, SIDES[0]), REQUIRED)
    return dict(merged) if isinstance(merged, Mapping) else {}


def _unmerged(term: Mapping[str, object], earlier: Labels) -> Json:
    """The term without the expressions that merging it with `earlier` has put at the end of its selector."""
    selector = mapped(term, "labelSelector")
    written = list(listed(selector, "matchExpressions"))
    bare = mapped(_merged({**term, "labelSelector": {}}, earlier), "labelSelector")
    added = list(listed(bare, "matchExpressions"))
    if not added or written[-len(added) :] != added:
        return dict(term)
    left = written[: -len(added)]
    rest = {name: value for name, value in selector.items() if name != "matchExpressions"}
    return {**term, "labelSelector": {**rest, **({"matchExpressions": left} if left else {})}}


def _errors(affinity: Json) -> Iterator[FieldError]:
    for side in SIDES:
        for kind in _KINDS:
            for index, item in enumerate(listed(mapped(affinity, side), kind)):
                path = f"metadata.annotations[{AFFINITY}].{side}.{kind}[{index}]"
                rules = weighted_term_errors if kind == PREFERRED else term_errors
                yield from rules(item if isinstance(item, Mapping) else {}, path)
