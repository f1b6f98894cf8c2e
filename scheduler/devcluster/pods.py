"""
Pods: what the server writes at creation, what an update may change, how long a deletion takes.

Source: pkg/registry/core/pod/strategy.go, pkg/apis/core/validation/validation.go (ValidatePodCreate,
ValidatePodUpdate), plugin/pkg/admission/{priority,defaulttolerationseconds,podtopologylabels} (kubernetes 1.36).
"""

import difflib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from scheduler.devcluster import fields
from scheduler.devcluster.admission import (
    affinity_errors,
    constraint_errors,
    merged_affinity,
    merged_constraints,
)
from scheduler.devcluster.defaults import add_default_tolerations, default_pod_spec
from scheduler.devcluster.fields import FieldError
from scheduler.devcluster.kinds import NODE, POD, PRIORITY_CLASS, JsonObject
from scheduler.devcluster.quantities import parse_quantity
from scheduler.devcluster.status import forbidden
from scheduler.devcluster.strategy import Strategy, View, validate_labels

#: Labels of a node that a pod on it carries too (PodTopologyLabelsAdmission, on since 1.35).
TOPOLOGY_LABELS: Final = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
#: Classes that exist without an object.
SYSTEM_PRIORITIES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}

_RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")
_FINISHED: Final = ("Succeeded", "Failed")
_UPDATABLE: Final = ",".join((
    "`spec.containers[*].image`",
    "`spec.initContainers[*].image`",
    "`spec.activeDeadlineSeconds`",
    "`spec.tolerations` (only additions to existing tolerations)",
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class PodStrategy(Strategy):
    """How pods differ from data."""

    has_generation: bool = True
    has_status: bool = True
    returns_deleted: bool = True
    status_writes_metadata: bool = True

    def prepare_create(self, obj: JsonObject, view: View) -> None:
        """Defaults, priority, tolerations, merged selectors and the first status are in the pod."""
        spec = obj.setdefault("spec", {})
        default_pod_spec(spec)
        spec.setdefault("enableServiceLinks", True)
        set_priority(obj, view)
        add_default_tolerations(spec)
        if spec.get("nodeName"):
            copy_topology_labels(obj["metadata"], view.find(NODE, "", spec["nodeName"]))
        labels = obj["metadata"].get("labels") or {}
        if spec.get("affinity"):
            spec["affinity"] = merged_affinity(spec["affinity"], labels)
        if spec.get("topologySpreadConstraints"):
            spec["topologySpreadConstraints"] = merged_constraints(spec["topologySpreadConstraints"], labels)
        obj["status"] = self.initial_status(obj, view)

    def initial_status(self, obj: JsonObject, view: View) -> JsonObject:
        """Pending, and for a gated pod the condition that says so."""
        status: JsonObject = {"phase": "Pending", "qosClass": qos_class(obj["spec"])}
        if obj["spec"].get("schedulingGates"):
            condition = {
                "type": "PodScheduled",
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": view.now,
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
            status["conditions"] = [condition]
        return status

    def validate_create(self, obj: JsonObject) -> list[FieldError]:
        """The rules that a new pod breaks."""
        errors = list(_spec_errors(obj["spec"]))
        if obj["spec"].get("nodeName") and obj["spec"].get("schedulingGates"):
            detail = "cannot be set until all schedulingGates have been cleared"
            errors.append(fields.forbidden("spec.nodeName", detail))
        return errors

    def prepare_update(self, new: JsonObject, old: JsonObject, view: View) -> None:
        """Defaults fill what a PUT left out, so that leaving out a defaulted field is no change."""
        spec = new.setdefault("spec", {})
        default_pod_spec(spec)
        for name in ("enableServiceLinks", "priority", "preemptionPolicy", "priorityClassName", "nodeName"):
            if spec.get(name) is None and name in old["spec"]:
                spec[name] = old["spec"][name]
        add_default_tolerations(spec)
        if old["spec"].get("nodeName"):
            copy_topology_labels(new["metadata"], view.find(NODE, "", old["spec"]["nodeName"]))

    def validate_update(self, new: JsonObject, old: JsonObject) -> list[FieldError]:
        """The rules that the change breaks: nearly everything in a pod's spec is fixed at creation."""
        return [*_spec_errors(new["spec"]), *_update_errors(new["spec"], old["spec"])]

    def grace_period_s(self, obj: JsonObject, asked_s: int | None) -> int:
        """The pod's own grace unless the request names one; none for pods that run nowhere."""
        spec = obj["spec"]
        if not spec.get("nodeName") or (obj.get("status") or {}).get("phase") in _FINISHED:
            return 0
        grace_s = spec.get("terminationGracePeriodSeconds", 0) if asked_s is None else asked_s
        return 1 if grace_s < 0 else grace_s


def copy_topology_labels(metadata: JsonObject, node: JsonObject | None) -> None:
    """The pod's (or binding's) labels name the node's zone and region; a missing node changes nothing."""
    labels = (node or {}).get("metadata", {}).get("labels") or {}
    copied = {key: labels[key] for key in TOPOLOGY_LABELS if key in labels}
    if copied:
        metadata["labels"] = {**(metadata.get("labels") or {}), **copied}


def set_priority(pod: JsonObject, view: View) -> None:
    """
    spec.priority and spec.preemptionPolicy are those of the pod's class, or 0 without one.

    Raises: StatusError 403 where the class is missing or contradicts what the pod says.
    """
    spec = pod["spec"]
    name, subject = spec.get("priorityClassName") or "", pod["metadata"].get("name", "")
    if not name:
        priority, policy = 0, "PreemptLowerPriority"
    elif name in SYSTEM_PRIORITIES:
        priority, policy = SYSTEM_PRIORITIES[name], "PreemptLowerPriority"
    else:
        found = view.find(PRIORITY_CLASS, "", name)
        if found is None:
            raise forbidden(POD, subject, f"no PriorityClass with name {name} was found")
        priority = found.get("value", 0)
        policy = found.get("preemptionPolicy") or "PreemptLowerPriority"
    stated = spec.get("priority")
    if stated is not None and stated != priority:
        why = (
            f"the integer value of priority ({stated}) must not be provided in pod spec; priority admission "
            f"controller computed {priority} from the given PriorityClass name"
        )
        raise forbidden(POD, subject, why)
    if spec.get("preemptionPolicy") not in (None, policy):
        why = (
            f"the string value of PreemptionPolicy ({spec['preemptionPolicy']}) must not be provided in pod "
            f"spec; priority admission controller computed {policy} from the given PriorityClass name"
        )
        raise forbidden(POD, subject, why)
    spec["priority"], spec["preemptionPolicy"] = priority, policy


def qos_class(spec: JsonObject) -> str:
    """Guaranteed, Burstable or BestEffort. Source: pkg/apis/core/helper/qos/qos.go."""
    containers = [*(spec.get("containers") or []), *(spec.get("initContainers") or [])]
    resources = [one.get("resources") or {} for one in containers]
    if not any(one.get("requests") or one.get("limits") for one in resources):
        return "BestEffort"
    guaranteed = all(
        name in (one.get("limits") or {})
        and parse_quantity(one["limits"][name]) == parse_quantity((one.get("requests") or {}).get(name))
        for one in resources
        for name in ("cpu", "memory")
    )
    return "Guaranteed" if guaranteed else "Burstable"


# -- validation ----------------------------------------------------------------------------------------------


def _spec_errors(spec: JsonObject) -> Iterator[FieldError]:
    if not spec.get("containers"):
        yield fields.required("spec.containers")
    seen: set[str] = set()
    for list_name in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(list_name) or []):
            path = f"spec.{list_name}[{index}]"
            yield from _container_errors(container, path)
            name = container.get("name") or ""
            if name in seen:
                yield fields.duplicate(f"{path}.name", name)
            seen.add(name)
    if spec.get("restartPolicy") not in _RESTART_POLICIES:
        yield fields.not_supported("spec.restartPolicy", spec.get("restartPolicy"), _RESTART_POLICIES)
    yield from validate_labels(spec.get("nodeSelector"), "spec.nodeSelector")
    yield from affinity_errors(spec.get("affinity") or {})
    yield from _gate_errors(spec.get("schedulingGates") or [])
    yield from constraint_errors(spec.get("topologySpreadConstraints") or [])
    if spec.get("nodeName"):
        for fault in fields.subdomain_faults(spec["nodeName"]):
            yield fields.invalid("spec.nodeName", spec["nodeName"], fault)


def _container_errors(container: JsonObject, path: str) -> Iterator[FieldError]:
    name = container.get("name") or ""
    if not name:
        yield fields.required(f"{path}.name")
    else:
        yield from (fields.invalid(f"{path}.name", name, fault) for fault in fields.label_name_faults(name))
    if not container.get("image"):
        yield fields.required(f"{path}.image")
    resources = container.get("resources") or {}
    limits = resources.get("limits") or {}
    for side in ("limits", "requests"):
        for resource, amount in (resources.get(side) or {}).items():
            where = f"{path}.resources.{side}"
            value = parse_quantity(amount)
            if value is not None and value < 0:
                yield fields.invalid(f"{where}[{resource}]", amount, "must be greater than or equal to 0")
            bound = parse_quantity(limits.get(resource)) if side == "requests" else None
            if value is not None and bound is not None and value > bound:
                detail = f"must be less than or equal to {resource} limit of {limits[resource]}"
                yield fields.invalid(where, amount, detail)


def _gate_errors(gates: list[JsonObject]) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, gate in enumerate(gates):
        name = gate.get("name") or ""
        for fault in fields.qualified_name_faults(name):
            yield fields.invalid(f"spec.schedulingGates[{index}]", name, fault)
        if name in seen:
            yield fields.duplicate(f"spec.schedulingGates[{index}]", name)
        seen.add(name)


def _update_errors(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    for list_name in ("containers", "initContainers"):
        if len(new.get(list_name) or []) != len(old.get(list_name) or []):
            yield fields.forbidden(f"spec.{list_name}", "pod updates may not add or remove containers")
            return
    deadline, previous = new.get("activeDeadlineSeconds"), old.get("activeDeadlineSeconds")
    if deadline is not None and previous is not None and deadline > previous:
        detail = "must be less than or equal to previous value"
        yield fields.invalid("spec.activeDeadlineSeconds", deadline, detail)
        return
    if deadline is None and previous is not None:
        detail = "must not update from a positive integer to nil value"
        yield fields.invalid("spec.activeDeadlineSeconds", None, detail)
    yield from _toleration_change_errors(new.get("tolerations") or [], old.get("tolerations") or [])
    yield from _gate_change_errors(new.get("schedulingGates") or [], old.get("schedulingGates") or [])
    munged = _with_updatable_fields_of(old, new)
    if old.get("schedulingGates"):
        yield from _gated_change_errors(munged, old)
        munged = _with_node_choice_of(old, munged)
    if munged != _normal(old):
        detail = f"pod updates may not change fields other than {_UPDATABLE}\n{_diff(old, munged)}"
        yield fields.forbidden("spec", detail)


def _toleration_change_errors(new: list[JsonObject], old: list[JsonObject]) -> Iterator[FieldError]:
    """Tolerations may be added, and the seconds of existing ones changed."""
    kept = [{k: v for k, v in one.items() if k != "tolerationSeconds"} for one in new]
    for one in old:
        if {k: v for k, v in one.items() if k != "tolerationSeconds"} not in kept:
            detail = "existing toleration can not be modified except its tolerationSeconds"
            yield fields.forbidden("spec.tolerations", detail)
            return


def _gate_change_errors(new: list[JsonObject], old: list[JsonObject]) -> Iterator[FieldError]:
    known = {gate.get("name") for gate in old}
    for index, gate in enumerate(new):
        if gate.get("name") not in known:
            detail = f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'"
            yield fields.forbidden(f"spec.schedulingGates[{index}].name", detail)


def _normal(spec: JsonObject) -> JsonObject:
    """A spec without empty fields: absent and empty are the same in Go."""
    return {key: value for key, value in spec.items() if value not in (None, [], {}, "", False)}


def _with_updatable_fields_of(old: JsonObject, new: JsonObject) -> JsonObject:
    """The new spec with every field that an update may change as it was, for comparison with the old one."""
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
    """While a pod is gated its node selector and node affinity may be narrowed."""
    before, after = old.get("nodeSelector") or {}, new.get("nodeSelector") or {}
    if any(after.get(key) != value for key, value in before.items()):
        detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        yield fields.invalid("spec.nodeSelector", after, detail)
    old_terms, new_terms = _node_terms(old), _node_terms(new)
    path = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
    if old_terms and len(old_terms) != len(new_terms):
        detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        yield fields.invalid(path, new_terms, detail)
        return
    for index, (term_before, term_after) in enumerate(zip(old_terms, new_terms, strict=False)):
        if not _only_adds(term_before, term_after):
            detail = "only additions are allowed (no mutations or deletions)"
            yield fields.invalid(f"{path}[{index}]", term_after, detail)


def _node_terms(spec: JsonObject) -> list[JsonObject]:
    node_affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    selector = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms: list[JsonObject] = selector.get("nodeSelectorTerms") or []
    return terms


def _only_adds(before: JsonObject, after: JsonObject) -> bool:
    lists = ("matchExpressions", "matchFields")
    if not any(before.get(name) for name in lists):
        return not any(after.get(name) for name in lists)
    return all(
        (after.get(name) or [])[: len(before.get(name) or [])] == (before.get(name) or []) for name in lists
    )


def _with_node_choice_of(old: JsonObject, new: JsonObject) -> JsonObject:
    """The spec with node selector and node affinity as they were."""
    affinity = {key: value for key, value in (new.get("affinity") or {}).items() if key != "nodeAffinity"}
    if (old.get("affinity") or {}).get("nodeAffinity"):
        affinity["nodeAffinity"] = old["affinity"]["nodeAffinity"]
    return _normal(
        {**new, "nodeSelector": old.get("nodeSelector"), "affinity": affinity or old.get("affinity")}
    )


def _diff(old: JsonObject, new: JsonObject) -> str:
    """What changed, for the person who reads the refusal. Upstream prints Go structures; this prints JSON."""
    before, after = (json.dumps(one, indent=2, sort_keys=True).splitlines() for one in (_normal(old), new))
    return "\n".join(
        line
        for line in difflib.unified_diff(before, after, n=1, lineterm="")
        if line[:3] not in ("---", "+++")
    )
