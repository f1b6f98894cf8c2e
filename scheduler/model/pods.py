"""
Pods as the scheduler reads them: identity per pod, and one shared `PodSpec` for all pods of an equal spec.

Decoding keeps only the fields that a scheduler reads. The parts of a spec that repeat across a ReplicaSet are kept as
raw bytes until the spec is seen for the first time; after that a pod costs a look-up. `PodSpec` is the equivalence
class of the cycle: everything derived from it is cached on its identity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakValueDictionary

import msgspec

from scheduler.model import nesting, wire
from scheduler.model.affinity import parse_affinity, parse_node_rule, parse_preferred_nodes, parse_spread
from scheduler.model.annotations import (
    AFFINITY,
    MERGED_LABELS,
    MODE,
    Extra,
    combined_affinity,
    combined_node_rule,
    parse_extra,
    parse_grace,
)
from scheduler.model.kubelet import refusal_reason
from scheduler.model.limits import bounded
from scheduler.model.quantity import Quantity, QuantityError, non_negative_quantity
from scheduler.model.terms import (
    NodeRule,
    PodAffinity,
    PreferredNodeTerm,
    Problem,
    SpreadConstraint,
    Toleration,
)

DEFAULT_SCHEDULER_NAME: Final = "default-scheduler"

Requests = Mapping[str, Quantity]
_NO_REQUESTS: Final[Requests] = {}


class MalformedObjectError(ValueError):
    """An object that no API server would store. The watch reports it and goes on; nobody retries."""


@dataclass(frozen=True, slots=True)
class HostPort:
    """A port that a pod wants on its node; '' is kept as '0.0.0.0' and 'TCP'."""

    ip: str
    protocol: str
    port: int


@dataclass(frozen=True, slots=True)
class Container:
    """A container's share of the spec that decides where it can run. `restart_always` marks a sidecar."""

    name: str
    image: str
    requests: Requests
    host_ports: tuple[HostPort, ...]
    restart_always: bool
    restarts_all: bool


@dataclass(frozen=True, slots=True)
class ContainerResize:
    """The resources that a container holds on its node, where they differ from its spec."""

    requests: Requests
    allocated: Requests


@dataclass(frozen=True, slots=True)
class Resize:
    """An in-place resize under way or refused; absent from a pod whose status agrees with its spec."""

    containers: Mapping[str, ContainerResize]
    pod_requests: Requests | None
    pod_allocated: Requests
    infeasible: bool


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class PodSpec:
    """
    Everything that a decision reads from a spec; one object for all pods of a namespace whose spec is equal.

    Compared and hashed by identity: equal specs are the same object as long as a pod of them lives.
    """

    namespace: str
    node_rule: NodeRule
    preferred_nodes: tuple[PreferredNodeTerm, ...] | None
    affinity: PodAffinity
    spread: tuple[SpreadConstraint, ...]
    tolerations: tuple[Toleration, ...]
    containers: tuple[Container, ...]
    init_containers: tuple[Container, ...]
    overhead: Requests
    pod_requests: Requests | None
    image_volumes: tuple[str, ...]
    claims: tuple[str, ...]
    ephemeral_volumes: tuple[str, ...]
    resource_claims: tuple[str, ...]
    #: Why the affinity annotation does not parse; it counts as absent then. None where it does or is not there.
    annotation_problem: str | None
    host_network: bool
    host_users_denied: bool
    #: What of the spec is beyond a limit, and counts as absent; None where nothing is. See `limits`.
    excess: str | None = None


@dataclass(frozen=True, slots=True)
class PodCondition:
    """The PodScheduled condition as the API server has it."""

    status: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Owner:
    """The controlling owner reference, for default spread selectors."""

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
    scheduled: PodCondition | None
    resize: Resize | None = field(hash=False)
    #: Seconds without a match that its enforced affinity forgives; None where the pod does not say.
    affinity_grace_s: float | Problem | None = None
    #: Why the node's kubelet refused the failed pod, such as OutOfcpu; empty where it did not.
    kubelet_refusal: str = ""

    @property
    def key(self) -> str:
        """`namespace/name`, as logs and messages have it."""
        return f"{self.namespace}/{self.name}"

    @property
    def is_terminal(self) -> bool:
        """Whether the pod has run to its end: it counts nowhere any more."""
        return self.phase in ("Succeeded", "Failed")


