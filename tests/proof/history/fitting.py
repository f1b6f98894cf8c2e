"""Which pods surely fit on a node, by a plain reading of the objects; a pod that the reading cannot judge does not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

Json = dict[str, Any]

_SUFFIXES = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1),
    "k": Fraction(10**3), "M": Fraction(10**6), "G": Fraction(10**9), "T": Fraction(10**12),
    "Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30), "Ti": Fraction(2**40),
}  # fmt: skip
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
        name, spec = node["metadata"]["name"], node.get("spec") or {}
        if spec.get("unschedulable") or node["metadata"].get("deletionTimestamp"):
            return False
        if self._now_s - self._refused_s.get(name, -_REFUSED_FOR_S) < _REFUSED_FOR_S:
            return False
        labels = node["metadata"].get("labels") or {}
        if any(labels.get(key) != value for key, value in (pod["spec"].get("nodeSelector") or {}).items()):
            return False
        if not all(_tolerates(pod, taint) for taint in spec.get("taints") or ()):
            return False
        there = [other for other in held if _place(other) == name and other is not pod]
        if _ports(pod) & {port for other in there for port in _ports(other)}:
            return False
        room = (node.get("status") or {}).get("allocatable") or {}
        wanted = {**_requests(pod), "pods": Fraction(1)}
        return all(
            resource in room
            and sum((_requests(other).get(resource, Fraction(0)) for other in there), amount)
            + (len(there) if resource == "pods" else 0)
            <= quantity(room[resource])
            for resource, amount in wanted.items()
        )


def quantity(text: Any) -> Fraction:
    """Return the amount of a Kubernetes quantity without an exponent."""
    digits = str(text).rstrip("numkKMGTi")
    return Fraction(digits) * _SUFFIXES[str(text)[len(digits) :]]


def _place(pod: Json) -> str:
    """Return the node that the pod is on, or is nominated to."""
    return pod["spec"].get("nodeName") or (pod.get("status") or {}).get("nominatedNodeName") or ""


def is_over(pod: Json) -> bool:
    """Return whether the pod has ended."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _requests(pod: Json) -> dict[str, Fraction]:
    total: dict[str, Fraction] = {}
    for container in pod["spec"].get("containers") or ():
        for resource, amount in ((container.get("resources") or {}).get("requests") or {}).items():
            total[resource] = total.get(resource, Fraction(0)) + quantity(amount)
    return total


def _ports(pod: Json) -> set[Any]:
    """Return the host ports, whatever their protocol and address."""
    containers = pod["spec"].get("containers") or ()
    return {port["hostPort"] for one in containers for port in one.get("ports") or () if port.get("hostPort")}


def _tolerates(pod: Json, taint: Json) -> bool:
    """Return whether a toleration names the taint exactly; one with another effect than a refusal needs none."""
    if taint.get("effect") == "PreferNoSchedule":
        return True
    return any(
        toleration.get("key") == taint["key"]
        and toleration.get("effect") in (None, "", taint.get("effect"))
        and (
            toleration.get("operator") == "Exists"
            or (toleration.get("value") or "") == (taint.get("value") or "")
        )
        for toleration in pod["spec"].get("tolerations") or ()
    )


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
