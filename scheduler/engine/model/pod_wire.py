"""
Pods as they are in JSON: only the fields that a scheduler reads, decoded by msgspec.

Parts that repeat across pods stay raw bytes, so a known spec is not decoded again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw

from scheduler.engine.model.node_selector import NodeSelector
from scheduler.engine.model.terms import PreferredNodeTerm, Toleration
from scheduler.engine.model.wire import (
    Int32,
    LabelSelector,
    Metadata,
    MigratedDisk,
    Named,
    QuantityText,
    Wire,
)

_T = TypeVar("_T")


class RestartRule(Wire, frozen=True):
    """containers[].restartPolicyRules[]."""

    action: str = ""


class WireContainer(Wire, frozen=True):
    """containers[] and initContainers[]."""

    name: str = ""
    image: str | None = None
    resources: Raw = Raw()
    ports: Raw = Raw()
    restart_policy: str | None = None
    restart_policy_rules: tuple[RestartRule, ...] | None = None


class WireClaimVolume(Wire, frozen=True):
    """volumes[].persistentVolumeClaim."""

    claim_name: str = ""


class EphemeralVolume(Wire, frozen=True):
    """volumes[].ephemeral, whose claim has a name of its own."""


class ImageVolume(Wire, frozen=True):
    """volumes[].image."""

    reference: str = ""


class Iscsi(Wire, frozen=True):
    """volumes[].iscsi."""

    iqn: str = ""
    read_only: bool | None = None


class Rbd(Wire, frozen=True):
    """volumes[].rbd."""

    monitors: tuple[str, ...] | None = None
    image: str = ""
    pool: str | None = None
    read_only: bool | None = None


class VsphereVolume(Wire, frozen=True):
    """volumes[].vsphereVolume."""

    volume_path: str = ""


class CsiVolume(Wire, frozen=True):
    """volumes[].csi."""

    driver: str = ""


class Volume(MigratedDisk, frozen=True):
    """volumes[]: the sources that restrict where a pod can run."""

    name: str = ""
    persistent_volume_claim: WireClaimVolume = WireClaimVolume()
    ephemeral: EphemeralVolume | None = None
    image: ImageVolume = ImageVolume()
    csi: CsiVolume | None = None
    iscsi: Iscsi | None = None
    rbd: Rbd | None = None
    vsphere_volume: VsphereVolume | None = None

    @property
    def is_read(self) -> bool:
        """Return whether any plugin reads this volume."""
        return self != Volume(name=self.name)


class SchedulingGroup(Wire, frozen=True):
    """spec.schedulingGroup of a pod (kubernetes 1.36)."""

    pod_group_name: str = ""


class WirePodSpec(Wire, frozen=True):
    """spec of a pod."""

    node_name: str | None = None
    scheduler_name: str | None = None
    priority: Int32 | None = None
    preemption_policy: str | None = None
    node_selector: Raw = Raw()
    affinity: Raw = Raw()
    topology_spread_constraints: Raw = Raw()
    tolerations: Raw = Raw()
    containers: tuple[WireContainer, ...] | None = None
    init_containers: tuple[WireContainer, ...] | None = None
    overhead: Raw = Raw()
    resources: Raw = Raw()
    resource_claims: Raw = Raw()
    volumes: tuple[Volume, ...] | None = None
    scheduling_gates: tuple[Named, ...] | None = None
    host_network: bool | None = None
    host_users: bool | None = None
    scheduling_group: SchedulingGroup = SchedulingGroup()


class Condition(Wire, frozen=True):
    """status.conditions[]."""

    type: str = ""
    status: str | None = None
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None


class ContainerStatus(Wire, frozen=True):
    """status.containerStatuses[]."""

    name: str = ""
    resources: Raw = Raw()
    allocated_resources: Raw = Raw()


class PodResourceClaim(Wire, frozen=True):
    """An entry of `spec.resourceClaims`, which names a ResourceClaim, or a template from which one is made."""

    name: str = ""
    claim_name: str | None = msgspec.field(name="resourceClaimName", default=None)
    template_name: str | None = msgspec.field(name="resourceClaimTemplateName", default=None)


class ResourceClaimStatus(Wire, frozen=True):
    """status.resourceClaimStatuses[]."""

    name: str = ""
    resource_claim_name: str | None = None


class PodStatus(Wire, frozen=True):
    """status of a pod."""

    phase: str | None = None
    reason: str | None = None
    message: str | None = None
    nominated_node_name: str | None = None
    start_time: str | None = None
    conditions: tuple[Condition, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None
    resources: Raw = Raw()
    allocated_resources: Raw = Raw()
    resource_claim_statuses: tuple[ResourceClaimStatus, ...] | None = None


class WirePod(Wire, frozen=True):
    """A pod."""

    metadata: Metadata
    spec: WirePodSpec = WirePodSpec()
    status: PodStatus = PodStatus()


class Resources(Wire, frozen=True):
    """resources of a container or pod."""

    requests: dict[str, QuantityText] | None = None


class ContainerPort(Wire, frozen=True):
    """containers[].ports[]."""

    host_port: int | None = None
    host_ip: str | None = msgspec.field(name="hostIP", default=None)
    protocol: str | None = None


class WireAffinityTerm(Wire, frozen=True):
    """A term of pod affinity or anti-affinity; what follows the selectors is read of annotations alone."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] | None = None
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()
    max_pods_per_domain: int | str | None = None
    domain_weights: dict[str, int] | None = None


