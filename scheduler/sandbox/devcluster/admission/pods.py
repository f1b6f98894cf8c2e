"""
Pods: their rules, what the server writes at creation, what an update may change, how long a deletion takes.

Source: pkg/registry/core/pod/strategy.go, pkg/apis/core/v1/defaults.go, pkg/apis/core/validation/validation.go
(ValidatePodCreate, ValidatePodSpec, ValidatePodUpdate), plugin/pkg/admission/{priority,defaulttolerationseconds,
podtopologylabels} (kubernetes 1.36), as far as schedulers and their tests meet them. Differences: the ranges of ports,
the values of Exists, Gt and Lt, and the fields that a node is selected by, are not checked; the node affinity of a
gated pod is as fixed as that of any other; tolerations may go, and deadlines may grow.
"""

from collections.abc import Iterator
from typing import Final

from scheduler.engine.syntax import affinity_rules, field_errors
from scheduler.engine.syntax.field_errors import FieldError
from scheduler.engine.syntax.match_label_keys import merged_affinity, merged_spread
from scheduler.engine.syntax.names import dns_label_faults, label_key_faults, subdomain_faults
from scheduler.sandbox.devcluster.admission.metadata import label_errors, well_formed
from scheduler.sandbox.devcluster.admission.shapes import quantity
from scheduler.sandbox.devcluster.admission.strategy import Strategy, View
from scheduler.sandbox.devcluster.kinds import NODE, POD, PRIORITY_CLASS, JsonObject
from scheduler.sandbox.devcluster.status import forbidden

#: Node labels that are copied to its pods (PodTopologyLabelsAdmission, on since 1.35).
TOPOLOGY_LABELS: Final = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
#: Priority classes that exist without an object.
SYSTEM_PRIORITIES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}

_NOT_READY: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_EVICTION_AFTER_S: Final = 300
_DEFAULTS: Final = {
    "restartPolicy": "Always",
    "schedulerName": "default-scheduler",
    "terminationGracePeriodSeconds": 30,
}
_FINISHED: Final = ("Succeeded", "Failed")
_STANDARD_RESOURCES: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
_MAX_WEIGHT: Final = 100
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_NODE_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_CHANGING: Final = ("schedulingGates", "tolerations", "activeDeadlineSeconds")
_UPDATABLE: Final = ",".join((
    "`spec.containers[*].image`",
    "`spec.initContainers[*].image`",
    "`spec.activeDeadlineSeconds`",
    "`spec.tolerations` (only additions to existing tolerations)",
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
))  # fmt: skip


# -- what the server writes ----------------------------------------------------------------------------------


def _prepare_create(pod: JsonObject, view: View) -> None:
    admit_pod(pod, view)
    spec, labels = pod["spec"], pod["metadata"].get("labels") or {}
    if spec.get("affinity"):
        spec["affinity"] = merged_affinity(spec["affinity"], labels)
    if spec.get("topologySpreadConstraints"):
        constraints = spec["topologySpreadConstraints"]
        spec["topologySpreadConstraints"] = [merged_spread(each, labels) for each in constraints]
    pod["status"] = {"phase": "Pending"}
    if spec.get("schedulingGates"):
        gated = {
            "type": "PodScheduled",
            "status": "False",
            "lastProbeTime": None,
            "lastTransitionTime": view.now,
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }
        pod["status"]["conditions"] = [gated]


def _prepare_update(new: JsonObject, old: JsonObject, view: View) -> None:
    """Fill in the defaults that a PUT left out: leaving out a defaulted field changes nothing."""
    for condition in (new.get("status") or {}).get("conditions") or []:
        condition.setdefault("lastProbeTime", None)
        condition.setdefault("lastTransitionTime", None)
    spec = new.setdefault("spec", {})
    default_pod_spec(spec)
    for name in ("priority", "preemptionPolicy", "priorityClassName", "nodeName"):
        if spec.get(name) is None and name in old["spec"]:
            spec[name] = old["spec"][name]
    _add_default_tolerations(spec)
    if old["spec"].get("nodeName"):
        copy_topology_labels(new["metadata"], view.find(NODE, "", old["spec"]["nodeName"]))


