"""
The API server's merge of matchLabelKeys and mismatchLabelKeys into the selectors of a pod at its creation.

A listed key that the pod has as a label becomes an expression of the term's labelSelector: `In` the label's value, or
`NotIn` for mismatchLabelKeys. Other keys add nothing, an absent selector stays absent, and the lists are kept.

Works on JSON, because manifests are merged before they are parsed; arguments are not changed.
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


def merged_affinity(affinity: Json, labels: Json) -> Json:
    """Return `spec.affinity` of a pod with these labels as the API server stores it."""
    merged = {
        name: _merged_lists(lists, labels)
        for name, lists in affinity.items()
        if name in ("podAffinity", "podAntiAffinity") and isinstance(lists, Mapping)
    }
    return {**affinity, **merged}


def merged_spread(constraint: Json, labels: Json, *, enabled: bool = True, merged: bool = True) -> Json:
    """
    Return a topology spread constraint as the API server stores it.

    Args:
        constraint: one of `spec.topologySpreadConstraints` of a pod.
        labels: the pod's labels.
        enabled: the feature gate MatchLabelKeysInPodTopologySpread; without it the list is dropped.
        merged: the gate MatchLabelKeysInPodTopologySpreadSelectorMerge; without it the scheduler merges.
    """
    if not enabled:
        return {name: value for name, value in constraint.items() if name != _MATCH}
    if not merged:
        return constraint
    return _with_expressions(constraint, list(_expressions(constraint, _MATCH, "In", labels)))


def _merged_lists(lists: Json, labels: Json) -> Json:
    required, preferred = lists.get(_REQUIRED), lists.get(_PREFERRED)
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
    return {**lists, **changed}


def _merged_term(term: object, labels: Json) -> object:
    if not isinstance(term, Mapping):
        return term  # left for the decoder to report
    added = [
        *_expressions(term, _MATCH, "In", labels),
        *_expressions(term, _MISMATCH, "NotIn", labels),
    ]
    return _with_expressions(term, added)


def _expressions(term: Json, keys: str, operator: str, labels: Json) -> Iterator[Json]:
    listed = term.get(keys)
    for key in listed if isinstance(listed, list) else ():
        if isinstance(key, str) and key in labels:
            yield {"key": key, "operator": operator, "values": [labels[key]]}


def _with_expressions(term: Json, added: list[Json]) -> Json:
    selector = term.get("labelSelector")
    if not isinstance(selector, Mapping) or not added:
        return term
    written = selector.get("matchExpressions")
    expressions = [*(written if isinstance(written, list) else ()), *added]
    return {**term, "labelSelector": {**selector, "matchExpressions": expressions}}
