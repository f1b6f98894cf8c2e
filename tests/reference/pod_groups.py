"""
Whether a group has places, by trying everything: every order of its members, every node.

A placement is valid if there is an order in which every member passes every filter. A member may also be the first of
those that its required affinity selects if one of them comes later; then one has to be in its domain in the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import permutations

from tests.reference.cluster import Cluster
from tests.reference.question import Object

#: Members and their nodes, and the members that wait for company.
_Assignment = tuple[frozenset[tuple[str, str]], frozenset[str]]


class Group:
    """The members, all in the namespace `default`, by name; pods of one template have labels and spec in common."""

    def __init__(self, cluster: Cluster, members: Mapping[str, Object]) -> None:
        self._cluster = cluster
        self._members = members

    def most(self, enough: int) -> int:
        """Return the most members that have places, or `enough` if as many have."""
        best = 0
        start: _Assignment = (frozenset(), frozenset())
        seen, open_ends = {start}, [start]
        while open_ends:
            assignment = open_ends.pop()
            self._show(assignment)
            places, waiting = assignment
            if len(places) > best and all(self._has_company(name, dict(places)[name]) for name in waiting):
                best = len(places)
            if best >= enough:
                break
            for step in self._steps(assignment):
                if step not in seen:
                    seen.add(step)
                    open_ends.append(step)
        self._show(start)
        return best

    def is_valid(self, nodes: Mapping[str, str]) -> bool:
        """Return whether an order leads to exactly these places of these members."""
        start: _Assignment = (frozenset(), frozenset())
        open_ends, seen = [start], {start}
        wanted = frozenset(nodes.items())
        found = False
        while open_ends and not found:
            assignment = open_ends.pop()
            self._show(assignment)
            places, waiting = assignment
            found = places == wanted and all(self._has_company(name, nodes[name]) for name in waiting)
            steps = (one for one in self._steps(assignment) if one[0] <= wanted and one not in seen)
            for step in list(steps):
                seen.add(step)
                open_ends.append(step)
        self._show(start)
        return found

    def is_in_turn(self, nodes: Mapping[str, str]) -> bool:
        """Return whether every member passes every filter if they come one after the other, as they are given."""
        places: frozenset[tuple[str, str]] = frozenset()
        is_in_turn = True
        for name, node in nodes.items():
            self._show((places, frozenset()))
            is_in_turn &= node in self._cluster.evaluate(self._members[name]).get("feasible", ())
            places |= {(name, node)}
        self._show((frozenset(), frozenset()))
        return is_in_turn

    def has_turns(self, nodes: Mapping[str, str]) -> bool:
        """Return whether these places have an order for which `is_in_turn` holds."""
        return any(self.is_in_turn(dict(order)) for order in permutations(nodes.items()))

    def _show(self, assignment: _Assignment) -> None:
        """Let the cluster have the members on their nodes, and no other member."""
        nodes = dict(assignment[0])
        for name, pod in self._members.items():
            if name in nodes:
                self._cluster.apply(_on(pod, nodes[name]))
            else:
                self._cluster.delete("Pod", "default", name)

    def _steps(self, assignment: _Assignment) -> Iterator[_Assignment]:
        places, waiting = assignment
        placed = {name for name, _ in places}
        templates: set[str] = set()
        for name, pod in self._members.items():
            # Of equal members the first is placed first.
            if name in placed or _template(pod) in templates:
                continue
            templates.add(_template(pod))
            plain = frozenset(self._cluster.evaluate(pod).get("feasible", ()))
            for node in plain:
                yield places | {(name, node)}, waiting
            left = [one for other, one in self._members.items() if other not in placed and other != name]
            for node in self._before_company(pod, left) - plain:
                yield places | {(name, node)}, waiting | {name}

    def _before_company(self, pod: Object, left: list[Object]) -> frozenset[str]:
        """Return the nodes that take the pod if a member to come counts as the one that its affinity selects."""
        question = self._cluster.question(pod)
        terms = _required(pod)
        running = [(one, question.nodes[node]) for node, pods in question.pods_on.items() for one in pods]
        if not terms or not any(_selects(terms, one) for one in left):
            return frozenset()
        for one, node in running:
            labels = node["metadata"]["labels"]
            if _selects(terms, one) and any(term["topologyKey"] in labels for term in terms):
                return frozenset()
        feasible = self._cluster.evaluate(_without_required(pod)).get("feasible", ())
        keys = {term["topologyKey"] for term in terms}
        return frozenset(
            name for name in feasible if keys <= question.nodes[name]["metadata"]["labels"].keys()
        )

    def _has_company(self, name: str, node: str) -> bool:
        pod = self._members[name]
        self._cluster.delete("Pod", "default", name)
        refused = self._cluster.evaluate(pod).get("filter", {}).get("InterPodAffinity", {})
        self._cluster.apply(_on(pod, node))
        return node not in refused


def _on(pod: Object, node: str) -> Object:
    return {**pod, "spec": {**pod["spec"], "nodeName": node}}


def _template(pod: Object) -> str:
    return repr((pod["metadata"]["labels"], pod["spec"]))


def _required(pod: Object) -> list[Object]:
    near = (pod["spec"].get("affinity") or {}).get("podAffinity") or {}
    return list(near.get("requiredDuringSchedulingIgnoredDuringExecution") or [])


def _without_required(pod: Object) -> Object:
    affinity = {key: value for key, value in pod["spec"]["affinity"].items() if key != "podAffinity"}
    return {**pod, "spec": {**pod["spec"], "affinity": affinity}}


def _selects(terms: list[Object], pod: Object) -> bool:
    """Return whether all terms select the pod. Only matchLabels are read; all pods are in one namespace."""
    return all(
        term["labelSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items() for term in terms
    )