def admit_pod(pod: JsonObject, view: View) -> None:
    """
    Write defaults, and what the server's own admission adds, into a new pod. Idempotent.

    Raises: StatusError 403.
    """
    spec = pod.setdefault("spec", {})
    default_pod_spec(spec)
    _set_priority(pod, view)
    _add_default_tolerations(spec)
    if spec.get("nodeName"):
        copy_topology_labels(pod["metadata"], view.find(NODE, "", spec["nodeName"]))


def copy_topology_labels(metadata: JsonObject, node: JsonObject | None) -> None:
    """Copy the zone and region of a node into the labels of a pod or a binding; without a node change nothing."""
    labels = (node or {}).get("metadata", {}).get("labels") or {}
    copied = {key: labels[key] for key in TOPOLOGY_LABELS if key in labels}
    if copied:
        metadata["labels"] = {**(metadata.get("labels") or {}), **copied}


def _set_priority(pod: JsonObject, view: View) -> None:
    """
    Set spec.priority and spec.preemptionPolicy to those of the pod's class, or to 0 without one.

    Raises: StatusError 403 if the class is missing or contradicts the pod.
    """
    spec = pod["spec"]
    name, subject = spec.get("priorityClassName") or "", pod["metadata"].get("name", "")
    found: JsonObject | None = {"value": SYSTEM_PRIORITIES.get(name, 0)}
    if name and name not in SYSTEM_PRIORITIES:
        found = view.find(PRIORITY_CLASS, "", name)
    if found is None:
        raise forbidden(POD, subject, f"no PriorityClass with name {name} was found")
    computed = {
        "priority": ("the integer value of priority", found.get("value", 0)),
        "preemptionPolicy": (
            "the string value of PreemptionPolicy",
            found.get("preemptionPolicy") or "PreemptLowerPriority",
        ),
    }
    for field, (what, value) in computed.items():
        if spec.get(field) not in (None, value):
            why = (
                f"{what} ({spec[field]}) must not be provided in pod spec; priority admission controller computed "
                f"{value} from the given PriorityClass name"
            )
            raise forbidden(POD, subject, why)
        spec[field] = value


def grace_period_s(pod: JsonObject, asked_s: int | None) -> int:
    """Return the seconds from the deletion to the end of a pod: those asked for, or its own; 0 without a node."""
    spec = pod["spec"]
    if not spec.get("nodeName") or (pod.get("status") or {}).get("phase") in _FINISHED:
        return 0
    grace_s = spec.get("terminationGracePeriodSeconds", 0) if asked_s is None else asked_s
    return 1 if grace_s < 0 else grace_s


# -- defaults, for the fields that something here or in a scheduler reads -------------------------------------


def default_pod_spec(spec: JsonObject) -> None:
    """Fill in the spec of a pod or of a pod template."""
    for name, value in _DEFAULTS.items():
        # In Go empty text equals an absent field.
        if spec.get(name) in (None, ""):
            spec[name] = value
    requested: set[str] = set()
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        for port in container.get("ports") or []:
            port["protocol"] = port.get("protocol") or "TCP"
            if spec.get("hostNetwork") and port.get("containerPort"):
                port["hostPort"] = port.get("hostPort") or port["containerPort"]
        resources = container.get("resources") or {}
        if limits := resources.get("limits"):
            # A limit is the default of its request.
            resources["requests"] = {**limits, **(resources.get("requests") or {})}
        requested |= (resources.get("requests") or {}).keys()
    resources = spec.get("resources") or {}
    if limits := resources.get("limits"):
        # So is that of the pod as a whole, but for what its containers request.
        own = {
            name: limits[name] for name in limits if name.startswith("hugepages-") or name not in requested
        }
        resources["requests"] = {**own, **(resources.get("requests") or {})}


def _add_default_tolerations(spec: JsonObject) -> None:
    """Add tolerations of five minutes for nodes that are not ready or unreachable, unless the pod has its own."""
    tolerations = list(spec.get("tolerations") or [])
    for key in _NOT_READY:
        said = any(
            one.get("key") in (key, None, "") and one.get("effect") in ("NoExecute", None, "")
            for one in tolerations
        )
        if not said:
            added = {"key": key, "operator": "Exists", "effect": "NoExecute"}
            tolerations.append({**added, "tolerationSeconds": _EVICTION_AFTER_S})
    spec["tolerations"] = tolerations


# -- rules ---------------------------------------------------------------------------------------------------


