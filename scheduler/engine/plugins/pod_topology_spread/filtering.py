"""
The Filter of PodTopologySpread: a node is refused if its domain would exceed the emptiest one by more than maxSkew.

Only eligible nodes, which have all topology keys and satisfy the inclusion policies, form domains, and only pods on
them count. Pods of other namespaces and terminating pods do not count.

Source: plugins/podtopologyspread/filtering.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from scheduler.engine.framework.interface import PreFilterExtensions
from scheduler.engine.framework.status import Status, unresolvable, unschedulable
from scheduler.engine.model.pods import Pod
from scheduler.engine.plugins.pod_topology_spread.counting import CountedPods
from scheduler.engine.state.arrays import Mask
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.engine.state.columns import ABSENT

SKEWED: Final = unschedulable("node(s) didn't match pod topology spread constraints")
NO_LABEL: Final = unresolvable(f"{SKEWED.reasons[0]} (missing required label)")


def skew_rules(
    pod: Pod, view: ClusterView, all_counted: Sequence[CountedPods]
) -> Iterator[tuple[Mask, Status]]:
    """Yield two rules per constraint, in order: the node has the label, and the skew is at most maxSkew."""
    for counted in all_counted:
        if counted.column.n_labelled < view.n_nodes:
            yield view.eligible((counted.constraint.declared.topology_key,)), NO_LABEL
        # A node that is not eligible has the pods of its domain's eligible nodes.
        yield ~counted.per_domain().at_least(counted.most(pod, counted.fewest()) + 1), SKEWED


class SkewTrial(PreFilterExtensions):
    """The skew of each constraint at one row while pods come and go there: only the node's own domains change."""

    def __init__(self, pod: Pod, all_counted: Sequence[CountedPods], row: int) -> None:
        self._pod, self._all_counted, self._row = pod, all_counted, row
        self._moved = [0] * len(all_counted)
        self._n_elsewhere = 0

    def count(self, pod: Pod, delta: int) -> None:
        """Count the pod in or out (updateWithPod)."""
        # Quirk of kubernetes 1.36: pods that end already, and pods that an empty selector selects, count here, although
        # they do not in countPodsMatchSelector.
        if pod.namespace != self._pod.namespace:
            return
        for index, counted in enumerate(self._all_counted):
            if counted.eligible.item(self._row) and counted.constraint.selects(pod):
                self._moved[index] += delta

    def count_elsewhere(self, pod: Pod, delta: int) -> None:
        """Count a pod that a constraint selects: its domain may become the emptiest, so that the row is refused."""
        if pod.namespace == self._pod.namespace:
            self._n_elsewhere += delta * any(each.constraint.selects(pod) for each in self._all_counted)

    def refusal(self) -> Status | None:
        """Return the status of the first constraint that the node breaks."""
        if self._n_elsewhere:
            return SKEWED
        for counted, n_moved in zip(self._all_counted, self._moved, strict=True):
            domain = counted.column.ids.item(self._row)
            if domain == ABSENT:
                return NO_LABEL
            n_here = counted.per_domain().amounts.item(domain) + n_moved
            if n_here > counted.most(self._pod, counted.fewest_beside(domain, n_here)):
                return SKEWED
        return None
