"""
The Filter's rules at one node while pods come and go there: only the node's own domains change.

Source: plugins/podtopologyspread/filtering.go, updateWithPod (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.engine.framework.interface import CountingExtensions
from scheduler.engine.framework.status import Status
from scheduler.engine.model.pods import Pod
from scheduler.engine.plugins.pod_topology_spread.counting import CountedPods
from scheduler.engine.plugins.pod_topology_spread.filtering import NO_LABEL, SKEWED
from scheduler.engine.state.columns import ABSENT


class SkewTrial(CountingExtensions):
    """The skew of each constraint at one row."""

    def __init__(self, pod: Pod, all_counted: Sequence[CountedPods], row: int) -> None:
        self._pod, self._all_counted, self._row = pod, all_counted, row
        self._moved = [0] * len(all_counted)

    def count(self, pod: Pod, delta: int) -> None:
        """
        Count the pod in or out.

        Quirk of kubernetes 1.36: pods that end already, and pods that an empty selector selects, count here, although
        they do not in countPodsMatchSelector.
        """
        if pod.namespace != self._pod.namespace:
            return
        for index, counted in enumerate(self._all_counted):
            if counted.eligible.item(self._row) and counted.constraint.selects(pod):
                self._moved[index] += delta

    def refusal(self) -> Status | None:
        """Return the status of the first constraint that the node breaks."""
        for counted, n_moved in zip(self._all_counted, self._moved, strict=True):
            domain = counted.column.ids.item(self._row)
            if domain == ABSENT:
                return NO_LABEL
            n_here = counted.per_domain().amounts.item(domain) + n_moved
            if n_here > counted.most(self._pod, counted.fewest_beside(domain, n_here)):
                return SKEWED
        return None
