"""
Pods: what the server writes at creation, what an update may change, how long a deletion takes.

Source: pkg/registry/core/pod/strategy.go, pkg/apis/core/validation/validation.go (ValidatePodCreate,
ValidatePodUpdate), plugin/pkg/admission/{priority,defaulttolerationseconds,podtopologylabels} (kubernetes 1.36).
"""

from collections.abc import Iterator
from typing import Final

from scheduler.engine.syntax import field_errors
from scheduler.engine.syntax.field_errors import FieldError
from scheduler.engine.syntax.names import subdomain_faults
from scheduler.sandbox.devcluster.admission.affinity import merged_affinity, merged_constraints
from scheduler.sandbox.devcluster.admission.checks import well_formed
from scheduler.sandbox.devcluster.admission.defaults import add_default_tolerations, default_pod_spec
from scheduler.sandbox.devcluster.admission.pod_validation import spec_errors, update_errors
from scheduler.sandbox.devcluster.admission.strategy import Strategy, View
from scheduler.sandbox.devcluster.kinds import NODE, POD, PRIORITY_CLASS, JsonObject
from scheduler.sandbox.devcluster.status import forbidden

#: Node labels that are copied to its pods (PodTopologyLabelsAdmission, on since 1.35).
TOPOLOGY_LABELS: Final = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
#: Priority classes that exist without an object.
SYSTEM_PRIORITIES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}

_FINISHED: Final = ("Succeeded", "Failed")


def _prepare_create(pod: JsonObject, view: View) -> None:
    admit_pod(pod, view)
    spec, labels = pod["spec"], pod["metadata"].get("labels") or {}
    if spec.get("affinity"):
        spec["affinity"] = merged_affinity(spec["affinity"], labels)
    if spec.get("topologySpreadConstraints"):
        spec["topologySpreadConstraints"] = merged_constraints(spec["topologySpreadConstraints"], labels)
    pod["status"] = {"phase": "Pending"}
    if spec.get("schedulingGates"):
        pod["status"]["conditions"] = [_gated(view.now)]


def _gated(now: str) -> JsonObject:
    return {
        "type": "PodScheduled",
        "status": "False",
        "lastProbeTime": None,
        "lastTransitionTime": now,
        "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates",
    }


def _prepare_update(new: JsonObject, old: JsonObject, view: View) -> None:
    """Fill in the defaults that a PUT left out: leaving out a defaulted field changes nothing."""
    for condition in (new.get("status") or {}).get("conditions") or []:
        condition.setdefault("lastProbeTime", None)
        condition.setdefault("lastTransitionTime", None)
    spec = new.setdefault("spec", {})
    default_pod_spec(spec)
    for name in ("enableServiceLinks", "priority", "preemptionPolicy", "priorityClassName", "nodeName"):
        if spec.get(name) is None and name in old["spec"]:
            spec[name] = old["spec"][name]
    add_default_tolerations(spec)
    if old["spec"].get("nodeName"):
        copy_topology_labels(new["metadata"], view.find(NODE, "", old["spec"]["nodeName"]))


def _errors(pod: JsonObject) -> Iterator[FieldError]:
    yield from spec_errors(pod["spec"])


def _create_errors(pod: JsonObject) -> Iterator[FieldError]:
    if pod["spec"].get("nodeName") and pod["spec"].get("schedulingGates"):
        detail = "cannot be set until all schedulingGates have been cleared"
        yield field_errors.forbidden("spec.nodeName", detail)


def _update_errors(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    yield from update_errors(new["spec"], old["spec"])


def _status_errors(pod: JsonObject, _: JsonObject) -> Iterator[FieldError]:
    if node := (pod.get("status") or {}).get("nominatedNodeName"):
        yield from well_formed(node, "status.nominatedNodeName", subdomain_faults)


def _grace_period_s(pod: JsonObject, asked_s: int | None) -> int:
    """Return the grace period of the request, or the pod's own; 0 for a pod without a node."""
    spec = pod["spec"]
    if not spec.get("nodeName") or (pod.get("status") or {}).get("phase") in _FINISHED:
        return 0
    grace_s = spec.get("terminationGracePeriodSeconds", 0) if asked_s is None else asked_s
    return 1 if grace_s < 0 else grace_s


def admit_pod(pod: JsonObject, view: View) -> None:
    """
    Write defaults, and what the server's own admission adds, into a new pod. Idempotent.

    Raises: StatusError 403.
    """
    spec = pod.setdefault("spec", {})
    default_pod_spec(spec)
    spec.setdefault("enableServiceLinks", True)
    set_priority(pod, view)
    add_default_tolerations(spec)
    if spec.get("nodeName"):
        copy_topology_labels(pod["metadata"], view.find(NODE, "", spec["nodeName"]))


def copy_topology_labels(metadata: JsonObject, node: JsonObject | None) -> None:
    """Copy the zone and region of a node into the labels of a pod or a binding; without a node change nothing."""
    labels = (node or {}).get("metadata", {}).get("labels") or {}
    copied = {key: labels[key] for key in TOPOLOGY_LABELS if key in labels}
    if copied:
        metadata["labels"] = {**(metadata.get("labels") or {}), **copied}


def set_priority(pod: JsonObject, view: View) -> None:
    """
    Set spec.priority and spec.preemptionPolicy to those of the pod's class, or to 0 without one.

    Raises: StatusError 403 if the class is missing or contradicts the pod.
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


PODS: Final = Strategy(
    has_generation=True,
    has_status=True,
    returns_deleted=True,
    status_writes_metadata=True,
    prepare_create=_prepare_create,
    prepare_update=_prepare_update,
    validate=_errors,
    validate_create=_create_errors,
    validate_update=_update_errors,
    validate_status=_status_errors,
    grace_period_s=_grace_period_s,
)
