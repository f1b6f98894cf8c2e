"""
API objects as they are in JSON: only the fields that a scheduler reads, decoded by msgspec.

Here are the parts that several kinds share, nodes and small kinds; pods are in `pod_wire`, volumes in `volume_wire`. A
field of the wrong type is a DecodeError that names its path.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Struct

from scheduler.engine.model import nesting

_T = TypeVar("_T")

#: A quantity in JSON: a string or a bare number; null counts as 0.
QuantityText = str | int | float | None

#: The API server refuses other values; files may have any.
Int32: TypeAlias = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Int64: TypeAlias = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
#: Seconds, which files have in Go's syntax, such as "15s".
Duration: TypeAlias = Annotated[float, Meta(description="a duration in Go's syntax")]


class MalformedObjectError(ValueError):
    """An object that no API server would store. The watch reports it and continues; retrying is of no use."""


class Wire(Struct, frozen=True, gc=False, rename="camel"):
    """A struct with camelCase field names; not tracked by the garbage collector, since JSON has no cycles."""


class OwnerReference(Wire, frozen=True):
    """metadata.ownerReferences[]."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Metadata(Wire, frozen=True):
    """metadata of any object."""

    name: str = ""
    namespace: str | None = None
    uid: str | None = None
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    finalizers: tuple[str, ...] | None = None
    creation_timestamp: str | None = None
    owner_references: tuple[OwnerReference, ...] | None = None


