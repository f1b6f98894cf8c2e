"""
The claim half of the PV controller: finds each claim its volume, orders one, and says when a claim lost its volume.

Source: pkg/controller/volume/persistentvolume/pv_controller.go (syncUnboundClaim, syncBoundClaim, bind),
component-helpers storage/volume/pv_helpers.go (FindMatchingVolume), pkg/controller/volume/pvcprotection (kubernetes
1.36). Differences: a claim takes the volume that it names, or that names it, whether or not that suits it; and no event
says why none does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from scheduler.sandbox.devcluster.admission.checks import quantity
from scheduler.sandbox.devcluster.admission.volumes import CLAIM_PROTECTION
from scheduler.sandbox.devcluster.controllers.actions import (
    Action,
    Emit,
    Revisit,
    Update,
    finalizer_removed,
    replaced,
    status_written,
    without,
)
from scheduler.sandbox.devcluster.controllers.ownership import uid
from scheduler.sandbox.devcluster.controllers.pods import is_terminal, node_name
from scheduler.sandbox.devcluster.controllers.volumes import (
    BOUND_BY_CONTROLLER,
    annotation,
    delay_s,
    failure_of,
    is_delayed,
    provision,
    provisions,
)
from scheduler.sandbox.devcluster.kinds import PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, JsonObject
from scheduler.sandbox.devcluster.label_selectors import selects

BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
PROVISIONER: Final = "volume.kubernetes.io/storage-provisioner"
#: Seconds until a failed provisioning of an immediate claim is tried again.
_RETRY_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class ClaimView:
    """The objects that a plan about a claim reads beside the claim."""

    #: The volume that `spec.volumeName` names.
    volume: JsonObject | None
    #: Volumes that refer to the claim.
    promised: Sequence[JsonObject]
    #: Return the volumes of the claim's class that refer to no claim.
    list_free: Callable[[], Sequence[JsonObject]]
    storage_class: JsonObject | None
    pods: Sequence[JsonObject]
    #: The node that a scheduler selected.
    node: JsonObject | None
    list_nodes: Callable[[], Sequence[JsonObject]]
    #: Seconds since the claim was first to be provisioned on its node.
    waited_s: float


def plan(claim: JsonObject, view: ClaimView) -> list[Action]:
    """Return the next step towards a bound claim, or the end of a deleted one."""
    if claim["metadata"].get("deletionTimestamp"):
        in_use = any(node_name(pod) and not is_terminal(pod) for pod in view.pods)
        return [] if in_use else finalizer_removed(PERSISTENT_VOLUME_CLAIM, claim, CLAIM_PROTECTION)
    if is_bound(claim):
        return _phase(claim, "Lost") if view.volume is None else _bind(claim, view.volume)
    if (claim.get("spec") or {}).get("volumeName"):
        named = view.volume
        if named is None or (named["spec"].get("claimRef") and not _is_for(named, claim)):
            return _phase(claim, "Pending")
        return _bind(claim, named)
    for volume in view.promised:
        if _is_for(volume, claim) and not volume["metadata"].get("deletionTimestamp"):
            return _bind(claim, volume)
    if not is_delayed(view.storage_class):
        suitable = [one for one in view.list_free() if _suits(one, claim)]
        if suitable:
            return _bind(claim, min(suitable, key=lambda one: _storage_nano(one["spec"]["capacity"])))
    return [*_order(claim, view), *_phase(claim, "Pending")]


def is_bound(claim: JsonObject) -> bool:
    """Return whether the binding of the claim was completed once."""
    return BIND_COMPLETED in (claim["metadata"].get("annotations") or {})


def is_awaiting_volume(claim: JsonObject, storage_class: JsonObject | None) -> bool:
    """Return whether the provisioner is to make a volume for the claim."""
    unbound = not is_bound(claim) and not (claim.get("spec") or {}).get("volumeName")
    has_place = bool(annotation(claim, SELECTED_NODE)) or not is_delayed(storage_class)
    return unbound and has_place and provisions(storage_class)


# -- binding -------------------------------------------------------------------------------------------------


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


def _phase(claim: JsonObject, phase: str) -> list[Action]:
    """Return the write of another phase; nothing if the claim has that phase."""
    return status_written(PERSISTENT_VOLUME_CLAIM, claim, {**(claim.get("status") or {}), "phase": phase})


def _is_for(volume: JsonObject, claim: JsonObject) -> bool:
    """Return whether the volume is promised or bound to the claim."""
    reference, metadata = volume["spec"].get("claimRef") or {}, claim["metadata"]
    if (reference.get("namespace"), reference.get("name")) != (metadata["namespace"], metadata["name"]):
        return False
    return reference.get("uid") in (None, "", uid(claim))


def _suits(volume: JsonObject, claim: JsonObject) -> bool:
    """Return whether a free volume has the size, the modes and the labels that the claim asks for."""
    metadata, spec, wanted = volume["metadata"], volume["spec"], claim["spec"]
    selector = wanted.get("selector")
    return (
        (volume.get("status") or {}).get("phase") == "Available"
        and not metadata.get("deletionTimestamp")
        and spec["volumeMode"] == wanted["volumeMode"]
        and set(wanted["accessModes"]) <= set(spec["accessModes"])
        and _storage_nano(spec["capacity"]) >= _storage_nano(wanted["resources"]["requests"])
        and (selector is None or selects(selector, metadata.get("labels") or {}))
    )


def _storage_nano(amounts: JsonObject) -> int:
    """Return the amount of storage in billionths of a byte, 0 if there is none."""
    found = quantity(amounts.get("storage"))
    return found.nano if found else 0


# -- without a volume ---------------------------------------------------------------------------------------


def _order(claim: JsonObject, view: ClaimView) -> list[Action]:
    """Return what becomes of a claim without a volume: it waits for a scheduler, or gets a volume made."""
    storage_class, selected = view.storage_class, annotation(claim, SELECTED_NODE)
    if storage_class is None or not is_awaiting_volume(claim, storage_class):
        text = "no persistent volume suits this claim, and no storage class makes one"
        return [] if is_delayed(storage_class) else [Emit("FailedBinding", text)]
    provisioner = storage_class["provisioner"]
    if annotation(claim, PROVISIONER) != provisioner:
        named = replaced(claim, ("metadata", "annotations", PROVISIONER), provisioner)
        return [Update(PERSISTENT_VOLUME_CLAIM, named)]
    if (left_s := delay_s(storage_class) - view.waited_s) > 0:
        return [Revisit(left_s)]
    made: list[Action] | str
    if failure := failure_of(storage_class):
        made = failure
    elif selected and view.node is None:
        made = f'error getting selected node: node "{selected}" not found'
    else:
        made = provision(claim, storage_class, view.node, view.list_nodes)
    if isinstance(made, list):
        return made
    text = f'failed to provision volume with StorageClass "{storage_class["metadata"]["name"]}": {made}'
    event = Emit("ProvisioningFailed", text)
    if not selected:
        return [event, Revisit(_RETRY_S)]
    # The scheduler selects a node anew.
    left = without(claim["metadata"]["annotations"], SELECTED_NODE)
    return [event, Update(PERSISTENT_VOLUME_CLAIM, replaced(claim, ("metadata", "annotations"), left))]
