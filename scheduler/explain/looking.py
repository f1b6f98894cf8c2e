"""A closer look than a decision takes: what every filter says of every node, and which pods are where."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from scheduler.explain.answers import PodRef, Pods
from scheduler.framework.interface import Candidate, Narrowed
from scheduler.framework.profile import Profile
from scheduler.framework.verdicts import Refusals, Skip, Status
from scheduler.model.pods import Pod
from scheduler.state.cluster import ClusterState
from scheduler.state.columns import ABSENT, LabelColumn
from scheduler.state.matching import PodMatcher
from scheduler.state.snapshot import Snapshot

#: Pods named in one list; the rest is a number.
_SHOWN_PODS: Final = 5


@dataclass(frozen=True)
class Case:
    """
    A pod before a state, and what each filter of its profile says of all nodes.

    A decision stops at the first refusal of a node; here later filters are asked about it too. Filters that skip the
    pod are left out.
    """

    pod: Pod
    state: ClusterState
    snapshot: Snapshot
    refusals: Sequence[tuple[str, Refusals]]
    #: Pods without a node, of any scheduler.
    pending: Sequence[Pod]
    #: Namespaces whose pods required anti-affinity does not see.
    exempt: frozenset[str]

    @cached_property
    def pods_by_row(self) -> dict[int, list[Pod]]:
        """Placed pods by node row. O(placed pods), once."""
        found: dict[int, list[Pod]] = {}
        for placed in self.state.placed.values():
            found.setdefault(placed.row, []).append(placed.pod)
        return found

    def selected_pods(self, matcher: PodMatcher) -> Iterable[tuple[Pod, int]]:
        """Placed pods that the matcher selects, and their rows. O(placed pods)."""
        label_sets = self.state.selections.selection(matcher).label_sets
        return ((p.pod, p.row) for p in self.state.placed.values() if p.label_set in label_sets)

    def listed(
        self, pods: Iterable[tuple[Pod, int]], column: LabelColumn, order: Callable[[Pod, int], object]
    ) -> Pods:
        """The first few of the pods by `order`, each with its node and its domain in `column`."""
        found = list(pods)

        def key(entry: tuple[Pod, int]) -> tuple[object, str, str]:
            return (order(*entry), entry[0].namespace, entry[0].name)

        return Pods(
            len(found),
            tuple(
                self._reference(pod, row, column) for pod, row in heapq.nsmallest(_SHOWN_PODS, found, key=key)
            ),
        )

    def waiting(self, matcher: PodMatcher) -> Pods:
        """Pods without a node that the matcher selects, the pod itself left out. O(pending pods)."""
        labels_of = self.snapshot.namespace_labels
        found = sorted(
            (
                pod
                for pod in self.pending
                if pod.uid != self.pod.uid
                and matcher.matches(pod.namespace, pod.labels, labels_of(pod.namespace))
            ),
            key=lambda pod: pod.key,
        )
        return Pods(len(found), tuple(PodRef(pod.namespace, pod.name) for pod in found[:_SHOWN_PODS]))

    def _reference(self, pod: Pod, row: int, column: LabelColumn) -> PodRef:
        domain = domain_of(column, row)
        return PodRef(pod.namespace, pod.name, self.snapshot.nodes.name_of(row), domain or "")


def looked(
    pod: Pod,
    state: ClusterState,
    profile: Profile,
    *,
    pending: Sequence[Pod] = (),
    exempt: frozenset[str] = frozenset(),
) -> Case | tuple[str, Status]:
    """The case; or the plugin that refuses the pod as a whole, or fails on it, and its status."""
    snapshot = Snapshot(state)
    candidate = Candidate(pod, snapshot.label_set(pod))
    refusals: list[tuple[str, Refusals]] = []
    for plugin in profile.filters:
        result = plugin.prefilter(candidate, snapshot)
        if isinstance(result, Skip):
            continue
        if isinstance(result, Status):
            return plugin.name, result
        node_filter = result.node_filter if isinstance(result, Narrowed) else result
        refusals.append((plugin.name, node_filter.refusals()))
    return Case(pod, state, snapshot, refusals, pending, exempt)


def domain_of(column: LabelColumn, row: int) -> str | None:
    """The row's value of the label, None where the node lacks it."""
    domain = int(column.ids[row])
    return None if domain == ABSENT else column.value_of(domain)