def _errors(pod: JsonObject) -> Iterator[FieldError]:
    """Yield the rules that a pod's spec breaks, after defaulting and merging, beside those of the table."""
    spec = pod["spec"]
    for list_name in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(list_name) or []):
            yield from _resource_errors(
                container.get("resources") or {}, f"spec.{list_name}[{index}].resources"
            )
    yield from label_errors(spec.get("nodeSelector") or {}, "spec.nodeSelector")
    affinity = spec.get("affinity") or {}
    yield from _node_affinity_errors(affinity.get("nodeAffinity") or {}, "spec.affinity.nodeAffinity")
    yield from affinity_errors(affinity)
    for index, gate in enumerate(spec.get("schedulingGates") or []):
        yield from well_formed(gate.get("name") or "", f"spec.schedulingGates[{index}]", label_key_faults)
    constraints = spec.get("topologySpreadConstraints") or []
    every = range(len(constraints))
    yield from affinity_rules.constraint_errors(constraints, "spec.topologySpreadConstraints", every)
    yield from _toleration_errors(spec.get("tolerations") or [])
    for index, claim in enumerate(spec.get("resourceClaims") or []):
        path = f"spec.resourceClaims[{index}]"
        n_sources = sum(bool(claim.get(f"resourceClaim{kind}Name")) for kind in ("", "Template"))
        if n_sources == 0:
            detail = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            yield field_errors.invalid(path, claim, detail)
        elif n_sources > 1:
            detail = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            yield field_errors.invalid(path, claim, detail)


def _resource_errors(resources: JsonObject, path: str) -> Iterator[FieldError]:
    limits = resources.get("limits") or {}
    for side in ("limits", "requests"):
        for name, amount in (resources.get(side) or {}).items():
            where = f"{path}.{side}[{name}]"
            yield from well_formed(name, where, label_key_faults)
            if "/" not in name and name not in _STANDARD_RESOURCES and not name.startswith("hugepages-"):
                yield field_errors.invalid(where, name, "must be a standard resource type or fully qualified")
                yield field_errors.invalid(where, name, "must be a standard resource for containers")
            if (parsed := quantity(amount)) is not None and parsed.nano < 0:
                yield field_errors.invalid(where, amount, "must be greater than or equal to 0")
            if side == "requests":
                yield from _request_errors(name, amount, limits, path)


def _request_errors(name: str, amount: object, limits: JsonObject, path: str) -> Iterator[FieldError]:
    """Yield an error for a request above its limit; a resource that cannot be overcommitted must equal its limit."""
    is_exact = "/" in name or name.startswith("hugepages-")
    if name not in limits:
        if is_exact:
            detail = "Limit must be set for non overcommitable resources"
            yield field_errors.required(f"{path}.limits", detail)
        return
    requested, limit = quantity(amount), quantity(limits[name])
    if requested is None or limit is None:
        return
    if requested > limit or (is_exact and requested != limit):
        how = "equal to" if is_exact else "less than or equal to"
        detail = f"must be {how} {name} limit of {limits[name]}"
        yield field_errors.invalid(f"{path}.requests", amount, detail)


