"""
The rules of a pod's spec, for new pods and for changes.

Source: pkg/apis/core/validation/validation.go, ValidatePodSpec and ValidatePodUpdate (kubernetes 1.36), as far as
schedulers and their tests meet them. Difference: the node affinity of a gated pod is as fixed as that of any other.
"""

from collections.abc import Iterator
from typing import Final

from scheduler.engine.syntax import field_errors
from scheduler.engine.syntax.field_errors import FieldError
from scheduler.engine.syntax.names import dns_label_faults, label_key_faults, subdomain_faults
from scheduler.sandbox.devcluster.admission.affinity import affinity_errors, constraint_errors
from scheduler.sandbox.devcluster.admission.checks import one_of, unused, well_formed
from scheduler.sandbox.devcluster.admission.metadata import label_errors
from scheduler.sandbox.devcluster.admission.pod_parts import (
    container_errors,
    node_affinity_errors,
    toleration_errors,
)
from scheduler.sandbox.devcluster.kinds import JsonObject

_RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")
_MAX_INT32: Final = 2**31 - 1
_UPDATABLE: Final = ",".join((
    "`spec.containers[*].image`",
    "`spec.initContainers[*].image`",
    "`spec.activeDeadlineSeconds`",
    "`spec.tolerations` (only additions to existing tolerations)",
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
))  # fmt: skip


def spec_errors(spec: JsonObject) -> Iterator[FieldError]:
    """Yield the rules that a pod's spec breaks, after defaulting and merging, in upstream's order."""
    if not spec.get("containers"):
        yield field_errors.required("spec.containers")
    seen: set[str] = set()
    for list_name in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(list_name) or []):
            path = f"spec.{list_name}[{index}]"
            yield from container_errors(container, path)
            yield from unused(container.get("name") or "", f"{path}.name", seen)
    yield from one_of(spec.get("restartPolicy"), "spec.restartPolicy", _RESTART_POLICIES)
    yield from label_errors(spec.get("nodeSelector") or {}, "spec.nodeSelector")
    affinity = spec.get("affinity") or {}
    yield from node_affinity_errors(affinity.get("nodeAffinity") or {}, "spec.affinity.nodeAffinity")
    yield from affinity_errors(affinity)
    yield from _gate_errors(spec.get("schedulingGates") or [])
    yield from constraint_errors(spec.get("topologySpreadConstraints") or [])
    if spec.get("nodeName"):
        yield from well_formed(spec["nodeName"], "spec.nodeName", subdomain_faults)
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= _MAX_INT32:
        detail = f"must be between 1 and {_MAX_INT32}, inclusive"
        yield field_errors.invalid("spec.activeDeadlineSeconds", deadline, detail)
    yield from toleration_errors(spec.get("tolerations") or [])
    yield from _device_claim_errors(spec)


def _gate_errors(gates: list[JsonObject]) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, gate in enumerate(gates):
        name, path = gate.get("name") or "", f"spec.schedulingGates[{index}]"
        yield from well_formed(name, path, label_key_faults)
        yield from unused(name, path, seen)


def _device_claim_errors(spec: JsonObject) -> Iterator[FieldError]:
    names: set[str] = set()
    for index, claim in enumerate(spec.get("resourceClaims") or []):
        path, name = f"spec.resourceClaims[{index}]", claim.get("name") or ""
        yield from unused(name, f"{path}.name", names)
        if name:
            yield from well_formed(name, f"{path}.name", dns_label_faults)
        else:
            yield field_errors.required(f"{path}.name")
        sources = [claim.get(field) for field in ("resourceClaimName", "resourceClaimTemplateName")]
        if all(sources):
            detail = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            yield field_errors.invalid(path, claim, detail)
        elif not any(sources):
            detail = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            yield field_errors.invalid(path, claim, detail)


def update_errors(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """Yield the rules that a change of a pod's spec breaks: nearly everything is fixed at creation."""
    for list_name in ("containers", "initContainers"):
        if len(new.get(list_name) or []) != len(old.get(list_name) or []):
            yield field_errors.forbidden(f"spec.{list_name}", "pod updates may not add or remove containers")
            return
    deadline, previous = new.get("activeDeadlineSeconds"), old.get("activeDeadlineSeconds")
    if deadline is not None and previous is not None and deadline > previous:
        detail = "must be less than or equal to previous value"
        yield field_errors.invalid("spec.activeDeadlineSeconds", deadline, detail)
        return
    if deadline is None and previous is not None:
        detail = "must not update from a positive integer to nil value"
        yield field_errors.invalid("spec.activeDeadlineSeconds", None, detail)
    yield from _toleration_change_errors(new.get("tolerations") or [], old.get("tolerations") or [])
    yield from _gate_change_errors(new.get("schedulingGates") or [], old.get("schedulingGates") or [])
    munged = _with_updatable_fields_of(old, new)
    if old.get("schedulingGates"):
        yield from _gated_change_errors(munged, old)
        munged = _normal({**munged, "nodeSelector": old.get("nodeSelector")})
    before = _normal(old)
    if munged != before:
        changed = sorted(key for key in munged.keys() | before.keys() if munged.get(key) != before.get(key))
        detail = f"pod updates may not change fields other than {_UPDATABLE}\nchanged: {', '.join(changed)}"
        yield field_errors.forbidden("spec", detail)


def _toleration_change_errors(new: list[JsonObject], old: list[JsonObject]) -> Iterator[FieldError]:
    """Yield an error unless tolerations were only added, or only the seconds of existing ones changed."""
    kept = [{k: v for k, v in one.items() if k != "tolerationSeconds"} for one in new]
    for one in old:
        if {k: v for k, v in one.items() if k != "tolerationSeconds"} not in kept:
            detail = "existing toleration can not be modified except its tolerationSeconds"
            yield field_errors.forbidden("spec.tolerations", detail)
            return


def _gate_change_errors(new: list[JsonObject], old: list[JsonObject]) -> Iterator[FieldError]:
    known = {gate.get("name") for gate in old}
    for index, gate in enumerate(new):
        if gate.get("name") not in known:
            detail = f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'"
            yield field_errors.forbidden(f"spec.schedulingGates[{index}].name", detail)


def _normal(spec: JsonObject) -> JsonObject:
    """Return a spec without empty fields: absent and empty are the same in Go."""
    return {key: value for key, value in spec.items() if value not in (None, [], {}, "", False)}


def _with_updatable_fields_of(old: JsonObject, new: JsonObject) -> JsonObject:
    """Return the new spec with the old value of every field that an update may change, to compare both."""
    munged = dict(new)
    for list_name in ("containers", "initContainers"):
        if new.get(list_name):
            munged[list_name] = [
                {**container, "image": before.get("image")}
                for container, before in zip(new[list_name], old[list_name], strict=True)
            ]
    for name in ("activeDeadlineSeconds", "schedulingGates", "tolerations"):
        munged[name] = old.get(name)
    if (old.get("terminationGracePeriodSeconds") or 0) < 0 and new.get("terminationGracePeriodSeconds") == 1:
        munged["terminationGracePeriodSeconds"] = old["terminationGracePeriodSeconds"]
    return _normal(munged)


def _gated_change_errors(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """Yield an error if the node selector of a gated pod changed in any way but narrowing."""
    before, after = old.get("nodeSelector") or {}, new.get("nodeSelector") or {}
    if any(after.get(key) != value for key, value in before.items()):
        detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        yield field_errors.invalid("spec.nodeSelector", after, detail)
