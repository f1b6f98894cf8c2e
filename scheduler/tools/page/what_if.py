"""
Answers "what if": where the pods of a manifest would go, and the pods of nodes that are taken away.

Everything happens on a copy of the cluster, which nothing else reads; the cluster itself is never written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from scheduler.engine.framework.interface import Rng
from scheduler.engine.framework.profile import Profile
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.semantics import DEFAULT_SEMANTICS, Semantics
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.engine.syntax.plurals import counted
from scheduler.errors import SettingsError
from scheduler.tools.explain.explainer import ExplainRequest, explain
from scheduler.tools.explain.formats.explanation import Document, JsonStruct, PodRef
from scheduler.tools.explain.simulation.drain import (
    Departures,
    cordoned,
    empty_nodes,
    move_pods,
    relaxed_notes,
)
from scheduler.tools.explain.simulation.replicas import (
    NodeShare,
    Simulation,
    ZoneShare,
    node_shares,
    place_replicas,
    zone_shares,
)
from scheduler.tools.explain.simulation.world import World, with_stand_ins

#: Replicas of a manifest, and pods of lost nodes that are placed again.
MAX_REPLICAS: Final = 2_000
MAX_DISPLACED: Final = 2_000
_MAX_REASONS: Final = 10
_MAX_EXAMPLES: Final = 5


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

    `replicas`: null for the manifest's own number. `cordon`: nodes that take no further pods. `without`: nodes that are
    gone, whose pods are placed again. `weights`: of scoring plugins, by name.
    """

    manifest: str = ""
    like: PodName | None = None
    replicas: int | None = None
    cordon: tuple[str, ...] = ()
    without: tuple[NodeLabel, ...] = ()
    weights: Mapping[str, int] = {}

    @property
    def changes_cluster(self) -> bool:
        """Whether the cluster or the profile differs from now."""
        return bool(self.cordon or self.without or self.weights)


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
    """`now`: the simulations without the changes, one per document; `then`: with them. Both are empty without one."""

    kind: str = "WhatIf"
    now: tuple[Simulation, ...]
    then: tuple[Simulation, ...]
    displaced: Displaced | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Replicas:
    """Pods to place one after the other."""

    kind: str
    namespace: str
    name: str
    pods: Sequence[Pod]


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """
    A copy of the cluster and the profiles by which pods are placed in it.

    `new_profiles` returns them by schedulerName, with the request's weights if its second argument is true. `now_s`: on
    the clock by which the copy's kubelet refusals end.
    """

    state: ClusterState
    new_profiles: Callable[[ClusterView, bool], Mapping[str, Profile]]
    rng: Rng
    now_s: float = 0.0
    semantics: Semantics = DEFAULT_SEMANTICS

    def answer(self, request: WhatIfRequest, replicas: Sequence[Replicas], notes: tuple[str, ...]) -> WhatIf:
        """Return the answer; the copy is used up. One cycle per pod, 0.5 ms at 5,000 nodes. Raises SettingsError."""
        names = {pod.scheduler_name for one in replicas for pod in one.pods}
        now: tuple[Simulation, ...] = ()
        if request.changes_cluster:
            world = self._world(names, self.state.copy(), is_changed=False)
            now = tuple(self._simulate(one, world, is_changed=False) for one in replicas)
        lost = self._change(request)
        departures = empty_nodes(self.state, lost, stays=False)
        names |= {pod.scheduler_name for pod in departures.replaceable}
        world = self._world(names, self.state, is_changed=True)
        displaced, relaxed = self._displace(lost, departures, world) if request.without else (None, ())
        notes = (*notes, *relaxed)
        if world.evictions:
            n_evicted = counted(len(world.evictions), "pod")
            notes = (*notes, f"{n_evicted} of lower priority would be evicted for pods of the lost nodes")
        then = tuple(self._simulate(one, world, is_changed=True) for one in replicas)
        return WhatIf(now=now, then=then, displaced=displaced, notes=notes)

    def _world(self, scheduler_names: Collection[str], state: ClusterState, *, is_changed: bool) -> World:
        profiles = self.new_profiles(ClusterView(state), is_changed)
        return World(
            state,
            with_stand_ins(profiles, scheduler_names),
            self.rng,
            now_s=self.now_s,
            semantics=self.semantics,
        )

    def _simulate(self, replicas: Replicas, world: World, *, is_changed: bool) -> Simulation:
        placed = place_replicas(replicas.pods, world)
        explanation = None
        if (unplaced := placed.first_unplaced) is not None:
            placed_uids = {pod.uid for pod, _ in placed.pods}
            siblings = [pod for pod in replicas.pods if pod.uid not in placed_uids]
            request = ExplainRequest(
                pod=unplaced,
                state=world.state,
                new_profile=lambda view: with_stand_ins(
                    self.new_profiles(view, is_changed), (unplaced.scheduler_name,)
                )[unplaced.scheduler_name],
                rng=self.rng,
                try_changes=False,
                pending_pods=siblings if unplaced.group is not None else (),
                now_s=world.now_s,
                semantics=self.semantics,
            )
            explanation = explain(request)
        return Simulation.of(
            placed,
            world.state,
            manifest=(replicas.kind, replicas.namespace, replicas.name),
            n_replicas=len(replicas.pods),
            explanation=explanation,
            notes=placed.notes(),
        )

    def _change(self, request: WhatIfRequest) -> list[str]:
        """Cordon nodes; return the names of the nodes to remove. Raises SettingsError for a label without a node."""
        for name in request.cordon:
            node = self.state.node(name)
            if node is not None and not node.unschedulable:
                self.state.upsert_node(cordoned(node))
        wanted = {(label.key, label.value) for label in request.without}
        missing, lost = set(wanted), list[str]()
        for node in self.state.nodes.nodes:
            if node is not None and (matched := wanted & node.labels.items()):
                missing -= matched
                lost.append(node.name)
        for key, value in sorted(missing):
            raise SettingsError("without", "", f"{key}={value}", "a label of a node")
        return lost

    def _displace(
        self, lost: Sequence[str], departures: Departures, world: World
    ) -> tuple[Displaced, tuple[str, ...]]:
        """Place the pods of the lost nodes again, by descending priority. Return notes about relaxed rules too."""
        moving = departures.replaceable
        leaving = moving[:MAX_DISPLACED]
        moves = move_pods(leaving, world, ())
        node_names = list(moves.node_by_uid.values())
        refused: dict[str, list[Pod]] = {}
        for pod in leaving:
            if (message := moves.unplaced.get(pod.uid)) is not None:
                refused.setdefault(message, []).append(pod)
        shares, n_more = node_shares(self.state, node_names)
        displaced = Displaced(
            n_nodes=len(lost),
            n_pods=departures.n_pods,
            n_stay=departures.n_pods - len(moving),
            n_more=max(0, len(moving) - MAX_DISPLACED),
            n_placed=len(node_names),
            by_zone=zone_shares(self.state, node_names),
            by_node=shares,
            n_more_nodes=n_more,
            refused=_refusals(refused),
        )
        return displaced, tuple(relaxed_notes(moves, world))


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


def like(pod: Pod, n_replicas: int) -> Replicas:
    """Return copies of the pod that have no node yet."""
    pods = [
        replace(
            pod.recreated(),
            uid=f"what-if/{pod.uid}/{number}",
            name=f"{pod.name}-{number}",
            terminating=False,
            gates=(),
        )
        for number in range(n_replicas)
    ]
    return Replicas("Pod", pod.namespace, pod.name, pods)
