"""Which pods surely fit on a node, by the reference's reading of the objects; a pod that is not judged does not."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tests.reference import (
    node_affinity,
    node_ports,
    node_resources_fit,
    node_unschedulable,
    taint_toleration,
)
from tests.reference.question import Question

Json = dict[str, Any]

#: The reference's reading of what a node refuses, for the rules that a judged pod may have.
_FILTERS = (node_unschedulable, taint_toleration, node_affinity, node_ports, node_resources_fit)
#: A node whose kubelet refused a pod may be left alone for a while.
_REFUSED_FOR_S = 120.0
#: Fields of a pod's spec that add rules which this reading does not know.
_UNKNOWN = (
    "affinity", "topologySpreadConstraints", "schedulingGates", "initContainers", "overhead", "resources",
    "resourceClaims", "schedulingGroup", "workloadRef", "volumes",
)  # fmt: skip
_AFFINITY = "affinity-scheduler.io/affinity"
_FALLBACK = "affinity-scheduler.io/fallback"
_GROUP = "affinity-scheduler.io/pod-group"


class Cluster:
    """The nodes and pods by the writes so far. `schedulers`: the schedulerNames whose pods are to be placed."""

    def __init__(self) -> None:
        self.schedulers: frozenset[str] = frozenset()
        self.pods: dict[str, Json] = {}
        self._nodes: dict[str, Json] = {}
        self._refused_s: dict[str, float] = {}
        self._now_s = 0.0

    def put(self, kind: str, obj: Json, at_s: float, *, gone: bool) -> None:
        """Take the object as it is now."""
        self._now_s = at_s
        if kind == "Node":
            objects, key = self._nodes, obj["metadata"]["name"]
        elif kind == "Pod":
            objects, key = self.pods, obj["metadata"]["uid"]
            if (obj.get("status") or {}).get("phase") == "Failed":
                self._refused_s[obj["spec"].get("nodeName") or ""] = at_s
        else:
            return
        if gone:
            objects.pop(key, None)
        else:
            objects[key] = obj

    def fitting(self) -> Iterator[str]:
        """Yield the UIDs of the pods that are to be placed and surely fit on a node."""
        waiting = [pod for pod in self.pods.values() if self._is_judged(pod)]
        if waiting:
            held = [pod for pod in self.pods.values() if _place(pod) and not is_over(pod)]
            yield from (
                pod["metadata"]["uid"]
                for pod in waiting
                if not any(_keeps_away(other, pod) for other in held if other is not pod)
                and any(self._takes(node, pod, held) for node in self._nodes.values())
            )

    def _is_judged(self, pod: Json) -> bool:
        spec, meta = pod["spec"], pod["metadata"]
        return (
            spec.get("schedulerName") in self.schedulers
            and not spec.get("nodeName")
            and not meta.get("deletionTimestamp")
            and not is_over(pod)
            and not any(spec.get(name) for name in _UNKNOWN)
            and not {_AFFINITY, _FALLBACK} & (meta.get("annotations") or {}).keys()
            and _GROUP not in (meta.get("labels") or {})
        )

    def _takes(self, node: Json, pod: Json, held: list[Json]) -> bool:
        name = node["metadata"]["name"]
        if node["metadata"].get("deletionTimestamp"):
            return False
        if self._now_s - self._refused_s.get(name, -_REFUSED_FOR_S) < _REFUSED_FOR_S:
            return False
        there: list[Mapping[str, Any]] = [
            other for other in held if _place(other) == name and other is not pod
        ]
        question = Question(
            pod, {name: node}, {name: there}, namespaces={}, owners={}, images={}, args={}, disabled=frozenset(),
            gates={}, storage={},
        )  # fmt: skip
        return not any(plugin.refusals(question) for plugin in _FILTERS)


def _place(pod: Json) -> str:
    """Return the node that the pod is on, or is nominated to."""
    return pod["spec"].get("nodeName") or (pod.get("status") or {}).get("nominatedNodeName") or ""


def is_over(pod: Json) -> bool:
    """Return whether the pod has ended."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _keeps_away(other: Json, pod: Json) -> bool:
    """Return whether anti-affinity of the other pod may concern this one, in whatever namespace and domain."""
    labels = pod["metadata"].get("labels") or {}
    return any(_selects(term.get("labelSelector"), labels) for term in _terms(other))


def _terms(pod: Json) -> Iterator[Json]:
    """Yield the required terms of anti-affinity, of the spec and of annotations."""
    annotated = [
        json.loads(value)
        for key, value in (pod["metadata"].get("annotations") or {}).items()
        if key == _AFFINITY
    ]
    for affinity in (pod["spec"].get("affinity") or {}, *annotated):
        rules = affinity.get("podAntiAffinity") or {}
        yield from rules.get("requiredDuringSchedulingIgnoredDuringExecution") or ()


def _selects(selector: Json | None, labels: dict[str, str]) -> bool:
    """Return whether the selector may select the labels; an operator other than In counts as selecting."""
    if selector is None:
        return False
    return all(
        labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items()
    ) and all(
        labels.get(each["key"]) in each["values"] if each["operator"] == "In" else True
        for each in selector.get("matchExpressions") or ()
    )
