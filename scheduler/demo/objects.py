"""Objects as a user sees them: the fields that stories read, decoded from the API server's JSON."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

#: An object as JSON.
JsonObject: TypeAlias = dict[str, Any]


class _Wire(msgspec.Struct, frozen=True, rename="camel"):
    """A struct with camelCase field names; unknown fields are ignored."""


class Meta(_Wire, frozen=True):
    """The metadata of an object."""

    name: str
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    resource_version: str = ""
    deletion_timestamp: str | None = None


class Requirement(_Wire, frozen=True):
    """One line of a selector's `matchExpressions`."""

    key: str
    operator: str
    values: list[str] = []


class Selector(_Wire, frozen=True):
    """A label selector; an empty one selects everything."""

    match_labels: dict[str, str] = {}
    match_expressions: list[Requirement] = []


class Term(_Wire, frozen=True):
    """A pod affinity or anti-affinity term as stored, with matchLabelKeys merged into the selector by the server."""

    topology_key: str
    label_selector: Selector | None = None
    namespaces: list[str] = []
    namespace_selector: Selector | None = None
    #: Matching pods that a domain may have; set only in annotations.
    max_pods_per_domain: int = 1


class Terms(_Wire, frozen=True):
    """The required terms of affinity or anti-affinity; enforced terms occur only in annotations."""

    required: list[Term] = msgspec.field(default=[], name="requiredDuringSchedulingIgnoredDuringExecution")
    enforced: list[Term] = msgspec.field(default=[], name="requiredDuringSchedulingRequiredDuringExecution")


class Affinity(_Wire, frozen=True):
    """Pod affinity and anti-affinity."""

    pod_affinity: Terms = Terms()
    pod_anti_affinity: Terms = Terms()


class Spread(_Wire, frozen=True):
    """A topology spread constraint as stored."""

    max_skew: int
    topology_key: str
    when_unsatisfiable: str
    label_selector: Selector | None = None


class Container(_Wire, frozen=True):
    """One container of a pod."""

    image: str = ""


class PodSpec(_Wire, frozen=True):
    """The spec of a pod."""

    containers: list[Container] = []
    node_name: str = ""
    node_selector: dict[str, str] = {}
    affinity: Affinity = Affinity()
    topology_spread_constraints: list[Spread] = []


class Condition(_Wire, frozen=True):
    """One condition of a status."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


class PodStatus(_Wire, frozen=True):
    """The phase and conditions of a pod."""

    phase: str = "Pending"
    conditions: list[Condition] = []


class Pod(_Wire, frozen=True):
    """A pod."""

    metadata: Meta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def near(self) -> list[Term]:
        """Return all required terms towards other pods, those of the annotation included."""
        return _all(self.spec.affinity.pod_affinity, _annotated(self.metadata).pod_affinity)

    @property
    def away_from(self) -> list[Term]:
        """Return all required terms away from other pods, those of the annotation included."""
        return _all(self.spec.affinity.pod_anti_affinity, _annotated(self.metadata).pod_anti_affinity)

    @property
    def is_counted(self) -> bool:
        """Return whether it is neither finished nor being deleted."""
        return self.metadata.deletion_timestamp is None and self.status.phase not in ("Succeeded", "Failed")

    @property
    def is_ready(self) -> bool:
        """Return whether it runs and is ready."""
        return any(one.type == "Ready" and one.status == "True" for one in self.status.conditions)

    @property
    def pending_reason(self) -> str:
        """Return the message of its PodScheduled condition if no node was found for it, else ''."""
        if self.spec.node_name:
            return ""
        found = (
            one for one in self.status.conditions if one.type == "PodScheduled" and one.status == "False"
        )
        return next((one.message for one in found if one.reason == "Unschedulable"), "")


def _annotated(meta: Meta) -> Affinity:
    text = meta.annotations.get("affinity-scheduler.io/affinity")
    return Affinity() if text is None else msgspec.json.decode(text, type=Affinity)


def _all(*parts: Terms) -> list[Term]:
    return [term for part in parts for term in (*part.required, *part.enforced)]


class Node(_Wire, frozen=True):
    """A node."""

    metadata: Meta

    @property
    def zone(self) -> str:
        """Return its zone, '' if it has none."""
        return self.metadata.labels.get("topology.kubernetes.io/zone", "")


class ClaimSpec(_Wire, frozen=True):
    """The volume that a claim is bound to."""

    volume_name: str = ""


class Claim(_Wire, frozen=True):
    """A PersistentVolumeClaim."""

    metadata: Meta
    spec: ClaimSpec = ClaimSpec()


class Device(_Wire, frozen=True):
    """A device that is allocated to a claim. Devices of an administrative claim may be allocated to others as well."""

    driver: str
    pool: str
    device: str
    admin_access: bool = False


class Devices(_Wire, frozen=True):
    """The devices of an allocation."""

    results: list[Device] = []


class Allocation(_Wire, frozen=True):
    """An allocation of a claim."""

    devices: Devices = Devices()


class ClaimUser(_Wire, frozen=True):
    """A pod for which a claim is reserved."""

    name: str


class ResourceClaimStatus(_Wire, frozen=True):
    """The devices of a claim, and its pods."""

    allocation: Allocation = Allocation()
    reserved_for: list[ClaimUser] = []


class ResourceClaim(_Wire, frozen=True):
    """A claim of devices."""

    metadata: Meta
    status: ResourceClaimStatus = ResourceClaimStatus()

    @property
    def devices(self) -> list[Device]:
        """Return the devices that are allocated to it."""
        return self.status.allocation.devices.results

    @property
    def pods(self) -> list[str]:
        """Return the names of the pods that it is reserved for."""
        return [one.name for one in self.status.reserved_for]


class AttributeValue(_Wire, frozen=True):
    """The value of an attribute that is a string."""

    string: str = ""


class PublishedDevice(_Wire, frozen=True):
    """A device that a driver publishes."""

    name: str
    attributes: dict[str, AttributeValue] = {}


class Pool(_Wire, frozen=True):
    """The pool of a slice."""

    name: str


class ResourceSliceSpec(_Wire, frozen=True):
    """The devices that a driver publishes for a node."""

    driver: str
    pool: Pool
    node_name: str = ""
    devices: list[PublishedDevice] = []


class ResourceSlice(_Wire, frozen=True):
    """A slice of devices."""

    metadata: Meta
    spec: ResourceSliceSpec

    @property
    def fabric_by_device(self) -> dict[str, str]:
        """Return the fabric of each device, '' if it has none."""
        return {
            device.name: device.attributes.get("fabric", AttributeValue()).string
            for device in self.spec.devices
        }


class Namespace(_Wire, frozen=True):
    """A namespace."""

    metadata: Meta


class Event(_Wire, frozen=True):
    """A note of a component about an object."""

    metadata: Meta
    type: str = "Normal"
    reason: str = ""
    note: str = ""


class DeploymentSpec(_Wire, frozen=True):
    """The number of pods wanted."""

    replicas: int = 1


class DeploymentStatus(_Wire, frozen=True):
    """The progress of a deployment."""

    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    available_replicas: int = 0


class Deployment(_Wire, frozen=True):
    """A deployment."""

    metadata: Meta
    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus = DeploymentStatus()

    @property
    def is_rolled_out(self) -> bool:
        """Return whether all pods are of the newest template and available, as `kubectl rollout status` judges."""
        status = self.status
        return (
            status.observed_generation >= self.metadata.generation
            and self.spec.replicas == status.replicas == status.updated_replicas == status.available_replicas
        )