class WireWeightedTerm(Wire, frozen=True):
    """A preferred term."""

    weight: int = 0
    pod_affinity_term: WireAffinityTerm = WireAffinityTerm()


class WirePodAffinity(Wire, frozen=True):
    """podAffinity and podAntiAffinity; `enforced` is read of annotations alone."""

    required: tuple[WireAffinityTerm, ...] = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=()
    )
    preferred: tuple[WireWeightedTerm, ...] = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=()
    )
    enforced: tuple[WireAffinityTerm, ...] = msgspec.field(
        name="requiredDuringSchedulingRequiredDuringExecution", default=()
    )


class WireNodeAffinity(Wire, frozen=True):
    """nodeAffinity."""

    required: NodeSelector | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )
    preferred: tuple[PreferredNodeTerm, ...] | None = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=None
    )


class WireAffinity(Wire, frozen=True):
    """affinity of a pod."""

    node_affinity: WireNodeAffinity = WireNodeAffinity()
    pod_affinity: WirePodAffinity = WirePodAffinity()
    pod_anti_affinity: WirePodAffinity = WirePodAffinity()


class WireSpreadConstraint(Wire, frozen=True):
    """topologySpreadConstraints[]."""

    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] | None = None


AFFINITY: Final = msgspec.json.Decoder(WireAffinity | None)
LABELS: Final = msgspec.json.Decoder(dict[str, str] | None)
SPREAD: Final = msgspec.json.Decoder(tuple[WireSpreadConstraint, ...] | None)
TOLERATIONS: Final = msgspec.json.Decoder(tuple[Toleration, ...] | None)
OVERHEAD: Final = msgspec.json.Decoder(dict[str, QuantityText] | None)
ALLOCATED: Final = msgspec.json.Decoder(dict[str, QuantityText] | None)
RESOURCES: Final = msgspec.json.Decoder(Resources | None)
PORTS: Final = msgspec.json.Decoder(tuple[ContainerPort, ...] | None)
RESOURCE_CLAIMS: Final = msgspec.json.Decoder(tuple[PodResourceClaim, ...] | None)

#: The fields that stay raw bytes until they are decoded.
_FIELDS: Final[Mapping[msgspec.json.Decoder[Any], str]] = {
    AFFINITY: "affinity",
    LABELS: "nodeSelector",
    SPREAD: "topologySpreadConstraints",
    TOLERATIONS: "tolerations",
    OVERHEAD: "overhead",
    ALLOCATED: "allocatedResources",
    RESOURCES: "resources",
    PORTS: "ports",
    RESOURCE_CLAIMS: "resourceClaims",
}
#: By field, the type that is decoded of it later.
PARTS: Final[Mapping[str, Any]] = {field: decoder.type for decoder, field in _FIELDS.items()}


def decode_part(decoder: msgspec.json.Decoder[_T | None], raw: Raw) -> _T | None:
    """Return the part of a pod; None if the field is absent or null. A DecodeError names the field too."""
    try:
        return decoder.decode(raw) if raw else None
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$")
        raise msgspec.ValidationError(f"{problem} - at `{_FIELDS[decoder]}{path or '`'}") from error
