"""
The rules of volumes and claims: defaults, protection, and what never changes.

Source: pkg/apis/core/validation/validation.go (ValidatePersistentVolume*), pkg/apis/core/v1/defaults.go, and the
admission plugins StorageObjectInUseProtection and DefaultStorageClass (kubernetes 1.36).
"""

from collections.abc import Iterator
from typing import Final

from scheduler.engine.syntax import field_errors
from scheduler.engine.syntax.affinity_rules import selector_errors
from scheduler.engine.syntax.field_errors import FieldError
from scheduler.engine.syntax.names import subdomain_faults
from scheduler.sandbox.devcluster.admission.pods import node_selector_errors
from scheduler.sandbox.devcluster.admission.shapes import quantity
from scheduler.sandbox.devcluster.admission.strategy import Strategy, View
from scheduler.sandbox.devcluster.kinds import STORAGE_CLASS, JsonObject

CLAIM_PROTECTION: Final = "kubernetes.io/pvc-protection"
VOLUME_PROTECTION: Final = "kubernetes.io/pv-protection"
IS_DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"

_ACCESS_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_VOLUME_MODES: Final = ("Block", "Filesystem")
#: Fields of a volume's spec that are no source of data.
_NOT_SOURCE: Final = frozenset({
    "accessModes", "capacity", "claimRef", "mountOptions", "nodeAffinity", "persistentVolumeReclaimPolicy",
    "storageClassName", "volumeAttributesClassName", "volumeMode",
})  # fmt: skip


def class_name(obj: JsonObject) -> str:
    """Return the storage class of a claim or volume, empty if it has none."""
    return str((obj.get("spec") or {}).get("storageClassName") or "")


def _protect(obj: JsonObject, finalizer: str) -> None:
    finalizers = obj["metadata"].get("finalizers") or []
    if finalizer not in finalizers:
        obj["metadata"]["finalizers"] = [*finalizers, finalizer]


def _prepare_claim(claim: JsonObject, view: View) -> None:
    """Give the claim the default class if it names none, and protect it from deletion while pods use it."""
    _protect(claim, CLAIM_PROTECTION)
    if claim["spec"].get("storageClassName") is None:
        defaults = [one["metadata"] for one in view.list_all(STORAGE_CLASS) if _is_default(one)]
        if defaults:
            # The newest one counts; of equally old ones the first by name, as they are listed.
            claim["spec"]["storageClassName"] = max(defaults, key=lambda one: one["creationTimestamp"])[
                "name"
            ]


def _is_default(storage_class: JsonObject) -> bool:
    return (storage_class["metadata"].get("annotations") or {}).get(IS_DEFAULT_CLASS) == "true"


def _claim_errors(claim: JsonObject) -> Iterator[FieldError]:
    spec = claim["spec"]
    modes = spec.get("accessModes") or []
    if spec.get("selector") is not None:
        yield from selector_errors(spec["selector"], "spec.selector")
    for mode in modes:
        if mode not in _ACCESS_MODES:
            yield field_errors.not_supported("spec.accessModes", mode, _ACCESS_MODES)
    if "ReadWriteOncePod" in modes and set(modes) <= set(_ACCESS_MODES) and len(modes) > 1:
        detail = "may not use ReadWriteOncePod with other access modes"
        yield field_errors.forbidden("spec.accessModes", detail)
    requested = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    amount = quantity(requested)
    if amount is None:
        yield field_errors.required("spec.resources[storage]")
    elif amount.nano <= 0:
        yield field_errors.invalid("spec.resources[storage]", requested, "must be greater than zero")


def _claim_update_errors(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """Yield an error unless the change binds the claim, names its class, or asks a bound one to become larger."""
    wanted, stored = dict(new["spec"]), dict(old["spec"])
    may_change = [] if stored.get("volumeName") else ["volumeName"]
    if may_change and stored.get("storageClassName") is None:
        may_change.append("storageClassName")
    if (old.get("status") or {}).get("phase") == "Bound":
        may_change += ["resources", "volumeAttributesClassName"]
    for name in may_change:
        stored[name] = wanted.get(name)
    if any(wanted.get(name) != stored.get(name) for name in wanted | stored):
        detail = (
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound "
            "claims"
        )
        yield field_errors.forbidden("spec", detail)


def _prepare_volume(volume: JsonObject, _: View) -> None:
    _protect(volume, VOLUME_PROTECTION)


def _volume_errors(volume: JsonObject) -> Iterator[FieldError]:
    if len(volume["spec"].keys() - _NOT_SOURCE) != 1:
        yield field_errors.required("spec", "must specify one volume type")
    affinity = volume["spec"].get("nodeAffinity")
    if affinity is not None:
        yield from node_selector_errors(affinity.get("required") or {}, "spec.nodeAffinity.required")


CLAIMS: Final = Strategy(
    required="spec.accessModes",
    names={"spec.storageClassName": subdomain_faults},
    choices={"spec.volumeMode": _VOLUME_MODES},
    defaults={"spec.resources": {}, "spec.volumeMode": "Filesystem"},
    initial_status={"phase": "Pending"},
    prepare_create=_prepare_claim,
    validate=_claim_errors,
    validate_update=_claim_update_errors,
)
VOLUMES: Final = Strategy(
    required="spec.accessModes spec.capacity.storage",
    choices={
        "spec.accessModes[]": _ACCESS_MODES,
        "spec.persistentVolumeReclaimPolicy": ("Delete", "Recycle", "Retain"),
        "spec.volumeMode": _VOLUME_MODES,
    },
    defaults={"spec.persistentVolumeReclaimPolicy": "Retain", "spec.volumeMode": "Filesystem"},
    initial_status={"phase": "Pending"},
    prepare_create=_prepare_volume,
    validate=_volume_errors,
)
