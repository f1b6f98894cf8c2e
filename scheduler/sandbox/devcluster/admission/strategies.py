"""
The strategy of each kind. A kind that is not listed here is plain data.

Source: the strategies under pkg/registry, and pkg/apis/*/validation (kubernetes 1.36). Difference: kinds that the
scheduler neither writes nor has users write for it have the rules that their row names, and no more.
"""

import base64
from collections.abc import Iterator, Mapping
from typing import Final

from scheduler.engine.syntax.affinity_rules import selector_errors
from scheduler.engine.syntax.field_errors import FieldError
from scheduler.engine.syntax.names import dns_label_faults
from scheduler.sandbox.devcluster.admission.definitions import CUSTOM, CUSTOM_WITH_STATUS, DEFINITIONS
from scheduler.sandbox.devcluster.admission.device_claims import RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from scheduler.sandbox.devcluster.admission.events import EVENTS, EVENTS_V1
from scheduler.sandbox.devcluster.admission.pods import PODS
from scheduler.sandbox.devcluster.admission.strategy import Strategy, View
from scheduler.sandbox.devcluster.admission.volumes import CLAIMS, VOLUMES
from scheduler.sandbox.devcluster.admission.workloads import (
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    REPLICA_SETS,
    STATEFUL_SETS,
)
from scheduler.sandbox.devcluster.kinds import JsonObject, Kind

_NAME_LABEL: Final = "kubernetes.io/metadata.name"
_TAINT_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")


# -- namespaces and nodes ------------------------------------------------------------------------------------


def _label_with_name(namespace: JsonObject) -> None:
    metadata = namespace["metadata"]
    if name := metadata.get("name"):
        metadata["labels"] = {**(metadata.get("labels") or {}), _NAME_LABEL: name}


def _prepare_namespace(namespace: JsonObject, _: View) -> None:
    namespace.setdefault("spec", {})["finalizers"] = ["kubernetes"]


def _keep_finalizers(new: JsonObject, old: JsonObject, _: View) -> None:
    """Keep spec.finalizers, which the end of the namespace alone empties."""
    new["spec"] = {**(new.get("spec") or {}), "finalizers": (old.get("spec") or {}).get("finalizers")}


def _prepare_node(node: JsonObject, _: View) -> None:
    """Keep the status that a node is created with; allocatable defaults to capacity."""
    node.setdefault("spec", {})
    status = node.setdefault("status", {})
    if status.get("capacity") and not status.get("allocatable"):
        status["allocatable"] = dict(status["capacity"])


# -- secrets and roles ---------------------------------------------------------------------------------------


def _default_secret(secret: JsonObject) -> None:
    if texts := secret.pop("stringData", None):
        encoded = {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}
        secret["data"] = {**(secret.get("data") or {}), **encoded}


def _path_segment_faults(name: str) -> list[str]:
    if name in (".", ".."):
        return [f"may not be '{name}'"]
    return [f"may not contain '{sign}'" for sign in ("/", "%") if sign in name]


def _budget_errors(budget: JsonObject) -> Iterator[FieldError]:
    yield from selector_errors((budget.get("spec") or {}).get("selector"), "spec.selector")


# -- the table -----------------------------------------------------------------------------------------------

