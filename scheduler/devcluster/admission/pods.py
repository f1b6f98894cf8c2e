"""
Pods: what the server writes at creation, what an update may change, how long a deletion takes.

Source: pkg/registry/core/pod/strategy.go, pkg/apis/core/validation/validation.go (ValidatePodCreate,
ValidatePodUpdate), plugin/pkg/admission/{priority,defaulttolerationseconds,podtopologylabels} (kubernetes 1.36).
"""

from dataclasses import dataclass
from typing import Final

from scheduler.devcluster import fields
from scheduler.devcluster.admission.affinity import merged_affinity, merged_constraints
from scheduler.devcluster.admission.defaults import add_default_tolerations, default_pod_spec
from scheduler.devcluster.admission.pod_validation import spec_errors, update_errors
from scheduler.devcluster.admission.quantities import parse_quantity
from scheduler.devcluster.admission.strategy import Strategy, View
from scheduler.devcluster.fields import FieldError
from scheduler.devcluster.kinds import NODE, POD, PRIORITY_CLASS, JsonObject
from scheduler.devcluster.status import forbidden

#: Labels of a node that a pod on it carries too (PodTopologyLabelsAdmission, on since 1.35).
TOPOLOGY_LABELS: Final = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
#: Classes that exist without an object.
SYSTEM_PRIORITIES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}

_FINISHED: Final = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class PodStrategy(Strategy):
    """How pods differ from data."""

    has_generation: bool = True
    has_status: bool = True
    returns_deleted: bool = True
    status_writes_metadata: bool = True

    def prepare_create(self, obj: JsonObject, view: View) -> None:
        """Defaults, priority, tolerations, merged selectors and the first status are in the pod."""
        admit_pod(obj, view)
        spec = obj["spec"]
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
        errors = list(spec_errors(obj["spec"]))
        if obj["spec"].get("nodeName") and obj["spec"].get("schedulingGates"):
            detail = "cannot be set until all schedulingGates have been cleared"
            errors.append(fields.forbidden("spec.nodeName", detail))
        return errors

    def prepare_update(self, new: JsonObject, old: JsonObject, view: View) -> None:
        """Defaults fill what a PUT left out, so that leaving out a defaulted field is no change."""
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

    def validate_update(self, new: JsonObject, old: JsonObject) -> list[FieldError]:
        """The rules that the change breaks: nearly everything in a pod's spec is fixed at creation."""
        return [*spec_errors(new["spec"]), *update_errors(new["spec"], old["spec"])]

    def validate_status_update(self, new: JsonObject) -> list[FieldError]:
        """A nomination names a node."""
        nominated = (new.get("status") or {}).get("nominatedNodeName") or ""
        faults = fields.subdomain_faults(nominated) if nominated else []
        return [fields.invalid("status.nominatedNodeName", nominated, fault) for fault in faults]

    def grace_period_s(self, obj: JsonObject, asked_s: int | None) -> int:
        """The pod's own grace unless the request names one; none for pods that run nowhere."""
        spec = obj["spec"]
        if not spec.get("nodeName") or (obj.get("status") or {}).get("phase") in _FINISHED:
            return 0
        grace_s = spec.get("terminationGracePeriodSeconds", 0) if asked_s is None else asked_s
        return 1 if grace_s < 0 else grace_s


def admit_pod(pod: JsonObject, view: View) -> None:
    """
    Defaults, and what admission within the server adds, are in the new pod. Twice is the same as once.

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
    counted = [
        amount
        for one in resources
        for side in ("requests", "limits")
        for name, amount in (one.get(side) or {}).items()
        if name in ("cpu", "memory") and parse_quantity(amount)
    ]
    if not counted:
        return "BestEffort"
    guaranteed = all(
        name in (one.get("limits") or {})
        and parse_quantity(one["limits"][name]) == parse_quantity((one.get("requests") or {}).get(name))
        for one in resources
        for name in ("cpu", "memory")
    )
    return "Guaranteed" if guaranteed else "Burstable"