def decoded(decoder: msgspec.json.Decoder[_T], kind: str, data: bytes | msgspec.Raw) -> _T:
    """Return the object of a JSON document; raise MalformedObjectError, which names kind, field and problem."""
    try:
        return nesting.read(decoder.decode, data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedObjectError(f"{kind}: {error}") from error


def name_of(kind: str, meta: Metadata) -> str:
    """Return the object's name; raise MalformedObjectError if it has none."""
    if not meta.name:
        raise MalformedObjectError(f"{kind}: metadata.name is required")
    return meta.name


def namespace_and_name(kind: str, meta: Metadata) -> tuple[str, str]:
    """Return both; raise MalformedObjectError if one is missing."""
    if not meta.name or not meta.namespace:
        raise MalformedObjectError(f"{kind}: metadata.name and metadata.namespace are required")
    return meta.namespace, meta.name


class Named(Wire, frozen=True):
    """An object of which only the name is read."""

    name: str = ""


class Expression(Wire, frozen=True, omit_defaults=True):
    """matchExpressions[] of label and node selectors."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class LabelSelector(Wire, frozen=True):
    """A label selector."""

    match_labels: dict[str, str] | None = None
    match_expressions: tuple[Expression, ...] | None = None


class NodeTerm(Wire, frozen=True, omit_defaults=True):
    """A node selector term."""

    match_expressions: tuple[Expression, ...] | None = None
    match_fields: tuple[Expression, ...] | None = None


class NodeSelector(Wire, frozen=True, omit_defaults=True):
    """Required node affinity."""

    node_selector_terms: tuple[NodeTerm, ...] | None = None


class Taint(Wire, frozen=True):
    """spec.taints[] of a node."""

    key: str = ""
    value: str | None = None
    effect: str = ""


class NodeSpec(Wire, frozen=True):
    """spec of a node."""

    unschedulable: bool | None = None
    taints: tuple[Taint, ...] | None = None


class Image(Wire, frozen=True):
    """status.images[] of a node."""

    names: tuple[str, ...] | None = None
    size_bytes: int | None = None


class NodeStatus(Wire, frozen=True):
    """status of a node."""

    allocatable: dict[str, QuantityText] | None = None
    images: tuple[Image, ...] | None = None
    declared_features: tuple[str, ...] | None = None


class GcePersistentDisk(Wire, frozen=True):
    """gcePersistentDisk of a volume."""

    pd_name: str = ""
    read_only: bool | None = None


class VolumeId(Wire, frozen=True):
    """awsElasticBlockStore, cinder and portworxVolume of a volume."""

    volume_id: str = msgspec.field(name="volumeID", default="")


class AzureDisk(Wire, frozen=True):
    """azureDisk of a volume."""

    disk_uri: str = msgspec.field(name="diskURI", default="")


class MigratedDisk(Wire, frozen=True):
    """The disk that a volume of a pod or a PersistentVolume names by an in-tree plugin; one at most."""

    gce_persistent_disk: GcePersistentDisk | None = None
    aws_elastic_block_store: VolumeId | None = None
    azure_disk: AzureDisk | None = None
    cinder: VolumeId | None = None
    portworx_volume: VolumeId | None = None


class Node(Wire, frozen=True):
    """A node."""

    metadata: Metadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Namespace(Wire, frozen=True):
    """A namespace."""

    metadata: Metadata


class MapSelectorSpec(Wire, frozen=True):
    """spec of Services and ReplicationControllers: the selector is a plain map."""

    selector: dict[str, str] | None = None


class LabelSelectorSpec(Wire, frozen=True):
    """spec of ReplicaSets and StatefulSets."""

    selector: LabelSelector | None = None


class MapSelected(Wire, frozen=True):
    """A Service or ReplicationController."""

    metadata: Metadata
    spec: MapSelectorSpec = MapSelectorSpec()


class LabelSelected(Wire, frozen=True):
    """A ReplicaSet or StatefulSet."""

    metadata: Metadata
    spec: LabelSelectorSpec = LabelSelectorSpec()


class DisruptionBudgetStatus(Wire, frozen=True):
    """status of a PodDisruptionBudget."""

    disruptions_allowed: Int32 | None = None
    disrupted_pods: dict[str, str | None] | None = None


class DisruptionBudget(Wire, frozen=True):
    """A PodDisruptionBudget."""

    metadata: Metadata
    spec: LabelSelectorSpec = LabelSelectorSpec()
    status: DisruptionBudgetStatus = DisruptionBudgetStatus()


class GangPolicy(Wire, frozen=True):
    """spec.schedulingPolicy.gang of a PodGroup."""

    min_count: int | None = None


class GroupPolicy(Wire, frozen=True):
    """spec.schedulingPolicy of a PodGroup."""

    gang: GangPolicy | None = None


class TopologyConstraint(Wire, frozen=True):
    """spec.schedulingConstraints.topology[] of a PodGroup."""

    key: str = ""


class GroupConstraints(Wire, frozen=True):
    """spec.schedulingConstraints of a PodGroup."""

    topology: tuple[TopologyConstraint, ...] | None = None


class DisruptionMode(Wire, frozen=True):
    """spec.disruptionMode of a PodGroup as v1beta1 has it."""

    all: dict[str, object] | None = None


class PodGroupSpec(Wire, frozen=True):
    """spec of a PodGroup, of scheduling.k8s.io or of scheduling.x-k8s.io. `disruption_mode`: a text in v1alpha2."""

    scheduling_policy: GroupPolicy | None = None
    scheduling_constraints: GroupConstraints | None = None
    min_member: int | None = None
    disruption_mode: str | DisruptionMode | None = None
    priority: int | None = None


class GroupCondition(Wire, frozen=True):
    """status.conditions[] of a PodGroup, as far as it is written back."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    observed_generation: int | None = None


class TopologyLevel(Wire, frozen=True):
    """spec.levels[] of a Topology."""

    node_label: str = ""


class KueueSpec(Wire, frozen=True):
    """spec of a Topology, which has levels, or of a ResourceFlavor."""

    levels: tuple[TopologyLevel, ...] | None = None
    topology_name: str | None = None
    node_labels: dict[str, str] | None = None


class KueueObject(Wire, frozen=True):
    """A Topology or ResourceFlavor."""

    metadata: Metadata
    spec: KueueSpec = KueueSpec()


class PodGroupStatus(Wire, frozen=True):
    """status of a PodGroup."""

    conditions: tuple[GroupCondition, ...] | None = None


class PodGroup(Wire, frozen=True):
    """A PodGroup."""

    metadata: Metadata
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()
