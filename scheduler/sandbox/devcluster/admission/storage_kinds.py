"""
The rules of the kinds of storage.k8s.io: defaults, required fields, and what never changes.

Source: pkg/apis/storage/validation/validation.go, pkg/apis/storage/v1/defaults.go (kubernetes 1.36).
"""

from collections.abc import Callable, Iterator
from typing import Final

from scheduler.engine.syntax import field_errors
from scheduler.engine.syntax.field_errors import FieldError
from scheduler.engine.syntax.names import label_key_faults, subdomain_faults
from scheduler.sandbox.devcluster.admission.checks import (
    at_least_zero,
    one_of,
    stated,
    unchanged,
    unused,
    well_formed,
)
from scheduler.sandbox.devcluster.admission.strategy import Strategy
from scheduler.sandbox.devcluster.kinds import JsonObject

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
    return lambda new, old: unchanged(new, old, "", *names)


# -- storage classes -----------------------------------------------------------------------------------------


def _default_class(storage_class: JsonObject) -> None:
    storage_class.setdefault("reclaimPolicy", "Delete")
    storage_class.setdefault("volumeBindingMode", "Immediate")


def _class_errors(storage_class: JsonObject) -> Iterator[FieldError]:
    yield from stated(storage_class, "", "provisioner")
    if storage_class.get("provisioner"):
        yield from well_formed(
            storage_class["provisioner"], "provisioner", lambda text: label_key_faults(text.lower())
        )
    yield from one_of(storage_class["reclaimPolicy"], "reclaimPolicy", _RECLAIM_POLICIES)
    yield from one_of(storage_class["volumeBindingMode"], "volumeBindingMode", _BINDING_MODES)
    for index, term in enumerate(storage_class.get("allowedTopologies") or []):
        for number, expression in enumerate(term.get("matchLabelExpressions") or []):
            path = f"allowedTopologies[{index}].matchLabelExpressions[{number}]"
            yield from stated(expression, f"{path}.", "values")
            yield from well_formed(expression.get("key") or "", f"{path}.key", label_key_faults)


# -- drivers and their nodes ---------------------------------------------------------------------------------


def _default_driver(driver: JsonObject) -> None:
    spec = driver.setdefault("spec", {})
    for name, value in _DRIVER_DEFAULTS.items():
        spec.setdefault(name, value)


def _driver_errors(driver: JsonObject) -> Iterator[FieldError]:
    spec = driver["spec"]
    yield from one_of(spec["fsGroupPolicy"], "spec.fsGroupPolicy", _FS_GROUP_POLICIES)
    for mode in spec["volumeLifecycleModes"]:
        yield from one_of(mode, "spec.volumeLifecycleModes", _LIFECYCLE_MODES)


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
        path = f"spec.drivers[{index}]"
        yield from stated(driver, f"{path}.", "name", "nodeID")
        yield from at_least_zero((driver.get("allocatable") or {}).get("count"), f"{path}.allocatable.count")
        yield from unused(driver.get("name") or "", f"{path}.name", seen)


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
    yield from well_formed(capacity.get("storageClassName") or "", "storageClassName", subdomain_faults)
    for name in ("capacity", "maximumVolumeSize"):
        yield from at_least_zero(capacity.get(name), name)


def _attachment_errors(attachment: JsonObject) -> Iterator[FieldError]:
    spec = attachment.get("spec") or {}
    yield from stated(spec, "spec.", "attacher")
    if len(spec.get("source") or {}) != 1:
        detail = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
        yield field_errors.required("spec.source", detail)
    yield from well_formed(spec.get("nodeName") or "", "spec.nodeName", subdomain_faults)


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
    initial_status={"attached": False},
    validate=_attachment_errors,
    validate_update=_fixed("spec"),
)
