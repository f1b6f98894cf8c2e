"""
The format of a cluster snapshot file, which has only what scheduling reads.

    {"apiVersion": "affinity-scheduler.io/v1", "kind": "ClusterSnapshot",
     "nodes": [...], "namespaces": [...], "pods": [...], "services": [...], "persistentVolumes": [...], ...}

Objects are API JSON with only the fields listed here, so that an unknown field stays out of the file. It
has no environment variables, no commands, no names of secrets, no annotations but affinity rules, the state of claims
and those of nodes that a plugin reads, and of volumes only size, topology and the name at their driver. A list that the
file lacks is empty; of PodGroups, which have a list for each version of their API, the cluster does not have the kind.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from scheduler.formats.explanation import API_VERSION
from scheduler.model.annotations import AFFINITY, MODE
from scheduler.model.fallback import FALLBACK, RELAXED
from scheduler.model.pod_groups import GROUP, MIN_COUNT
from scheduler.model.volumes import (
    BIND_COMPLETED,
    CLASS_ANNOTATION,
    DEFAULT_CLASS,
    MIGRATED_PLUGINS,
    SELECTED_NODE,
)

KIND: Final = "ClusterSnapshot"

#: The name of each kind's list in the file, in the order of the file.
SECTIONS: Final = {
    "Node": "nodes",
    "Namespace": "namespaces",
    "Service": "services",
    "ReplicationController": "replicationControllers",
    "ReplicaSet": "replicaSets",
    "StatefulSet": "statefulSets",
    "StorageClass": "storageClasses",
    "PersistentVolume": "persistentVolumes",
    "PersistentVolumeClaim": "persistentVolumeClaims",
    "CSINode": "csiNodes",
    "CSIDriver": "csiDrivers",
    "CSIStorageCapacity": "csiStorageCapacities",
    "VolumeAttachment": "volumeAttachments",
    "PodDisruptionBudget": "podDisruptionBudgets",
    "PodGroup.v1alpha2.scheduling.k8s.io": "podGroups",
    "PodGroup.v1beta1.scheduling.k8s.io": "podGroupsV1beta1",
    "PodGroup.v1alpha1.scheduling.x-k8s.io": "coschedulingPodGroups",
    "Pod": "pods",
}

#: Fields to keep: True keeps the whole value, a mapping keeps these fields of an object or of each item of a list.
FieldTree = Mapping[str, "FieldTree | bool"]

_META: Final[FieldTree] = {"name": True, "namespace": True, "uid": True, "labels": True}
_SELECTOR: Final[FieldTree] = {
    "matchLabels": True,
    "matchExpressions": {"key": True, "operator": True, "values": True},
}
_TERM: Final[FieldTree] = {
    "topologyKey": True,
    "labelSelector": _SELECTOR,
    "namespaces": True,
    "namespaceSelector": _SELECTOR,
    "matchLabelKeys": True,
    "mismatchLabelKeys": True,
}
_NODE_TERM: Final[FieldTree] = {
    "matchExpressions": {"key": True, "operator": True, "values": True},
    "matchFields": {"key": True, "operator": True, "values": True},
}
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_BETWEEN_PODS: Final[FieldTree] = {_REQUIRED: _TERM, _PREFERRED: {"weight": True, "podAffinityTerm": _TERM}}
_AFFINITY: Final[FieldTree] = {
    "nodeAffinity": {
        _REQUIRED: {"nodeSelectorTerms": _NODE_TERM},
        _PREFERRED: {"weight": True, "preference": _NODE_TERM},
    },
    "podAffinity": _BETWEEN_PODS,
    "podAntiAffinity": _BETWEEN_PODS,
}
_RESOURCES: Final[FieldTree] = {"requests": True}
_CONTAINER: Final[FieldTree] = {
    "name": True,
    "image": True,
    "resources": _RESOURCES,
    "ports": {"hostPort": True, "hostIP": True, "protocol": True, "containerPort": True},
    "restartPolicy": True,
    "restartPolicyRules": {"action": True},
}
_CONTAINER_STATUS: Final[FieldTree] = {"name": True, "resources": _RESOURCES, "allocatedResources": True}
_POD: Final[FieldTree] = {
    "metadata": {
        **_META,
        "deletionTimestamp": True,
        "creationTimestamp": True,
        "annotations": {
            AFFINITY: True,
            MODE: True,
            FALLBACK: True,
            RELAXED: True,
            GROUP: True,
            MIN_COUNT: True,
        },
        "ownerReferences": {"apiVersion": True, "kind": True, "name": True, "controller": True},
    },
    "spec": {
        "nodeName": True,
        "schedulerName": True,
        "schedulingGroup": {"podGroupName": True},
        "priority": True,
        "preemptionPolicy": True,
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
            "gcePersistentDisk": {"pdName": True, "readOnly": True},
            "awsElasticBlockStore": {"volumeID": True},
            "iscsi": {"iqn": True, "readOnly": True},
            "rbd": {"monitors": True, "pool": True, "image": True, "readOnly": True},
            "azureDisk": {"diskURI": True},
            "cinder": {"volumeID": True},
            "vsphereVolume": {"volumePath": True},
            "portworxVolume": {"volumeID": True},
        },
        "schedulingGates": {"name": True},
        "hostNetwork": True,
        "hostUsers": True,
    },
    "status": {
        "phase": True,
        "reason": True,
        "nominatedNodeName": True,
        "startTime": True,
        "conditions": {"type": True, "status": True, "reason": True},
        "containerStatuses": _CONTAINER_STATUS,
        "initContainerStatuses": _CONTAINER_STATUS,
        "resources": _RESOURCES,
        "allocatedResources": True,
    },
}
_CLAIM_META: Final[FieldTree] = {
    **_META,
    "deletionTimestamp": True,
    "annotations": {SELECTED_NODE: True, BIND_COMPLETED: True, CLASS_ANNOTATION: True},
    "ownerReferences": {"uid": True, "controller": True},
}
_VOLUME: Final[FieldTree] = {
    "metadata": {**_META, "deletionTimestamp": True, "annotations": {CLASS_ANNOTATION: True}},
    "spec": {
        "capacity": True,
        "accessModes": True,
        "claimRef": {"namespace": True, "name": True, "uid": True},
        "storageClassName": True,
        "volumeMode": True,
        "volumeAttributesClassName": True,
        "nodeAffinity": {"required": {"nodeSelectorTerms": _NODE_TERM}},
        "csi": {"driver": True, "volumeHandle": True},
        "gcePersistentDisk": {"pdName": True},
        "awsElasticBlockStore": {"volumeID": True},
        "azureDisk": {"diskURI": True},
        "cinder": {"volumeID": True},
        "portworxVolume": {"volumeID": True},
    },
    "status": {"phase": True},
}
_POD_GROUP: Final[FieldTree] = {
    "metadata": _META,
    "spec": {
        "schedulingPolicy": {"gang": {"minCount": True}},
        "schedulingConstraints": {"topology": {"key": True}},
        "minMember": True,
    },
    "status": {"conditions": {"type": True, "status": True, "reason": True}},
}
_FIELDS_BY_KIND: Final[Mapping[str, FieldTree]] = {
    "Node": {
        "metadata": {**_META, "creationTimestamp": True},
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
    "StorageClass": {
        "metadata": {**_META, "creationTimestamp": True, "annotations": {DEFAULT_CLASS: True}},
        "provisioner": True,
        "volumeBindingMode": True,
        "allowedTopologies": {"matchLabelExpressions": {"key": True, "values": True}},
    },
    "PersistentVolume": _VOLUME,
    "PersistentVolumeClaim": {
        "metadata": _CLAIM_META,
        "spec": {
            "accessModes": True,
            "selector": _SELECTOR,
            "resources": _RESOURCES,
            "volumeName": True,
            "storageClassName": True,
            "volumeMode": True,
            "volumeAttributesClassName": True,
        },
        "status": {"phase": True},
    },
    "CSINode": {
        "metadata": {**_META, "annotations": {MIGRATED_PLUGINS: True}},
        "spec": {"drivers": {"name": True, "allocatable": {"count": True}}},
    },
    "CSIDriver": {"metadata": _META, "spec": {"storageCapacity": True}},
    "CSIStorageCapacity": {
        "metadata": _META,
        "nodeTopology": _SELECTOR,
        "storageClassName": True,
        "capacity": True,
        "maximumVolumeSize": True,
    },
    "VolumeAttachment": {
        "metadata": _META,
        "spec": {"attacher": True, "nodeName": True, "source": {"persistentVolumeName": True}},
    },
    "PodDisruptionBudget": {
        "metadata": _META,
        "spec": {"selector": _SELECTOR},
        "status": {"disruptionsAllowed": True, "disruptedPods": True},
    },
    "PodGroup.v1alpha2.scheduling.k8s.io": _POD_GROUP,
    "PodGroup.v1beta1.scheduling.k8s.io": _POD_GROUP,
    "PodGroup.v1alpha1.scheduling.x-k8s.io": _POD_GROUP,
    "Pod": _POD,
}
#: Volumes without one of these sources are left out: their names would name secrets.
_READ_VOLUMES: Final = (
    "persistentVolumeClaim",
    "ephemeral",
    "image",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "iscsi",
    "rbd",
    "azureDisk",
    "cinder",
    "vsphereVolume",
    "portworxVolume",
)


def scheduling_fields(
    kind: str, document: Mapping[str, object], node_annotations: Collection[str] = ()
) -> dict[str, object]:
    """Return a copy of the object with only the fields that scheduling reads, and these annotations of a node."""
    found = _select(document, _FIELDS_BY_KIND[kind])
    if kind == "Node" and node_annotations:
        kept = dict.fromkeys(node_annotations, True)
        annotations = _select(document, {"metadata": {"annotations": kept}}).get("metadata")
        if annotations:
            found["metadata"] = {**_mapping(found.get("metadata")), **_mapping(annotations)}
    spec = found.get("spec")
    if kind == "Pod" and isinstance(spec, dict) and isinstance(spec.get("volumes"), list):
        spec["volumes"] = [v for v in spec["volumes"] if any(source in v for source in _READ_VOLUMES)]
    return found


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def header() -> dict[str, str]:
    """Return the first fields of a snapshot file."""
    return {"apiVersion": API_VERSION, "kind": KIND}


def _select(document: Mapping[str, object], shape: FieldTree) -> dict[str, object]:
    found: dict[str, object] = {}
    for field, inner in shape.items():
        value = document.get(field)
        if value is None:
            continue
        if isinstance(inner, bool):
            found[field] = value
        elif isinstance(value, Mapping):
            found[field] = _select(value, inner)
        elif isinstance(value, list):
            found[field] = [_select(one, inner) for one in value if isinstance(one, Mapping)]
    return found
