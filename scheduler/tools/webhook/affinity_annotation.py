"""
Merges the key lists in the annotation `affinity-scheduler.io/affinity`.

As in a field, the key lists stay, and the term's selector gets the label values at creation. The terms stay in the
annotation, where the scheduler reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import msgspec

from scheduler.engine.model.annotations import (
    AFFINITY,
    GRACE,
    MODE,
    DeclaredAffinity,
    parse_affinity_annotation,
    parse_grace_period,
)
from scheduler.engine.model.fallback import FALLBACK
from scheduler.engine.model.pod_decoder import PodDecoder
from scheduler.engine.model.terms import Problem
from scheduler.engine.model.wire import MalformedObjectError
from scheduler.engine.syntax.field_errors import FieldError
from scheduler.engine.syntax.json_fields import list_field, object_field
from scheduler.tools.webhook.refusals import Json, annotation_error
from scheduler.tools.webhook.reviews import ReviewedPod
from scheduler.tools.webhook.term_json import Term, WeightedTerm
from scheduler.tools.webhook.term_lists import PREFERRED, REQUIRED, Labels, TermList

ENFORCED: Final = "requiredDuringSchedulingRequiredDuringExecution"
SIDES: Final = ("podAffinity", "podAntiAffinity")
#: In the order in which their errors are listed.
_TERM_LISTS: Final = tuple(
    TermList(side, kind, WeightedTerm if kind == PREFERRED else Term, f"metadata.annotations[{AFFINITY}]")
    for side in SIDES
    for kind in (REQUIRED, PREFERRED, ENFORCED)
)


@dataclass(frozen=True, slots=True)
class MergedAnnotation:
    """The annotation's merged value, the keys that its terms list, and their errors."""

    text: str
    keys: tuple[str, ...] = ()
    errors: tuple[FieldError, ...] = ()


def merge_annotation(pod: ReviewedPod, earlier: Labels | None) -> MergedAnnotation | None:
    """Return the merged annotation, None if there is none. `earlier`: what an earlier run merged. O(terms x keys)."""
    text = pod.annotations.get(AFFINITY)
    if text is None:
        return None
    problem = affinity_error(pod)
    if problem is not None:
        return MergedAnnotation(text, errors=(problem,))
    affinity: Json = msgspec.json.decode(text, type=Json)
    keys: list[str] = []
    errors: list[FieldError] = []
    merged = affinity
    for term_list in _TERM_LISTS:
        items = list_field(object_field(affinity, term_list.side), term_list.kind)
        if items:
            unmerged = [
                term_list.with_term(item, partial(_unmerged, earlier=earlier or {})) for item in items
            ]
            new = term_list.merged(unmerged, pod.labels)
            merged = term_list.put(merged, new)
            keys += (key for item in items for key in term_list.keys(item))
            errors += term_list.errors(new, range(len(new)))
    if not keys:
        return MergedAnnotation(text)
    written = text if merged == affinity else msgspec.json.encode(merged).decode()
    too_long = affinity_error(replace(pod, annotations={**pod.annotations, AFFINITY: written}))
    return MergedAnnotation(written, tuple(keys), (*errors, *([too_long] if too_long else [])))


def affinity_error(pod: ReviewedPod) -> FieldError | None:
    """Return why the scheduler cannot read the pod's affinity annotations; None if it can."""
    found = parse_affinity_annotation(pod.namespace, pod.labels, pod.annotations)
    return _located(pod, found) if isinstance(found, Problem) else None


def crosses_namespaces(pod: ReviewedPod) -> bool:
    """Return whether a term of the pod's annotation is about other namespaces; not if it cannot be read. O(terms)."""
    found = parse_affinity_annotation(pod.namespace, pod.labels, pod.annotations)
    return isinstance(found, DeclaredAffinity) and found.pod_affinity.crosses_by_annotation()


def grace_error(pod: ReviewedPod) -> FieldError | None:
    """Return why the enforcer cannot read the pod's grace period; None if it can."""
    found = parse_grace_period(pod.annotations)
    return _located(pod, found) if isinstance(found, Problem) else None


def fallback_error(pod: ReviewedPod) -> FieldError | None:
    """Return why the scheduler cannot read the pod's fallbacks; None if it can."""
    if FALLBACK not in pod.annotations or affinity_error(pod) is not None:
        return None
    metadata = {
        "name": "pod",
        "namespace": pod.namespace,
        "labels": pod.labels,
        "annotations": pod.annotations,
    }
    spec = {"affinity": pod.affinity, "topologySpreadConstraints": pod.constraints}
    try:
        parsed = PodDecoder().decode(msgspec.json.encode({"metadata": metadata, "spec": spec}))
    except MalformedObjectError:
        # The API server refuses it itself.
        return None
    problem = parsed.spec.annotation_problem
    return None if problem is None else _located(pod, Problem(problem))


def required_terms(affinity: object, side: str) -> Iterator[object]:
    """Yield the required terms of `podAffinity` or `podAntiAffinity`, enforced ones included."""
    for kind in (REQUIRED, ENFORCED):
        yield from list_field(object_field(affinity, side), kind)


def _located(pod: ReviewedPod, problem: Problem) -> FieldError:
    """Return the problem as an error of its annotation."""
    name = next(
        (each for each in (MODE, GRACE, FALLBACK) if problem.cause.startswith(f"annotation {each}: ")),
        AFFINITY,
    )
    cause = problem.cause.removeprefix(f"annotation {name}: ")
    return annotation_error(name, pod.annotations.get(name, ""), cause)


def _unmerged(term: Mapping[str, object], earlier: Labels) -> Json:
    """Return the term without the expressions that a merge with `earlier` appended to its selector."""
    selector = object_field(term, "labelSelector")
    written = list(list_field(selector, "matchExpressions"))
    (bare,) = _TERM_LISTS[0].merged([{**term, "labelSelector": {}}], earlier)
    added = list(list_field(object_field(bare, "labelSelector"), "matchExpressions"))
    if not added or written[-len(added) :] != added:
        return dict(term)
    left = written[: -len(added)]
    rest = {name: value for name, value in selector.items() if name != "matchExpressions"}
    return {**term, "labelSelector": {**rest, **({"matchExpressions": left} if left else {})}}
