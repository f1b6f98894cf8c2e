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
from scheduler.sandbox.devcluster.admission.checks import one_of, quantity, well_formed
from scheduler.sandbox.devcluster.admission.defaults import default_claim_spec
from scheduler.sandbox.devcluster.admission.pod_parts import node_selector_errors
from scheduler.sandbox.devcluster.admission.strategy import Strategy, View
from scheduler.sandbox.devcluster.kinds import STORAGE_CLASS, JsonObject

CLAIM_PROTECTION: Final = "kubernetes.io/pvc-protection"
VOLUME_PROTECTION: Final = "kubernetes.io/pv-protection"
IS_DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
#: The class of claims and volumes before they had a field for it.
CLASS_ANNOTATION: Final = "volume.beta.kubernetes.io/storage-class"

_ACCESS_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_VOLUME_MODES: Final = ("Block", "Filesystem")
#: Fields of a volume's spec that are no source of data.
_NOT_SOURCE: Final = frozenset({
    "accessModes", "capacity", "claimRef", "mountOptions", "nodeAffinity", "persistentVolumeReclaimPolicy",
    "storageClassName", "volumeAttributesClassName", "volumeMode",
})  # fmt: skip


def class_name(obj: JsonObject) -> str:
    """Return the storage class of a claim or volume, empty if it has none."""
    annotations = obj["metadata"].get("annotations") or {}
    return str(annotations.get(CLASS_ANNOTATION) or (obj.get("spec") or {}).get("storageClassName") or "")


# -- claims --------------------------------------------------------------------------------------------------


def _default_claim(claim: JsonObject) -> None:
    default_claim_spec(claim.setdefault("spec", {}))


def _prepare_claim(claim: JsonObject, view: View) -> None:
    """Give the claim the default class if it names none, and protect it from deletion while pods use it."""
    _add_finalizer(claim, CLAIM_PROTECTION)
    annotations = claim["metadata"].get("annotations") or {}
    if claim["spec"].get("storageClassName") is None and CLASS_ANNOTATION not in annotations:
        defaults = [one for one in view.list_all(STORAGE_CLASS) if _is_default(one)]
        if defaults:
            # The newest one counts; of equally old ones the first by name.
            defaults.sort(key=lambda one: one["metadata"]["name"])
            newest = max(defaults, key=lambda one: one["metadata"]["creationTimestamp"])
            claim["spec"]["storageClassName"] = newest["metadata"]["name"]


def _is_default(storage_class: JsonObject) -> bool:
    return (storage_class["metadata"].get("annotations") or {}).get(IS_DEFAULT_CLASS) == "true"


def _add_finalizer(obj: JsonObject, name: str) -> None:
    finalizers = obj["metadata"].get("finalizers") or []
    if name not in finalizers:
        obj["metadata"]["finalizers"] = [*finalizers, name]


def _requested(claim: JsonObject) -> object:
    return ((claim["spec"].get("resources") or {}).get("requests") or {}).get("storage")


def _claim_errors(claim: JsonObject) -> Iterator[FieldError]:
    spec = claim["spec"]
    modes = spec.get("accessModes") or []
    if not modes:
        yield field_errors.required("spec.accessModes", "at least 1 access mode is required")
    if spec.get("selector") is not None:
        yield from selector_errors(spec["selector"], "spec.selector")
    for mode in modes:
        yield from one_of(mode, "spec.accessModes", _ACCESS_MODES)
    if "ReadWriteOncePod" in modes and set(modes) <= set(_ACCESS_MODES) and len(modes) > 1:
        yield field_errors.forbidden(
            "spec.accessModes", "may not use ReadWriteOncePod with other access modes"
        )
    found = quantity(_requested(claim))
    if found is None:
        yield field_errors.required("spec.resources[storage]")
    elif found.nano <= 0:
        yield field_errors.invalid("spec.resources[storage]", _requested(claim), "must be greater than zero")
    if spec.get("storageClassName"):
        yield from well_formed(spec["storageClassName"], "spec.storageClassName", subdomain_faults)
    yield from one_of(spec.get("volumeMode"), "spec.volumeMode", _VOLUME_MODES)


def _claim_update_errors(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """Yield an error unless the change binds the claim, names its class, or asks a bound one to become larger."""
    wanted, stored = dict(new["spec"]), dict(old["spec"])
    if not stored.get("volumeName"):
        stored["volumeName"] = wanted.get("volumeName")
    if stored.get("storageClassName") is None and not old["spec"].get("volumeName"):
        stored["storageClassName"] = wanted.get("storageClassName")
    if (old.get("status") or {}).get("phase") == "Bound":
        for name in ("resources", "volumeAttributesClassName"):
            stored[name] = wanted.get(name)
    if _present(wanted) != _present(stored):
        detail = (
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound "
            "claims"
        )
        yield field_errors.forbidden("spec", detail)


def _present(spec: JsonObject) -> JsonObject:
    return {key: value for key, value in spec.items() if value is not None}


# -- volumes -------------------------------------------------------------------------------------------------


def source_of(volume: JsonObject) -> JsonObject:
    """Return the source of a volume's data, as `{"csi": {...}}`."""
    return {key: value for key, value in (volume.get("spec") or {}).items() if key not in _NOT_SOURCE}


def _prepare_volume(volume: JsonObject, _: View) -> None:
    volume["status"] = {"phase": "Pending"}
    _add_finalizer(volume, VOLUME_PROTECTION)


def _volume_errors(volume: JsonObject) -> Iterator[FieldError]:
    if len(source_of(volume)) != 1:
        yield field_errors.required("spec", "must specify one volume type")
    affinity = volume["spec"].get("nodeAffinity")
    if affinity is not None:
        yield from node_selector_errors(affinity.get("required") or {}, "spec.nodeAffinity.required")


CLAIMS: Final = Strategy(
    has_status=True,
    returns_deleted=True,
    set_defaults=_default_claim,
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
    has_status=True,
    returns_deleted=True,
    prepare_create=_prepare_volume,
    validate=_volume_errors,
)
