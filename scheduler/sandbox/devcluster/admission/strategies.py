"""
The strategy of each kind. A kind that is not listed here is plain data.

Source: the strategies under pkg/registry, and pkg/apis/*/validation (kubernetes 1.36). Difference: kinds that the
scheduler neither writes nor has users write for it have the rules that their row names, and no more; an update may
change every field of an event, and one of core/v1 may lack what the newer version needs.
"""

import base64
from collections.abc import Iterator, Mapping
from typing import Final

from scheduler.engine.syntax import field_errors
from scheduler.engine.syntax.affinity_rules import selector_errors
from scheduler.engine.syntax.field_errors import FieldError
from scheduler.engine.syntax.names import dns_label_faults, label_key_faults
from scheduler.sandbox.devcluster.admission.definitions import CUSTOM, CUSTOM_WITH_STATUS, DEFINITIONS
from scheduler.sandbox.devcluster.admission.device_claims import RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
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


def _label_with_name(namespace: JsonObject) -> None:
    metadata = namespace["metadata"]
    if name := metadata.get("name"):
        metadata["labels"] = {**(metadata.get("labels") or {}), _NAME_LABEL: name}


def _prepare_node(node: JsonObject, _: View) -> None:
    """Keep the status that a node is created with; allocatable defaults to capacity."""
    node.setdefault("spec", {})
    status = node.setdefault("status", {})
    if status.get("capacity") and not status.get("allocatable"):
        status["allocatable"] = dict(status["capacity"])


def _default_secret(secret: JsonObject) -> None:
    if texts := secret.pop("stringData", None):
        encoded = {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}
        secret["data"] = {**(secret.get("data") or {}), **encoded}


def _any_name(_: str) -> list[str]:
    return []


def _budget_errors(budget: JsonObject) -> Iterator[FieldError]:
    yield from selector_errors((budget.get("spec") or {}).get("selector"), "spec.selector")


#: Most bytes of a field.
_EVENT_LENGTHS: Final = {"reportingInstance": 128, "action": 128, "reason": 128, "message": 1024}


def _event_errors(event: JsonObject) -> Iterator[FieldError]:
    """Yield the rules of every version that an event breaks; an eventTime marks the newer kind of event."""
    namespace = event["metadata"].get("namespace", "")
    regarding = (event.get("involvedObject") or {}).get("namespace") or ""
    is_new = bool(event.get("eventTime"))
    of_cluster = namespace == "default" or (is_new and namespace == "kube-system")
    if not (regarding == namespace or (is_new and regarding) or (not regarding and of_cluster)):
        yield field_errors.invalid("involvedObject.namespace", regarding, "does not match event.namespace")


def _event_v1_errors(event: JsonObject) -> Iterator[FieldError]:
    yield from _event_errors(event)
    series = event.get("series")
    if series is not None and (series.get("count") or 0) < 2:
        yield field_errors.invalid("series.count", "", "should be at least 2")
    if event.get("type") not in ("Normal", "Warning"):
        yield field_errors.invalid("type", "", f"has invalid value: {event.get('type') or ''}")
    for name, limit in _EVENT_LENGTHS.items():
        if len((event.get(name) or "").encode()) > limit:
            yield field_errors.invalid(name, "", f"can have at most {limit} characters")


_PLAIN: Final = Strategy()
#: No disruption is allowed before the controller has counted.
_NO_DISRUPTION: Final = dict.fromkeys(
    ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"), 0
)
_ROLES: Final = Strategy(required="rules[].verbs", name_faults=_any_name)
_ROLE_BINDINGS: Final = Strategy(
    required="roleRef.kind roleRef.name subjects[].kind subjects[].name",
    choices={
        "roleRef.kind": ("ClusterRole", "Role"),
        "subjects[].kind": ("ServiceAccount", "User", "Group"),
    },
    defaults={"roleRef.apiGroup": "rbac.authorization.k8s.io"},
    fixed="roleRef",
    name_faults=_any_name,
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
#: Events as events.k8s.io/v1 takes them.
_EVENTS_V1: Final = Strategy(
    required="eventTime reportingComponent reportingInstance action reason",
    names={"reportingComponent": label_key_faults},
    validate=_event_v1_errors,
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
        defaults={"spec.finalizers": ["kubernetes"]},
        set_defaults=_label_with_name,
        initial_status={"phase": "Active"},
    ),
    "services": Strategy(
        defaults={"spec.type": "ClusterIP", "spec.ports[].protocol": "TCP"},
        name_faults=dns_label_faults,
    ),
    "secrets": Strategy(defaults={"type": "Opaque"}, set_defaults=_default_secret),
    "events": Strategy(validate=_event_errors),
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
    return _EVENTS_V1 if kind.group == "events.k8s.io" else _BY_STORAGE.get(kind.storage, _PLAIN)
