"""
Pod affinity and spread constraints of a new pod: key lists are merged into the selectors, then rules are checked.

Source: pkg/registry/core/pod/strategy.go (mutatePodAffinity, mutateTopologySpreadConstraints) and
pkg/apis/core/validation/validation.go (kubernetes 1.36).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from scheduler.engine.syntax import affinity_rules
from scheduler.engine.syntax.field_errors import FieldError
from scheduler.sandbox.devcluster.kinds import JsonObject

_SIDES: Final = ("podAffinity", "podAntiAffinity")
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def merged_affinity(affinity: JsonObject, labels: Mapping[str, str]) -> JsonObject:
    """Return a copy of the affinity with the label values of its key lists added to its selectors."""
    merged = dict(affinity)
    for side in _SIDES:
        if not merged.get(side):
            continue
        terms_by_list = dict(merged[side])
        if terms_by_list.get(_REQUIRED):
            terms_by_list[_REQUIRED] = [_merged_term(term, labels) for term in terms_by_list[_REQUIRED]]
        if terms_by_list.get(_PREFERRED):
            terms_by_list[_PREFERRED] = [
                {**weighted, "podAffinityTerm": _merged_term(weighted.get("podAffinityTerm") or {}, labels)}
                for weighted in terms_by_list[_PREFERRED]
            ]
        merged[side] = terms_by_list
    return merged


def merged_constraints(constraints: Sequence[JsonObject], labels: Mapping[str, str]) -> list[JsonObject]:
    """Return copies of the spread constraints with the label values of their matchLabelKeys in their selectors."""
    return [_merged_term(constraint, labels) for constraint in constraints]


def _merged_term(term: JsonObject, labels: Mapping[str, str]) -> JsonObject:
    """
    Return a term or constraint with one more expression for every listed key that is a label of the pod.

    Spread constraints have no mismatchLabelKeys; an absent selector stays absent.
    """
    selector = term.get("labelSelector")
    if selector is None:
        return term
    added = [
        {"key": key, "operator": operator, "values": [labels[key]]}
        for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
        for key in term.get(field) or []
        if key in labels
    ]
    if not added:
        return term
    expressions = [*(selector.get("matchExpressions") or []), *added]
    return {**term, "labelSelector": {**selector, "matchExpressions": expressions}}


def affinity_errors(affinity: JsonObject) -> Iterator[FieldError]:
    """Yield the rules that merged pod affinity and anti-affinity break, in upstream's order."""
    for side in _SIDES:
        terms_by_list = affinity.get(side) or {}
        for index, term in enumerate(terms_by_list.get(_REQUIRED) or []):
            yield from affinity_rules.term_errors(term, f"spec.affinity.{side}.{_REQUIRED}[{index}]")
        for index, weighted in enumerate(terms_by_list.get(_PREFERRED) or []):
            path = f"spec.affinity.{side}.{_PREFERRED}[{index}]"
            yield from affinity_rules.weighted_term_errors(weighted, path)
