"""
Rules that were relaxed, moved among the preferences of the spec: the pod as it would be if it had been written so.

Not upstream's. What yields to an incoming pod is taken out of the running pods' specs before the pod is decided.
"""

import json
from collections.abc import Iterable
from typing import Any

from tests.reference.annotated import ANNOTATION, ENFORCED, PREFERRED, REQUIRED, in_fields
from tests.reference.inter_pod_affinity import Term, terms_of
from tests.reference.question import Object

FALLBACK = "affinity-scheduler.io/fallback"
RELAXED = "affinity-scheduler.io/relaxed"

#: A required anti-affinity term, and whether an annotation declares it.
Declared = tuple[Term, bool]


def entries_of(pod: Object) -> list[Object]:
    """Return the entries of the pod's fallback annotation."""
    annotations = pod["metadata"].get("annotations") or {}
    entries: list[Object] = json.loads(annotations.get(FALLBACK, "[]"))
    return entries


def name_of(entry: Object) -> str:
    """Return the name of the entry in the annotation of relaxed rules."""
    labels = ",".join(f"{key}={value}" for key, value in sorted((entry.get("matchLabels") or {}).items()))
    by = f" by {entry['topologyKey']}" if entry.get("topologyKey") else ""
    return f"{entry['rule']}{by}{f' of {labels}' if labels else ''}"


def marked(pod: Object) -> list[Object]:
    """Return the entries that the pod's mark names, if the pod has a node."""
    annotations = pod["metadata"].get("annotations") or {}
    if not (pod.get("spec") or {}).get("nodeName") or RELAXED not in annotations:
        return []
    names = {one["rule"] for one in json.loads(annotations[RELAXED])}
    return [entry for entry in entries_of(pod) if name_of(entry) in names]


def relaxed_anti(pod: Object, entries: Iterable[Object]) -> set[Declared]:
    """Return the required anti-affinity terms that these entries of the pod name."""
    chosen = [entry for entry in entries if entry["rule"] == "podAntiAffinity"]
    return {
        declared
        for written, declared in zip(_required_anti(in_fields(pod)), _declared(pod), strict=True)
        if any(_names(entry, written) for entry in chosen)
    }


def softened(pod: Object, entries: Iterable[Object], yields_to: Iterable[Declared] = ()) -> Object:
    """
    Return the pod in fields, without our annotations: terms of these entries among the preferences.

    Required anti-affinity of `yields_to` is left out where an entry of the pod's names it.
    """
    chosen, yielding = list(entries), set(yields_to)
    mine = [entry for entry in entries_of(pod) if entry["rule"] == "podAntiAffinity"]
    declared = _declared(pod)
    made: Any = in_fields(pod)
    spec = json.loads(json.dumps(made.get("spec") or {}))
    affinity = spec.get("affinity") or {}
    for side in ("podAffinity", "podAntiAffinity"):
        lists = affinity.get(side) or {}
        kept = []
        for number, term in enumerate(lists.get(REQUIRED) or ()):
            names = [entry for entry in chosen if entry["rule"] == side and _names(entry, term)]
            if names:
                weighted = {"weight": names[0].get("weight", 100), "podAffinityTerm": term}
                lists[PREFERRED] = [*(lists.get(PREFERRED) or ()), weighted]
                continue
            is_mine = side == "podAntiAffinity" and any(_names(entry, term) for entry in mine)
            if not (is_mine and declared[number] in yielding):
                kept.append(term)
        if lists.get(REQUIRED):
            lists[REQUIRED] = kept
    for constraint in spec.get("topologySpreadConstraints") or ():
        if any(
            entry["rule"] == "topologySpreadConstraints" and _names(entry, constraint) for entry in chosen
        ):
            constraint["whenUnsatisfiable"] = "ScheduleAnyway"
    for entry in chosen:
        if entry["rule"] == "nodeAffinity":
            nodes = affinity["nodeAffinity"]
            terms = nodes.pop(REQUIRED)["nodeSelectorTerms"]
            # Terms with a value that is no label value match no node.
            parsed = [term for term in terms if "{bad}" not in json.dumps(term)]
            preferred = [{"weight": entry.get("weight", 100), "preference": term} for term in parsed]
            nodes[PREFERRED] = [*(nodes.get(PREFERRED) or ()), *preferred]
    metadata = {name: value for name, value in made["metadata"].items() if name != "annotations"}
    return {**made, "metadata": metadata, "spec": spec}


def as_seen_by(
    pod: Object, others: Iterable[Object], *, came_first: bool = True
) -> tuple[Object, list[Object]]:
    """
    Return the bound pod and the other pods in fields, with the rules between them that still hold.

    Left out are pods to which a rule of this pod yields: if it `came_first`, they may have come beside it.
    """
    mine = marked(pod)
    relaxed = relaxed_anti(pod, mine)
    kept = relaxed_anti(pod, entries_of(pod)) - relaxed if came_first else set()
    seen = [
        softened(one, marked(one), relaxed) for one in others if not relaxed_anti(one, marked(one)) & kept
    ]
    return softened(pod, mine), seen


def _declared(pod: Object) -> list[Declared]:
    """Return the pod's required anti-affinity, in the order of its fields; those of the annotation come last."""
    terms = terms_of(in_fields(pod)).anti_required
    own = (
        json.loads((pod["metadata"].get("annotations") or {}).get(ANNOTATION, "{}")).get("podAntiAffinity")
        or {}
    )
    n_own = len(own.get(REQUIRED) or ()) + len(own.get(ENFORCED) or ())
    return [(term, number >= len(terms) - n_own) for number, term in enumerate(terms)]


def _required_anti(pod: Object) -> list[Object]:
    affinity = (pod.get("spec") or {}).get("affinity") or {}
    return list((affinity.get("podAntiAffinity") or {}).get(REQUIRED) or ())


def _names(entry: Object, term: Object) -> bool:
    """Return whether the entry is about the term or constraint."""
    selector = term.get("labelSelector") or {}
    required = dict(selector.get("matchLabels") or {})
    for one in selector.get("matchExpressions") or ():
        if one["operator"] == "In" and len(one["values"]) == 1:
            required[one["key"]] = one["values"][0]
    labels = entry.get("matchLabels") or {}
    return term["topologyKey"] == entry["topologyKey"] and labels.items() <= required.items()
