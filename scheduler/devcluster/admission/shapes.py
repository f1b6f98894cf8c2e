"""
The JSON types of the fields that are read here, checked before anything reads them.

Upstream decodes into typed structures and answers 400 where a type is wrong; these are those structures as far
as the embedded cluster looks into objects. Unknown fields are left alone.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from scheduler.devcluster.admission.access_shapes import (
    AccessReview,
    Role,
    RoleBinding,
    TokenRequest,
    TokenReview,
)
from scheduler.devcluster.admission.amounts import QUANTITY_RULE, quantity
from scheduler.devcluster.admission.pod_shapes import (
    Labels,
    ObjectShape,
    PlainObjectShape,
    PodShape,
    PodSpecShape,
    SelectorShape,
    Shape,
    StatusShape,
    TemplateShape,
)
from scheduler.devcluster.kinds import JsonObject, Kind
from scheduler.devcluster.status import bad_request


class _Strategy(Shape):
    type: str | None = None
    rolling_update: dict[str, Any] | None = None


class _SelectingSpec(Shape):
    selector: SelectorShape | None = None
    replicas: int | None = None
    template: TemplateShape | None = None
    strategy: _Strategy | None = None
    update_strategy: _Strategy | None = None


class _Selecting(ObjectShape):
    spec: _SelectingSpec | None = None
    status: dict[str, Any] | None = None


class _ServicePort(Shape):
    port: int | None = None
    protocol: str | None = None
    target_port: int | str | None = None


class _LabelledSpec(Shape):
    selector: Labels | None = None
    replicas: int | None = None
    template: TemplateShape | None = None
    ports: list[_ServicePort] | None = None
    type: str | None = None
    cluster_ip: str | None = msgspec.field(name="clusterIP", default=None)


class _Labelled(ObjectShape):
    spec: _LabelledSpec | None = None
    status: dict[str, Any] | None = None


class _NamespaceSpec(Shape):
    finalizers: list[str] | None = None


class _Namespace(ObjectShape):
    spec: _NamespaceSpec | None = None
    status: StatusShape | None = None


class _BudgetStatus(StatusShape):
    disruptions_allowed: int | None = None
    current_healthy: int | None = None
    desired_healthy: int | None = None
    expected_pods: int | None = None
    observed_generation: int | None = None
    disrupted_pods: Labels | None = None


class _Budget(ObjectShape):
    spec: _SelectingSpec | None = None
    status: _BudgetStatus | None = None


class _ScopeNeed(Shape):
    scope_name: str | None = None
    operator: str | None = None
    values: list[str] | None = None


class _ScopeSelector(Shape):
    match_expressions: list[_ScopeNeed] | None = None


class _QuotaSpec(Shape):
    hard: dict[str, str | int | float] | None = None
    scopes: list[str] | None = None
    scope_selector: _ScopeSelector | None = None


class _QuotaStatus(Shape):
    hard: dict[str, str | int | float] | None = None
    used: dict[str, str | int | float] | None = None


class _Quota(ObjectShape):
    spec: _QuotaSpec | None = None
    status: _QuotaStatus | None = None


class _ConfigMap(ObjectShape):
    data: Labels | None = None
    binary_data: Labels | None = None


class _Secret(ObjectShape):
    data: Labels | None = None
    string_data: Labels | None = None
    type: str | None = None


class _ServiceReference(Shape):
    namespace: str | None = None
    name: str | None = None
    path: str | None = None
    port: int | None = None


class _ClientConfig(Shape):
    url: str | None = None
    service: _ServiceReference | None = None
    ca_bundle: str | None = None


class _WebhookRule(Shape):
    operations: list[str] | None = None
    api_groups: list[str] | None = msgspec.field(name="apiGroups", default=None)
    api_versions: list[str] | None = msgspec.field(name="apiVersions", default=None)
    resources: list[str] | None = None
    scope: str | None = None


class _Webhook(Shape):
    name: str | None = None
    client_config: _ClientConfig | None = None
    rules: list[_WebhookRule] | None = None
    failure_policy: str | None = None
    match_policy: str | None = None
    namespace_selector: SelectorShape | None = None
    object_selector: SelectorShape | None = None
    side_effects: str | None = None
    timeout_seconds: int | None = None
    admission_review_versions: list[str] | None = None
    reinvocation_policy: str | None = None


class _Webhooks(ObjectShape):
    webhooks: list[_Webhook] | None = None


class _Reference(Shape):
    kind: str | None = None
    namespace: str | None = None
    name: str | None = None
    uid: str | None = None


class _Series(Shape):
    count: int | None = None
    last_observed_time: str | None = None


class _Source(Shape):
    component: str | None = None
    host: str | None = None


class _Event(ObjectShape):
    involved_object: _Reference | None = None
    related: _Reference | None = None
    series: _Series | None = None
    source: _Source | None = None
    reason: str | None = None
    message: str | None = None
    type: str | None = None
    action: str | None = None
    count: int | None = None
    event_time: str | None = None
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    reporting_component: str | None = None
    reporting_instance: str | None = None


class _Binding(ObjectShape):
    target: _Reference | None = None


class _Preconditions(Shape):
    uid: str | None = None
    resource_version: str | None = None


class _DeleteOptions(Shape):
    grace_period_seconds: int | None = None
    preconditions: _Preconditions | None = None
    propagation_policy: str | None = None
    orphan_dependents: bool | None = None
    dry_run: list[str] | None = None


class _Eviction(ObjectShape):
    delete_options: _DeleteOptions | None = None


class _ScaleSpec(Shape):
    replicas: int | None = None


class _Scale(ObjectShape):
    spec: _ScaleSpec | None = None


class _Taint(Shape):
    key: str | None = None
    value: str | None = None
    effect: str | None = None


class _NodeSpec(Shape):
    unschedulable: bool | None = None
    taints: list[_Taint] | None = None


class _NodeStatus(StatusShape):
    allocatable: dict[str, str | int | float] | None = None
    capacity: dict[str, str | int | float] | None = None


class _Node(ObjectShape):
    spec: _NodeSpec | None = None
    status: _NodeStatus | None = None


class _PriorityClass(ObjectShape):
    value: int | None = None
    global_default: bool | None = None
    preemption_policy: str | None = None


_SHAPES: Final[Mapping[str, type[ObjectShape]]] = {
    "pods": PodShape,
    "nodes": _Node,
    "services": _Labelled,
    "namespaces": _Namespace,
    "configmaps": _ConfigMap,
    "events": _Event,
    "resourcequotas": _Quota,
    "secrets": _Secret,
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": _Webhooks,
    "validatingwebhookconfigurations.admissionregistration.k8s.io": _Webhooks,
    "clusterroles.rbac.authorization.k8s.io": Role,
    "roles.rbac.authorization.k8s.io": Role,
    "clusterrolebindings.rbac.authorization.k8s.io": RoleBinding,
    "rolebindings.rbac.authorization.k8s.io": RoleBinding,
    "replicationcontrollers": _Labelled,
    "deployments.apps": _Selecting,
    "replicasets.apps": _Selecting,
    "statefulsets.apps": _Selecting,
    "poddisruptionbudgets.policy": _Budget,
    "priorityclasses.scheduling.k8s.io": _PriorityClass,
}


#: Bodies that are no stored objects, by their kind.
_REQUESTS: Final[Mapping[str, type[Shape]]] = {
    "Binding": _Binding,
    "DeleteOptions": _DeleteOptions,
    "Eviction": _Eviction,
    "Scale": _Scale,
    "TokenRequest": TokenRequest,
    "TokenReview": TokenReview,
    **dict.fromkeys(
        (
            "LocalSubjectAccessReview",
            "SelfSubjectAccessReview",
            "SelfSubjectRulesReview",
            "SubjectAccessReview",
        ),
        AccessReview,
    ),
}


def check_request(kind_name: str, body: JsonObject) -> None:
    """Raises: StatusError 400 where a body that is no stored object has a field of the wrong JSON type."""
    shape = _REQUESTS.get(kind_name)
    if shape is None:
        return
    try:
        msgspec.convert(body, shape)
    except msgspec.ValidationError as error:
        raise bad_request(f"{kind_name} cannot be handled as a {kind_name}: json: {error}") from error


def check_shape(kind: Kind, obj: JsonObject) -> None:
    """Raises: StatusError 400 where a field that is read here has the wrong JSON type, or is no quantity."""
    try:
        shaped = msgspec.convert(obj, _SHAPES.get(kind.storage, PlainObjectShape))
    except msgspec.ValidationError as error:
        raise _unreadable(kind, f"json: {error}") from error
    if isinstance(shaped, PodShape) and shaped.spec is not None:
        _check_quantities(kind, shaped.spec)
    if isinstance(shaped, _Node) and shaped.status is not None:
        for amounts in (shaped.status.allocatable, shaped.status.capacity):
            _check_amounts(kind, amounts)
    if isinstance(shaped, _Quota):
        _check_amounts(kind, shaped.spec.hard if shaped.spec else None)
        if shaped.status is not None:
            _check_amounts(kind, shaped.status.hard)
            _check_amounts(kind, shaped.status.used)


def _unreadable(kind: Kind, why: str) -> Exception:
    return bad_request(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {why}')


def _check_quantities(kind: Kind, spec: PodSpecShape) -> None:
    for container in [*(spec.containers or []), *(spec.init_containers or [])]:
        if container.resources is not None:
            _check_amounts(kind, container.resources.requests)
            _check_amounts(kind, container.resources.limits)
    if spec.resources is not None:
        _check_amounts(kind, spec.resources.requests)
        _check_amounts(kind, spec.resources.limits)
    _check_amounts(kind, spec.overhead)


def _check_amounts(kind: Kind, amounts: Mapping[str, str | int | float] | None) -> None:
    for value in (amounts or {}).values():
        if quantity(value) is None:
            raise _unreadable(kind, QUANTITY_RULE)
