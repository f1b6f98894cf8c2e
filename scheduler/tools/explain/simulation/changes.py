"""
Makes changes in the state of a cluster, decides again, and takes the changes back.

After each decision the counts equal a recount. A decision is `engine.core.decide`, as in a cycle of the
machine; no pod is assumed, so that there is nothing else to take back.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Final, assert_never

import msgspec

from scheduler.engine.core.decide import ScheduleResult, decide
from scheduler.engine.framework.interface import Rng
from scheduler.engine.framework.profile import Profile
from scheduler.engine.model.allocations import DeviceToleration
from scheduler.engine.model.changes import (
    AddMatchLabelKey,
    AddRoom,
    AllowSkew,
    Change,
    Changes,
    DropDeviceConstraint,
    HonorPolicy,
    LabelNamespace,
    LabelNode,
    RecreateWithMatchLabelKey,
    RemovePod,
    RemoveTaint,
    RollOutInPlace,
    RunPod,
    TolerateDeviceTaint,
    TolerateTaint,
    Uncordon,
    UnselectNode,
)
from scheduler.engine.model.device_requests import DeviceQuery, DeviceRequest, ResourceClaim
from scheduler.engine.model.nodes import Namespace, Node
from scheduler.engine.model.pod_decoder import PodDecoder
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.revisions import (
    anti_affinity_across_revisions,
    declares_any,
    deployment_of,
    is_other_revision,
    keyed_anti_affinity,
    keyed_spread,
)
from scheduler.engine.model.stimuli import NodeSeen, ObjectSeen, PodGone, PodSeen, WatchEvent
from scheduler.engine.model.terms import CORDON_TAINT_KEY, AffinityTerm, Taint, Toleration
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.tools.explain.simulation.new_claims import freed_claims
from scheduler.tools.explain.simulation.watch_events import applied

#: A pod-deletion-cost.
_COST: Final = re.compile(r"0|-?[1-9][0-9]{0,9}")
_POLICIES: Final = {"nodeTaintsPolicy": "honor_node_taints", "nodeAffinityPolicy": "honor_node_affinity"}


def node_after(pod: Pod, state: ClusterState, profile: Profile, rng: Rng, changes: Changes) -> str | None:
    """Return the pod's node once all changes, which are taken back, are made; None if it fits on no node."""
    with made(changes, pod, state):
        decision = decide(changed_by(pod, changes), ClusterView(state), profile, rng)
    return decision.node_name if isinstance(decision, ScheduleResult) else None


def made(changes: Iterable[Change], pod: Pod, state: ClusterState) -> AbstractContextManager[None]:
    """Let the cluster have the changes for the pod within the block; `changed_by` makes those of the pod itself."""
    return applied(state, (event for change in changes for event in _events_of(change, pod, state)))


def changed_by(pod: Pod, changes: Iterable[Change]) -> Pod:
    """Return the pod as it is with those of the changes that are of the pod itself."""
    for change in changes:
        spec = pod.spec
        match change:
            case AddMatchLabelKey(field="topologySpreadConstraints"):
                pod = keyed_spread(pod, change.topology_key)
            case AddMatchLabelKey():
                pod = keyed_anti_affinity(pod, _by_key(pod, change.topology_key))
            case TolerateTaint(key=key, value=value, effect=effect):
                tolerations = (*spec.tolerations, Toleration(key, "Equal", value, effect))
                pod = replace(pod, spec=replace(spec, tolerations=tolerations))
            case AllowSkew(topology_key=key, max_skew=max_skew):
                pod = _with_spread(pod, key, {"max_skew": max_skew})
            case HonorPolicy(topology_key=key, field=field):
                pod = _with_spread(pod, key, {_POLICIES[field]: True})
    return pod


def _with_spread(pod: Pod, topology_key: str, changed: Mapping[str, Any]) -> Pod:
    spread = tuple(
        replace(one, **changed) if one.hard and one.topology_key == topology_key else one
        for one in pod.spec.spread
    )
    return replace(pod, spec=replace(pod.spec, spread=spread))


def _by_key(pod: Pod, topology_key: str) -> list[AffinityTerm]:
    return [term for term in anti_affinity_across_revisions(pod) if term.topology_key == topology_key]


