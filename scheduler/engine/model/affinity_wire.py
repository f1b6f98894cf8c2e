"""
The JSON of `affinity-scheduler.io/affinity`, as `engine.model.annotations` describes it: unknown fields are errors.

Its lists of node terms are those of the API, see `engine.model.wire`.
"""

from __future__ import annotations

import msgspec

from scheduler.engine.model import wire


class _Strict(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A struct with camelCase field names that rejects unknown fields."""


class Expression(_Strict, frozen=True):
    """matchExpressions[] of a label selector."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(_Strict, frozen=True):
    """A label selector."""

    match_labels: dict[str, str] | None = None
    match_expressions: tuple[Expression, ...] = ()


class Term(_Strict, frozen=True):
    """A term of pod affinity."""

    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()
    max_pods_per_domain: int | str | None = None
    domain_weights: dict[str, int] | None = None


class WeightedTerm(_Strict, frozen=True):
    """A preferred term of pod affinity."""

    weight: int
    pod_affinity_term: Term


class PodAffinity(_Strict, frozen=True):
    """podAffinity, or podAntiAffinity."""

    required: tuple[Term, ...] = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=()
    )
    preferred: tuple[WeightedTerm, ...] = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=()
    )
    enforced: tuple[Term, ...] = msgspec.field(
        name="requiredDuringSchedulingRequiredDuringExecution", default=()
    )


class NodeExpression(wire.Expression, frozen=True, forbid_unknown_fields=True):
    """matchExpressions[] or matchFields[] of a node term."""


class NodeTerm(wire.NodeTerm, frozen=True, forbid_unknown_fields=True):
    """A term of node affinity."""

    match_expressions: tuple[NodeExpression, ...] | None = None
    match_fields: tuple[NodeExpression, ...] | None = None


class NodeSelector(_Strict, frozen=True):
    """The required node affinity."""

    node_selector_terms: tuple[NodeTerm, ...] = ()


class PreferredNode(_Strict, frozen=True):
    """A preferred term of node affinity."""

    weight: int
    preference: NodeTerm


class NodeAffinity(_Strict, frozen=True):
    """nodeAffinity."""

    required: NodeSelector | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )
    preferred: tuple[PreferredNode, ...] = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=()
    )


class Affinity(_Strict, frozen=True):
    """The whole annotation."""

    node_affinity: NodeAffinity = NodeAffinity()
    pod_affinity: PodAffinity = PodAffinity()
    pod_anti_affinity: PodAffinity = PodAffinity()
