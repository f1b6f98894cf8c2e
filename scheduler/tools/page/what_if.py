"""
Answers "what if": where the pods of a manifest would go, and the pods of nodes that are taken away.

Everything happens on a copy of the cluster, which nothing else reads; the cluster itself is never written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from scheduler.daemon.settings.resolved import Settings
from scheduler.engine.framework.interface import Rng
from scheduler.engine.model.pods import Pod
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.syntax.words import counted
from scheduler.errors import SettingsError
from scheduler.tools.explain.formats.explanation import Document, JsonStruct, PodRef
from scheduler.tools.explain.formats.manifest_documents import ManifestFile
from scheduler.tools.explain.input_files import add_other_objects
from scheduler.tools.explain.priority_classes import add_priorities
from scheduler.tools.explain.scenarios import simulate_copies, simulate_drain, simulate_manifests
from scheduler.tools.explain.simulation.drain import (
    Drain,
    Stay,
    by_priority,
    cordoned,
    empty_nodes,
    move_pods,
)
from scheduler.tools.explain.simulation.loaded_cluster import LoadedCluster
from scheduler.tools.explain.simulation.replicas import (
    NodeShare,
    Simulation,
    ZoneShare,
    node_shares,
    relaxed_notes,
    zone_shares,
)

#: Replicas of a manifest, and pods of lost nodes that are placed again.
MAX_REPLICAS: Final = 2_000
MAX_DISPLACED: Final = 2_000
_MAX_REASONS: Final = 10
_MAX_EXAMPLES: Final = 5
_NO_CLASSES: Final = "the page reads no PriorityClasses of the cluster"


class NodeLabel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nodes with this label."""

    key: str
    value: str


