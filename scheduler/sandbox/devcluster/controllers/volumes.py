"""
The volume half of the PV controller: phases, and the end of volumes whose claims are gone.

Source: pkg/controller/volume/persistentvolume/pv_controller.go (syncVolume, reclaimVolume),
pkg/controller/volume/pvprotection (kubernetes 1.36). Difference: Recycle retains.
"""

from __future__ import annotations

from scheduler.sandbox.devcluster.admission.volumes import VOLUME_PROTECTION
from scheduler.sandbox.devcluster.controllers.actions import Action, Delete, Update, status_written
from scheduler.sandbox.devcluster.controllers.claims import BOUND_BY_CONTROLLER, annotation
from scheduler.sandbox.devcluster.controllers.copies import replaced, without
from scheduler.sandbox.devcluster.controllers.ownership import uid
from scheduler.sandbox.devcluster.controllers.provisioning import PROVISIONED_BY
from scheduler.sandbox.devcluster.kinds import PERSISTENT_VOLUME, JsonObject


def plan(volume: JsonObject, claim: JsonObject | None) -> list[Action]:
    """Return the next step of a volume; `claim` has the name in its claimRef, whatever its uid."""
    if volume["metadata"].get("deletionTimestamp") and _phase_of(volume) != "Bound":
        return _end(volume)
    reference = volume["spec"].get("claimRef")
    if not reference or not reference.get("uid"):
        return _phase(volume, "Available")
    if claim is None or uid(claim) != reference["uid"]:
        if _phase_of(volume) not in ("Released", "Failed"):
            return _phase(volume, "Released")
        return _reclaim(volume)
    named = (claim.get("spec") or {}).get("volumeName")
    if not named:
        # The claim's plan completes the binding.
        return []
    if named == volume["metadata"]["name"]:
        return _phase(volume, "Bound")
    return _free(volume)


def _phase_of(volume: JsonObject) -> str:
    return str((volume.get("status") or {}).get("phase", ""))


def _phase(volume: JsonObject, phase: str) -> list[Action]:
    return status_written(PERSISTENT_VOLUME, volume, {**(volume.get("status") or {}), "phase": phase})


def _reclaim(volume: JsonObject) -> list[Action]:
    is_ending = bool(volume["metadata"].get("deletionTimestamp"))
    deletes = volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete"
    # Only what a provisioner made can be deleted by one.
    if is_ending or not deletes or not annotation(volume, PROVISIONED_BY):
        return []
    return [Delete(PERSISTENT_VOLUME, volume)]


def _end(volume: JsonObject) -> list[Action]:
    """Let a deleted volume that no claim has go."""
    finalizers = volume["metadata"].get("finalizers") or []
    if VOLUME_PROTECTION not in finalizers:
        return []
    left = [name for name in finalizers if name != VOLUME_PROTECTION]
    return [Update(PERSISTENT_VOLUME, replaced(volume, ("metadata", "finalizers"), left))]


def _free(volume: JsonObject) -> list[Action]:
    """Take back a promise to a claim that is bound to another volume."""
    if annotation(volume, PROVISIONED_BY):
        return _phase(volume, "Released") or _reclaim(volume)
    metadata = volume["metadata"]
    if annotation(volume, BOUND_BY_CONTROLLER):
        spec = without(volume["spec"], "claimRef")
        annotations = without(metadata.get("annotations"), BOUND_BY_CONTROLLER)
        volume = replaced(replaced(volume, ("spec",), spec), ("metadata", "annotations"), annotations)
    else:
        kept = without(volume["spec"]["claimRef"], "uid", "resourceVersion")
        volume = replaced(volume, ("spec", "claimRef"), kept)
    return [Update(PERSISTENT_VOLUME, volume), *_phase(volume, "Available")]
