"""
The JSON types of the fields that are read here, checked before anything reads them.

Upstream decodes into typed structures and answers 400 where a type is wrong; these are those structures as far
as the embedded cluster looks into objects. Unknown fields are left alone.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from scheduler.devcluster.kinds import JsonObject, Kind
from scheduler.devcluster.quantities import RULE, parse_quantity
from scheduler.devcluster.status import bad_request

Labels = dict[str, str]


class _Shape(msgspec.Struct, rename="camel"):
    """A part of an object; every field may be absent or null, as in Go."""


class _Owner(_Shape):
    api_version: str | None = None
    kind: str | None = None
    name: str | None = None
    uid: str | None = None
    controller: bool | None = None


class _Metadata(_Shape):
    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    generation: int | None = None
    labels: Labels | None = None
    annotations: Labels | None = None
    finalizers: list[str] | None = None
    owner_references: list[_Owner] | None = None


class _Expression(_Shape):
    key: str | None = None
    operator: str | None = None
    values: list[str] | None = None


class _Selector(_Shape):
    match_labels: Labels | None = None
    match_expressions: list[_Expression] | None = None


class _Term(_Shape):
    label_selector: _Selector | None = None
    namespace_selector: _Selector | None = None
    namespaces: list[str] | None = None
    topology_key: str | None = None
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class _WeightedTerm(_Shape):
    weight: int | None = None
    pod_affinity_term: _Term | None = None


class _PodAffinity(_Shape, rename={
    "required": "requiredDuringSchedulingIgnoredDuringExecution",
    "preferred": "preferredDuringSchedulingIgnoredDuringExecution",
}):  # fmt: skip
    required: list[_Term] | None = None
    preferred: list[_WeightedTerm] | None = None


class _NodeRequirements(_Shape):
    match_expressions: list[_Expression] | None = None
    match_fields: list[_Expression] | None = None


class _NodeSelector(_Shape):
    node_selector_terms: list[_NodeRequirements] | None = None


class _PreferredNode(_Shape):
    weight: int | None = None
    preference: _NodeRequirements | None = None


class _NodeAffinity(_Shape, rename={
    "required": "requiredDuringSchedulingIgnoredDuringExecution",
    "preferred": "preferredDuringSchedulingIgnoredDuringExecution",
}):  # fmt: skip
    required: _NodeSelector | None = None
    preferred: list[_PreferredNode] | None = None


class _Affinity(_Shape):
    node_affinity: _NodeAffinity | None = None
    pod_affinity: _PodAffinity | None = None
    pod_anti_affinity: _PodAffinity | None = None


class _SpreadConstraint(_Term):
    max_skew: int | None = None
    when_unsatisfiable: str | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None


class _Resources(_Shape):
    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None


class _Port(_Shape):
    container_port: int | None = None
    host_port: int | None = None
    protocol: str | None = None


class _Container(_Shape):
    name: str | None = None
    image: str | None = None
    resources: _Resources | None = None
    ports: list[_Port] | None = None


class _Toleration(_Shape):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    toleration_seconds: int | None = None


class _Gate(_Shape):
    name: str | None = None


class _PodSpec(_Shape):
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    affinity: _Affinity | None = None
    topology_spread_constraints: list[_SpreadConstraint] | None = None
    tolerations: list[_Toleration] | None = None
    scheduling_gates: list[_Gate] | None = None
    node_selector: Labels | None = None
    node_name: str | None = None
    scheduler_name: str | None = None
    restart_policy: str | None = None
    priority: int | None = None
    priority_class_name: str | None = None
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None
    overhead: dict[str, str | int | float] | None = None


class _Condition(_Shape):
    type: str | None = None
    status: str | None = None


class _Status(_Shape):
    conditions: list[_Condition] | None = None
    phase: str | None = None


class _Object(_Shape):
    metadata: _Metadata | None = None


class _PlainObject(_Object):
    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None


class _Pod(_Object):
    spec: _PodSpec | None = None
    status: _Status | None = None


class _Template(_Shape):
    metadata: _Metadata | None = None
    spec: _PodSpec | None = None


class _SelectingSpec(_Shape):
    selector: _Selector | None = None
    replicas: int | None = None
    template: _Template | None = None


class _Selecting(_Object):
    spec: _SelectingSpec | None = None
    status: dict[str, Any] | None = None


class _LabelledSpec(_Shape):
    selector: Labels | None = None
    replicas: int | None = None
    template: _Template | None = None


class _Labelled(_Object):
    spec: _LabelledSpec | None = None
    status: dict[str, Any] | None = None


class _Taint(_Shape):
    key: str | None = None
    value: str | None = None
    effect: str | None = None


class _NodeSpec(_Shape):
    unschedulable: bool | None = None
    taints: list[_Taint] | None = None


class _NodeStatus(_Status):
    allocatable: dict[str, str | int | float] | None = None
    capacity: dict[str, str | int | float] | None = None


class _Node(_Object):
    spec: _NodeSpec | None = None
    status: _NodeStatus | None = None


class _PriorityClass(_Object):
    value: int | None = None
    global_default: bool | None = None
    preemption_policy: str | None = None


_SHAPES: Final[Mapping[str, type[_Object]]] = {
    "pods": _Pod,
    "nodes": _Node,
    "services": _Labelled,
    "replicationcontrollers": _Labelled,
    "deployments.apps": _Selecting,
    "replicasets.apps": _Selecting,
    "statefulsets.apps": _Selecting,
    "poddisruptionbudgets.policy": _Selecting,
    "priorityclasses.scheduling.k8s.io": _PriorityClass,
}


def check_shape(kind: Kind, obj: JsonObject) -> None:
    """Raises: StatusError 400 where a field that is read here has the wrong JSON type, or is no quantity."""
    try:
        shaped = msgspec.convert(obj, _SHAPES.get(kind.storage, _PlainObject))
    except msgspec.ValidationError as error:
        raise _unreadable(kind, f"json: {error}") from error
    if isinstance(shaped, _Pod) and shaped.spec is not None:
        _check_quantities(kind, shaped.spec)
    if isinstance(shaped, _Node) and shaped.status is not None:
        for amounts in (shaped.status.allocatable, shaped.status.capacity):
            _check_amounts(kind, amounts)


def _unreadable(kind: Kind, why: str) -> Exception:
    return bad_request(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {why}')


def _check_quantities(kind: Kind, spec: _PodSpec) -> None:
    for container in [*(spec.containers or []), *(spec.init_containers or [])]:
        if container.resources is not None:
            _check_amounts(kind, container.resources.requests)
            _check_amounts(kind, container.resources.limits)
    _check_amounts(kind, spec.overhead)


def _check_amounts(kind: Kind, amounts: Mapping[str, str | int | float] | None) -> None:
    for value in (amounts or {}).values():
        if parse_quantity(value) is None:
            raise _unreadable(kind, RULE)
