"""Which claim, and which volume, class or pool, keeps a node out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from scheduler.engine.framework.explaining import NONE_IS_LEFT, ExplainContext, PluginExplanation, Where
from scheduler.engine.framework.status import NodeStatuses, Status
from scheduler.engine.model.changes import UnselectNode
from scheduler.engine.model.node_selector import NodeSelector
from scheduler.engine.model.requests import EPHEMERAL_STORAGE
from scheduler.engine.model.volumes import NO_PROVISIONER, PersistentVolumeClaim, StorageClass
from scheduler.engine.model.wording import amount_text, requirement_text
from scheduler.engine.plugins.volume_binding.claims import PodClaims, claims_of
from scheduler.engine.plugins.volume_binding.filtering import BIND_CONFLICT, NO_SPACE, VolumeFilter
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.engine.state.volumes import Volumes


class _Refusals(NamedTuple):
    """The statuses of the nodes for one claim alone. `storage_class`: None for a claim that has its volume."""

    claim: PersistentVolumeClaim
    storage_class: StorageClass | None
    statuses: NodeStatuses


def explain_claims(context: ExplainContext) -> PluginExplanation:
    """Return the explanation of the refusals of a pod whose claims are bound or wait for its node."""
    view = context.view
    claims = claims_of(context.pod, view.volumes)
    if isinstance(claims, Status):
        return PluginExplanation()

    def refused(alone: PodClaims) -> NodeStatuses:
        return VolumeFilter(alone, view, bind_timeout_s=0).statuses()

    parts = [
        *(_Refusals(claim, None, refused(PodClaims(bound=[claim]))) for claim in claims.bound),
        *(_Refusals(*delayed, refused(PodClaims(delayed=[delayed]))) for delayed in claims.delayed),
    ]
    gone = tuple(
        UnselectNode(context.pod.namespace, claim.name, claim.selected_node)
        for claim, _ in claims.delayed
        if claim.selected_node is not None and not _is_node(claim.selected_node, view)
    )
    return PluginExplanation(
        where=lambda rows: [_where(parts, row, view) for row in rows.tolist()],
        proposals=lambda: [gone] if gone else [],
        admitted=_admitted(claims),
    )


def explain_rejection(context: ExplainContext) -> Where:
    """Return which claims have no volume, and why, of a pod that cannot be placed whatever the node."""
    volumes, pod = context.view.volumes, context.pod
    keys = (f"{pod.namespace}/{claim_volume.claim_name(pod.name)}" for claim_volume in pod.spec.claim_volumes)
    claims = [claim for key in keys if (claim := volumes.claim(key)) is not None]
    return Where.joined(_unbound(claim, volumes) for claim in claims if not claim.is_bound)


def _unbound(claim: PersistentVolumeClaim, volumes: Volumes) -> str | Where:
    """Return why a claim has no volume yet; empty if it waits for its pod's node."""
    if claim.volume_name:
        return f"claim {claim.name}: volume {claim.volume_name} is not bound to it yet"
    if not claim.class_name:
        return f"claim {claim.name}: has no class that could make its volume"
    storage_class = volumes.storage_class(claim.class_name)
    if storage_class is None:
        return Where(f"claim {claim.name}: there is no class {claim.class_name}", is_nowhere=True)
    if storage_class.waits:
        return ""
    maker = _maker(storage_class)
    if not maker:
        return f"claim {claim.name}: no volume of class {claim.class_name} is bound to it yet, and the class makes none"
    return f"claim {claim.name}: {maker} has made no volume of class {claim.class_name} for it"


def _admitted(claims: PodClaims) -> str:
    names = sorted({claim.name for claim in (*claims.bound, *(claim for claim, _ in claims.delayed))})
    noun = "the volume of claim" if len(names) == 1 else "the volumes of claims"
    return f"{'room for ' if claims.delayed else ''}{noun} {', '.join(names)}"


def _is_node(name: str, view: ClusterView) -> bool:
    row = view.nodes.row_by_name.get(name)
    return row is not None and bool(view.alive[row])


def _where(parts: Sequence[_Refusals], row: int, view: ClusterView) -> Where:
    """Return for each claim that keeps the row out why it does."""
    said = [_text(part, row, view) for part in parts if part.statuses.codes[row]]
    return Where.joined(said or ["no free volume for each of its claims"])


def _text(part: _Refusals, row: int, view: ClusterView) -> str | Where:
    claim, storage_class = part.claim, part.storage_class
    if storage_class is None:
        volume = view.volumes.volume(claim.volume_name)
        if volume is None:
            return Where(f"claim {claim.name}: there is no volume {claim.volume_name}", is_nowhere=True)
        gone = "" if (view.alive & (part.statuses.codes == 0)).any() else NONE_IS_LEFT
        nodes = topology_text(volume.source.topology)
        return f"claim {claim.name}: volume {volume.key} is reached from {nodes}{gone}"
    status = part.statuses.at(row)
    reasons = () if status is None else status.reasons
    size = amount_text(EPHEMERAL_STORAGE, claim.requested_bytes)
    if NO_SPACE in reasons:
        return f"claim {claim.name}: no pool of class {storage_class.key} has {size}"
    if BIND_CONFLICT in reasons and claim.selected_node is not None:
        gone = "" if _is_node(claim.selected_node, view) else ", which is gone"
        return f"claim {claim.name}: its volume is to be on node {claim.selected_node}{gone}"
    if not _maker(storage_class):
        wanted = ", ".join((size, *claim.access_modes))
        return f"claim {claim.name}: no free volume of class {storage_class.key} suits it ({wanted})"
    allowed = topology_text(NodeSelector(storage_class.allowed_topologies))
    return f"claim {claim.name}: class {storage_class.key} makes volumes for {allowed}"


def _maker(storage_class: StorageClass) -> str:
    return "" if storage_class.provisioner == NO_PROVISIONER else storage_class.provisioner


def topology_text(topology: NodeSelector | None) -> str:
    """Return the nodes that reach the topology, by their labels."""
    if topology is None:
        return "every node"
    terms = (term for term in topology.terms if term.problem is None and not term.is_empty)
    texts = (",".join(map(requirement_text, term.expressions)) or "every node" for term in terms)
    return " or ".join(texts) or "no node"
