"""
The rules that the placed pods of a cluster break, by the API's documentation and without the product's code.

Required affinity and anti-affinity, DoNotSchedule constraints, node selectors and devices are judged. Pods that
finished or are being deleted do not count. Kubernetes checks rules only when it places a pod, so a story checks while
no pod moves.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from scheduler.sandbox.demo.api import JsonObject
from scheduler.sandbox.demo.pod_watch import is_counted, node_of

_ANNOTATION: Final = "affinity-scheduler.io/affinity"
#: Enforced terms, the second, occur only in the annotation.
_REQUIRED: Final = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "requiredDuringSchedulingRequiredDuringExecution",
)


def broken_rules(
    pods: Iterable[JsonObject], nodes: Iterable[JsonObject], namespaces: Iterable[JsonObject]
) -> list[str]:
    """
    Return one sentence for each rule of each placed pod that does not hold.

    Cost: O(distinct rules x pods), so that a thousand pods of ten services take a moment.
    """
    placed = [pod for pod in pods if node_of(pod) and is_counted(pod)]
    return list(_PlacedPods(placed, list(nodes), list(namespaces)).broken())


def doubly_allocated(claims: Iterable[JsonObject]) -> list[str]:
    """Return one sentence for each device that is allocated to more than one claim."""
    names_by_device: dict[tuple[str, str, str], list[str]] = {}
    for claim in claims:
        for device in devices_of(claim):
            # Devices of an administrative claim may be allocated to others as well.
            if not device.get("adminAccess"):
                key = device["driver"], device["pool"], device["device"]
                names_by_device.setdefault(key, []).append(_name(claim))
    return [
        f"{device} of pool {pool} is allocated to {' and '.join(names)}"
        for (_, pool, device), names in names_by_device.items()
        if len(names) > 1
    ]


def devices_of(claim: JsonObject) -> list[JsonObject]:
    """Return the devices that are allocated to a claim."""
    found: list[JsonObject] = (
        claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
    )
    return found


def selects(selector: JsonObject | None, labels: Mapping[str, str]) -> bool:
    """Return whether a label selector selects an object of these labels; an absent one selects nothing."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in selector.get("matchLabels", {}).items()):
        return False
    return all(
        _holds(one["operator"], one["key"] in labels, labels.get(one["key"], "") in one.get("values", ()))
        for one in selector.get("matchExpressions", ())
    )


def _holds(operator: str, is_there: bool, is_listed: bool) -> bool:  # noqa: FBT001 - a truth table
    match operator:
        case "In":
            return is_there and is_listed
        case "NotIn":
            return not (is_there and is_listed)
        case "Exists":
            return is_there
        case "DoesNotExist":
            return not is_there
    raise ValueError(f"unknown operator {operator!r} in a selector")


