"""Pods as the scheduler reads them: one `Pod` per pod, and one shared `PodSpec` for all pods with an equal spec."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Final, Generic, TypeVar
from weakref import WeakKeyDictionary

from scheduler.engine.model.disks import Disk
from scheduler.engine.model.fallback import Fallback, RelaxedRule, relaxed_spec
from scheduler.engine.model.group_forms import Rank
from scheduler.engine.model.pod_groups import GroupReference
from scheduler.engine.model.pod_wire import PodResourceClaim
from scheduler.engine.model.semantics import Gate
from scheduler.engine.model.terms import (
    AffinityTerm,
    PodAffinity,
    PreferredNodeTerm,
    Problem,
    RequiredNodeAffinity,
    SpreadConstraint,
    Toleration,
)
from scheduler.engine.model.wire import Owner
from scheduler.engine.syntax.quantity import Quantity

_T = TypeVar("_T")

DEFAULT_SCHEDULER_NAME: Final = "default-scheduler"

Requests = Mapping[str, Quantity]

#: The start rank of a pod that has not started, which counts as starting now: behind every time of the API server.
NOT_STARTED: Final = 1 << 62

#: Orders the pods of a ReplicaSet for deletion, and what the enforcer wrote there.
DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
WRITTEN_DELETION_COST: Final = "affinity-scheduler.io/written-deletion-cost"

#: Owners that put a pod that is removed back on its node; a Node owns the static pods of its kubelet.
_BOUND_TO_NODE: Final = ("DaemonSet", "Node")

#: Deletes all but the digits of a time, such as 2026-01-02T03:04:05Z.
_DIGITS_ONLY: Final = dict.fromkeys(map(ord, "-:TZ"))


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

    Compared and hashed by identity: whatever is derived from a spec can be cached by the object.
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
    resource_claims: tuple[PodResourceClaim, ...]
    #: Why an annotation about affinity does not parse, in which case it counts as absent; None if all parse.
    annotation_problem: str | None
    host_network: bool
    #: `hostUsers: false`.
    uses_user_namespace: bool
    #: The gates that are off of fields that the spec has.
    without_effect: tuple[Gate, ...] = ()
    #: The parts of the spec that exceed a limit and count as absent; None if no part does. See `limits`.
    exceeded_limits: str | None = None
    #: Required rules that may become preferences.
    fallbacks: tuple[Fallback, ...] = ()
    #: The rules of `fallbacks` that are preferences now.
    relaxed: tuple[Fallback, ...] = ()
    #: The required anti-affinity terms that count as preferred for the pod: equal terms of others yield to it.
    relaxed_anti: tuple[AffinityTerm, ...] = ()
    #: The spec before its rules were relaxed; None if none is.
    unrelaxed: PodSpec | None = None
    #: The spec without what annotations declare, as autoscalers read it; None if they declare no required term.
    without_annotations: PodSpec | None = None
    #: Whether this is such a spec. Terms that running pods declare by annotation then do not count either.
    ignores_annotations: bool = False

    @property
    def claims(self) -> Iterator[str]:
        """The names of the claims that the volumes name, without those of generic ephemeral volumes."""
        return (volume.name for volume in self.claim_volumes if not volume.is_ephemeral)

    @property
    def host_ports(self) -> tuple[HostPort, ...]:
        """The host ports of containers and sidecars, not plain init ones. Source: GetHostPorts (kubernetes 1.36)."""
        return tuple(
            port
            for container in (*self.containers, *(c for c in self.init_containers if c.restart_always))
            for port in container.host_ports
        )

    def is_like(self, other: PodSpec) -> bool:
        """Return whether both have equal fields, also if different decoders made them."""
        return all(getattr(self, field.name) == getattr(other, field.name) for field in fields(self))


@dataclass(frozen=True, slots=True)
class PodCondition:
    """The PodScheduled condition. `since_s`: when it became False, at the latest, in seconds since 1970; or None."""

    status: str
    reason: str
    message: str
    since_s: float | None = None


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
    #: The object that controls the pod, such as its ReplicaSet.
    owner: Owner | None
    scheduled_condition: PodCondition | None
    resize: Resize | None = field(hash=False)
    #: Whether it terminates without a grace period and without finalizers: the API server removes it right after.
    ends_at_once: bool = False
    #: How long the pod may run without the pods that its enforced affinity requires; None if not set.
    affinity_grace_s: float | Problem | None = None
    #: Why the node's kubelet rejected the failed pod, such as OutOfcpu; empty if it did not.
    kubelet_refusal: str = ""
    #: Whether it may preempt others: its preemptionPolicy is not Never.
    may_preempt: bool = True
    #: When the kubelet first saw it, as the API server writes it; empty before.
    started: str = ""
    #: Why the condition DisruptionTarget says that it is ended, such as EvictionByEvictionAPI; empty without one.
    disruption: str = ""
    #: The rules that are preferences since the bind, as the pod's mark says.
    relaxed: tuple[RelaxedRule, ...] = ()
    #: `controller.kubernetes.io/pod-deletion-cost` as written, and whether the enforcer wrote it.
    deletion_cost: str = ""
    is_deletion_cost_ours: bool = False
    #: The group with which it is placed; None if it names none.
    group: GroupReference | None = None
    #: Labels and annotations that nothing reads, see `unread_names`.
    unread: tuple[str, ...] = ()
    #: `status.resourceClaimStatuses`: entries of `spec.resourceClaims`, each with the claim that was made for it; None
    #: where none is needed.
    generated_claims: tuple[tuple[str, str | None], ...] = ()

    @property
    def key(self) -> str:
        """Return `namespace/name`, as logs and messages show it."""
        return f"{self.namespace}/{self.name}"

    @property
    def is_bound_to_node(self) -> bool:
        """Return whether its controller puts it back on its node when it is removed."""
        return self.owner is not None and self.owner.kind in _BOUND_TO_NODE

    def recreated(self) -> Pod:
        """Return the pod as its controller recreates it: without node, nomination, resize or time that counts."""
        return replace(
            self,
            # A new pod begins with all of its rules.
            spec=self.spec.unrelaxed or self.spec,
            relaxed=(),
            node_name="",
            nominated_node_name="",
            phase="Pending",
            resize=None,
            scheduled_condition=None,
        )

    @property
    def rank(self) -> Rank:
        """Return its place among the members of its group, in the order of ranks; empty without one."""
        return () if self.group is None else self.group.rank

    @property
    def is_preempted(self) -> bool:
        """Return whether a scheduler preempts it."""
        return self.disruption == "PreemptionByScheduler"

    @property
    def start_rank(self) -> int:
        """Return a number that is the smaller the earlier the pod started, below 2**63."""
        if not self.started:
            return NOT_STARTED
        digits = self.started[:19].translate(_DIGITS_ONLY)[:18]
        return int(digits) if digits.isdecimal() else NOT_STARTED

    @property
    def is_terminal(self) -> bool:
        """Return whether the pod has succeeded or failed, after which it holds no resources."""
        return self.phase in ("Succeeded", "Failed")


class MemoBySpec(Generic[_T]):
    """A cache of `derive(pod)`, which must depend only on the pod's spec; an entry lives as long as the spec."""

    def __init__(self, derive: Callable[[Pod], _T]) -> None:
        self._derive = derive
        self._memo: WeakKeyDictionary[PodSpec, _T] = WeakKeyDictionary()

    def of(self, pod: Pod) -> _T:
        """Return the value of the pod's spec."""
        try:
            return self._memo[pod.spec]
        except KeyError:
            value = self._memo[pod.spec] = self._derive(pod)
            return value


