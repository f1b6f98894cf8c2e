"""
The rules of the kinds of storage.k8s.io: defaults, required fields, and what never changes.

Source: pkg/apis/storage/validation/validation.go, pkg/apis/storage/v1/defaults.go (kubernetes 1.36).
"""

from collections.abc import Callable, Iterator
from typing import Final

from scheduler.devcluster.admission.amounts import quantity
from scheduler.devcluster.admission.strategy import Strategy, View
from scheduler.devcluster.kinds import JsonObject
from scheduler.syntax import field_errors
from scheduler.syntax.field_errors import FieldError
from scheduler.syntax.names import label_key_faults, subdomain_faults

_FIXED: Final = "field is immutable"
_RECLAIM_POLICIES: Final = ("Delete", "Retain")
_BINDING_MODES: Final = ("Immediate", "WaitForFirstConsumer")
_FS_GROUP_POLICIES: Final = ("File", "None", "ReadWriteOnceWithFSType")
_LIFECYCLE_MODES: Final = ("Persistent", "Ephemeral")
#: Defaults of a CSIDriver's spec.
_DRIVER_DEFAULTS: Final = {
    "attachRequired": True,
    "fsGroupPolicy": "ReadWriteOnceWithFSType",
    "podInfoOnMount": False,
    "requiresRepublish": False,
    "seLinuxMount": False,
    "storageCapacity": False,
    "volumeLifecycleModes": ["Persistent"],
}


def _fixed(*names: str) -> Callable[[JsonObject, JsonObject], Iterator[FieldError]]:
    """Return the rule that top-level fields of these names never change."""

    def errors(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
        for name in names:
            if new.get(name) != old.get(name):
                yield field_errors.invalid(name, new.get(name), _FIXED)

    return errors


# -- storage classes -----------------------------------------------------------------------------------------


def _default_class(storage_class: JsonObject) -> None:
    storage_class.setdefault("reclaimPolicy", "Delete")
    storage_class.setdefault("volumeBindingMode", "Immediate")


def _class_errors(storage_class: JsonObject) -> Iterator[FieldError]:
    provisioner = storage_class.get("provisioner") or ""
    if not provisioner:
        yield field_errors.required("provisioner")
    for fault in label_key_faults(provisioner.lower()) if provisioner else ():
        yield field_errors.invalid("provisioner", provisioner, fault)
    for name, supported in (("reclaimPolicy", _RECLAIM_POLICIES), ("volumeBindingMode", _BINDING_MODES)):
        if storage_class[name] not in supported:
            yield field_errors.not_supported(name, storage_class[name], supported)
    for index, term in enumerate(storage_class.get("allowedTopologies") or []):
        for number, one in enumerate(term.get("matchLabelExpressions") or []):
            path = f"allowedTopologies[{index}].matchLabelExpressions[{number}]"
            if not one.get("values"):
                yield field_errors.required(f"{path}.values")
            for fault in label_key_faults(one.get("key") or ""):
                yield field_errors.invalid(f"{path}.key", one.get("key") or "", fault)


# -- drivers and their nodes ---------------------------------------------------------------------------------


def _default_driver(driver: JsonObject) -> None:
    spec = driver.setdefault("spec", {})
    for name, value in _DRIVER_DEFAULTS.items():
        spec.setdefault(name, value)


def _driver_errors(driver: JsonObject) -> Iterator[FieldError]:
    spec = driver["spec"]
    if spec["fsGroupPolicy"] not in _FS_GROUP_POLICIES:
        yield field_errors.not_supported("spec.fsGroupPolicy", spec["fsGroupPolicy"], _FS_GROUP_POLICIES)
    for mode in spec["volumeLifecycleModes"]:
        if mode not in _LIFECYCLE_MODES:
            yield field_errors.not_supported("spec.volumeLifecycleModes", mode, _LIFECYCLE_MODES)


def _driver_update_errors(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    # Upstream misspells the first field.
    for name, shown in (
        ("attachRequired", "attachedRequired"),
        ("volumeLifecycleModes", "volumeLifecycleModes"),
    ):
        if new["spec"].get(name) != old["spec"].get(name):
            yield field_errors.invalid(f"spec.{shown}", new["spec"].get(name), _FIXED)


def _csi_node_errors(csi_node: JsonObject) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, driver in enumerate((csi_node.get("spec") or {}).get("drivers") or []):
        path, name = f"spec.drivers[{index}]", driver.get("name") or ""
        if not name:
            yield field_errors.required(f"{path}.name")
        if not driver.get("nodeID"):
            yield field_errors.required(f"{path}.nodeID")
        count = (driver.get("allocatable") or {}).get("count")
        if count is not None and count < 0:
            yield field_errors.invalid(
                f"{path}.allocatable.count", count, "must be greater than or equal to 0"
            )
        if name in seen:
            yield field_errors.duplicate(f"{path}.name", name)
        seen.add(name)


def _csi_node_update_errors(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """Yield an error for each driver that changed but for its allocatable count: drivers come and go."""
    stored = {one.get("name"): one for one in (old.get("spec") or {}).get("drivers") or []}
    for driver in (new.get("spec") or {}).get("drivers") or []:
        before = stored.get(driver.get("name"))
        if before is not None and _identity(before) != _identity(driver):
            yield field_errors.invalid("spec.drivers", driver, _FIXED)


def _identity(driver: JsonObject) -> tuple[object, list[str]]:
    return driver.get("nodeID"), driver.get("topologyKeys") or []


# -- capacities and attachments ------------------------------------------------------------------------------


def _capacity_errors(capacity: JsonObject) -> Iterator[FieldError]:
    for fault in subdomain_faults(capacity.get("storageClassName") or ""):
        yield field_errors.invalid("storageClassName", capacity.get("storageClassName") or "", fault)
    for name in ("capacity", "maximumVolumeSize"):
        amount = quantity(capacity.get(name))
        if amount is not None and amount.nano < 0:
            yield field_errors.invalid(name, capacity[name], "must be greater than or equal to 0")


def _prepare_attachment(attachment: JsonObject, view: View) -> None:
    del view
    attachment["status"] = {"attached": False}


def _attachment_errors(attachment: JsonObject) -> Iterator[FieldError]:
    spec = attachment.get("spec") or {}
    if not spec.get("attacher"):
        yield field_errors.required("spec.attacher")
    if len(spec.get("source") or {}) != 1:
        detail = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
        yield field_errors.required("spec.source", detail)
    for fault in subdomain_faults(spec.get("nodeName") or ""):
        yield field_errors.invalid("spec.nodeName", spec.get("nodeName") or "", fault)


STORAGE_CLASSES: Final = Strategy(
    returns_deleted=True,
    set_defaults=_default_class,
    validate=_class_errors,
    validate_update=_fixed("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"),
)
CSI_DRIVERS: Final = Strategy(
    returns_deleted=True,
    set_defaults=_default_driver,
    validate=_driver_errors,
    validate_update=_driver_update_errors,
)
CSI_NODES: Final = Strategy(
    returns_deleted=True, validate=_csi_node_errors, validate_update=_csi_node_update_errors
)
CSI_STORAGE_CAPACITIES: Final = Strategy(
    validate=_capacity_errors, validate_update=_fixed("nodeTopology", "storageClassName")
)
VOLUME_ATTACHMENTS: Final = Strategy(
    has_status=True,
    returns_deleted=True,
    prepare_create=_prepare_attachment,
    validate=_attachment_errors,
    validate_update=_fixed("spec"),
)
