"""Runs every filter on every node for one pod, where a decision stops at a node's first refusal."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from scheduler.explain.explanation import PodRef, Pods
from scheduler.framework.interface import PodContext, PreFilterResult
from scheduler.framework.profile import Profile
from scheduler.framework.status import NodeStatuses, Skip, Status
from scheduler.model.pods import Pod
from scheduler.state.cluster import ClusterState
from scheduler.state.columns import ABSENT, LabelColumn
from scheduler.state.matching import PodMatcher
from scheduler.state.snapshot import Snapshot

#: Pods named in one list; the rest are only counted.
_SHOWN_PODS: Final = 5


@dataclass(frozen=True)
class Inspection:
    """
    A pod, a cluster, and the nodes that each filter of the pod's profile refuses.

    `refusals` leaves out filters that skip the pod.
    """

    pod: Pod
    state: ClusterState
    snapshot: Snapshot
    refusals: Sequence[tuple[str, NodeStatuses]]
    #: Pods without a node, of any scheduler.
    pending_pods: Sequence[Pod]
    #: Namespaces whose pods required anti-affinity ignores.
    exempt_namespaces: frozenset[str]

    @cached_property
    def pods_by_row(self) -> dict[int, list[Pod]]:
        """The placed pods by node row. O(placed pods) on first use."""
        found: dict[int, list[Pod]] = {}
        for placed in self.state.placed.values():
            found.setdefault(placed.row, []).append(placed.pod)
        return found

    def selected_pods(self, matcher: PodMatcher) -> Iterable[tuple[Pod, int]]:
        """Return the placed pods that the matcher selects, and their rows. O(placed pods)."""
        selected = self.state.label_sets.selected(matcher)
        return ((p.pod, p.row) for p in self.state.placed.values() if selected[p.label_set.number])

    def first_pods(
        self, pods: Iterable[tuple[Pod, int]], column: LabelColumn, order: Callable[[Pod, int], object]
    ) -> Pods:
        """Return the first few pods by `order`, each with its node and its domain in `column`, and the total."""
        found = list(pods)

        def key(entry: tuple[Pod, int]) -> tuple[object, str, str]:
            return (order(*entry), entry[0].namespace, entry[0].name)

        return Pods(
            len(found),
            tuple(
                self._reference(pod, row, column) for pod, row in heapq.nsmallest(_SHOWN_PODS, found, key=key)
            ),
        )

    def pending_matching(self, matcher: PodMatcher) -> Pods:
        """Return the other pending pods that the matcher selects. O(pending pods)."""
        labels_of = self.snapshot.namespace_labels
        found = sorted(
            (
                pod
                for pod in self.pending_pods
                if pod.uid != self.pod.uid
                and matcher.matches(pod.namespace, pod.labels, labels_of(pod.namespace))
            ),
            key=lambda pod: pod.key,
        )
        return Pods(len(found), tuple(PodRef(pod.namespace, pod.name) for pod in found[:_SHOWN_PODS]))

    def _reference(self, pod: Pod, row: int, column: LabelColumn) -> PodRef:
        domain = domain_of(column, row)
        return PodRef(pod.namespace, pod.name, self.snapshot.nodes.name_of(row), domain or "")


def inspect_pod(
    pod: Pod,
    state: ClusterState,
    profile: Profile,
    *,
    pending_pods: Sequence[Pod] = (),
    exempt_namespaces: frozenset[str] = frozenset(),
) -> Inspection | tuple[str, Status]:
    """Return the inspection; or a plugin and its status, if its PreFilter refuses the pod or fails."""
    snapshot = Snapshot(state)
    context = PodContext(pod, snapshot.label_set(pod))
    refusals: list[tuple[str, NodeStatuses]] = []
    for plugin in profile.filters:
        result = plugin.prefilter(context, snapshot)
        if isinstance(result, Skip):
            continue
        if isinstance(result, Status):
            return plugin.name, result
        node_filter = result.node_filter if isinstance(result, PreFilterResult) else result
        refusals.append((plugin.name, node_filter.statuses()))
    return Inspection(pod, state, snapshot, refusals, pending_pods, exempt_namespaces)


def domain_of(column: LabelColumn, row: int) -> str | None:
    """Return the row's value of the label; None if the node lacks it."""
    domain = int(column.ids[row])
    return None if domain == ABSENT else column.value_of(domain)
