"""
Terms by annotation, read as if they stood in the spec: the pod as it would be if the API had the fields.

Not upstream's. Annotations that cannot be read are not for the reference.
"""

import json
from typing import Any

from tests.reference.question import Object, labels_of

ANNOTATION = "affinity-scheduler.io/affinity"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
ENFORCED = "requiredDuringSchedulingRequiredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_SIDES = ("podAffinity", "podAntiAffinity")


def in_fields(pod: Object) -> Object:
    """Return the pod with all terms in its spec: those of annotations, and enforced ones among the required ones."""
    annotations = pod["metadata"].get("annotations") or {}
    if ANNOTATION not in annotations:
        return pod
    own = json.loads(annotations[ANNOTATION])
    spec = pod.get("spec") or {}
    replaces = annotations.get(f"{ANNOTATION}-mode") == "replace"
    old: Object = {} if replaces else spec.get("affinity") or {}
    affinity: dict[str, Any] = {side: _pods(pod, old.get(side) or {}, own.get(side) or {}) for side in _SIDES}
    affinity["nodeAffinity"] = _nodes(old.get("nodeAffinity") or {}, own.get("nodeAffinity") or {})
    return {**pod, "spec": {**spec, "affinity": affinity}}


def _pods(pod: Object, old: Object, own: Object) -> Object:
    required = [*(own.get(REQUIRED) or ()), *(own.get(ENFORCED) or ())]
    preferred = [
        {**each, "podAffinityTerm": _merged(pod, each["podAffinityTerm"])}
        for each in own.get(PREFERRED) or ()
    ]
    return {
        REQUIRED: [*(old.get(REQUIRED) or ()), *(_merged(pod, term) for term in required)],
        PREFERRED: [*(old.get(PREFERRED) or ()), *preferred],
    }


def _merged(pod: Object, term: Object) -> Object:
    """Return the term with the pod's values of its matchLabelKeys and mismatchLabelKeys in its selector."""
    labels = labels_of(pod)
    values = [
        {"key": key, "operator": operator, "values": [labels[key]]}
        for name, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
        for key in term.get(name) or ()
        if key in labels
    ]
    if not values:
        return term
    selector = term["labelSelector"]
    expressions = [*(selector.get("matchExpressions") or ()), *values]
    return {**term, "labelSelector": {**selector, "matchExpressions": expressions}}


def _nodes(old: Object, own: Object) -> Object:
    """Return node affinity that requires a term of each and has the preferences of both."""
    made: dict[str, Any] = {**old}
    preferred = [*(old.get(PREFERRED) or ()), *(own.get(PREFERRED) or ())]
    if preferred:
        made[PREFERRED] = preferred
    asked = own.get(REQUIRED)
    if asked is not None:
        known = old.get(REQUIRED)
        terms = asked["nodeSelectorTerms"]
        if known is not None:
            terms = [_both(one, other) for one in known.get("nodeSelectorTerms") or () for other in terms]
        made[REQUIRED] = {"nodeSelectorTerms": terms}
    return made


def _both(one: Object, other: Object) -> Object:
    """Return the term that requires both; an empty term matches nothing, also together with another."""
    if not any(one.values()) or not any(other.values()):
        return {}
    return {
        name: [*(one.get(name) or ()), *(other.get(name) or ())]
        for name in ("matchExpressions", "matchFields")
    }