def may_use_claim(pod: Pod, key: str) -> bool:
    """
    Return whether the claim of `namespace/name` is one of the pod's, or may be the claim of an ephemeral volume.

    Only the spec is read, not the pod's name: the answer for one pod is used for all pods of its spec.
    """
    namespace, _, name = key.partition("/")
    return namespace == pod.namespace and any(
        name.endswith(f"-{volume.name}") if volume.is_ephemeral else name == volume.name
        for volume in pod.spec.claim_volumes
    )


def as_relaxed(pod: Pod, spec: PodSpec) -> Pod:
    """Return the pod, in which the same rules are relaxed as in `spec`, the spec of another version of the pod."""
    names = {entry.name for entry in spec.relaxed}
    entries = tuple(entry for entry in pod.spec.fallbacks if entry.name in names)
    return replace(pod, spec=relaxed_spec(pod.spec, entries)) if entries and not pod.spec.relaxed else pod


def term_problem(pod: Pod) -> str | None:
    """Return why a part of the pod's spec or its affinity annotation counts as absent; None if no part does."""
    return pod.spec.exceeded_limits or pod.spec.annotation_problem or pod.spec.affinity.problem()


def spread_problem(pod: Pod) -> str | None:
    """Return why the pod's spread constraints do not parse; None if they do."""
    for constraint in pod.spec.spread:
        if isinstance(constraint.selector, Problem):
            return constraint.selector.cause
    return None
