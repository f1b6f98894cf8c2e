"""
A cluster's state as plain dictionaries: every answer is counted by a loop over all pods.

What `scheduler.engine.state` keeps as columns, counts and derived values has to give the same answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil

from scheduler.engine.model.nodes import Node
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.requests import on_node_request
from scheduler.engine.model.terms import AffinityTerm, Taint, Toleration, usable
from scheduler.engine.state.existing_terms import TermKind
from scheduler.engine.state.matching import PodMatcher

#: A pod's labels and its namespace, as terms see them.
Labelled = tuple[str, Mapping[str, str]]


@dataclass(slots=True)
class PlainPod:
    """A pod and the name of the node that it counts on, whether that node is known or not."""

    pod: Pod
    node_name: str
    assumed: bool = False

    @property
    def labelled(self) -> Labelled:
        """Return namespace and labels."""
        return self.pod.namespace, self.pod.labels


@dataclass(slots=True)
class PlainState:
    """Nodes, namespaces and pods by name or UID."""

    exempt_namespaces: frozenset[str] = frozenset()
    nodes: dict[str, Node] = field(default_factory=dict)
    namespaces: dict[str, Mapping[str, str]] = field(default_factory=dict)
    pods: dict[str, PlainPod] = field(default_factory=dict)

    def put(self, pod: Pod, node_name: str, *, assumed: bool = False) -> None:
        """Count the pod on the node, and nowhere else."""
        self.pods[pod.uid] = PlainPod(replace(pod, node_name=node_name), node_name, assumed)

    def domain(self, node_name: str, key: str) -> str | None:
        """Return the node's value of the label, None without the node or the label."""
        node = self.nodes.get(node_name)
        return None if node is None else node.labels.get(key)

    def selected(self, matcher: PodMatcher, *, live_only: bool = False) -> Counter[str]:
        """Return how many pods on each node the matcher selects."""
        return Counter(
            one.node_name
            for one in self.pods.values()
            if not (live_only and one.pod.terminating)
            and matcher.matches(*one.labelled, self.namespaces.get(one.pod.namespace))
        )

    def per_domain(self, by_node: Mapping[str, int], key: str) -> Counter[str]:
        """Return the amounts of nodes added up per domain of the topology key."""
        totals: Counter[str] = Counter()
        for node_name, amount in by_node.items():
            domain = self.domain(node_name, key)
            if domain is not None:
                totals[domain] += amount
        return totals

    def term_sums(
        self, incoming: Labelled, weigh: Callable[[TermKind, AffinityTerm], int]
    ) -> dict[str, dict[str, int]]:
        """Return by topology key and domain the weights of the placed pods' terms that select the incoming pod."""
        sums: dict[str, Counter[str]] = {}
        for placed in self.pods.values():
            for kind, term in self._terms(placed.pod):
                domain = self.domain(placed.node_name, term.topology_key)
                if domain is not None and self._selects(kind, term, incoming):
                    sums.setdefault(term.topology_key, Counter())[domain] += weigh(kind, term)
        found = {key: {domain: n for domain, n in per_key.items() if n} for key, per_key in sums.items()}
        return {key: per_key for key, per_key in found.items() if per_key}

    def full_nodes(self, incoming: Labelled) -> set[str]:
        """Return the nodes in domains that a term with a limit above one pod per domain closes to the incoming pod."""
        full: set[str] = set()
        for placed in self.pods.values():
            for kind, term in self._terms(placed.pod):
                domain = self.domain(placed.node_name, term.topology_key)
                if not term.is_limiting or domain is None or not self._selects(kind, term, incoming):
                    continue
                selected = [one for one in self.pods.values() if self._selects(kind, term, one.labelled)]
                others = sum(
                    one is not placed and self.domain(one.node_name, term.topology_key) == domain
                    for one in selected
                )
                if others >= self._most(term, domain, len(selected) + 1) - 1:
                    full.update(name for name in self.nodes if self.domain(name, term.topology_key) == domain)
        return full

    def with_room(self, request: Mapping[str, int]) -> set[str]:
        """Return the nodes on which one more pod with this request fits."""
        return {name for name in self.nodes if self._has_room(name, request)}

    def n_untolerated_taints(
        self, tolerations: tuple[Toleration, ...], effects: tuple[str, ...]
    ) -> Counter[str]:
        """Return how many taints of these effects are not tolerated on each node."""

        def counts(taint: Taint) -> bool:
            return taint.effect in effects and not any(one.tolerates(taint) for one in tolerations)

        return Counter({name: sum(map(counts, node.taints)) for name, node in self.nodes.items()})

    def _has_room(self, name: str, request: Mapping[str, int]) -> bool:
        here = [one.pod for one in self.pods.values() if one.node_name == name]
        allocatable = self.nodes[name].allocatable
        used: Counter[str] = Counter()
        for pod in here:
            used.update(on_node_request(pod))
        return len(here) < allocatable.get("pods", 0) and all(
            used[resource] + amount <= allocatable.get(resource, 0) for resource, amount in request.items()
        )

    def _most(self, term: AffinityTerm, domain: str, n_pods: int) -> int:
        """Return how many of so many pods the domain may have."""
        limit = term.max_pods
        if isinstance(limit, int):
            return limit
        if not limit.weights:
            return ceil(Fraction(limit.percent * n_pods, 100))
        there = {self.domain(name, term.topology_key) for name in self.nodes}
        weights = {each: weight for each, weight in limit.weights if each in there}
        return ceil(Fraction(weights.get(domain, 0) * n_pods, max(1, sum(weights.values()))))

    def _terms(self, pod: Pod) -> Iterator[tuple[TermKind, AffinityTerm]]:
        affinity = pod.spec.affinity
        for kind, terms in (
            (TermKind.REQUIRED, affinity.required),
            (TermKind.REQUIRED_ANTI, affinity.required_anti),
            (TermKind.PREFERRED, affinity.preferred),
            (TermKind.PREFERRED_ANTI, affinity.preferred_anti),
        ):
            if kind is not TermKind.REQUIRED_ANTI or pod.namespace not in self.exempt_namespaces:
                yield from ((kind, term) for term in usable(terms))

    def _selects(self, kind: TermKind, term: AffinityTerm, labelled: Labelled) -> bool:
        namespace, labels = labelled
        if kind is TermKind.REQUIRED_ANTI and namespace in self.exempt_namespaces:
            return False
        namespace_labels = self.namespaces.get(namespace, {})
        covered = namespace in term.namespaces or term.namespace_selector.matches(namespace_labels)
        return covered and term.selector.matches(labels)