class PodDecoder:
    """
    Turns JSON bytes into pods that share their specs. One per process: sharing works within one decoder.

    Cost: about 10 µs for a pod of a known spec, 60 µs for a new one (3 KB of JSON).
    """

    def __init__(self) -> None:
        self._decoder = msgspec.json.Decoder(wire.Pod)
        #: Values are held by the pods alone: a spec goes when its last pod goes.
        self._specs: WeakValueDictionary[tuple[object, ...], PodSpec] = WeakValueDictionary()

    def decode(self, data: bytes | msgspec.Raw) -> Pod:
        """The pod of a JSON document. Raises MalformedObjectError, naming field and problem, where there is none."""
        try:
            return self._pod(nesting.read(self._decoder.decode, data))
        except (msgspec.DecodeError, QuantityError, UnicodeDecodeError, RecursionError) as error:
            raise MalformedObjectError(f"pod: {error}") from error

    def _pod(self, raw: wire.Pod) -> Pod:
        meta, spec, status = raw.metadata, raw.spec, raw.status
        if not meta.name or not meta.namespace:
            raise MalformedObjectError("pod: metadata.name and metadata.namespace are required")
        return Pod(
            uid=meta.uid or f"{meta.namespace}/{meta.name}",
            namespace=meta.namespace,
            name=meta.name,
            resource_version=meta.resource_version,
            generation=meta.generation,
            labels=meta.labels or {},
            spec=self._spec(meta, meta.namespace, spec),
            scheduler_name=spec.scheduler_name or DEFAULT_SCHEDULER_NAME,
            node_name=spec.node_name or "",
            nominated_node_name=status.nominated_node_name or "",
            priority=spec.priority or 0,
            gates=tuple(gate.name for gate in spec.scheduling_gates or ()),
            terminating=meta.deletion_timestamp is not None,
            phase=status.phase or "",
            created=meta.creation_timestamp or "",
            owner=_owner(meta.owner_references),
            scheduled=_scheduled(status.conditions),
            resize=_resize(spec, status),
            affinity_grace_s=parse_grace(meta.annotations) if meta.annotations else None,
            kubelet_refusal=refusal_reason(status) if status.phase == "Failed" else "",
        )

    def _spec(self, meta: wire.Metadata, namespace: str, raw: wire.PodSpec) -> PodSpec:
        key = _spec_key(namespace, raw)
        annotations = meta.annotations or {}
        if AFFINITY in annotations:
            # The label keys of its terms take their values from the pod, so that its labels belong to the key too.
            labels = frozenset((meta.labels or {}).items())
            key = (*key, annotations[AFFINITY], annotations.get(MODE), MERGED_LABELS in annotations, labels)
        spec = self._specs.get(key)
        if spec is None:
            spec = bounded(
                _parse_spec(namespace, raw, parse_extra(namespace, meta.labels or {}, annotations))
            )
            self._specs[key] = spec
        return spec


def _spec_key(namespace: str, raw: wire.PodSpec) -> tuple[object, ...]:
    """What makes two specs equal; volumes that no plugin reads are left out (their names are random)."""
    return (
        namespace,
        bytes(raw.node_selector),
        bytes(raw.affinity),
        bytes(raw.topology_spread_constraints),
        bytes(raw.tolerations),
        tuple(_container_key(c) for c in raw.containers or ()),
        tuple(_container_key(c) for c in raw.init_containers or ()),
        bytes(raw.overhead),
        bytes(raw.resources),
        bytes(raw.resource_claims),
        tuple(
            (v.name, v.claim_name, v.is_ephemeral, v.image_reference) for v in raw.volumes or () if v.is_read
        ),
        raw.host_network,
        raw.host_users,
    )


def _container_key(raw: wire.Container) -> tuple[object, ...]:
    return (
        raw.name,
        raw.image,
        bytes(raw.resources),
        bytes(raw.ports),
        raw.restart_policy,
        raw.restart_policy_rules,
    )