def _events_of(change: Change, pod: Pod, state: ClusterState) -> Iterator[WatchEvent]:
    """
    Yield what a watch shows once the change is made for the pod; nothing for a node that is missing.

    Running pods that are created anew have their terms, which equal the pod's own, narrowed to their revisions.
    """
    match change:
        case AddMatchLabelKey() | TolerateTaint() | AllowSkew() | HonorPolicy():
            pass  # of the pod itself
        case RemovePod(uid=uid):
            yield from _leaving(uid, state)
        case RollOutInPlace():
            placed = (known.pod for known in state.placed.values())
            old = [other for other in placed if is_other_revision(pod, other) and not other.terminating]
            if old:
                yield from _leaving(_first_deleted(old, state).uid, state)
        case UnselectNode():
            if (volume_claim := state.volumes.claim(f"{change.namespace}/{change.claim}")) is not None:
                yield ObjectSeen(replace(volume_claim, selected_node=None))
        case RunPod():
            # Without requests, and of a name that is no pod's: each change adds one.
            name = f"imagined-{len(state.placed)}"
            of_pod = {"name": name, "namespace": change.namespace, "uid": f"{change.namespace}/{name}"}
            document = {"metadata": {**of_pod, "labels": change.labels}, "spec": {"nodeName": change.node}}
            yield PodSeen(PodDecoder().decode(msgspec.json.encode(document)))
        case LabelNamespace(namespace=name, key=key, value=value):
            labels = state.label_sets.namespace_labels.get(name, {})
            yield ObjectSeen(Namespace(name, "", {**labels, key: value}))
        case RecreateWithMatchLabelKey():
            terms = _by_key(pod, change.topology_key)
            declaring = [known.pod for known in state.placed.values() if declares_any(known.pod, terms)]
            yield from (PodSeen(keyed_anti_affinity(running, terms)) for running in declaring)
        case TolerateDeviceTaint() | DropDeviceConstraint():
            if (claim := state.devices.claim(f"{change.namespace}/{change.claim}")) is not None:
                yield ObjectSeen(_changed_claim(claim, change))
        case AddRoom() | RemoveTaint() | Uncordon() | LabelNode():
            if (node := state.node(change.node)) is not None:
                yield NodeSeen(_changed_node(node, change))
        case _:
            assert_never(change)


def _first_deleted(pods: Sequence[Pod], state: ClusterState) -> Pod:
    """
    Return the pod of a Deployment that its ReplicaSet's controller deletes first; all that run count as ready.

    Source: controller_utils.go, ActivePodsWithRanks (kubernetes 1.36).
    """
    n_related = Counter(
        known.row
        for known in state.placed.values()
        if (known.pod.namespace, deployment_of(known.pod)) == (pods[0].namespace, deployment_of(pods[0]))
    )

    def rank(pod: Pod) -> tuple[bool, int, int]:
        cost = int(pod.deletion_cost) if _COST.fullmatch(pod.deletion_cost) else 0
        return pod.phase != "Pending", cost, -n_related[state.placed[pod.uid].row]

    first = min(map(rank, pods))
    return max((pod for pod in pods if rank(pod) == first), key=lambda pod: (pod.created, pod.name))


def _leaving(uid: str, state: ClusterState) -> Iterator[WatchEvent]:
    if (leaving := state.placed.get(uid)) is not None:
        yield from freed_claims(leaving.pod, state)
    yield PodGone(uid)


def _changed_node(node: Node, change: AddRoom | RemoveTaint | Uncordon | LabelNode) -> Node:
    match change:
        case AddRoom(resource=resource, amount=amount):
            room = {**node.allocatable, resource: node.allocatable.get(resource, 0) + amount}
            return replace(node, allocatable=room)
        case RemoveTaint(key=key, value=value, effect=effect):
            return replace(node, taints=tuple(t for t in node.taints if t != Taint(key, value, effect)))
        case Uncordon():
            taints = tuple(t for t in node.taints if t.key != CORDON_TAINT_KEY)
            return replace(node, unschedulable=False, taints=taints)
        case LabelNode(key=key, value=value):
            others = {name: text for name, text in node.labels.items() if name != key}
            return replace(node, labels=others if value is None else {**others, key: value})
        case _:
            assert_never(change)


def _changed_claim(claim: ResourceClaim, change: TolerateDeviceTaint | DropDeviceConstraint) -> ResourceClaim:
    """Return the claim with one more toleration, or without its constraints on an attribute."""
    if isinstance(change, DropDeviceConstraint):
        kept = tuple(
            each
            for each in claim.constraints
            if change.attribute not in (each.match_attribute, each.distinct_attribute)
        )
        return replace(claim, constraints=kept)
    toleration = DeviceToleration(change.key, "Equal", change.value, change.effect)
    requests = tuple(_tolerating(each, change.request, toleration) for each in claim.requests)
    return replace(claim, requests=requests)


def _tolerating(request: DeviceRequest, name: str, toleration: DeviceToleration) -> DeviceRequest:
    """Return the request with the toleration if it, or one of its alternatives, has the name `R` or `R/S`."""

    def changed(query: DeviceQuery, full_name: str) -> DeviceQuery:
        return replace(query, tolerations=(*query.tolerations, toleration)) if full_name == name else query

    return replace(
        request,
        exactly=None if request.exactly is None else changed(request.exactly, request.name),
        first_available=tuple(
            changed(each, f"{request.name}/{each.name}") for each in request.first_available
        ),
    )
