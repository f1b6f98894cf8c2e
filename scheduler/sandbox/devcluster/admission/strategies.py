"""
The strategy of each kind. A kind that is not listed here is plain data.

Source: the strategies under pkg/registry, and pkg/apis/*/validation (kubernetes 1.36).
"""

import base64
from collections.abc import Iterator, Mapping
from typing import Final

from scheduler.engine.syntax import field_errors
from scheduler.engine.syntax.affinity_rules import selector_errors
from scheduler.engine.syntax.field_errors import FieldError
from scheduler.engine.syntax.names import dns_label_faults, label_key_faults, label_value_faults
from scheduler.sandbox.devcluster.admission import defaults
from scheduler.sandbox.devcluster.admission.checks import one_of, unchanged, well_formed
from scheduler.sandbox.devcluster.admission.definitions import CUSTOM, CUSTOM_WITH_STATUS, DEFINITIONS
from scheduler.sandbox.devcluster.admission.device_kinds import (
    DEVICE_CLASSES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from scheduler.sandbox.devcluster.admission.event_rules import EVENTS, EVENTS_V1
from scheduler.sandbox.devcluster.admission.jobs import CRON_JOBS, JOBS
from scheduler.sandbox.devcluster.admission.pods import PODS
from scheduler.sandbox.devcluster.admission.role_rules import ROLE_BINDINGS, ROLES
from scheduler.sandbox.devcluster.admission.storage_kinds import (
    CSI_DRIVERS,
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
    STORAGE_CLASSES,
    VOLUME_ATTACHMENTS,
)
from scheduler.sandbox.devcluster.admission.strategy import Strategy, View
from scheduler.sandbox.devcluster.admission.volumes import CLAIMS, VOLUMES
from scheduler.sandbox.devcluster.admission.webhook_rules import WEBHOOKS
from scheduler.sandbox.devcluster.admission.workloads import (
    DAEMON_SETS,
    DEPLOYMENTS,
    REPLICA_SETS,
    STATEFUL_SETS,
)
from scheduler.sandbox.devcluster.kinds import JsonObject, Kind

_NAME_LABEL: Final = "kubernetes.io/metadata.name"
_TAINT_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_MAX_USER_PRIORITY: Final = 1_000_000_000


# -- namespaces and nodes ------------------------------------------------------------------------------------


def _label_with_name(namespace: JsonObject) -> None:
    metadata = namespace["metadata"]
    if name := metadata.get("name"):
        metadata["labels"] = {**(metadata.get("labels") or {}), _NAME_LABEL: name}


def _prepare_namespace(namespace: JsonObject, view: View) -> None:
    del view
    namespace.setdefault("spec", {})["finalizers"] = ["kubernetes"]


def _keep_finalizers(new: JsonObject, old: JsonObject, view: View) -> None:
    """Keep spec.finalizers, which the end of the namespace alone empties."""
    del view
    new["spec"] = {**(new.get("spec") or {}), "finalizers": (old.get("spec") or {}).get("finalizers")}


def _prepare_node(node: JsonObject, view: View) -> None:
    """Keep the status that a node is created with; allocatable defaults to capacity."""
    del view
    node.setdefault("spec", {})
    status = node.setdefault("status", {})
    if status.get("capacity") and not status.get("allocatable"):
        status["allocatable"] = dict(status["capacity"])


def _taint_errors(node: JsonObject) -> Iterator[FieldError]:
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate((node.get("spec") or {}).get("taints") or []):
        path = f"metadata.taints[{index}]"
        key, value, effect = (taint.get(name) or "" for name in ("key", "value", "effect"))
        yield from well_formed(key, f"{path}.key", label_key_faults)
        yield from well_formed(value, f"{path}.value", label_value_faults)
        yield from one_of(effect, f"{path}.effect", _TAINT_EFFECTS)
        if (key, effect) in seen:
            taint_text = {"Key": key, "Value": value, "Effect": effect, "TimeAdded": taint.get("timeAdded")}
            detail = "taints must be unique by key and effect pair"
            yield field_errors.duplicate(path, taint_text, detail)
        seen.add((key, effect))


# -- services, secrets and policies --------------------------------------------------------------------------


def _prepare_service(service: JsonObject, view: View) -> None:
    """Give the service a cluster IP, on which nothing listens."""
    del view
    spec = service["spec"]
    if spec["type"] != "ExternalName" and not spec.get("clusterIP"):
        number = int(service["metadata"]["uid"][:4], 16)
        spec["clusterIP"] = f"10.96.{number >> 8}.{number & 255}"
        spec["clusterIPs"] = [spec["clusterIP"]]
        spec["ipFamilies"] = ["IPv4"]
        spec["ipFamilyPolicy"] = "SingleStack"


def _keep_cluster_ip(new: JsonObject, old: JsonObject, view: View) -> None:
    del view
    for name in ("clusterIP", "clusterIPs"):
        if name in (old.get("spec") or {}) and not new["spec"].get(name):
            new["spec"][name] = old["spec"][name]


def _default_secret(secret: JsonObject) -> None:
    secret.setdefault("type", "Opaque")
    if texts := secret.pop("stringData", None):
        encoded = {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}
        secret["data"] = {**(secret.get("data") or {}), **encoded}


def _default_priority_class(priority_class: JsonObject) -> None:
    priority_class.setdefault("preemptionPolicy", "PreemptLowerPriority")
    priority_class.setdefault("value", 0)


def _priority_class_errors(priority_class: JsonObject) -> Iterator[FieldError]:
    name = priority_class["metadata"].get("name", "")
    if name.startswith("system-"):
        detail = (
            "priority class names with 'system-' prefix are reserved for system use only. error: "
            f"{name} is not a known system priority class"
        )
        yield field_errors.forbidden("metadata.name", detail)
    elif priority_class["value"] > _MAX_USER_PRIORITY:
        detail = f"maximum allowed value of a user defined priority is {_MAX_USER_PRIORITY}"
        yield field_errors.forbidden("value", detail)


def _priority_class_update_errors(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    if new["value"] != old["value"]:
        yield field_errors.forbidden("value", "may not be changed in an update.")
    yield from unchanged(new, old, "", "preemptionPolicy")


def _budget_errors(budget: JsonObject) -> Iterator[FieldError]:
    spec = budget.get("spec") or {}
    yield from selector_errors(spec.get("selector"), "spec.selector")
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        yield field_errors.invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set")


# -- the table -----------------------------------------------------------------------------------------------

_PLAIN: Final = Strategy()
_BALANCER: Final[JsonObject] = {"loadBalancer": {}}
#: No disruption is allowed before the controller has counted.
_NO_DISRUPTION: Final[JsonObject] = dict.fromkeys(
    ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"), 0
)
_BY_STORAGE: Final[Mapping[str, Strategy]] = {
    "pods": PODS,
    "nodes": Strategy(
        has_status=True, status_writes_metadata=True, prepare_create=_prepare_node, validate=_taint_errors
    ),
    "namespaces": Strategy(
        has_status=True,
        returns_deleted=True,
        name_faults=dns_label_faults,
        set_defaults=_label_with_name,
        initial_status={"phase": "Active"},
        prepare_create=_prepare_namespace,
        prepare_update=_keep_finalizers,
    ),
    "services": Strategy(
        has_status=True,
        returns_deleted=True,
        name_faults=dns_label_faults,
        set_defaults=defaults.default_service,
        initial_status=_BALANCER,
        prepare_create=_prepare_service,
        prepare_update=_keep_cluster_ip,
    ),
    "serviceaccounts": Strategy(returns_deleted=True),
    "replicationcontrollers": Strategy(
        has_generation=True,
        has_status=True,
        set_defaults=defaults.default_replication_controller,
        initial_status={"replicas": 0},
    ),
    "deployments.apps": DEPLOYMENTS,
    "replicasets.apps": REPLICA_SETS,
    "statefulsets.apps": STATEFUL_SETS,
    "daemonsets.apps": DAEMON_SETS,
    "jobs.batch": JOBS,
    "cronjobs.batch": CRON_JOBS,
    "persistentvolumes": VOLUMES,
    "persistentvolumeclaims": CLAIMS,
    "storageclasses.storage.k8s.io": STORAGE_CLASSES,
    "csidrivers.storage.k8s.io": CSI_DRIVERS,
    "csinodes.storage.k8s.io": CSI_NODES,
    "csistoragecapacities.storage.k8s.io": CSI_STORAGE_CAPACITIES,
    "volumeattachments.storage.k8s.io": VOLUME_ATTACHMENTS,
    "resourceclaims.resource.k8s.io": RESOURCE_CLAIMS,
    "resourceclaimtemplates.resource.k8s.io": RESOURCE_CLAIM_TEMPLATES,
    "resourceslices.resource.k8s.io": RESOURCE_SLICES,
    "deviceclasses.resource.k8s.io": DEVICE_CLASSES,
    "events": EVENTS,
    "secrets": Strategy(set_defaults=_default_secret),
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": WEBHOOKS,
    "validatingwebhookconfigurations.admissionregistration.k8s.io": WEBHOOKS,
    "clusterroles.rbac.authorization.k8s.io": ROLES,
    "roles.rbac.authorization.k8s.io": ROLES,
    "clusterrolebindings.rbac.authorization.k8s.io": ROLE_BINDINGS,
    "rolebindings.rbac.authorization.k8s.io": ROLE_BINDINGS,
    "leases.coordination.k8s.io": Strategy(unconditional_update=False),
    "priorityclasses.scheduling.k8s.io": Strategy(
        has_generation=True,
        set_defaults=_default_priority_class,
        validate=_priority_class_errors,
        validate_update=_priority_class_update_errors,
    ),
    "poddisruptionbudgets.policy": Strategy(
        has_generation=True,
        has_status=True,
        unconditional_update=False,
        initial_status=_NO_DISRUPTION,
        validate=_budget_errors,
    ),
    "customresourcedefinitions.apiextensions.k8s.io": DEFINITIONS,
    "networkpolicies.networking.k8s.io": Strategy(
        has_generation=True, set_defaults=defaults.default_network_policy
    ),
    "ingresses.networking.k8s.io": Strategy(has_generation=True, has_status=True, initial_status=_BALANCER),
    "ingressclasses.networking.k8s.io": Strategy(has_generation=True),
    "endpointslices.discovery.k8s.io": Strategy(has_generation=True),
    "horizontalpodautoscalers.autoscaling": Strategy(
        has_status=True, set_defaults=defaults.default_autoscaler, initial_status={"desiredReplicas": 0}
    ),
    "flowschemas.flowcontrol.apiserver.k8s.io": Strategy(has_generation=True, has_status=True),
    "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io": Strategy(
        has_generation=True, has_status=True
    ),
    "apiservices.apiregistration.k8s.io": Strategy(has_status=True),
    "validatingadmissionpolicies.admissionregistration.k8s.io": Strategy(
        has_generation=True, has_status=True
    ),
    "validatingadmissionpolicybindings.admissionregistration.k8s.io": Strategy(has_generation=True),
}


def strategy_of(kind: Kind) -> Strategy:
    """Return the strategy of a kind."""
    if kind.is_custom:
        return CUSTOM_WITH_STATUS if "status" in kind.subresources else CUSTOM
    return EVENTS_V1 if kind.group == "events.k8s.io" else _BY_STORAGE.get(kind.storage, _PLAIN)