def _toleration_errors(tolerations: list[JsonObject]) -> Iterator[FieldError]:
    for index, toleration in enumerate(tolerations):
        path, operator = f"spec.tolerations[{index}]", toleration.get("operator") or ""
        if not toleration.get("key") and operator != "Exists":
            detail = (
                'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            )
            yield field_errors.invalid(f"{path}.operator", operator, detail)
        effect = toleration.get("effect") or ""
        if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
            detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            yield field_errors.invalid(f"{path}.effect", effect, detail)
        if operator == "Exists" and (value := toleration.get("value")):
            detail = "value must be empty when `operator` is 'Exists'"
            yield field_errors.invalid(f"{path}.operator", value, detail)


def affinity_errors(affinity: JsonObject) -> Iterator[FieldError]:
    """Yield the rules that merged pod affinity and anti-affinity break, in upstream's order."""
    for side in ("podAffinity", "podAntiAffinity"):
        terms_by_list = affinity.get(side) or {}
        for index, term in enumerate(terms_by_list.get(_REQUIRED) or []):
            yield from affinity_rules.term_errors(term, f"spec.affinity.{side}.{_REQUIRED}[{index}]")
        for index, weighted in enumerate(terms_by_list.get(_PREFERRED) or []):
            path = f"spec.affinity.{side}.{_PREFERRED}[{index}]"
            yield from affinity_rules.weighted_term_errors(weighted, path)


def _node_affinity_errors(affinity: JsonObject, path: str) -> Iterator[FieldError]:
    if (required := affinity.get(_REQUIRED)) is not None:
        yield from node_selector_errors(required, f"{path}.{_REQUIRED}")
    for index, weighted in enumerate(affinity.get(_PREFERRED) or []):
        where, weight = f"{path}.{_PREFERRED}[{index}]", weighted.get("weight") or 0
        if not 0 < weight <= _MAX_WEIGHT:
            yield field_errors.invalid(f"{where}.weight", weight, "must be in the range 1-100")
        yield from _node_term_errors(weighted.get("preference") or {}, f"{where}.preference")


def node_selector_errors(selector: JsonObject, path: str) -> Iterator[FieldError]:
    """Yield the rules that a NodeSelector breaks: of a pod, or of a volume."""
    terms, where = selector.get("nodeSelectorTerms") or [], f"{path}.nodeSelectorTerms"
    if not terms:
        yield field_errors.required(where, "must have at least one node selector term")
    for index, term in enumerate(terms):
        yield from _node_term_errors(term, f"{where}[{index}]")


def _node_term_errors(term: JsonObject, path: str) -> Iterator[FieldError]:
    for index, one in enumerate(term.get("matchExpressions") or []):
        where, operator = f"{path}.matchExpressions[{index}]", one.get("operator") or ""
        if operator in ("In", "NotIn") and not one.get("values"):
            detail = "must be specified when `operator` is 'In' or 'NotIn'"
            yield field_errors.required(f"{where}.values", detail)
        if operator not in _NODE_OPERATORS:
            yield field_errors.invalid(f"{where}.operator", operator, "not a valid selector operator")
        yield from well_formed(one.get("key") or "", f"{where}.key", label_key_faults)


def _create_errors(pod: JsonObject) -> Iterator[FieldError]:
    if pod["spec"].get("nodeName") and pod["spec"].get("schedulingGates"):
        detail = "cannot be set until all schedulingGates have been cleared"
        yield field_errors.forbidden("spec.nodeName", detail)


def _update_errors(pod: JsonObject, stored: JsonObject) -> Iterator[FieldError]:
    """
    Yield an error if a change of a pod's spec is none of the few that are allowed.

    Images, tolerations and a deadline may change, gates may go, and a gated pod's node selector may get narrower.
    """
    new, old = pod["spec"], stored["spec"]
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


def _status_errors(pod: JsonObject, _: JsonObject) -> Iterator[FieldError]:
    if node := (pod.get("status") or {}).get("nominatedNodeName"):
        yield from well_formed(node, "status.nominatedNodeName", subdomain_faults)


def _of_containers(*fields: str) -> str:
    """Return the paths of fields of every container."""
    return " ".join(f"spec.{of}[].{field}" for of in ("containers", "initContainers") for field in fields)


PODS: Final = Strategy(
    required=f"spec.containers spec.resourceClaims[].name {_of_containers('name', 'image', 'ports[].containerPort')}",
    names={
        **dict.fromkeys(_of_containers("name").split(), dns_label_faults),
        "spec.nodeName": subdomain_faults,
        "spec.resourceClaims[].name": dns_label_faults,
        "spec.tolerations[].key": label_key_faults,
    },
    unique=(_of_containers("name"), "spec.resourceClaims[].name"),
    choices={
        **dict.fromkeys(_of_containers("ports[].protocol").split(), ("SCTP", "TCP", "UDP")),
        "spec.restartPolicy": ("Always", "OnFailure", "Never"),
        "spec.tolerations[].effect": ("NoSchedule", "PreferNoSchedule", "NoExecute"),
        # Lt and Gt need the gate TaintTolerationComparisonOperators, which is off.
        "spec.tolerations[].operator": ("Equal", "Exists"),
    },
    has_generation=True,
    prepare_create=_prepare_create,
    prepare_update=_prepare_update,
    validate=_errors,
    validate_create=_create_errors,
    validate_update=_update_errors,
    validate_status=_status_errors,
)
