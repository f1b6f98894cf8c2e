"""
The PV controller and a provisioner: claims find their volumes, or get them made; volumes go with their claims.

A class whose annotation `PROVISION_AFTER_S` names seconds is that slow; one with `PROVISION_FAILURE` fails with that
message. Storage never runs out: CSIStorageCapacity objects are data for schedulers.

Source: pkg/controller/volume/persistentvolume/pv_controller.go, component-helpers storage/volume/pv_helpers.go
(FindMatchingVolume), pkg/controller/volume/{pvcprotection,pvprotection} (kubernetes 1.36), external-provisioner
pkg/controller/topology.go. Differences: a claim takes the volume that it names, or that names it, whether or not that
suits it, and no event says why none does; Recycle retains.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Final
from zlib import crc32

from scheduler.sandbox.devcluster.admission.shapes import quantity
from scheduler.sandbox.devcluster.admission.volumes import CLAIM_PROTECTION, VOLUME_PROTECTION, class_name
from scheduler.sandbox.devcluster.controllers.actions import (
    Action,
    Create,
    Delete,
    Emit,
    Revisit,
    Update,
    finalizer_removed,
    replaced,
    status_written,
    without,
)
from scheduler.sandbox.devcluster.controllers.objects import (
    annotation,
    claim_names,
    is_terminal,
    is_terminating,
    key_of,
    node_name,
    uid,
)
from scheduler.sandbox.devcluster.kinds import (
    NODE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    STORAGE_CLASS,
    JsonObject,
    Kind,
)
from scheduler.sandbox.devcluster.parts import selects
from scheduler.sandbox.devcluster.storage.store import ObjectStore

BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
PROVISION_AFTER_S: Final = "devcluster.affinity-scheduler.io/provision-after-seconds"
PROVISION_FAILURE: Final = "devcluster.affinity-scheduler.io/provision-failure"
PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"
PROVISIONER: Final = "volume.kubernetes.io/storage-provisioner"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
ZONE: Final = "topology.kubernetes.io/zone"
_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
#: Seconds until a failed provisioning of an immediate claim is tried again.
_RETRY_S: Final = 1.0


def claim_of(volume: JsonObject) -> tuple[str, str]:
    """Return namespace and name of the claim that a volume is promised or bound to, empty without one."""
    reference = (volume.get("spec") or {}).get("claimRef") or {}
    return reference.get("namespace", ""), reference.get("name", "")


def is_bound(claim: JsonObject) -> bool:
    """Return whether the binding of the claim was completed once."""
    return bool(annotation(claim, BIND_COMPLETED))


def _phase(kind: Kind, obj: JsonObject, phase: str) -> list[Action]:
    return status_written(kind, obj, {**(obj.get("status") or {}), "phase": phase})


# -- volumes -------------------------------------------------------------------------------------------------


def plan_volume(volume: JsonObject, store: ObjectStore) -> list[Action]:
    """Return the next step of a volume: its phase, and its end once its claim is gone."""
    phase = (volume.get("status") or {}).get("phase", "")
    if is_terminating(volume) and phase != "Bound":
        return finalizer_removed(PERSISTENT_VOLUME, volume, VOLUME_PROTECTION)
    own_uid = (volume["spec"].get("claimRef") or {}).get("uid")
    if not own_uid:
        return _phase(PERSISTENT_VOLUME, volume, "Available")
    claim = store.find(PERSISTENT_VOLUME_CLAIM, *claim_of(volume))
    named = claim["spec"].get("volumeName") if claim and uid(claim) == own_uid else ""
    if named is None:
        # The claim's plan completes a binding.
        return []
    if named == volume["metadata"]["name"]:
        return _phase(PERSISTENT_VOLUME, volume, "Bound")
    deletes = volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete"
    # Only what a provisioner made can be deleted by one.
    if phase == "Released" and deletes and annotation(volume, PROVISIONED_BY):
        return [Delete(PERSISTENT_VOLUME, volume)]
    return _phase(PERSISTENT_VOLUME, volume, "Released")


# -- claims --------------------------------------------------------------------------------------------------


def plan_claim(claim: JsonObject, store: ObjectStore, waited_s: float) -> list[Action]:
    """Return the next step towards a bound claim, or the end of a deleted one; it changed `waited_s` ago."""
    namespace, name = key_of(claim)
    if is_terminating(claim):
        pods = (pod for pod in store.list(POD, namespace)[0] if name in claim_names(pod))
        in_use = any(node_name(pod) and not is_terminal(pod) for pod in pods)
        return [] if in_use else finalizer_removed(PERSISTENT_VOLUME_CLAIM, claim, CLAIM_PROTECTION)
    if volume_name := claim["spec"].get("volumeName"):
        named = store.find(PERSISTENT_VOLUME, "", volume_name)
        if is_bound(claim):
            return _bind(claim, named) if named else _phase(PERSISTENT_VOLUME_CLAIM, claim, "Lost")
        is_free = named is not None and (not named["spec"].get("claimRef") or _is_for(named, claim))
        return _bind(claim, named) if named and is_free else _phase(PERSISTENT_VOLUME_CLAIM, claim, "Pending")
    volumes = [one for one in store.list(PERSISTENT_VOLUME)[0] if not is_terminating(one)]
    if promised := next((one for one in volumes if _is_for(one, claim)), None):
        return _bind(claim, promised)
    storage_class = store.find(STORAGE_CLASS, "", class_name(claim))
    # For delayed claims the scheduler chooses.
    if not _is_delayed(storage_class) and (suitable := [one for one in volumes if _suits(one, claim)]):
        return _bind(claim, min(suitable, key=lambda one: _storage_nano(one["spec"]["capacity"])))
    ordered = _order(claim, storage_class, store, waited_s)
    return [*ordered, *_phase(PERSISTENT_VOLUME_CLAIM, claim, "Pending")]


def _is_delayed(storage_class: JsonObject | None) -> bool:
    """Return whether claims of the class wait for a scheduler, which chooses a volume or a node."""
    return (storage_class or {}).get("volumeBindingMode") == "WaitForFirstConsumer"


def _bind(claim: JsonObject, volume: JsonObject) -> list[Action]:
    """Return the writes that bind the two: the volume first, then the claim."""
    metadata, reference = claim["metadata"], volume["spec"].get("claimRef")
    actions: list[Action] = []
    bound = volume
    if not reference or reference.get("uid") != uid(claim):
        own = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "uid": uid(claim)}
        named = {key: metadata[key] for key in ("namespace", "name", "resourceVersion")}
        bound = replaced(bound, ("spec", "claimRef"), {**(reference or {}), **own, **named})
        if not reference:
            bound = replaced(bound, ("metadata", "annotations", BOUND_BY_CONTROLLER), "yes")
        actions.append(Update(PERSISTENT_VOLUME, bound))
    if (volume.get("status") or {}).get("phase") != "Bound":
        actions += status_written(PERSISTENT_VOLUME, bound, {"phase": "Bound"})
    taken = claim
    if not claim["spec"].get("volumeName"):
        taken = replaced(taken, ("spec", "volumeName"), volume["metadata"]["name"])
        taken = replaced(taken, ("metadata", "annotations", BOUND_BY_CONTROLLER), "yes")
    if not is_bound(claim):
        taken = replaced(taken, ("metadata", "annotations", BIND_COMPLETED), "yes")
    if taken is not claim:
        actions.append(Update(PERSISTENT_VOLUME_CLAIM, taken))
    spec = volume["spec"]
    status = {"phase": "Bound", "accessModes": spec["accessModes"], "capacity": spec["capacity"]}
    merged = {**(claim.get("status") or {}), **status}
    return [*actions, *status_written(PERSISTENT_VOLUME_CLAIM, taken, merged)]


def _is_for(volume: JsonObject, claim: JsonObject) -> bool:
    """Return whether the volume is promised or bound to the claim."""
    of_uid = (volume["spec"].get("claimRef") or {}).get("uid")
    return claim_of(volume) == key_of(claim) and of_uid in (None, "", uid(claim))


def _suits(volume: JsonObject, claim: JsonObject) -> bool:
    """Return whether a volume is free, and of the class, the size, the modes and the labels that the claim asks for."""
    spec, wanted = volume["spec"], claim["spec"]
    selector = wanted.get("selector")
    return (
        not spec.get("claimRef")
        and (volume.get("status") or {}).get("phase") == "Available"
        and class_name(volume) == class_name(claim)
        and spec["volumeMode"] == wanted["volumeMode"]
        and set(wanted["accessModes"]) <= set(spec["accessModes"])
        and _storage_nano(spec["capacity"]) >= _storage_nano(wanted["resources"]["requests"])
        and (selector is None or selects(selector, volume["metadata"].get("labels") or {}))
    )


def _storage_nano(amounts: JsonObject) -> int:
    """Return the amount of storage in billionths of a byte, 0 if there is none."""
    found = quantity(amounts.get("storage"))
    return found.nano if found else 0


# -- provisioning --------------------------------------------------------------------------------------------


def _order(
    claim: JsonObject, storage_class: JsonObject | None, store: ObjectStore, waited_s: float
) -> list[Action]:
    """Return what becomes of a claim without a volume: it waits for a scheduler, or gets a volume made."""
    selected, is_delayed = annotation(claim, SELECTED_NODE), _is_delayed(storage_class)
    provisioner = (storage_class or {}).get("provisioner", _NO_PROVISIONER)
    if storage_class is None or provisioner == _NO_PROVISIONER or (is_delayed and not selected):
        text = "no persistent volume suits this claim, and no storage class makes one"
        return [] if is_delayed else [Emit("FailedBinding", text)]
    if annotation(claim, PROVISIONER) != provisioner:
        named = replaced(claim, ("metadata", "annotations", PROVISIONER), provisioner)
        return [Update(PERSISTENT_VOLUME_CLAIM, named)]
    slowness = annotation(storage_class, PROVISION_AFTER_S)
    left_s = (float(slowness) if slowness.replace(".", "", 1).isdecimal() else 0.0) - waited_s
    if left_s > 0:
        return [Revisit(left_s)]
    made = annotation(storage_class, PROVISION_FAILURE) or _provisioned(claim, storage_class, selected, store)
    if not isinstance(made, str):
        return [Create(PERSISTENT_VOLUME, made)]
    text = f'failed to provision volume with StorageClass "{storage_class["metadata"]["name"]}": {made}'
    event = Emit("ProvisioningFailed", text)
    if not selected:
        return [event, Revisit(_RETRY_S)]
    # The scheduler selects a node anew.
    left = without(claim["metadata"]["annotations"], SELECTED_NODE)
    return [event, Update(PERSISTENT_VOLUME_CLAIM, replaced(claim, ("metadata", "annotations"), left))]


def _provisioned(
    claim: JsonObject, storage_class: JsonObject, selected: str, store: ObjectStore
) -> JsonObject | str:
    """
    Return the volume for a claim, or why there can be none.

    An immediate claim, for which no node is selected, may have it in the zone of any node.
    """
    nodes = [one for one in store.list(NODE)[0] if selected in ("", one["metadata"]["name"])]
    if selected and not nodes:
        return f'error getting selected node: node "{selected}" not found'
    labels = [one["metadata"].get("labels") or {} for one in nodes]
    segments = _segments(storage_class, labels)
    if selected:
        segments = [one for one in segments if one.items() <= labels[0].items()]
    if not segments:
        return "error generating accessibility requirements: no topology key matches the selected node"
    # As upstream spreads the claims of a stateful set over zones: by name, each ordinal one further.
    stem, _, ordinal = claim["metadata"]["name"].rpartition("-")
    offset = crc32(stem.encode()) + int(ordinal) if ordinal.isdecimal() else crc32(ordinal.encode())
    return _volume(claim, storage_class, segments[offset % len(segments)])


def _segments(storage_class: JsonObject, labels: Iterable[JsonObject]) -> list[JsonObject]:
    """Return the topologies that the class allows, else the zones of nodes with these labels, else an empty one."""
    allowed: list[JsonObject] = []
    for term in storage_class.get("allowedTopologies") or ():
        expressions = term.get("matchLabelExpressions") or ()
        keys = [one["key"] for one in expressions]
        choices = product(*(one["values"] for one in expressions))
        allowed += [dict(zip(keys, values, strict=True)) for values in choices]
    zones = sorted({one[ZONE] for one in labels if ZONE in one})
    return allowed or [{ZONE: zone} for zone in zones] or [{}]


def _volume(claim: JsonObject, storage_class: JsonObject, segment: JsonObject) -> JsonObject:
    name, metadata, wanted = f"pvc-{uid(claim)}", claim["metadata"], claim["spec"]
    provisioner = storage_class["provisioner"]
    reference = {key: metadata[key] for key in ("namespace", "name", "uid", "resourceVersion")}
    spec: JsonObject = {
        "accessModes": wanted["accessModes"],
        "capacity": {"storage": wanted["resources"]["requests"]["storage"]},
        "claimRef": {"kind": "PersistentVolumeClaim", "apiVersion": "v1", **reference},
        "csi": {"driver": provisioner.replace("/", "."), "volumeHandle": name, "fsType": "ext4"},
        "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy", "Delete"),
        "storageClassName": storage_class["metadata"]["name"],
        "volumeMode": wanted.get("volumeMode", "Filesystem"),
    }
    if segment:
        expressions = [{"key": key, "operator": "In", "values": [value]} for key, value in segment.items()]
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}
    own = {"name": name, "annotations": {PROVISIONED_BY: provisioner}}
    return {"metadata": own, "spec": spec}
