"""
The rules of a pod's spec, for new pods and for changes.

Source: pkg/apis/core/validation/validation.go, ValidatePodSpec and ValidatePodUpdate (kubernetes 1.36), as far as
schedulers and their tests meet them. Differences: the node affinity of a gated pod is as fixed as that of any other;
tolerations may go, and deadlines may grow.
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

_CHANGING: Final = ("schedulingGates", "tolerations", "activeDeadlineSeconds")
_RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")
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
    """
    Yield an error if a change of a pod's spec is none of the few that are allowed.

    Images, tolerations and a deadline may change, gates may go, and a gated pod's node selector may get narrower.
    """
    known = old.get("schedulingGates") or []
    for index, gate in enumerate(new.get("schedulingGates") or []):
        if gate not in known:
            detail = f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'"
            yield field_errors.forbidden(f"spec.schedulingGates[{index}].name", detail)
    fixed = _fixed_fields(new), _fixed_fields(old)
    if known:
        before, after = (one.pop("nodeSelector", {}) for one in reversed(fixed))
        if not before.items() <= after.items():
            detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
            yield field_errors.invalid("spec.nodeSelector", after, detail)
    if fixed[0] != fixed[1]:
        yield field_errors.forbidden("spec", f"pod updates may not change fields other than {_UPDATABLE}\n")


def _fixed_fields(spec: JsonObject) -> JsonObject:
    """Return what no update may change of a spec, without empty fields, which in Go equal absent ones."""
    fixed = {key: value for key, value in spec.items() if key not in _CHANGING and value}
    for name in ("containers", "initContainers"):
        fixed[name] = [{**one, "image": ""} for one in spec.get(name) or ()]
    return fixed
