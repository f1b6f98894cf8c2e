"""
Which volume suits a claim.

Source: component-helpers storage/volume/pv_helpers.go (FindMatchingVolume) and
pkg/controller/volume/persistentvolume/pv_controller.go (checkVolumeSatisfyClaim), kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.sandbox.devcluster.admission.checks import quantity
from scheduler.sandbox.devcluster.admission.volumes import class_name
from scheduler.sandbox.devcluster.controllers.ownership import uid
from scheduler.sandbox.devcluster.kinds import JsonObject
from scheduler.sandbox.devcluster.label_selectors import selects


def is_for(volume: JsonObject, claim: JsonObject) -> bool:
    """Return whether the volume is promised or bound to the claim."""
    reference, metadata = volume["spec"].get("claimRef") or {}, claim["metadata"]
    if (reference.get("namespace"), reference.get("name")) != (metadata["namespace"], metadata["name"]):
        return False
    return reference.get("uid") in (None, "", uid(claim))


def storage_nano(amounts: JsonObject | None) -> int:
    """Return the amount of storage in billionths of a byte, 0 if there is none."""
    found = quantity((amounts or {}).get("storage"))
    return found.nano if found else 0


def requested_nano(claim: JsonObject) -> int:
    """Return the storage that the claim requests, in billionths of a byte."""
    return storage_nano((claim["spec"].get("resources") or {}).get("requests"))


def mismatch(volume: JsonObject, claim: JsonObject) -> str:
    """Return why the volume that a claim names does not suit it, empty if it does."""
    spec, wanted = volume["spec"], claim["spec"]
    if storage_nano(spec.get("capacity")) < requested_nano(claim):
        return "requested PV is too small"
    if class_name(volume) != class_name(claim):
        return "storageClassName does not match"
    if _mode(spec) != _mode(wanted):
        return "incompatible volumeMode"
    if not set(wanted.get("accessModes") or ()) <= set(spec.get("accessModes") or ()):
        return "incompatible accessMode"
    return ""


def promised_volume(claim: JsonObject, volumes: Iterable[JsonObject]) -> JsonObject | None:
    """Return the first of `volumes` that is promised to the claim and large enough; None if there is none."""
    return next((one for one in volumes if is_for(one, claim) and _fits(one, claim)), None)


def smallest_volume(claim: JsonObject, volumes: Iterable[JsonObject]) -> JsonObject | None:
    """Return the smallest of the free `volumes` that suits the claim; None if none does."""
    found = [one for one in volumes if _fits(one, claim) and _is_suitable(one, claim)]
    return min(found, key=lambda one: storage_nano(one["spec"]["capacity"]), default=None)


def _fits(volume: JsonObject, claim: JsonObject) -> bool:
    """Return whether a volume that stays has the size and the mode that the claim asks for."""
    spec = volume["spec"]
    if volume["metadata"].get("deletionTimestamp") or _mode(spec) != _mode(claim["spec"]):
        return False
    return storage_nano(spec.get("capacity")) >= requested_nano(claim)


def _is_suitable(volume: JsonObject, claim: JsonObject) -> bool:
    """Return whether a free volume that fits suits the claim in every other way."""
    selector = claim["spec"].get("selector")
    return (
        (volume.get("status") or {}).get("phase") == "Available"
        and not mismatch(volume, claim)
        and (selector is None or selects(selector, volume["metadata"].get("labels") or {}))
    )


def _mode(spec: JsonObject) -> str:
    return str(spec.get("volumeMode") or "Filesystem")
