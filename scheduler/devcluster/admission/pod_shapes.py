"""
The JSON types of metadata, and of the parts of a pod: the structures on which `shapes` builds.

Every field may be absent or null, as in Go.
"""

from typing import Any

import msgspec

Labels = dict[str, str]


class Shape(msgspec.Struct, rename="camel"):
    """A part of an object; every field may be absent or null, as in Go."""


class _OwnerShape(Shape):
    api_version: str | None = None
    kind: str | None = None
    name: str | None = None
    uid: str | None = None
    controller: bool | None = None


class _MetadataShape(Shape):
    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    generation: int | None = None
    labels: Labels | None = None
    annotations: Labels | None = None
    finalizers: list[str] | None = None
    owner_references: list[_OwnerShape] | None = None


class _ExpressionShape(Shape):
    key: str | None = None
    operator: str | None = None
    values: list[str] | None = None


class SelectorShape(Shape):
    """A LabelSelector."""

    match_labels: Labels | None = None
    match_expressions: list[_ExpressionShape] | None = None


class _TermShape(Shape):
    label_selector: SelectorShape | None = None
    namespace_selector: SelectorShape | None = None
    namespaces: list[str] | None = None
    topology_key: str | None = None
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class _WeightedTermShape(Shape):
    weight: int | None = None
    pod_affinity_term: _TermShape | None = None


class _PodAffinityShape(Shape, rename={
    "required": "requiredDuringSchedulingIgnoredDuringExecution",
    "preferred": "preferredDuringSchedulingIgnoredDuringExecution",
}):  # fmt: skip
    required: list[_TermShape] | None = None
    preferred: list[_WeightedTermShape] | None = None


class _NodeRequirementsShape(Shape):
    match_expressions: list[_ExpressionShape] | None = None
    match_fields: list[_ExpressionShape] | None = None


class _NodeSelectorShape(Shape):
    node_selector_terms: list[_NodeRequirementsShape] | None = None


class _PreferredNodeShape(Shape):
    weight: int | None = None
    preference: _NodeRequirementsShape | None = None


class _NodeAffinityShape(Shape, rename={
    "required": "requiredDuringSchedulingIgnoredDuringExecution",
    "preferred": "preferredDuringSchedulingIgnoredDuringExecution",
}):  # fmt: skip
    required: _NodeSelectorShape | None = None
    preferred: list[_PreferredNodeShape] | None = None


class _AffinityShape(Shape):
    node_affinity: _NodeAffinityShape | None = None
    pod_affinity: _PodAffinityShape | None = None
    pod_anti_affinity: _PodAffinityShape | None = None


class _SpreadConstraintShape(_TermShape):
    max_skew: int | None = None
    when_unsatisfiable: str | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None


class _ResourcesShape(Shape):
    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None


class _PortShape(Shape):
    container_port: int | None = None
    host_port: int | None = None
    protocol: str | None = None


class _ContainerShape(Shape):
    name: str | None = None
    image: str | None = None
    resources: _ResourcesShape | None = None
    ports: list[_PortShape] | None = None


class _TolerationShape(Shape):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    toleration_seconds: int | None = None


class _GateShape(Shape):
    name: str | None = None


class _VolumeShape(Shape):
    name: str | None = None
    config_map: dict[str, Any] | None = None
    secret: dict[str, Any] | None = None
    projected: dict[str, Any] | None = None


class PodSpecShape(Shape):
    """The spec of a pod or of a template."""

    containers: list[_ContainerShape] | None = None
    init_containers: list[_ContainerShape] | None = None
    affinity: _AffinityShape | None = None
    topology_spread_constraints: list[_SpreadConstraintShape] | None = None
    tolerations: list[_TolerationShape] | None = None
    scheduling_gates: list[_GateShape] | None = None
    volumes: list[_VolumeShape] | None = None
    service_account_name: str | None = None
    node_selector: Labels | None = None
    node_name: str | None = None
    scheduler_name: str | None = None
    restart_policy: str | None = None
    priority: int | None = None
    priority_class_name: str | None = None
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None
    overhead: dict[str, str | int | float] | None = None
    resources: _ResourcesShape | None = None


class _ConditionShape(Shape):
    type: str | None = None
    status: str | None = None


class StatusShape(Shape):
    """A status with conditions and a phase, where it has them."""

    conditions: list[_ConditionShape] | None = None
    phase: str | None = None
    nominated_node_name: str | None = None


class ObjectShape(Shape):
    """Any object: what it is, and its metadata."""

    api_version: str | None = None
    kind: str | None = None
    metadata: _MetadataShape | None = None


class PlainObjectShape(ObjectShape):
    """An object whose spec and status are looked at no further."""

    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None


class PodShape(ObjectShape):
    """A pod."""

    spec: PodSpecShape | None = None
    status: StatusShape | None = None


class TemplateShape(Shape):
    """The template of a workload's pods."""

    metadata: _MetadataShape | None = None
    spec: PodSpecShape | None = None
