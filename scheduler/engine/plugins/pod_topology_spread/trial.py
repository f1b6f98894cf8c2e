"""
The Filter's rules at one node while pods come and go there: only the node's own domains change.

Source: plugins/podtopologyspread/filtering.go, updateWithPod (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from scheduler.engine.framework.interface import CountingExtensions
from scheduler.engine.framework.status import Status
from scheduler.engine.model.pods import Pod
from scheduler.engine.plugins.pod_topology_spread.counting import CountedPods
from scheduler.engine.plugins.pod_topology_spread.filtering import NO_LABEL, SKEWED
from scheduler.engine.state.columns import ABSENT


class _Domains(NamedTuple):
    """The ids of a constraint's domains, and the two of them with the fewest pods."""

    ids: frozenset[int]
    emptiest: tuple[tuple[int, int], ...]


def _domains(counted: CountedPods) -> _Domains:
    ids = counted.domains()
    n_pods = counted.per_domain().amounts[ids]
    two = np.argsort(n_pods, kind="stable")[:2]
    emptiest = zip(n_pods[two].tolist(), ids[two].tolist(), strict=True)
    return _Domains(frozenset(ids.tolist()), tuple(emptiest))


class SkewTrials:
    """Makes the trials of one pod, and keeps what they share."""

    def __init__(self, pod: Pod, counted: Sequence[CountedPods]) -> None:
        self.pod = pod
        self.counted = counted
        self._domains: dict[int, _Domains] = {}

    def __call__(self, row: int) -> SkewTrial:
        """Return the trial of the row."""
        return SkewTrial(self, row)

    def domains(self, index: int) -> _Domains:
        """Return the domains of a constraint. O(n_rows) at first, then O(1)."""
        known = self._domains.get(index)
        if known is None:
            known = self._domains[index] = _domains(self.counted[index])
        return known


class SkewTrial(CountingExtensions):
    """The skew of each constraint at one row."""

    def __init__(self, shared: SkewTrials, row: int) -> None:
        self._shared = shared
        self._row = row
        self._moved = [0] * len(shared.counted)

    def count(self, pod: Pod, delta: int) -> None:
        """
        Count the pod in or out.

        Quirk of kubernetes 1.36: pods that end already, and pods that an empty selector selects, count here, although
        they do not in countPodsMatchSelector.
        """
        if pod.namespace != self._shared.pod.namespace:
            return
        for index, counted in enumerate(self._shared.counted):
            if counted.eligible.item(self._row) and counted.constraint.selects(pod):
                self._moved[index] += delta

    def refusal(self) -> Status | None:
        """Return the status of the first constraint that the node breaks."""
        for index, counted in enumerate(self._shared.counted):
            domain = counted.column.ids.item(self._row)
            if domain == ABSENT:
                return NO_LABEL
            n_here = counted.per_domain().amounts.item(domain) + self._moved[index]
            if n_here > counted.most(self._shared.pod, self._fewest(index, domain, n_here)):
                return SKEWED
        return None

    def _fewest(self, index: int, domain: int, n_here: int) -> int:
        """Return the fewest pods of a domain."""
        domains = self._shared.domains(index)
        if not domains.ids or len(domains.ids) < self._shared.counted[index].constraint.min_domains:
            return 0
        elsewhere = [n_pods for n_pods, other in domains.emptiest if other != domain]
        # The domain of a node that is not eligible may be none.
        return min([*elsewhere, n_here] if domain in domains.ids else elsewhere)
