"""
The rules that the placed pods of a cluster break, by the API's documentation and without the product's code.

Required affinity and anti-affinity, DoNotSchedule constraints, node selectors and devices are judged. Pods that
finished or are being deleted do not count. Kubernetes checks rules only when it places a pod, so a story checks while
no pod moves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from scheduler.demo.objects import Device, Namespace, Node, Pod, ResourceClaim, Selector, Spread, Term


def broken_rules(pods: Iterable[Pod], nodes: Iterable[Node], namespaces: Iterable[Namespace]) -> list[str]:
    """
    Return one sentence for each rule of each placed pod that does not hold.

    Cost: O(distinct rules x pods), so that a thousand pods of ten services take a moment.
    """
    placed = [pod for pod in pods if pod.spec.node_name and pod.is_counted]
    return list(_PlacedPods(placed, list(nodes), list(namespaces)).broken())


def doubly_allocated(claims: Iterable[ResourceClaim]) -> list[str]:
    """Return one sentence for each device that is allocated to more than one claim."""
    names_by_device: dict[Device, list[str]] = {}
    for claim in claims:
        for device in claim.devices:
            if not device.admin_access:
                name = f"{claim.metadata.namespace}/{claim.metadata.name}"
                names_by_device.setdefault(device, []).append(name)
    return [
        f"{device.device} of pool {device.pool} is allocated to {' and '.join(names)}"
        for device, names in names_by_device.items()
        if len(names) > 1
    ]


def selects(selector: Selector | None, labels: Mapping[str, str]) -> bool:
    """Return whether a label selector selects an object of these labels; an absent one selects nothing."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in selector.match_labels.items()):
        return False
    return all(
        _holds(one.operator, one.key in labels, labels.get(one.key, "") in one.values)
        for one in selector.match_expressions
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

    def __init__(self, pods: Sequence[Pod], nodes: Sequence[Node], namespaces: Sequence[Namespace]) -> None:
        self._pods = pods
        self._nodes = nodes
        self._labels_by_node = {node.metadata.name: node.metadata.labels for node in nodes}
        self._labels_by_namespace = {one.metadata.name: one.metadata.labels for one in namespaces}
        #: (namespace, rule as JSON) -> the pods it selects; pods of one deployment share their rules.
        self._selected: dict[tuple[str, bytes], list[Pod]] = {}
        #: The same key -> number of these pods in each domain.
        self._domains: dict[tuple[str, bytes], Counter[str]] = {}

    def broken(self) -> Iterator[str]:
        judged: set[tuple[str, bytes]] = set()
        for pod in self._pods:
            yield from self._wrong_node(pod)
            for term in pod.away_from:
                yield from self._too_near(pod, term)
            for term in pod.near:
                yield from self._too_far(pod, term)
            for spread in pod.spec.topology_spread_constraints:
                key = (pod.metadata.namespace, msgspec.json.encode([spread, pod.spec.node_selector]))
                if spread.when_unsatisfiable == "DoNotSchedule" and key not in judged:
                    judged.add(key)
                    yield from self._uneven(pod, spread)

    def _wrong_node(self, pod: Pod) -> Iterator[str]:
        labels = self._labels_by_node.get(pod.spec.node_name)
        if labels is None:
            yield f"{_name(pod)} is on {pod.spec.node_name}, which does not exist"
        elif not pod.spec.node_selector.items() <= labels.items():
            yield f"{_name(pod)} is on {pod.spec.node_name}, which its nodeSelector excludes"

    def _too_near(self, pod: Pod, term: Term) -> Iterator[str]:
        domain = self._domain(pod, term.topology_key)
        if domain is None:
            return
        others = self._count(pod, term)[domain] - self._is_chosen(pod, pod, term)
        if others >= term.max_pods_per_domain:
            yield (
                f"{_name(pod)} shares {term.topology_key}={domain} with {others} pods that it must keep away from"
            )

    def _too_far(self, pod: Pod, term: Term) -> Iterator[str]:
        domain = self._domain(pod, term.topology_key)
        is_own_match = self._is_chosen(pod, pod, term)
        near = 0 if domain is None else self._count(pod, term)[domain] - is_own_match
        # The first pod that matches its own term may be alone.
        is_first = is_own_match and len(self._chosen(pod, term)) == 1 and domain is not None
        if near < 1 and not is_first:
            yield f"{_name(pod)} has none of the pods that it must be near in {term.topology_key}={domain}"

    def _uneven(self, pod: Pod, spread: Spread) -> Iterator[str]:
        eligible = {
            node.metadata.labels[spread.topology_key]
            for node in self._nodes
            if spread.topology_key in node.metadata.labels
            and pod.spec.node_selector.items() <= node.metadata.labels.items()
        }
        counts = Counter(dict.fromkeys(eligible, 0))
        for other in self._pods:
            domain = self._domain(other, spread.topology_key)
            is_selected = selects(spread.label_selector, other.metadata.labels)
            if other.metadata.namespace == pod.metadata.namespace and is_selected and domain in eligible:
                counts[domain] += 1
        skew = max(counts.values(), default=0) - min(counts.values(), default=0)
        if skew > spread.max_skew:
            yield (
                f"{_name(pod)} and pods like it have a skew of {skew} over {spread.topology_key}, "
                f"at most {spread.max_skew} allowed"
            )

    def _domain(self, pod: Pod, topology_key: str) -> str | None:
        return self._labels_by_node.get(pod.spec.node_name, {}).get(topology_key)

    def _count(self, pod: Pod, term: Term) -> Counter[str]:
        key = _key(pod, term)
        if key not in self._domains:
            domains = (self._domain(other, term.topology_key) for other in self._chosen(pod, term))
            self._domains[key] = Counter(domain for domain in domains if domain is not None)
        return self._domains[key]

    def _chosen(self, pod: Pod, term: Term) -> list[Pod]:
        """Return the placed pods that a term of `pod` selects, itself included if it does."""
        key = _key(pod, term)
        if key not in self._selected:
            self._selected[key] = [other for other in self._pods if self._is_chosen(other, pod, term)]
        return self._selected[key]

    def _is_chosen(self, other: Pod, pod: Pod, term: Term) -> bool:
        is_meant = self._is_meant(other.metadata.namespace, pod, term)
        return is_meant and selects(term.label_selector, other.metadata.labels)

    def _is_meant(self, namespace: str, pod: Pod, term: Term) -> bool:
        if not term.namespaces and term.namespace_selector is None:
            return namespace == pod.metadata.namespace
        labels = self._labels_by_namespace.get(namespace, {})
        return namespace in term.namespaces or selects(term.namespace_selector, labels)


def _key(pod: Pod, term: Term) -> tuple[str, bytes]:
    return pod.metadata.namespace, msgspec.json.encode(term)


def _name(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"
