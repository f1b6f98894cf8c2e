"""
The Filter's rules at one node while pods come and go there.

Only the domains of that node change. The counts of placed pods are read once; pods that come and go are added to them.

Source: plugins/interpodaffinity/filtering.go, updateWithPod (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from scheduler.engine.framework.interface import PodContext, PreFilterExtensions
from scheduler.engine.framework.status import Status
from scheduler.engine.model.pods import Pod, PodSpec
from scheduler.engine.model.terms import usable
from scheduler.engine.plugins.inter_pod_affinity.filtering import (
    AFFINITY_NOT_MET,
    ANTI_AFFINITY_BROKEN,
    EXISTING_ANTI_AFFINITY_BROKEN,
    forbidding_sums,
    limiting_terms,
)
from scheduler.engine.plugins.inter_pod_affinity.terms import IncomingTerms, PodLimit
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.engine.state.columns import ABSENT
from scheduler.engine.state.existing_terms import TermKey, TermKind
from scheduler.engine.state.label_sets import LabelSet
from scheduler.engine.state.matching import PodMatcher


@dataclass(slots=True)
class _LimitHere:
    """A limit at the node's domain: the pods there that declare it, and the placed pods there that it selects."""

    limit: PodLimit
    n_declaring: int
    n_placed: int
    #: How many more of the selected pods are there than the state counts.
    n_moved: int = 0


def declared_against(incoming: Pod, view: ClusterView, labels: LabelSet, spec: PodSpec) -> list[TermKey]:
    """Return the anti-affinity of pods with these labels and spec that keeps the incoming pod off; one may be twice."""
    return [
        term
        for term in view.state.terms.keys(labels, spec)
        if term.kind is TermKind.REQUIRED_ANTI
        and view.selects(term.matcher, incoming)
        and not view.state.terms.gives_way(term, incoming.spec)
    ]


class AffinityTrial(PreFilterExtensions):
    """The three rules at one row."""

    def __init__(
        self,
        context: PodContext,
        terms: IncomingTerms,
        view: ClusterView,
        declared: Callable[[LabelSet, PodSpec], list[TermKey]],
        row: int,
        *,
        is_exempt: bool,
    ) -> None:
        """`declared`: see `declared_against`. `is_exempt`: the pod's namespace is exempt from others' anti-affinity."""
        self._declared = declared
        self._context = context
        self._terms = terms
        self._view = view
        self._row = row
        self._is_exempt = is_exempt
        self._n_required = self._n_elsewhere = 0
        self._required = {key: self._n_selected(terms.required, key) for key in terms.required_keys}
        self._own = [self._here(limit, 1) for limit in terms.anti]
        self._forbidding = {} if is_exempt else self._n_forbidding()
        self._existing = {} if is_exempt else self._existing_limits()
        self._moved: list[tuple[Pod, int]] = []

    def count(self, pod: Pod, delta: int) -> None:
        """Count the pod in or out. O(terms of both pods)."""
        if self._terms.required is not None and self._view.selects(self._terms.required, pod):
            self._n_required += delta
        declared = (
            []
            if self._is_exempt or not usable(pod.spec.affinity.required_anti)
            else self._declared(self._view.label_set(pod), pod.spec)
        )
        for key in declared:
            if key.max_pods == 1:
                self._forbidding[key.topology_key] = self._forbidding.get(key.topology_key, 0) + delta
            elif key not in self._existing:
                here = self._existing[key] = self._here(PodLimit.of_placed(key), 0)
                here.n_moved = sum(
                    moved * self._view.selects(key.matcher, other) for other, moved in self._moved
                )
        for here in (*self._own, *self._existing.values()):
            here.n_moved += delta * self._view.selects(here.limit.matcher, pod)
        for key in declared:
            if key in self._existing:
                self._existing[key].n_declaring += delta
        self._moved.append((pod, delta))

    def count_elsewhere(self, pod: Pod, delta: int) -> None:
        """Count a pod that required affinity selects: it may be the only one near, so that the row is refused."""
        required = self._terms.required
        self._n_elsewhere += delta * (required is not None and self._view.selects(required, pod))

    def refusal(self) -> Status | None:
        """Return the status of the first rule that is broken."""
        required = self._terms.required
        if self._n_elsewhere or (required is not None and not self._affinity_is_met(required)):
            return AFFINITY_NOT_MET
        if any(map(self._is_full, self._own)):
            return ANTI_AFFINITY_BROKEN
        forbidding = any(n > 0 and self._has(key) for key, n in self._forbidding.items())
        if forbidding or any(map(self._is_full, self._existing.values())):
            return EXISTING_ANTI_AFFINITY_BROKEN
        return None

    def _is_full(self, here: _LimitHere) -> bool:
        """Return whether a declared limit leaves no room for the pod in the node's domain."""
        limit = here.limit
        if not here.n_declaring or not self._has(limit.key):
            return False
        capacity = limit.capacity(self._view, 1 + here.n_moved)
        most = capacity if isinstance(capacity, int) else capacity.item(self._domain(limit.key))
        return here.n_placed + here.n_moved >= most

    def _affinity_is_met(self, required: PodMatcher) -> bool:
        if not all(map(self._has, self._terms.required_keys)):
            return False
        if all(n_pods + self._n_required > 0 for n_pods in self._required.values()):
            return True
        is_first = not any(n_pods + self._n_required for n_pods in self._required.values())
        return (
            is_first
            and self._view.selects(required, self._context.pod)
            and not any(self._is_elsewhere(required, key) for key in self._terms.required_keys)
        )

    def _is_elsewhere(self, required: PodMatcher, key: str) -> bool:
        """Return whether the required terms select a pod in another domain of the key. O(domains)."""
        amounts = self._view.pods_by_domain(required, key).amounts
        return int(np.count_nonzero(amounts)) > int(amounts.item(self._domain(key)) != 0)

    def _domain(self, key: str) -> int:
        return self._view.column(key).ids.item(self._row)

    def _has(self, key: str) -> bool:
        return self._domain(key) != ABSENT

    def _n_selected(self, matcher: PodMatcher | None, key: str) -> int:
        """Return the number of placed pods in the node's domain that the matcher selects; 0 without the label."""
        if matcher is None:
            return 0
        return self._view.pods_by_domain(matcher, key).amounts.item(self._domain(key))

    def _here(self, limit: PodLimit, n_declaring: int) -> _LimitHere:
        return _LimitHere(limit, n_declaring, self._n_selected(limit.matcher, limit.key))

    def _n_forbidding(self) -> dict[str, int]:
        by_key = forbidding_sums(self._context, self._view)
        return {key: sums.amounts.item(sums.ids.item(self._row)) for key, sums in by_key.items()}

    def _existing_limits(self) -> dict[TermKey, _LimitHere]:
        found = {}
        for term in limiting_terms(self._context, self._view):
            limit, ids = PodLimit.of_placed(term.key), self._view.column(term.key.topology_key).ids
            here = self._domain(limit.key)
            n_declaring = sum(n for row, n in term.pods_by_row.items() if ids.item(row) == here)
            found[term.key] = self._here(limit, n_declaring)
        return found
