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
    """Return one sentence for each rule of each placed pod that does not hold."""
    placed = [pod for pod in pods if node_of(pod) and is_counted(pod)]
    return list(_PlacedPods(placed, nodes, namespaces).broken())


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
    return all(_holds(one, labels) for one in selector.get("matchExpressions", ()))


def _holds(expression: JsonObject, labels: Mapping[str, str]) -> bool:
    is_there = expression["key"] in labels
    is_listed = is_there and labels[expression["key"]] in expression.get("values", ())
    holds_by_operator = {
        "In": is_listed,
        "NotIn": not is_listed,
        "Exists": is_there,
        "DoesNotExist": not is_there,
    }
    return holds_by_operator[expression["operator"]]


class _PlacedPods:
    """Placed pods with the labels of their nodes and namespaces."""

    def __init__(
        self, pods: Sequence[JsonObject], nodes: Iterable[JsonObject], namespaces: Iterable[JsonObject]
    ) -> None:
        self._pods = pods
        self._labels_by_node = {node["metadata"]["name"]: _labels(node) for node in nodes}
        self._labels_by_namespace = {one["metadata"]["name"]: _labels(one) for one in namespaces}
        #: (namespace, term as JSON) -> pods that it selects in each domain; pods of one deployment share their terms.
        self._counts: dict[tuple[str, str], Counter[str | None]] = {}

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
        chosen = self._count(pod, term)
        near = 0 if domain is None else chosen[domain] - is_own_match
        # The first pod that matches its own term may be alone.
        is_first = is_own_match and chosen.total() == 1 and domain is not None
        if near < 1 and not is_first:
            yield f"{_name(pod)} has none of the pods that it must be near in {term['topologyKey']}={domain}"

    def _uneven(self, pod: JsonObject, spread: JsonObject) -> Iterator[str]:
        key, wanted = spread["topologyKey"], _node_selector(pod).items()
        of_nodes = self._labels_by_node.values()
        eligible = {labels[key] for labels in of_nodes if key in labels and wanted <= labels.items()}
        counts = Counter(dict.fromkeys(eligible, 0))
        for other in self._pods:
            domain = self._domain(other, key)
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

    def _count(self, pod: JsonObject, term: JsonObject) -> Counter[str | None]:
        """Return how many placed pods a term of `pod` selects in each domain, itself included if it does."""
        key = _namespace(pod), json.dumps(term)
        if key not in self._counts:
            chosen = (other for other in self._pods if self._is_chosen(other, pod, term))
            self._counts[key] = Counter(self._domain(other, term["topologyKey"]) for other in chosen)
        return self._counts[key]

    def _is_chosen(self, other: JsonObject, pod: JsonObject, term: JsonObject) -> bool:
        namespace, names, selector = _namespace(other), term.get("namespaces"), term.get("namespaceSelector")
        if names or selector is not None:
            labels = self._labels_by_namespace.get(namespace, {})
            is_meant = namespace in (names or ()) or selects(selector, labels)
        else:
            is_meant = namespace == _namespace(pod)
        return is_meant and selects(term.get("labelSelector"), _labels(other))


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