def _parse_spec(namespace: str, raw: wire.PodSpec, extra: Extra | Problem | None) -> PodSpec:
    affinity = wire.decode_affinity(raw.affinity)
    node_rule = parse_node_rule(wire.decode_labels(raw.node_selector), affinity)
    preferred_nodes = parse_preferred_nodes(affinity.node_affinity if affinity else None)
    pod_affinity = parse_affinity(namespace, affinity)
    problem = extra.cause if isinstance(extra, Problem) else None
    if isinstance(extra, Extra):
        both = combined_node_rule(node_rule, extra)
        if isinstance(both, Problem):
            problem = both.cause
        else:
            node_rule = both
            pod_affinity = combined_affinity(pod_affinity, extra)
            kept = None if extra.replaces else preferred_nodes
            preferred_nodes = (*(kept or ()), *extra.preferred_nodes) or kept
    pod_resources = wire.decode_resources(raw.resources)
    volumes = [v for v in raw.volumes or () if v.is_read]
    return PodSpec(
        namespace=namespace,
        node_rule=node_rule,
        preferred_nodes=preferred_nodes,
        affinity=pod_affinity,
        spread=tuple(
            parse_spread(constraint) for constraint in wire.decode_spread(raw.topology_spread_constraints)
        ),
        tolerations=tuple(
            Toleration(t.key or "", t.operator or "", t.value or "", t.effect or "")
            for t in wire.decode_tolerations(raw.tolerations)
        ),
        containers=tuple(_container(c) for c in raw.containers or ()),
        init_containers=tuple(_container(c) for c in raw.init_containers or ()),
        overhead=_quantities(wire.decode_quantities(raw.overhead)),
        pod_requests=None
        if pod_resources is None or pod_resources.requests is None
        else _quantities(pod_resources.requests),
        image_volumes=tuple(v.image_reference for v in volumes if v.image_reference),
        claims=tuple(v.claim_name for v in volumes if v.claim_name),
        ephemeral_volumes=tuple(v.name for v in volumes if v.is_ephemeral),
        resource_claims=tuple(claim.name for claim in wire.decode_named(raw.resource_claims)),
        annotation_problem=problem,
        host_network=raw.host_network is True,
        host_users_denied=raw.host_users is False,
    )


def _container(raw: wire.Container) -> Container:
    resources = wire.decode_resources(raw.resources)
    return Container(
        name=raw.name,
        image=raw.image or "",
        requests=_quantities(resources.requests if resources else None),
        host_ports=tuple(
            HostPort(port.host_ip or "0.0.0.0", port.protocol or "TCP", port.host_port)  # noqa: S104  (a wildcard to compare with, nothing listens)
            for port in wire.decode_ports(raw.ports)
            if port.host_port
        ),
        restart_always=raw.restart_policy == "Always",
        restarts_all=any(rule.action == "RestartAllContainers" for rule in raw.restart_policy_rules or ()),
    )


def _quantities(raw: Mapping[str, wire.QuantityText] | None) -> Requests:
    if not raw:
        return _NO_REQUESTS
    return {name: non_negative_quantity(text) for name, text in raw.items()}


def _owner(references: tuple[wire.OwnerReference, ...] | None) -> Owner | None:
    for reference in references or ():
        if reference.controller:
            return Owner(reference.api_version, reference.kind, reference.name)
    return None


def _scheduled(conditions: tuple[wire.Condition, ...] | None) -> PodCondition | None:
    for condition in conditions or ():
        if condition.type == "PodScheduled":
            return PodCondition(condition.status or "", condition.reason or "", condition.message or "")
    return None


def _resize(spec: wire.PodSpec, status: wire.PodStatus) -> Resize | None:
    """The part of the status that changes what the pod holds on its node; None where spec and status agree."""
    asked = {c.name: c for c in (*(spec.containers or ()), *(spec.init_containers or ()))}
    containers: dict[str, ContainerResize] = {}
    for reported in (*(status.container_statuses or ()), *(status.init_container_statuses or ())):
        own = asked.get(reported.name)
        if not reported.resources or own is None:
            continue
        if bytes(reported.resources) == bytes(own.resources) and not reported.allocated_resources:
            continue
        held = wire.decode_resources(reported.resources)
        containers[reported.name] = ContainerResize(
            requests=_quantities(held.requests if held else None),
            allocated=_quantities(wire.decode_quantities(reported.allocated_resources)),
        )
    pod_held = wire.decode_resources(status.resources)
    if not containers and pod_held is None:
        return None
    return Resize(
        containers=containers,
        pod_requests=None if pod_held is None else _quantities(pod_held.requests),
        pod_allocated=_quantities(wire.decode_quantities(status.allocated_resources)),
        infeasible=any(
            c.type == "PodResizePending" and c.reason == "Infeasible" for c in status.conditions or ()
        ),
    )


def term_problem(pod: Pod) -> str | None:
    """Why a part of the pod's spec, or its affinity by annotation, counts as absent; None if nothing does."""
    return pod.spec.excess or pod.spec.annotation_problem or pod.spec.affinity.problem()


def spread_problem(pod: Pod) -> str | None:
    """Why the pod's spread constraints do not parse, or None."""
    for constraint in pod.spec.spread:
        if isinstance(constraint.selector, Problem):
            return constraint.selector.cause
    return None
