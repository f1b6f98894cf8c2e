"""
Answers "what if": where the pods of a manifest would go, and the pods of nodes that are taken away.

Everything happens on a copy of the cluster, which nothing else reads; the cluster itself is never written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from scheduler.core.decide import CycleError, ScheduleResult, decide
from scheduler.errors import SettingsError
from scheduler.explain.drain import unbound
from scheduler.explain.explainer import ExplainRequest, explain
from scheduler.explain.simulation import (
    NodeShare,
    Simulation,
    ZoneShare,
    node_shares,
    place_replicas,
    zone_shares,
)
from scheduler.formats.explanation import API_VERSION, JsonStruct, PodRef
from scheduler.framework.explaining import must_stay
from scheduler.framework.interface import Rng
from scheduler.framework.observer import Unobserved
from scheduler.framework.profile import Profile
from scheduler.model.pods import Pod
from scheduler.model.terms import CORDON_TAINT_KEY, Taint
from scheduler.overview.pending import Visible, without_names
from scheduler.overview.redaction import redacted
from scheduler.state.cluster import ClusterState
from scheduler.state.cluster_view import ClusterView

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


class Weights(JsonStruct, frozen=True, kw_only=True):
    """The weights of each profile's scoring plugins, by schedulerName: what a request may change."""

    api_version: str = API_VERSION
    kind: str = "Weights"
    profiles: Mapping[str, Mapping[str, int]]


class Refused(JsonStruct, frozen=True, kw_only=True):
    """Pods of lost nodes that fit nowhere, for one reason."""

    message: str
    n_pods: int
    examples: tuple[PodRef, ...]


class Displaced(JsonStruct, frozen=True, kw_only=True):
    """The pods of the nodes that are gone. `n_stay`: pods bound to their node, such as those of a DaemonSet."""

    n_nodes: int
    n_pods: int
    n_stay: int
    n_more: int
    n_placed: int
    by_zone: tuple[ZoneShare, ...]
    by_node: tuple[NodeShare, ...]
    n_more_nodes: int
    refused: tuple[Refused, ...]


