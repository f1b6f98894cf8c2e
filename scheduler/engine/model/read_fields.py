"""
The fields of each kind's objects that scheduling reads: what snapshots and recordings keep of an object.

They are listed and not derived from the decoders, so that a field leaves a cluster only if it is named here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from scheduler.engine.model.annotations import AFFINITY, MODE
from scheduler.engine.model.device_requests import EXTENDED_RESOURCE_CLAIM
from scheduler.engine.model.fallback import FALLBACK, RELAXED
from scheduler.engine.model.group_forms import FOREIGN_ANNOTATIONS, GROUP_FROM
from scheduler.engine.model.group_topology import (
    PART,
    PART_MIN_COUNT,
    PART_PREFERRED_TOPOLOGY,
    PART_REQUIRED_TOPOLOGY,
    PREFERRED_TOPOLOGY,
    REQUIRED_TOPOLOGY,
)
from scheduler.engine.model.pod_groups import GROUP, MIN_COUNT, MOVE_AFTER, RANK, RELEASE_AFTER
from scheduler.engine.model.volumes import (
    BIND_COMPLETED,
    CLASS_ANNOTATION,
    DEFAULT_CLASS,
    MIGRATED_PLUGINS,
    SELECTED_NODE,
)

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
#: Volumes of pods without one of these sources are left out: their names would name secrets.
VOLUME_SOURCES: Final[FieldTree] = {
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
}
POD: Final[FieldTree] = {
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
            RELEASE_AFTER: True,
            MOVE_AFTER: True,
            REQUIRED_TOPOLOGY: True,
            PREFERRED_TOPOLOGY: True,
            GROUP_FROM: True,
            **dict.fromkeys(FOREIGN_ANNOTATIONS, True),
            PART: True,
            PART_MIN_COUNT: True,
            RANK: True,
            PART_REQUIRED_TOPOLOGY: True,
            PART_PREFERRED_TOPOLOGY: True,
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
        "resourceClaims": {"name": True, "resourceClaimName": True, "resourceClaimTemplateName": True},
        "volumes": {"name": True, **VOLUME_SOURCES},
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
        "resourceClaimStatuses": {"name": True, "resourceClaimName": True},
    },
}
_CLAIM_META: Final[FieldTree] = {
    **_META,
    "deletionTimestamp": True,
    "annotations": {SELECTED_NODE: True, BIND_COMPLETED: True, CLASS_ANNOTATION: True},
    "ownerReferences": {"uid": True, "controller": True},
}
VOLUME: Final[FieldTree] = {
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
POD_GROUP: Final[FieldTree] = {
    "metadata": _META,
    "spec": {
        "schedulingPolicy": {"gang": {"minCount": True}},
        "schedulingConstraints": {"topology": {"key": True}},
        "minMember": True,
        "disruptionMode": True,
        "priority": True,
    },
    "status": {"conditions": {"type": True, "status": True, "reason": True}},
}
TOPOLOGY: Final[FieldTree] = {"metadata": _META, "spec": {"levels": {"nodeLabel": True}}}
RESOURCE_FLAVOR: Final[FieldTree] = {"metadata": _META, "spec": {"topologyName": True, "nodeLabels": True}}
NODE: Final[FieldTree] = {
    "metadata": {**_META, "creationTimestamp": True},
    "spec": {"unschedulable": True, "taints": {"key": True, "value": True, "effect": True}},
    "status": {
        "allocatable": True,
        "images": {"names": True, "sizeBytes": True},
        "declaredFeatures": True,
    },
}
NAMED: Final[FieldTree] = {"metadata": _META}
MAP_SELECTED: Final[FieldTree] = {"metadata": _META, "spec": {"selector": True}}
LABEL_SELECTED: Final[FieldTree] = {"metadata": _META, "spec": {"selector": _SELECTOR}}
STORAGE_CLASS: Final[FieldTree] = {
    "metadata": {**_META, "creationTimestamp": True, "annotations": {DEFAULT_CLASS: True}},
    "provisioner": True,
    "volumeBindingMode": True,
    "allowedTopologies": {"matchLabelExpressions": {"key": True, "values": True}},
}
CLAIM: Final[FieldTree] = {
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
}
CSI_NODE: Final[FieldTree] = {
    "metadata": {**_META, "annotations": {MIGRATED_PLUGINS: True}},
    "spec": {"drivers": {"name": True, "allocatable": {"count": True}}},
}
CSI_DRIVER: Final[FieldTree] = {
    "metadata": _META,
    "spec": {"storageCapacity": True, "preventPodSchedulingIfMissing": True},
}
CAPACITY: Final[FieldTree] = {
    "metadata": _META,
    "nodeTopology": _SELECTOR,
    "storageClassName": True,
    "capacity": True,
    "maximumVolumeSize": True,
}
ATTACHMENT: Final[FieldTree] = {
    "metadata": _META,
    "spec": {"attacher": True, "nodeName": True, "source": {"persistentVolumeName": True}},
}
DEVICE_CLASS: Final[FieldTree] = {
    "metadata": {**_META, "creationTimestamp": True},
    "spec": {"selectors": True, "config": True, "extendedResourceName": True},
}
DEVICE_TAINT_RULE: Final[FieldTree] = {"metadata": _META, "spec": True}
RESOURCE_SLICE: Final[FieldTree] = {"metadata": _META, "spec": True}
RESOURCE_CLAIM: Final[FieldTree] = {
    "metadata": {
        **_META,
        "resourceVersion": True,
        "deletionTimestamp": True,
        "finalizers": True,
        "annotations": {EXTENDED_RESOURCE_CLAIM: True},
        "ownerReferences": {"name": True, "uid": True, "controller": True},
    },
    "spec": {"devices": True},
    "status": {
        "allocation": True,
        "reservedFor": True,
        "devices": {
            "driver": True,
            "pool": True,
            "device": True,
            "conditions": {"type": True, "status": True, "reason": True},
        },
    },
}
DISRUPTION_BUDGET: Final[FieldTree] = {
    "metadata": _META,
    "spec": {"selector": _SELECTOR},
    "status": {"disruptionsAllowed": True, "disruptedPods": True},
}
