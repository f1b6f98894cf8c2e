"""
Decoding of pods from JSON.

The parts of a spec that repeat across a ReplicaSet stay raw bytes
until the spec is seen for the first time; after that a pod costs one look-up of its spec.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from hashlib import blake2b
from typing import Final
from weakref import WeakValueDictionary

import msgspec

from scheduler.engine.cel.times import parse_timestamp
from scheduler.engine.model import pod_wire, wire
from scheduler.engine.model.affinity import parse_affinity, parse_required_node_affinity, parse_spread
from scheduler.engine.model.annotations import (
    AFFINITY,
    LIMIT_BYTES,
    MERGED_LABELS,
    MODE,
    SHOWN_OF_MODE,
    DeclaredAffinity,
    combined,
    parse_affinity_annotation,
    parse_grace_period,
)
from scheduler.engine.model.disks import disk
from scheduler.engine.model.fallback import (
    FALLBACK,
    LIMIT_CHARACTERS,
    RELAXED,
    parse_fallbacks,
    read_mark,
    relaxed_spec,
    yielding,
)
from scheduler.engine.model.frozen_dict import FrozenDict
from scheduler.engine.model.gated_fields import COMPARISONS, without_effect
from scheduler.engine.model.json_fields import namespace_and_name
from scheduler.engine.model.limits import within_limits
from scheduler.engine.model.pod_groups import group_minimum, group_reference
from scheduler.engine.model.pod_wire import decode_part
from scheduler.engine.model.pods import (
    DEFAULT_SCHEDULER_NAME,
    DELETION_COST,
    WRITTEN_DELETION_COST,
    ClaimVolume,
    Container,
    ContainerResize,
    HostPort,
    Pod,
    PodCondition,
    PodSpec,
    Requests,
    Resize,
)
from scheduler.engine.model.semantics import DEFAULT_SEMANTICS, Gate, Semantics
from scheduler.engine.model.terms import Problem
from scheduler.engine.model.unread_names import unread_names
from scheduler.engine.syntax.quantity import amount_of

_NO_REQUESTS: Final[Requests] = FrozenDict()
_NO_TEXTS: Final[Mapping[str, str]] = {}
#: Longer parts of a spec's key are replaced by a digest: 128 affinity terms take 22 KB.
_PLAIN_BYTES: Final = 256
#: Reasons of rejection other than OutOf<resource>, for messages that do not say that the pod was rejected.
_REJECTIONS: Final = frozenset({"NodeAffinity", "NodePorts", "UnexpectedAdmissionError"})
#: A reason may contain the name of a resource. It is copied into events and conditions, so its form is checked.
_REASON_FORM: Final = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_./]{0,127}")


class PodDecoder:
    """Decodes JSON into pods; pods of one decoder with equal specs share one `PodSpec`, so use one per process."""

    def __init__(self, semantics: Semantics = DEFAULT_SEMANTICS) -> None:
        self._semantics = semantics
        self._decoder = msgspec.json.Decoder(pod_wire.WirePod)
        #: Weak values: a spec is dropped with its last pod.
        self._specs: WeakValueDictionary[tuple[object, ...], PodSpec] = WeakValueDictionary()

    def decode(self, data: bytes | msgspec.Raw) -> Pod:
        """Return the pod of a JSON document; raise MalformedObjectError, which names field and problem."""
        return wire.decoded(self._decode, "pod", data)

    def _decode(self, data: bytes | msgspec.Raw) -> Pod:
        raw = self._decoder.decode(data)
        meta, spec, status = raw.metadata, raw.spec, raw.status
        namespace, name = namespace_and_name(meta.namespace or "", meta.name)
        labels, annotations = meta.labels or _NO_TEXTS, meta.annotations or _NO_TEXTS
        group = group_reference(namespace, spec.scheduling_group.pod_group_name, labels, annotations)
        parsed = self._spec(meta, namespace, spec)
        return Pod(
            uid=meta.uid or f"{namespace}/{name}",
            namespace=namespace,
            name=name,
            resource_version=meta.resource_version,
            generation=meta.generation,
            labels=FrozenDict(meta.labels or ()),
            spec=parsed,
            scheduler_name=spec.scheduler_name or DEFAULT_SCHEDULER_NAME,
            node_name=spec.node_name or "",
            nominated_node_name=status.nominated_node_name or "",
            priority=spec.priority or 0,
            gates=tuple(gate.name for gate in spec.scheduling_gates or ()),
            terminating=meta.deletion_timestamp is not None,
            ends_at_once=meta.deletion_grace_period_seconds == 0 and not meta.finalizers,
            phase=status.phase or "",
            created=meta.creation_timestamp or "",
            owner=_owner(meta.owner_references),
            scheduled_condition=_scheduled_condition(status),
            resize=_resize(spec, status, self._semantics),
            affinity_grace_s=parse_grace_period(meta.annotations) if meta.annotations else None,
            kubelet_refusal=_rejection_reason(status) if status.phase == "Failed" else "",
            may_preempt=spec.preemption_policy != "Never",
            started=status.start_time or "",
            disruption=_disruption(status),
            relaxed=read_mark(meta.annotations or {}) if parsed.unrelaxed is not None else (),
            deletion_cost=(cost := (meta.annotations or _NO_TEXTS).get(DELETION_COST, "")),
            is_deletion_cost_ours=bool(cost) and (meta.annotations or {}).get(WRITTEN_DELETION_COST) == cost,
            group=group,
            unread=unread_names(labels, annotations, has_group=group is not None),
            generated_claims=tuple(
                (entry.name, entry.resource_claim_name) for entry in status.resource_claim_statuses or ()
            ),
        )

    def _spec(self, meta: wire.Metadata, namespace: str, raw: pod_wire.WirePodSpec) -> PodSpec:
        key = _spec_key(namespace, raw)
        annotations = meta.annotations or {}
        if AFFINITY in annotations:
            # matchLabelKeys of its terms take their values from the pod's labels, so the key has the labels too;
            # maxPodsPerDomain in per cent depends on the minimum of the pod's group.
            labels = frozenset((meta.labels or {}).items())
            minimum = group_minimum(namespace, meta.labels or {}, annotations)
            text, mode = _within(annotations[AFFINITY], LIMIT_BYTES), annotations.get(MODE)
            merged = MERGED_LABELS in annotations
            key = (*key, text, mode and mode[: SHOWN_OF_MODE + 1], merged, labels, minimum)
        if FALLBACK in annotations:
            key = (*key, FALLBACK, _within(annotations[FALLBACK], LIMIT_CHARACTERS))
        spec = self._specs.get(key)
        if spec is None:
            self._specs[key] = spec = _new_spec(meta, namespace, raw, self._semantics)
        if raw.node_name and spec.fallbacks and RELAXED in annotations:
            return self._relaxed(key, spec, annotations)
        return spec

    def _relaxed(self, key: tuple[object, ...], spec: PodSpec, annotations: Mapping[str, str]) -> PodSpec:
        """Return the spec of a bound pod, in which the rules that its annotation `relaxed` names are relaxed."""
        names = {entry.rule for entry in read_mark(annotations)}
        entries = tuple(entry for entry in spec.fallbacks if entry.name in names)
        if not entries:
            return spec
        relaxed = self._specs.get((*key, entries))
        # A spec that was forgotten and parsed again is another object.
        if relaxed is None or relaxed.unrelaxed is not spec:
            relaxed = self._specs[*key, entries] = relaxed_spec(spec, entries)
        return relaxed


def _within(text: str, limit: int) -> str | None:
    """Return the text of an annotation, None if it is too long to count."""
    return text if len(text) <= limit else None


def _new_spec(
    meta: wire.Metadata, namespace: str, raw: pod_wire.WirePodSpec, semantics: Semantics
) -> PodSpec:
    annotations = meta.annotations or {}
    annotated = parse_affinity_annotation(namespace, meta.labels or {}, annotations)
    spec = within_limits(_parse_spec(namespace, raw, annotated, semantics))
    if isinstance(annotated, DeclaredAffinity) and annotated.is_required:
        bare = within_limits(_parse_spec(namespace, raw, None, semantics))
        spec = replace(spec, without_annotations=replace(bare, ignores_annotations=True))
    # Rules that count as absent cannot be relaxed.
    if FALLBACK not in annotations or spec.exceeded_limits or spec.annotation_problem:
        return spec
    fallbacks = parse_fallbacks(annotations)
    if isinstance(fallbacks, Problem):
        return replace(spec, annotation_problem=fallbacks.cause)
    of_spec = parse_required_node_affinity(None, decode_part(pod_wire.AFFINITY, raw.affinity))
    marked = yielding(spec, fallbacks, spec_requires_nodes=of_spec.terms is not None)
    if isinstance(marked, Problem):
        return replace(spec, annotation_problem=marked.cause)
    return replace(marked, fallbacks=fallbacks)


def _spec_key(namespace: str, raw: pod_wire.WirePodSpec) -> tuple[object, ...]:
    """Return the key that equal specs share; volumes that no plugin reads are left out, as their names are random."""
    return (
        namespace,
        _part(raw.node_selector),
        _part(raw.affinity),
        _part(raw.topology_spread_constraints),
        _part(raw.tolerations),
        tuple(_container_key(c) for c in raw.containers or ()),
        tuple(_container_key(c) for c in raw.init_containers or ()),
        bytes(raw.overhead),
        bytes(raw.resources),
        bytes(raw.resource_claims),
        tuple(
            (v.name, v.persistent_volume_claim.claim_name, v.ephemeral, v.image.reference, v.csi, disk(v))
            for v in raw.volumes or ()
            if v.is_read
        ),
        raw.host_network,
        raw.host_users,
    )


def _part(raw: msgspec.Raw) -> bytes:
    """Return bytes that are equal for equal parts alone. O(bytes)."""
    return bytes(raw) if len(raw) <= _PLAIN_BYTES else blake2b(raw).digest()


def _container_key(raw: pod_wire.WireContainer) -> tuple[object, ...]:
    return (
        raw.name,
        raw.image,
        bytes(raw.resources),
        bytes(raw.ports),
        raw.restart_policy,
        raw.restart_policy_rules,
    )


def _parse_spec(
    namespace: str,
    raw: pod_wire.WirePodSpec,
    annotated: DeclaredAffinity | Problem | None,
    semantics: Semantics,
) -> PodSpec:
    affinity, problem = _declared_affinity(namespace, raw, annotated)
    pod_resources = None
    if semantics.enabled(Gate.POD_LEVEL_RESOURCES):
        pod_resources = decode_part(pod_wire.RESOURCES, raw.resources)
    volumes = [v for v in raw.volumes or () if v.is_read]
    spread = tuple(
        parse_spread(constraint)
        for constraint in decode_part(pod_wire.SPREAD, raw.topology_spread_constraints) or ()
    )
    tolerations = decode_part(pod_wire.TOLERATIONS, raw.tolerations) or ()
    has_resources = bytes(raw.resources) not in (b"", b"null", b"{}")
    return PodSpec(
        namespace=namespace,
        required_node_affinity=affinity.required_nodes,
        preferred_nodes=affinity.preferred_nodes,
        affinity=affinity.pod_affinity,
        spread=spread,
        tolerations=tolerations
        if semantics.enabled(Gate.TAINT_TOLERATION_COMPARISON_OPERATORS)
        else tuple(each for each in tolerations if each.operator not in COMPARISONS),
        without_effect=without_effect(semantics, spread, tolerations, has_resources=has_resources),
        containers=tuple(_container(c) for c in raw.containers or ()),
        init_containers=tuple(_container(c) for c in raw.init_containers or ()),
        overhead=_quantities(decode_part(pod_wire.OVERHEAD, raw.overhead)),
        pod_requests=None
        if pod_resources is None or pod_resources.requests is None
        else _quantities(pod_resources.requests),
        image_volumes=tuple(v.image.reference for v in volumes if v.image.reference),
        claim_volumes=tuple(
            ClaimVolume(v.name, is_ephemeral=True) if v.ephemeral else ClaimVolume(claim)
            for v in volumes
            if (claim := v.persistent_volume_claim.claim_name) or v.ephemeral
        ),
        disks=tuple(named for v in volumes if (named := disk(v)) is not None),
        csi_drivers=tuple(v.csi.driver for v in volumes if v.csi is not None),
        resource_claims=decode_part(pod_wire.RESOURCE_CLAIMS, raw.resource_claims) or (),
        annotation_problem=problem,
        host_network=raw.host_network is True,
        uses_user_namespace=raw.host_users is False,
    )


def _declared_affinity(
    namespace: str, raw: pod_wire.WirePodSpec, annotated: DeclaredAffinity | Problem | None
) -> tuple[DeclaredAffinity, str | None]:
    """Return the affinity, and why the annotation counts as absent; no reason (None) if it counts."""
    of_spec = decode_part(pod_wire.AFFINITY, raw.affinity)
    affinity = DeclaredAffinity(
        parse_affinity(namespace, of_spec),
        parse_required_node_affinity(decode_part(pod_wire.LABELS, raw.node_selector), of_spec),
        None if of_spec is None else of_spec.node_affinity.preferred,
    )
    if annotated is None:
        return affinity, None
    of_both = annotated if isinstance(annotated, Problem) else combined(affinity, annotated)
    return (affinity, of_both.cause) if isinstance(of_both, Problem) else (of_both, None)


def _container(raw: pod_wire.WireContainer) -> Container:
    resources = decode_part(pod_wire.RESOURCES, raw.resources)
    return Container(
        name=raw.name,
        image=raw.image or "",
        requests=_quantities(resources.requests if resources else None),
        host_ports=tuple(
            HostPort(port.host_ip or "0.0.0.0", port.protocol or "TCP", port.host_port)  # noqa: S104  (a wildcard to compare with, nothing listens)
            for port in decode_part(pod_wire.PORTS, raw.ports) or ()
            if port.host_port
        ),
        restart_always=raw.restart_policy == "Always",
        restarts_all=any(rule.action == "RestartAllContainers" for rule in raw.restart_policy_rules or ()),
    )


def _quantities(raw: Mapping[str, wire.QuantityText] | None) -> Requests:
    if not raw:
        return _NO_REQUESTS
    return FrozenDict({name: amount_of(name, text) for name, text in raw.items()})


def _owner(references: tuple[wire.Owner, ...]) -> wire.Owner | None:
    return next((reference for reference in references if reference.controller), None)


def _condition(status: pod_wire.PodStatus, condition_type: str) -> pod_wire.Condition | None:
    return next((each for each in status.conditions or () if each.type == condition_type), None)


def _scheduled_condition(pod_status: pod_wire.PodStatus) -> PodCondition | None:
    condition = _condition(pod_status, "PodScheduled")
    if condition is None:
        return None
    status, reason, message = condition.status or "", condition.reason or "", condition.message or ""
    # Of the pods with a node, which are most, nobody reads it. It is written in whole seconds, rounded down.
    changed = parse_timestamp(condition.last_transition_time or "") if status == "False" else None
    return PodCondition(status, reason, message, None if changed is None else changed.ns // 10**9 + 1.0)


def _rejection_reason(status: pod_wire.PodStatus) -> str:
    """
    Return why the kubelet rejected a failed pod at admission, such as OutOfcpu; empty if it did not.

    Source: kubelet.go, rejectPod; lifecycle/predicate.go, InsufficientResourcePrefix (kubernetes 1.36).
    """
    reason = status.reason or ""
    if not _REASON_FORM.fullmatch(reason):
        return ""
    is_rejection = reason.startswith("OutOf") or reason in _REJECTIONS
    return reason if is_rejection or (status.message or "").startswith("Pod was rejected: ") else ""


def _disruption(status: pod_wire.PodStatus) -> str:
    """Source: defaultpreemption/default_preemption.go, podTerminatingByPreemption (kubernetes 1.36)."""
    condition = _condition(status, "DisruptionTarget")
    return "" if condition is None or condition.status != "True" else condition.reason or ""


def _resize(spec: pod_wire.WirePodSpec, status: pod_wire.PodStatus, semantics: Semantics) -> Resize | None:
    """Return the resources that the pod holds on its node by its status; None if these agree with the spec."""
    declared = {c.name: c for c in (*(spec.containers or ()), *(spec.init_containers or ()))}
    containers: dict[str, ContainerResize] = {}
    for reported in (*(status.container_statuses or ()), *(status.init_container_statuses or ())):
        own = declared.get(reported.name)
        if not reported.resources or own is None:
            continue
        if bytes(reported.resources) == bytes(own.resources) and not reported.allocated_resources:
            continue
        held = decode_part(pod_wire.RESOURCES, reported.resources)
        containers[reported.name] = ContainerResize(
            requests=_quantities(held.requests if held else None),
            allocated=_quantities(decode_part(pod_wire.ALLOCATED, reported.allocated_resources)),
        )
    pod_held = None
    if semantics.enabled(Gate.IN_PLACE_POD_LEVEL_RESOURCES_VERTICAL_SCALING):
        pod_held = decode_part(pod_wire.RESOURCES, status.resources)
    if not containers and pod_held is None:
        return None
    return Resize(
        containers=FrozenDict(containers),
        pod_requests=None if pod_held is None else _quantities(pod_held.requests),
        pod_allocated=_quantities(decode_part(pod_wire.ALLOCATED, status.allocated_resources)),
        infeasible=any(
            c.type == "PodResizePending" and c.reason == "Infeasible" for c in status.conditions or ()
        ),
    )