class WhatIf(JsonStruct, frozen=True, kw_only=True):
    """`now`: the simulations without the changes, one per document; `then`: with them. Both are empty without one."""

    api_version: str = API_VERSION
    kind: str = "WhatIf"
    now: tuple[Simulation, ...]
    then: tuple[Simulation, ...]
    displaced: Displaced | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Replicas:
    """Pods to place one after the other, and the profile's name."""

    kind: str
    namespace: str
    name: str
    pods: Sequence[Pod]
    scheduler_name: str


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """
    A copy of the cluster and what decides on it.

    `new_profile` returns a profile, by name, with the request's weights if its third argument is true.
    """

    state: ClusterState
    new_profile: Callable[[str, ClusterView, bool], Profile]
    rng: Rng
    may_see: Visible

    def answer(self, request: WhatIfRequest, replicas: Sequence[Replicas], notes: tuple[str, ...]) -> WhatIf:
        """Return the answer; the copy is used up. One decision per pod, 0.3 ms at 5,000 nodes. Raises SettingsError."""
        now: tuple[Simulation, ...] = ()
        if request.changes_cluster:
            now = tuple(self._simulate(one, is_changed=False) for one in replicas)
            for one in replicas:
                for pod in one.pods:
                    self.state.remove_pod(pod.uid)
        lost = self._change(request)
        displaced = self._displace(lost) if request.without else None
        then = tuple(self._simulate(one, is_changed=True) for one in replicas)
        return WhatIf(now=now, then=then, displaced=displaced, notes=notes)

    def _simulate(self, replicas: Replicas, *, is_changed: bool) -> Simulation:
        def new_profile(view: ClusterView) -> Profile:
            return self.new_profile(replicas.scheduler_name, view, is_changed)

        placed = place_replicas(replicas.pods, self.state, new_profile(ClusterView(self.state)), self.rng)
        node_names = [node_name for _, node_name in placed.pods]
        shares, n_more = node_shares(self.state, node_names)
        reason = None
        if placed.first_unplaced is not None:
            request = ExplainRequest(
                pod=placed.first_unplaced,
                state=self.state,
                new_profile=new_profile,
                rng=self.rng,
                try_changes=False,
            )
            reason = redacted(explain(request), self.may_see)
        return Simulation(
            manifest_kind=replicas.kind,
            namespace=replicas.namespace,
            name=replicas.name,
            n_replicas=len(replicas.pods),
            n_placed=len(node_names),
            zones=zone_shares(self.state, node_names),
            nodes=shares,
            n_more_nodes=n_more,
            next=reason,
            notes=placed.notes(),
        )

    def _change(self, request: WhatIfRequest) -> list[str]:
        """Cordon nodes; return the names of the nodes to remove. Raises SettingsError for a label without a node."""
        for name in request.cordon:
            node = self.state.node(name)
            if node is not None and not node.unschedulable:
                taint = Taint(CORDON_TAINT_KEY, "", "NoSchedule")
                self.state.upsert_node(replace(node, unschedulable=True, taints=(*node.taints, taint)))
        wanted = {(label.key, label.value) for label in request.without}
        missing, lost = set(wanted), list[str]()
        for node in self.state.nodes.nodes:
            if node is not None and (found := wanted & node.labels.items()):
                missing -= found
                lost.append(node.name)
        for key, value in sorted(missing):
            raise SettingsError("without", "", f"{key}={value}", "a label of a node")
        return lost

    def _displace(self, lost: Sequence[str]) -> Displaced:
        """Remove the nodes and place their pods again, by descending priority."""
        rows = [self.state.nodes.row_by_name[name] for name in lost]
        pods = [placed.pod for row in rows for placed in self.state.placed_on(row)]
        for pod in pods:
            self.state.remove_pod(pod.uid)
        for name in lost:
            self.state.remove_node(name)
        moving = sorted((pod for pod in pods if not must_stay(pod)), key=lambda pod: (-pod.priority, pod.key))
        node_names: list[str] = []
        refused: dict[str, list[Pod]] = {}
        for pod, outcome, fits in self._place_each(moving[:MAX_DISPLACED]):
            if fits:
                node_names.append(outcome)
            else:
                message = outcome if self.may_see(pod.namespace) else without_names(outcome)
                refused.setdefault(message, []).append(pod)
        shares, n_more = node_shares(self.state, node_names)
        return Displaced(
            n_nodes=len(lost),
            n_pods=len(pods),
            n_stay=len(pods) - len(moving),
            n_more=max(0, len(moving) - MAX_DISPLACED),
            n_placed=len(node_names),
            by_zone=zone_shares(self.state, node_names),
            by_node=shares,
            n_more_nodes=n_more,
            refused=self._refusals(refused),
        )

    def _place_each(self, pods: Sequence[Pod]) -> Iterator[tuple[Pod, str, bool]]:
        """Yield each pod with its new node and True, or with the message and False."""
        view = ClusterView(self.state)
        profiles: dict[str, Profile] = {}
        for pod in pods:
            name = pod.scheduler_name
            if name not in profiles:
                profiles[name] = self.new_profile(name, view, True)
            replacement = unbound(pod)
            decision = decide(replacement, view, profiles[name], self.rng, Unobserved())
            if isinstance(decision, ScheduleResult):
                self.state.assume(replace(replacement, node_name=decision.node_name), decision.node_name)
                yield pod, decision.node_name, True
            else:
                message = decision.message if isinstance(decision, CycleError) else decision.message()
                yield pod, message, False

    def _refusals(self, refused: Mapping[str, Sequence[Pod]]) -> tuple[Refused, ...]:
        most_first = Counter({message: len(pods) for message, pods in refused.items()}).most_common(
            _MAX_REASONS
        )
        return tuple(
            Refused(
                message=message,
                n_pods=n_pods,
                examples=tuple(
                    PodRef(pod.namespace, pod.name) for pod in refused[message] if self.may_see(pod.namespace)
                )[:_MAX_EXAMPLES],
            )
            for message, n_pods in most_first
        )


def like(pod: Pod, n_replicas: int) -> Replicas:
    """Return copies of the pod that have no node yet."""
    pods = [
        replace(
            unbound(pod),
            uid=f"what-if/{pod.uid}/{number}",
            name=f"{pod.name}-{number}",
            terminating=False,
            gates=(),
        )
        for number in range(n_replicas)
    ]
    return Replicas("Pod", pod.namespace, pod.name, pods, pod.scheduler_name)