class _PlacedPods:
    """Placed pods with the labels of their nodes and namespaces."""

    def __init__(
        self, pods: Sequence[JsonObject], nodes: Sequence[JsonObject], namespaces: Sequence[JsonObject]
    ) -> None:
        self._pods = pods
        self._nodes = nodes
        self._labels_by_node = {node["metadata"]["name"]: _labels(node) for node in nodes}
        self._labels_by_namespace = {one["metadata"]["name"]: _labels(one) for one in namespaces}
        #: (namespace, rule as JSON) -> the pods it selects; pods of one deployment share their rules.
        self._selected: dict[tuple[str, str], list[JsonObject]] = {}
        #: The same key -> number of these pods in each domain.
        self._domains: dict[tuple[str, str], Counter[str]] = {}

    def broken(self) -> Iterator[str]:
        judged: set[tuple[str, str]] = set()
        for pod in self._pods:
            yield from self._wrong_node(pod)
            for term in _terms(pod, "podAntiAffinity"):
                yield from self._too_near(pod, term)
            for term in _terms(pod, "podAffinity"):
                yield from self._too_far(pod, term)
            for spread in pod["spec"].get("topologySpreadConstraints", ()):
                key = (_namespace(pod), json.dumps([spread, _node_selector(pod)]))
                if spread["whenUnsatisfiable"] == "DoNotSchedule" and key not in judged:
                    judged.add(key)
                    yield from self._uneven(pod, spread)

    def _wrong_node(self, pod: JsonObject) -> Iterator[str]:
        labels = self._labels_by_node.get(node_of(pod))
        if labels is None:
            yield f"{_name(pod)} is on {node_of(pod)}, which does not exist"
        elif not _node_selector(pod).items() <= labels.items():
            yield f"{_name(pod)} is on {node_of(pod)}, which its nodeSelector excludes"

    def _too_near(self, pod: JsonObject, term: JsonObject) -> Iterator[str]:
        domain = self._domain(pod, term["topologyKey"])
        if domain is None:
            return
        others = self._count(pod, term)[domain] - self._is_chosen(pod, pod, term)
        if others >= term.get("maxPodsPerDomain", 1):
            yield (
                f"{_name(pod)} shares {term['topologyKey']}={domain} with {others} pods that it must keep away from"
            )

    def _too_far(self, pod: JsonObject, term: JsonObject) -> Iterator[str]:
        domain = self._domain(pod, term["topologyKey"])
        is_own_match = self._is_chosen(pod, pod, term)
        near = 0 if domain is None else self._count(pod, term)[domain] - is_own_match
        # The first pod that matches its own term may be alone.
        is_first = is_own_match and len(self._chosen(pod, term)) == 1 and domain is not None
        if near < 1 and not is_first:
            yield f"{_name(pod)} has none of the pods that it must be near in {term['topologyKey']}={domain}"

    def _uneven(self, pod: JsonObject, spread: JsonObject) -> Iterator[str]:
        eligible = {
            _labels(node)[spread["topologyKey"]]
            for node in self._nodes
            if spread["topologyKey"] in _labels(node) and _node_selector(pod).items() <= _labels(node).items()
        }
        counts = Counter(dict.fromkeys(eligible, 0))
        for other in self._pods:
            domain = self._domain(other, spread["topologyKey"])
            is_selected = selects(spread.get("labelSelector"), _labels(other))
            if _namespace(other) == _namespace(pod) and is_selected and domain in eligible:
                counts[domain] += 1
        skew = max(counts.values(), default=0) - min(counts.values(), default=0)
        if skew > spread["maxSkew"]:
            yield (
                f"{_name(pod)} and pods like it have a skew of {skew} over {spread['topologyKey']}, "
                f"at most {spread['maxSkew']} allowed"
            )

    def _domain(self, pod: JsonObject, topology_key: str) -> str | None:
        return self._labels_by_node.get(node_of(pod), {}).get(topology_key)

    def _count(self, pod: JsonObject, term: JsonObject) -> Counter[str]:
        key = _key(pod, term)
        if key not in self._domains:
            domains = (self._domain(other, term["topologyKey"]) for other in self._chosen(pod, term))
            self._domains[key] = Counter(domain for domain in domains if domain is not None)
        return self._domains[key]

    def _chosen(self, pod: JsonObject, term: JsonObject) -> list[JsonObject]:
        """Return the placed pods that a term of `pod` selects, itself included if it does."""
        key = _key(pod, term)
        if key not in self._selected:
            self._selected[key] = [other for other in self._pods if self._is_chosen(other, pod, term)]
        return self._selected[key]

    def _is_chosen(self, other: JsonObject, pod: JsonObject, term: JsonObject) -> bool:
        is_meant = self._is_meant(_namespace(other), pod, term)
        return is_meant and selects(term.get("labelSelector"), _labels(other))

    def _is_meant(self, namespace: str, pod: JsonObject, term: JsonObject) -> bool:
        if not term.get("namespaces") and term.get("namespaceSelector") is None:
            return namespace == _namespace(pod)
        labels = self._labels_by_namespace.get(namespace, {})
        return namespace in term.get("namespaces", ()) or selects(term.get("namespaceSelector"), labels)


def _key(pod: JsonObject, term: JsonObject) -> tuple[str, str]:
    return _namespace(pod), json.dumps(term)


def _terms(pod: JsonObject, kind: str) -> list[JsonObject]:
    """
    Return all required terms of this kind of affinity, those of the annotation included.

    The API server has merged matchLabelKeys into their selectors.
    """
    annotated = json.loads(pod["metadata"].get("annotations", {}).get(_ANNOTATION, "{}"))
    parts = (affinity.get(kind, {}) for affinity in (pod["spec"].get("affinity", {}), annotated))
    return [term for part in parts for which in _REQUIRED for term in part.get(which, ())]


def _labels(one: JsonObject) -> Mapping[str, str]:
    found: Mapping[str, str] = one["metadata"].get("labels", {})
    return found


def _node_selector(pod: JsonObject) -> Mapping[str, str]:
    found: Mapping[str, str] = pod["spec"].get("nodeSelector", {})
    return found


def _namespace(one: JsonObject) -> str:
    return str(one["metadata"]["namespace"])


def _name(one: JsonObject) -> str:
    return f"{_namespace(one)}/{one['metadata']['name']}"
