"""
A cluster in a file: what scheduling reads of it, and nothing else.

    {"apiVersion": "affinity-scheduler.io/v1", "kind": "ClusterSnapshot",
     "nodes": [...], "namespaces": [...], "pods": [...], "services": [...], ...}

Objects stand as API JSON, reduced to the fields named here: a list of what is kept, never of what is left out, so that
a field nobody thought of is not in the file. No environment, no commands, no volumes but claims and images, no names
of secrets; of annotations only those that are affinity rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from scheduler.explain.answers import API_VERSION
from scheduler.model.annotations import AFFINITY, MODE

KIND: Final = "ClusterSnapshot"

#: Kind of object -> its list's name in the file, in the order in which they are written.
SECTIONS: Final = {
    "Node": "nodes",
    "Namespace": "namespaces",
    "Service": "services",
    "ReplicationController": "replicationControllers",
    "ReplicaSet": "replicaSets",
    "StatefulSet": "statefulSets",
    "Pod": "pods",
}

#: A field to keep: True for all of its value, a mapping for some fields of an object or of each object of a list.
Kept = Mapping[str, "Kept | bool"]

_META: Final[Kept] = {"name": True, "namespace": True, "uid": True, "labels": True}
_SELECTOR: Final[Kept] = {
    "matchLabels": True,
    "matchExpressions": {"key": True, "operator": True, "values": True},
}
_TERM: Final[Kept] = {
    "topologyKey": True,
    "labelSelector": _SELECTOR,
    "namespaces": True,
    "namespaceSelector": _SELECTOR,
    "matchLabelKeys": True,
    "mismatchLabelKeys": True,
}
_NODE_TERM: Final[Kept] = {
    "matchExpressions": {"key": True, "operator": True, "values": True},
    "matchFields": {"key": True, "operator": True, "values": True},
}
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_BETWEEN_PODS: Final[Kept] = {_REQUIRED: _TERM, _PREFERRED: {"weight": True, "podAffinityTerm": _TERM}}
_AFFINITY: Final[Kept] = {
    "nodeAffinity": {
        _REQUIRED: {"nodeSelectorTerms": _NODE_TERM},
        _PREFERRED: {"weight": True, "preference": _NODE_TERM},
    },
    "podAffinity": _BETWEEN_PODS,
    "podAntiAffinity": _BETWEEN_PODS,
}
_RESOURCES: Final[Kept] = {"requests": True}
_CONTAINER: Final[Kept] = {
    "name": True,
    "image": True,
    "resources": _RESOURCES,
    "ports": {"hostPort": True, "hostIP": True, "protocol": True, "containerPort": True},
    "restartPolicy": True,
    "restartPolicyRules": {"action": True},
}
_CONTAINER_STATUS: Final[Kept] = {"name": True, "resources": _RESOURCES, "allocatedResources": True}
_POD: Final[Kept] = {
    "metadata": {
        **_META,
        "deletionTimestamp": True,
        "creationTimestamp": True,
        "annotations": {AFFINITY: True, MODE: True},
        "ownerReferences": {"apiVersion": True, "kind": True, "name": True, "controller": True},
    },
    "spec": {
        "nodeName": True,
        "schedulerName": True,
        "priority": True,
        "nodeSelector": True,
        "affinity": _AFFINITY,
        "topologySpreadConstraints": {
            "maxSkew": True,
            "topologyKey": True,
            "whenUnsatisfiable": True,
            "labelSelector": _SELECTOR,
            "minDomains": True,
            "nodeAffinityPolicy": True,
            "nodeTaintsPolicy": True,
            "matchLabelKeys": True,
        },
        "tolerations": {"key": True, "operator": True, "value": True, "effect": True},
        "containers": _CONTAINER,
        "initContainers": _CONTAINER,
        "overhead": True,
        "resources": _RESOURCES,
        "resourceClaims": {"name": True},
        "volumes": {
            "name": True,
            "persistentVolumeClaim": {"claimName": True},
            "ephemeral": {},
            "image": {"reference": True},
        },
        "schedulingGates": {"name": True},
        "hostNetwork": True,
        "hostUsers": True,
    },
    "status": {
        "phase": True,
        "reason": True,
        "nominatedNodeName": True,
        "conditions": {"type": True, "status": True, "reason": True},
        "containerStatuses": _CONTAINER_STATUS,
        "initContainerStatuses": _CONTAINER_STATUS,
        "resources": _RESOURCES,
        "allocatedResources": True,
    },
}
_SHAPES: Final[Mapping[str, Kept]] = {
    "Node": {
        "metadata": _META,
        "spec": {"unschedulable": True, "taints": {"key": True, "value": True, "effect": True}},
        "status": {
            "allocatable": True,
            "images": {"names": True, "sizeBytes": True},
            "declaredFeatures": True,
        },
    },
    "Namespace": {"metadata": _META},
    "Service": {"metadata": _META, "spec": {"selector": True}},
    "ReplicationController": {"metadata": _META, "spec": {"selector": True}},
    "ReplicaSet": {"metadata": _META, "spec": {"selector": _SELECTOR}},
    "StatefulSet": {"metadata": _META, "spec": {"selector": _SELECTOR}},
    "Pod": _POD,
}
#: A volume is kept for one of these sources alone: the name of any other tells what it shows.
_READ_VOLUMES: Final = ("persistentVolumeClaim", "ephemeral", "image")


def kept(kind: str, document: Mapping[str, object]) -> dict[str, object]:
    """What a snapshot keeps of an object of the kind; the document is not changed. O(size of what is kept)."""
    found = _kept(document, _SHAPES[kind])
    spec = found.get("spec")
    if kind == "Pod" and isinstance(spec, dict) and isinstance(spec.get("volumes"), list):
        spec["volumes"] = [v for v in spec["volumes"] if any(source in v for source in _READ_VOLUMES)]
    return found


def header() -> dict[str, str]:
    """What a snapshot begins with."""
    return {"apiVersion": API_VERSION, "kind": KIND}


def _kept(document: Mapping[str, object], shape: Kept) -> dict[str, object]:
    found: dict[str, object] = {}
    for field, inner in shape.items():
        value = document.get(field)
        if value is None:
            continue
        if isinstance(inner, bool):
            found[field] = value
        elif isinstance(value, Mapping):
            found[field] = _kept(value, inner)
        elif isinstance(value, list):
            found[field] = [_kept(one, inner) for one in value if isinstance(one, Mapping)]
    return found
