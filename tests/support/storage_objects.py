"""Builders of the API objects that volumes consist of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.support.build import Json

_BOUND = {"pv.kubernetes.io/bind-completed": "yes"}


def claim(
    name: str,
    storage_class: str | None = None,
    *,
    namespace: str = "default",
    request: str | None = "1Gi",
    volume: str = "",
    bound: bool | None = None,
    modes: Sequence[str] = ("ReadWriteOnce",),
    node: str | None = None,
    owner: str | None = None,
    phase: str = "Pending",
    terminating: bool = False,
    **spec: object,
) -> Json:
    """
    Return a claim.

    Args:
        bound: Whether binding is completed; so it is if a volume is named, unless told otherwise.
        node: The node that was selected for it.
        owner: The UID of the pod that it was made for.
    """
    completed = bool(volume) if bound is None else bound
    selected = {} if node is None else {"volume.kubernetes.io/selected-node": node}
    metadata: Json = {
        "name": name,
        "namespace": namespace,
        "uid": f"{namespace}-{name}",
        "annotations": {**(_BOUND if completed else {}), **selected},
    }
    if owner is not None:
        metadata["ownerReferences"] = [{"kind": "Pod", "name": "p", "uid": owner, "controller": True}]
    if terminating:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    made: Json = {"accessModes": list(modes), "resources": {}, **spec}
    if request is not None:
        made["resources"] = {"requests": {"storage": request}}
    if storage_class is not None:
        made["storageClassName"] = storage_class
    if volume:
        made["volumeName"] = volume
    return {"kind": "PersistentVolumeClaim", "metadata": metadata, "spec": made, "status": {"phase": phase}}


def volume(
    name: str,
    storage_class: str = "",
    *,
    capacity: str = "1Gi",
    modes: Sequence[str] = ("ReadWriteOnce",),
    terms: Sequence[Json] | None = None,
    claimed_by: str | None = None,
    claim_uid: str | None = None,
    labels: Mapping[str, str] | None = None,
    phase: str = "Available",
    source: Json | None = None,
    terminating: bool = False,
    **spec: object,
) -> Json:
    """
    Return a volume, of the CSI driver `d` unless another source is given.

    Args:
        terms: Of its node affinity.
        claimed_by: `namespace/name` of the claim that it refers to.
    """
    metadata: Json = {"name": name, "uid": name, "labels": dict(labels or {})}
    if terminating:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    made: Json = {
        "capacity": {"storage": capacity},
        "accessModes": list(modes),
        "storageClassName": storage_class,
        **(source or {"csi": {"driver": "d", "volumeHandle": f"h-{name}"}}),
        **spec,
    }
    if terms is not None:
        made["nodeAffinity"] = {"required": {"nodeSelectorTerms": list(terms)}}
    if claimed_by is not None:
        space, _, its_name = claimed_by.partition("/")
        made["claimRef"] = {"kind": "PersistentVolumeClaim", "namespace": space, "name": its_name}
        if claim_uid is not None:
            made["claimRef"]["uid"] = claim_uid
    return {"kind": "PersistentVolume", "metadata": metadata, "spec": made, "status": {"phase": phase}}


def storage_class(
    name: str,
    provisioner: str = "d",
    *,
    mode: str | None = "WaitForFirstConsumer",
    topologies: Sequence[Mapping[str, Sequence[str]]] = (),
) -> Json:
    """Return a class; each of `topologies` has the allowed values by label."""
    allowed = [
        {"matchLabelExpressions": [{"key": key, "values": list(values)} for key, values in term.items()]}
        for term in topologies
    ]
    return {
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        **({} if mode is None else {"volumeBindingMode": mode}),
        **({"allowedTopologies": allowed} if allowed else {}),
    }


def csi_node(name: str, *, migrated: Sequence[str] = (), **limits: int | None) -> Json:
    """Return a CSINode with these drivers; a limit of None is left out."""
    drivers = [
        {"name": driver, "nodeID": name, **({} if limit is None else {"allocatable": {"count": limit}})}
        for driver, limit in limits.items()
    ]
    plugins = {"storage.alpha.kubernetes.io/migrated-plugins": ",".join(migrated)} if migrated else {}
    return {
        "kind": "CSINode",
        "metadata": {"name": name, "annotations": plugins},
        "spec": {"drivers": drivers},
    }


def csi_driver(name: str, *, tracks_capacity: bool | None = None, required: bool | None = None) -> Json:
    """Return a driver. `required`: whether its volumes keep pods from nodes without it."""
    spec = {} if tracks_capacity is None else {"storageCapacity": tracks_capacity}
    if required is not None:
        spec["preventPodSchedulingIfMissing"] = required
    return {"kind": "CSIDriver", "metadata": {"name": name}, "spec": spec}


def capacity(
    name: str,
    storage_class: str,
    amount: str | None = "10Gi",
    *,
    topology: Json | None = None,
    largest: str | None = None,
) -> Json:
    """Return the capacity of a pool. `topology`: a LabelSelector; None for a pool that no node reaches."""
    return {
        "kind": "CSIStorageCapacity",
        "metadata": {"name": name, "namespace": "kube-system"},
        "storageClassName": storage_class,
        **({} if amount is None else {"capacity": amount}),
        **({} if topology is None else {"nodeTopology": topology}),
        **({} if largest is None else {"maximumVolumeSize": largest}),
    }


def attachment(name: str, volume: str, node: str, *, attacher: str = "d") -> Json:
    return {
        "kind": "VolumeAttachment",
        "metadata": {"name": name},
        "spec": {"attacher": attacher, "nodeName": node, "source": {"persistentVolumeName": volume}},
    }