class PodName(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A pod of the cluster, which serves as the manifest."""

    namespace: str
    name: str


class WhatIfRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """
    A manifest, or a pod that stands for one, or neither; and changes of the cluster.

    `replicas`: null for the manifest's own number. `cordon`: nodes that take no further pods. `drain`: nodes that are
    drained, as `simulate --drain` has it. `without`: nodes that are gone, whose pods are placed again. `weights`: of
    scoring plugins, by name.
    """

    manifest: str = ""
    like: PodName | None = None
    replicas: int | None = None
    cordon: tuple[str, ...] = ()
    drain: tuple[str, ...] = ()
    without: tuple[NodeLabel, ...] = ()
    weights: Mapping[str, int] = {}

    @property
    def changes_cluster(self) -> bool:
        """Whether the cluster or the profile differs from now."""
        return bool(self.cordon or self.drain or self.without or self.weights)


class Weights(Document, frozen=True, kw_only=True):
    """The weights of each profile's scoring plugins, by schedulerName: what a request may change."""

    kind: str = "Weights"
    profiles: Mapping[str, Mapping[str, int]]


class Refused(JsonStruct, frozen=True, kw_only=True):
    """Pods of lost nodes that fit nowhere, for one reason."""

    message: str
    n_pods: int
    examples: tuple[PodRef, ...]


class Displaced(JsonStruct, frozen=True, kw_only=True):
    """The pods of the nodes that are gone. `n_stay`: pods that end with their node, such as those of a DaemonSet."""

    n_nodes: int
    n_pods: int
    n_stay: int
    n_more: int
    n_placed: int
    by_zone: tuple[ZoneShare, ...]
    by_node: tuple[NodeShare, ...]
    n_more_nodes: int
    refused: tuple[Refused, ...]


class WhatIf(Document, frozen=True, kw_only=True):
    """
    `now`: the simulations without the changes, one per document; `then`: with them. Both are empty without one.

    `drained`: where the pods of the drained nodes go, in which round, and which budgets hold them; null without such.
    """

    kind: str = "WhatIf"
    now: tuple[Simulation, ...]
    then: tuple[Simulation, ...]
    drained: Drain | None
    displaced: Displaced | None
    notes: tuple[str, ...]


def what_if(
    cluster: LoadedCluster,
    changed: Settings,
    request: WhatIfRequest,
    rng: Rng,
    file: ManifestFile | None = None,
    template: Pod | None = None,
) -> WhatIf:
    """
    Return the answer; the cluster is used up. One cycle per pod. Raises SettingsError.

    `changed`: the settings with the request's weights. `template`: the pod that the request names.
    """
    manifests = [] if file is None else file.manifests
    read = ""
    if file is not None and manifests:
        add_priorities(file, cluster, None, unknown=_NO_CLASSES)
        read = add_other_objects(file, cluster)

    def placed(among: LoadedCluster) -> tuple[Simulation, ...]:
        n_replicas = request.replicas
        found = simulate_manifests(among, manifests, n_replicas, rng, try_changes=False)
        if template is not None:
            found.append(simulate_copies(among, template, 1 if n_replicas is None else n_replicas, rng))
        return tuple(found)

    now = placed(cluster.copy()) if request.changes_cluster else ()
    cluster.settings = changed
    lost = _change(cluster.state, request)
    drained = simulate_drain(cluster, request.drain, None, rng, try_changes=False) if request.drain else None
    displaced, told = _displace(cluster, lost, rng) if request.without else (None, ())
    then = placed(cluster)
    notes = (*((read,) if read else ()), *cluster.assumptions, *(drained.notes if drained else ()), *told)
    return WhatIf(now=now, then=then, drained=drained, displaced=displaced, notes=notes)


def _change(state: ClusterState, request: WhatIfRequest) -> list[str]:
    """Cordon nodes; return the names of the nodes to remove. Raises SettingsError for a label that no node has."""
    for name in request.cordon:
        node = state.node(name)
        if node is not None and not node.unschedulable:
            state.nodes.upsert(cordoned(node))
    wanted = {(label.key, label.value) for label in request.without}
    missing, lost = set(wanted), list[str]()
    for node in state.nodes.nodes:
        if node is not None and (matched := wanted & node.labels.items()):
            missing -= matched
            lost.append(node.name)
    for key, value in sorted(missing):
        raise SettingsError("without", "", f"{key}={value}", "a label of a node")
    return lost


def _displace(cluster: LoadedCluster, lost: Sequence[str], rng: Rng) -> tuple[Displaced, tuple[str, ...]]:
    """Place the pods of the lost nodes again, by descending priority. Return notes on how they find places too."""
    leaving, staying = empty_nodes(cluster.state, lost, stays=False)
    # Of pods without a controller it is shown where they could go, too.
    lone = [pod for stay, pod in staying if stay is Stay.NO_CONTROLLER]
    moving = sorted((*leaving, *lone), key=by_priority)
    world = cluster.world(rng, (pod.scheduler_name for pod in moving))
    moves = move_pods(moving[:MAX_DISPLACED], world, ())
    node_names = [move.shown.to for move in moves if move.shown.to]
    n_pods = len(leaving) + len(staying)
    refused: dict[str, list[Pod]] = {}
    for move in moves:
        if move.shown.is_homeless:
            refused.setdefault(move.shown.message, []).append(move.pod)
    shares, n_more = node_shares(cluster.state, node_names)
    displaced = Displaced(
        n_nodes=len(lost),
        n_pods=n_pods,
        n_stay=n_pods - len(moving),
        n_more=max(0, len(moving) - MAX_DISPLACED),
        n_placed=len(node_names),
        by_zone=zone_shares(cluster.state, node_names),
        by_node=shares,
        n_more_nodes=n_more,
        refused=_refusals(refused),
    )
    notes = tuple(relaxed_notes((move.pod for move in moves if move.shown.to), "pod", world))
    if world.evictions:
        n_evicted = counted(len(world.evictions), "pod")
        notes = (*notes, f"{n_evicted} of lower priority would be evicted for pods of the lost nodes")
    return displaced, notes


def _refusals(refused: Mapping[str, Sequence[Pod]]) -> tuple[Refused, ...]:
    most_first = sorted(refused.items(), key=lambda one: -len(one[1]))
    return tuple(
        Refused(
            message=message,
            n_pods=len(pods),
            examples=tuple(PodRef(pod.namespace, pod.name) for pod in pods[:_MAX_EXAMPLES]),
        )
        for message, pods in most_first[:_MAX_REASONS]
    )
