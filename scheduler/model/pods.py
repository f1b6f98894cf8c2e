"""
Pods as the scheduler reads them: one `Pod` per pod, and one shared `PodSpec` for all pods with an equal spec.

`PodSpec` is the unit of sharing: whatever is derived from a spec can be cached by the object.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from scheduler.model.disks import Disk
from scheduler.model.pod_groups import GroupReference
from scheduler.model.terms import (
    PodAffinity,
    PreferredNodeTerm,
    Problem,
    RequiredNodeAffinity,
    SpreadConstraint,
    Toleration,
)
from scheduler.syntax.quantity import Quantity

DEFAULT_SCHEDULER_NAME: Final = "default-scheduler"

Requests = Mapping[str, Quantity]


@dataclass(frozen=True, slots=True)
class HostPort:
    """A host port of a container; an absent address is '0.0.0.0', an absent protocol 'TCP'."""

    ip: str
    protocol: str
    port: int


@dataclass(frozen=True, slots=True)
class Container:
    """
    The fields of a container that decide where its pod can run.

    Attributes:
        restart_always: `restartPolicy: Always`, which makes an init container a sidecar.
        restarts_all: whether a restart rule restarts all containers of the pod.
    """

    name: str
    image: str
    requests: Requests
    host_ports: tuple[HostPort, ...]
    restart_always: bool
    restarts_all: bool


@dataclass(frozen=True, slots=True)
class ContainerResize:
    """The resources that a container holds on its node, if they differ from its spec."""

    requests: Requests
    allocated: Requests


@dataclass(frozen=True, slots=True)
class Resize:
    """An in-place resize that is in progress or infeasible. Without one, `Pod.resize` is None."""

    containers: Mapping[str, ContainerResize]
    pod_requests: Requests | None
    pod_allocated: Requests
    infeasible: bool


@dataclass(frozen=True, slots=True)
class ClaimVolume:
    """A volume behind a PersistentVolumeClaim: of the claim's name, or of the volume's if it `is_ephemeral`."""

    name: str
    is_ephemeral: bool = False

    def claim_name(self, pod_name: str) -> str:
        """Return the claim's name; a generic ephemeral volume's claim is made for the pod and named after both."""
        return f"{pod_name}-{self.name}" if self.is_ephemeral else self.name


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class PodSpec:
    """
    The fields of a spec that decisions read; one object for all pods of a namespace with an equal spec.

    Compared and hashed by identity: `PodDecoder` returns the same object for equal specs.
    """

    namespace: str
    required_node_affinity: RequiredNodeAffinity
    preferred_nodes: tuple[PreferredNodeTerm, ...] | None
    affinity: PodAffinity
    spread: tuple[SpreadConstraint, ...]
    tolerations: tuple[Toleration, ...]
    containers: tuple[Container, ...]
    init_containers: tuple[Container, ...]
    overhead: Requests
    pod_requests: Requests | None
    image_volumes: tuple[str, ...]
    #: In the order of the volumes.
    claim_volumes: tuple[ClaimVolume, ...]
    #: Disks that the pod names itself.
    disks: tuple[Disk, ...]
    #: Drivers of inline `csi` volumes.
    csi_drivers: tuple[str, ...]
    resource_claims: tuple[str, ...]
    #: Why the affinity annotation does not parse, in which case it counts as absent; None if there is no such problem.
    annotation_problem: str | None
    host_network: bool
    #: `hostUsers: false`.
    uses_user_namespace: bool
    #: The parts of the spec that exceed a limit and count as absent; None if no part does. See `limits`.
    exceeded_limits: str | None = None

    @property
    def claims(self) -> Iterator[str]:
        """The names of the claims that the volumes name, without those of generic ephemeral volumes."""
        return (volume.name for volume in self.claim_volumes if not volume.is_ephemeral)


@dataclass(frozen=True, slots=True)
class PodCondition:
    """The PodScheduled condition of a pod."""

    status: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Owner:
    """The controlling owner reference, which default spread selectors read."""

    api_version: str
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod at one resourceVersion."""

    uid: str
    namespace: str
    name: str
    resource_version: str
    generation: int
    labels: Mapping[str, str] = field(hash=False)
    spec: PodSpec = field(hash=False)
    scheduler_name: str
    node_name: str
    nominated_node_name: str
    priority: int
    gates: tuple[str, ...]
    terminating: bool
    phase: str
    created: str
    owner: Owner | None
    scheduled_condition: PodCondition | None
    resize: Resize | None = field(hash=False)
    #: How long the pod may run without the pods that its enforced affinity requires; None if not set.
    affinity_grace_s: float | Problem | None = None
    #: Why the node's kubelet rejected the failed pod, such as OutOfcpu; empty if it did not.
    kubelet_refusal: str = ""
    #: Whether it may preempt others: its preemptionPolicy is not Never.
    may_preempt: bool = True
    #: When the kubelet first saw it, as the API server writes it; empty before.
    started: str = ""
    #: Whether its condition DisruptionTarget says that a scheduler preempts it.
    is_preempted: bool = False
    #: The group with which it is placed; None if it names none.
    group: GroupReference | None = None

    @property
    def key(self) -> str:
        """Return `namespace/name`, as logs and messages show it."""
        return f"{self.namespace}/{self.name}"

    @property
    def is_terminal(self) -> bool:
        """Return whether the pod has succeeded or failed, after which it holds no resources."""
        return self.phase in ("Succeeded", "Failed")


def may_use_claim(pod: Pod, key: str) -> bool:
    """
    Return whether the claim of `namespace/name` is one of the pod's; of those for ephemeral volumes it only may be.

    Only the spec is read, not the pod's name: the answer for one pod is used for all pods of its spec.
    """
    namespace, _, name = key.partition("/")
    return namespace == pod.namespace and any(
        name.endswith(f"-{volume.name}") if volume.is_ephemeral else name == volume.name
        for volume in pod.spec.claim_volumes
    )


def term_problem(pod: Pod) -> str | None:
    """Return why a part of the pod's spec or its affinity annotation counts as absent; None if no part does."""
    return pod.spec.exceeded_limits or pod.spec.annotation_problem or pod.spec.affinity.problem()


def spread_problem(pod: Pod) -> str | None:
    """Return why the pod's spread constraints do not parse; None if they do."""
    for constraint in pod.spec.spread:
        if isinstance(constraint.selector, Problem):
            return constraint.selector.cause
    return None
