"""
matchLabelKeys and mismatchLabelKeys of a pod that is about to be created, merged as the API server merges them.

A listed key that the pod has as a label becomes an expression of the selector beside it: `In` its value, or `NotIn`
for mismatchLabelKeys. Absent keys add nothing, an absent selector stays absent, the lists stay in the object.

Works on API objects as JSON, since a manifest has not been parsed by anybody yet; arguments are never changed.
Source: pkg/registry/core/pod/strategy.go, mutatePodAffinity and mutateTopologySpreadConstraints; pkg/api/pod/util.go,
dropDisabledMatchLabelKeysFieldInTopologySpread (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

Json = Mapping[str, object]

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_MATCH: Final = "matchLabelKeys"
_MISMATCH: Final = "mismatchLabelKeys"


def merged_affinity(affinity: Json, labels: Json, *, enabled: bool = True) -> Json:
    """
    The affinity as it is stored. O(terms x keys).

    Args:
        affinity: `spec.affinity` of a pod.
        labels: the pod's labels.
        enabled: the feature gate MatchLabelKeysInPodAffinity.
    """
    if not enabled:
        return affinity
    sides = {
        side: _merged_side(terms, labels)
        for side, terms in affinity.items()
        if side in ("podAffinity", "podAntiAffinity") and isinstance(terms, Mapping)
    }
    return {**affinity, **sides}


def merged_spread(constraint: Json, labels: Json, *, enabled: bool = True, merged: bool = True) -> Json:
    """
    A topology spread constraint as it is stored. O(keys).

    Args:
        constraint: one of `spec.topologySpreadConstraints` of a pod.
        labels: the pod's labels.
        enabled: the feature gate MatchLabelKeysInPodTopologySpread; without it the list is dropped.
        merged: the gate MatchLabelKeysInPodTopologySpreadSelectorMerge; without it the scheduler merges.
    """
    if not enabled:
        return {name: value for name, value in constraint.items() if name != _MATCH}
    return (
        _selecting_more(constraint, _expressions(constraint, _MATCH, "In", labels)) if merged else constraint
    )


def _merged_side(terms: Json, labels: Json) -> Json:
    required, preferred = terms.get(_REQUIRED), terms.get(_PREFERRED)
    changed: dict[str, object] = {}
    if isinstance(required, list):
        changed[_REQUIRED] = [_merged_term(term, labels) for term in required]
    if isinstance(preferred, list):
        changed[_PREFERRED] = [
            {**weighted, "podAffinityTerm": _merged_term(weighted["podAffinityTerm"], labels)}
            if isinstance(weighted, Mapping) and "podAffinityTerm" in weighted
            else weighted
            for weighted in preferred
        ]
    return {**terms, **changed}


def _merged_term(term: object, labels: Json) -> object:
    if not isinstance(term, Mapping):
        return term  # what is wrong with it is for the decoder to say
    added = [
        *_expressions(term, _MATCH, "In", labels),
        *_expressions(term, _MISMATCH, "NotIn", labels),
    ]
    return _selecting_more(term, added)


def _expressions(term: Json, keys: str, operator: str, labels: Json) -> Iterator[Json]:
    listed = term.get(keys)
    for key in listed if isinstance(listed, list) else ():
        if isinstance(key, str) and key in labels:
            yield {"key": key, "operator": operator, "values": [labels[key]]}


def _selecting_more(term: Json, added: Iterator[Json] | list[Json]) -> Json:
    """The term with the expressions after those that the user wrote."""
    selector, expressions = term.get("labelSelector"), list(added)
    if not isinstance(selector, Mapping) or not expressions:
        return term
    written = selector.get("matchExpressions")
    kept = written if isinstance(written, list) else []
    return {**term, "labelSelector": {**selector, "matchExpressions": [*kept, *expressions]}}