_PLAIN: Final = Strategy()
#: No disruption is allowed before the controller has counted.
_NO_DISRUPTION: Final = dict.fromkeys(
    ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"), 0
)
_ROLES: Final = Strategy(required="rules[].verbs", name_faults=_path_segment_faults)
_ROLE_BINDINGS: Final = Strategy(
    required="roleRef.kind roleRef.name subjects[].kind subjects[].name",
    choices={
        "roleRef.kind": ("ClusterRole", "Role"),
        "subjects[].kind": ("ServiceAccount", "User", "Group"),
    },
    defaults={"roleRef.apiGroup": "rbac.authorization.k8s.io"},
    fixed="roleRef",
    name_faults=_path_segment_faults,
)
_WEBHOOKS: Final = Strategy(
    required="webhooks[].name webhooks[].clientConfig webhooks[].sideEffects webhooks[].admissionReviewVersions "
    + " ".join(f"webhooks[].rules[].{n}" for n in ("operations", "apiGroups", "apiVersions", "resources")),
    choices={
        "webhooks[].failurePolicy": ("Fail", "Ignore"),
        "webhooks[].sideEffects": ("None", "NoneOnDryRun"),
    },
    defaults={
        "webhooks[].failurePolicy": "Fail",
        "webhooks[].matchPolicy": "Equivalent",
        "webhooks[].namespaceSelector": {},
        "webhooks[].objectSelector": {},
        "webhooks[].timeoutSeconds": 10,
        "webhooks[].rules[].scope": "*",
    },
    # A webhook without its conditions is another one.
    refused={"webhooks[].matchConditions": "the embedded cluster evaluates no CEL"},
    has_generation=True,
    unconditional_update=False,
)
_BY_STORAGE: Final[Mapping[str, Strategy]] = {
    "pods": PODS,
    "nodes": Strategy(
        required="spec.taints[].key",
        choices={"spec.taints[].effect": _TAINT_EFFECTS},
        prepare_create=_prepare_node,
    ),
    "namespaces": Strategy(
        name_faults=dns_label_faults,
        set_defaults=_label_with_name,
        initial_status={"phase": "Active"},
        prepare_create=_prepare_namespace,
        prepare_update=_keep_finalizers,
    ),
    "services": Strategy(
        defaults={"spec.type": "ClusterIP", "spec.ports[].protocol": "TCP"},
        name_faults=dns_label_faults,
    ),
    "secrets": Strategy(defaults={"type": "Opaque"}, set_defaults=_default_secret),
    "events": EVENTS,
    "deployments.apps": DEPLOYMENTS,
    "replicasets.apps": REPLICA_SETS,
    "statefulsets.apps": STATEFUL_SETS,
    "daemonsets.apps": DAEMON_SETS,
    "jobs.batch": JOBS,
    "cronjobs.batch": Strategy(required="spec.schedule", has_generation=True),
    "replicationcontrollers": Strategy(defaults={"spec.replicas": 1}, has_generation=True),
    "persistentvolumes": VOLUMES,
    "persistentvolumeclaims": CLAIMS,
    "storageclasses.storage.k8s.io": Strategy(
        required="provisioner allowedTopologies[].matchLabelExpressions[].values",
        choices={
            "reclaimPolicy": ("Delete", "Retain"),
            "volumeBindingMode": ("Immediate", "WaitForFirstConsumer"),
        },
        defaults={"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"},
        fixed="provisioner reclaimPolicy volumeBindingMode",
    ),
    "resourceclaims.resource.k8s.io": RESOURCE_CLAIMS,
    "resourceclaimtemplates.resource.k8s.io": RESOURCE_CLAIM_TEMPLATES,
    "resourceslices.resource.k8s.io": Strategy(
        required="spec.driver spec.pool.name spec.pool.resourceSliceCount spec.devices[].name "
        "spec.devices[].taints[].key",
        choices={"spec.devices[].taints[].effect": ("NoExecute", "NoSchedule", "None")},
        has_generation=True,
    ),
    "deviceclasses.resource.k8s.io": Strategy(
        required="spec.selectors[].cel spec.config[].opaque", has_generation=True
    ),
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": _WEBHOOKS,
    "validatingwebhookconfigurations.admissionregistration.k8s.io": _WEBHOOKS,
    "clusterroles.rbac.authorization.k8s.io": _ROLES,
    "roles.rbac.authorization.k8s.io": _ROLES,
    "clusterrolebindings.rbac.authorization.k8s.io": _ROLE_BINDINGS,
    "rolebindings.rbac.authorization.k8s.io": _ROLE_BINDINGS,
    "leases.coordination.k8s.io": Strategy(unconditional_update=False),
    "priorityclasses.scheduling.k8s.io": Strategy(
        defaults={"preemptionPolicy": "PreemptLowerPriority", "value": 0},
        fixed="value preemptionPolicy",
        has_generation=True,
    ),
    "poddisruptionbudgets.policy": Strategy(
        unconditional_update=False,
        initial_status=_NO_DISRUPTION,
        validate=_budget_errors,
        has_generation=True,
    ),
    "customresourcedefinitions.apiextensions.k8s.io": DEFINITIONS,
}


def strategy_of(kind: Kind) -> Strategy:
    """Return the strategy of a kind."""
    if kind.is_custom:
        return CUSTOM_WITH_STATUS if "status" in kind.subresources else CUSTOM
    return EVENTS_V1 if kind.group == "events.k8s.io" else _BY_STORAGE.get(kind.storage, _PLAIN)
