"""
Checks that a finished run broke no rule, by the terms and selectors of the reference, for thousands of nodes at once.

It checks the final state, so the order of the bindings does not matter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from tests.bench.scene import Scene
from tests.bench.templates import Planned, Template
from tests.bench.volumes import VOLUMES_PER_NODE
from tests.reference.inter_pod_affinity import Term, Terms, terms_of
from tests.reference.selectors import parse
from tests.support.build import ZONE, Json

Key = tuple[str, str]


@dataclass(frozen=True)
class _Group:
    """The number of equal pods of one namespace per node."""

    template: Template
    namespace: str
    measured: bool
    by_node: Counter[str]

    @cached_property
    def pod(self) -> Json:
        return self.template.pod(self.namespace, self.template.name, scheduler="")

    @cached_property
    def terms(self) -> Terms:
        return terms_of(self.pod)

    def domains(self, domain_by_node: Mapping[str, str]) -> Counter[str]:
        found: Counter[str] = Counter()
        for node, n in self.by_node.items():
            if node in domain_by_node:
                found[domain_by_node[node]] += n
        return found


def broken_rules(scene: Scene, node_by_pod: Mapping[Key, str]) -> list[str]:
    """Return one line for each unbound measured pod and each broken rule."""
    unbound = sum(not node_by_pod.get(key) for key in scene.measured_keys)
    found = [f"{unbound} of {len(scene.measured)} measured pods are not bound"] if unbound else []
    placed = [
        (pod, pod.node or node_by_pod.get((pod.namespace, pod.name), ""))
        for pod in (*scene.running, *scene.idle, *scene.measured)
        if not scene.shape.evicts or (pod.namespace, pod.name) in node_by_pod
    ]
    groups = _groups(scene, placed)
    labels_by_namespace = {n["metadata"]["name"]: n["metadata"]["labels"] for n in scene.namespaces}
    rules = _Rules(scene, groups, labels_by_namespace)
    return [*found, *_overfull(scene, placed), *_overattached(placed), *rules.broken()]


def _groups(scene: Scene, placed: Iterable[tuple[Planned, str]]) -> list[_Group]:
    found: dict[tuple[int, str], _Group] = {}
    templates = {id(pod.template) for pod in scene.measured}
    for pod, node in placed:
        if not node:
            continue
        key = (id(pod.template), pod.namespace)
        if key not in found:
            measured = id(pod.template) in templates and pod.namespace == scene.shape.measured_namespace
            found[key] = _Group(pod.template, pod.namespace, measured, Counter())
        found[key].by_node[node] += 1
    return list(found.values())


def _overfull(scene: Scene, placed: Iterable[tuple[Planned, str]]) -> Iterator[str]:
    """Yield nodes that are over-committed or do not exist."""
    milli: Counter[str] = Counter()
    for pod, node in placed:
        if node:
            milli[node] += int(pod.template.cpu.removesuffix("m")) * (1 if "m" in pod.template.cpu else 1000)
    nodes = {node["metadata"]["name"] for node in scene.nodes}
    for node, used in milli.items():
        if node not in nodes:
            yield f"{node}: no such node"
        elif used > 4000:
            yield f"{node}: {used}m of 4000m CPU in use"


def _overattached(placed: Iterable[tuple[Planned, str]]) -> Iterator[str]:
    """Yield nodes with more volumes than their driver attaches."""
    attached = Counter(node for pod, node in placed if node and pod.template.claim == "bound")
    for node, n in attached.items():
        if n > VOLUMES_PER_NODE:
            yield f"{node}: {n} volumes, at most {VOLUMES_PER_NODE} can be attached"


class _Rules:
    """The rules between pods."""

    def __init__(self, scene: Scene, groups: list[_Group], labels_by_namespace: Mapping[str, Json]) -> None:
        self._groups = groups
        self._labels_by_namespace = labels_by_namespace
        self._labels_by_node = {n["metadata"]["name"]: n["metadata"]["labels"] for n in scene.nodes}
        self._tainted = {n["metadata"]["name"] for n in scene.nodes if n["spec"].get("taints")}

    def broken(self) -> Iterator[str]:
        for group in self._groups:
            yield from self._anti_affinity(group)
            if group.measured:
                yield from self._taints(group)
                yield from self._affinity(group)
                yield from self._spread(group)
                yield from self._level(group)

    def _taints(self, group: _Group) -> Iterator[str]:
        for node in self._tainted & group.by_node.keys():
            yield f"{node}: {group.by_node[node]} pods that do not tolerate its taint"

    def _anti_affinity(self, group: _Group) -> Iterator[str]:
        """Yield domains with a measured pod and another pod that its term selects."""
        for term in group.terms.anti_required:
            domain_by_node = self._domains(term.topology_key)
            declaring = group.domains(domain_by_node)
            for other in self._groups:
                if not (group.measured or other.measured) or not self._selects([term], other):
                    continue
                for domain, n in other.domains(domain_by_node).items():
                    if declaring[domain] and n > (other is group):
                        yield f"{domain}: anti-affinity of {group.template.name} broken by {n} {other.template.name}"

    def _affinity(self, group: _Group) -> Iterator[str]:
        """Yield pods without another pod in their domain that all their terms select; a first pod may be alone."""
        terms = group.terms.required
        for term in terms:
            domain_by_node = self._domains(term.topology_key)
            selected: Counter[str] = Counter()
            for other in self._groups:
                if self._selects(terms, other):
                    selected.update(other.domains(domain_by_node))
            itself = self._selects(terms, group)
            if itself and selected.total() == 1:
                continue
            for domain in group.domains(domain_by_node):
                if selected[domain] <= itself:
                    yield f"{domain}: {group.template.name} without a pod that its affinity asks for"
            if outside := group.by_node.keys() - domain_by_node.keys():
                yield f"{len(outside)} nodes without {term.topology_key} hold {group.template.name}"

    def _spread(self, group: _Group) -> Iterator[str]:
        for constraint in group.template.spread:
            if constraint["whenUnsatisfiable"] != "DoNotSchedule":
                continue
            domain_by_node = self._domains(constraint["topologyKey"])
            if constraint.get("nodeTaintsPolicy") == "Honor":
                domain_by_node = {n: d for n, d in domain_by_node.items() if n not in self._tainted}
            selector = parse(constraint["labelSelector"])
            counts = Counter(dict.fromkeys(domain_by_node.values(), 0))
            for other in self._groups:
                if other.namespace == group.namespace and selector.matches(other.template.labels):
                    counts.update(other.domains(domain_by_node))
            skew = max(counts.values()) - min(counts.values())
            if skew > constraint["maxSkew"]:
                yield f"skew {skew} over {constraint['topologyKey']}, at most {constraint['maxSkew']} allowed"

    def _level(self, group: _Group) -> Iterator[str]:
        if group.template.pod_group and len(zones := group.domains(self._domains(ZONE))) != 1:
            yield f"{group.template.name}: in {len(zones)} zones, one is required"

    def _selects(self, terms: Iterable[Term], other: _Group) -> bool:
        """Return whether every term selects the other group's pods."""
        labels = self._labels_by_namespace[other.namespace]
        return all(term.matches(other.pod, labels) for term in terms)

    def _domains(self, topology_key: str) -> dict[str, str]:
        return {
            node: labels[topology_key]
            for node, labels in self._labels_by_node.items()
            if topology_key in labels
        }
