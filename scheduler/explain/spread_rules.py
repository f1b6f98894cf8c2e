"""
Finds the nodes that each hard topology spread constraint of a pod refuses, and the counts behind it.

PodTopologySpread refuses nodes for all constraints together. `tests/explain` checks that both refuse the same nodes.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from scheduler.explain.blocking_rules import BlockingRule
from scheduler.explain.explanation import Skew
from scheduler.explain.inspection import Inspection
from scheduler.explain.wording import selector_text
from scheduler.framework.profile import Profile
from scheduler.model.pods import Pod
from scheduler.plugins.pod_topology_spread.constraints import Constraint
from scheduler.plugins.pod_topology_spread.plugin import NAME, PodTopologySpread
from scheduler.state.arrays import Amounts, Mask
from scheduler.state.columns import ABSENT
from scheduler.state.matching import NamespaceRule, PodMatcher
from scheduler.syntax.selectors import NOTHING


def hard_constraints(pod: Pod, profile: Profile) -> tuple[Constraint, ...]:
    """Return the pod's DoNotSchedule constraints, or the profile's default ones where it has none."""
    for plugin in profile.filters:
        if isinstance(plugin, PodTopologySpread):
            return plugin.constraints.of(pod, hard=True)
    return ()


def spread_rules(inspection: Inspection, constraints: tuple[Constraint, ...]) -> list[BlockingRule]:
    """Return the constraints that refuse a node, in the pod's order. O(constraints x nodes)."""
    with_keys = inspection.snapshot.alive.copy()
    for constraint in constraints:
        with_keys &= (
            inspection.snapshot.column(constraint.topology_key).ids[: inspection.snapshot.n_rows] != ABSENT
        )
    found = [_spread_rule(inspection, constraint, with_keys) for constraint in constraints]
    return [rule for rule in found if rule.refused.any()]


def _spread_rule(inspection: Inspection, constraint: Constraint, with_keys: Mask) -> BlockingRule:
    snapshot, pod = inspection.snapshot, inspection.pod
    column = snapshot.column(constraint.topology_key)
    eligible = _eligible(inspection, constraint, with_keys)
    counts = np.where(eligible, _counts(inspection, constraint), 0)
    in_domain = column.per_domain(counts).amounts
    domains = column.per_domain(eligible).amounts.nonzero()[0]
    is_empty = len(domains) < max(1, constraint.min_domains)
    fewest = 0 if is_empty else int(in_domain[domains].min())
    own = int(constraint.selects(pod))
    ids = column.ids[: snapshot.n_rows]
    excess = (in_domain + own - fewest - constraint.max_skew)[ids]
    lacks_key = snapshot.alive & (ids == ABSENT)
    skewed = snapshot.alive & ~lacks_key & (excess > 0)
    return BlockingRule(
        plugin=NAME,
        kind="topologySpread",
        column=column,
        selects=selector_text(constraint.selector),
        namespaces=f"namespace {pod.namespace}",
        refused=skewed | lacks_key,
        lacks_key=lacks_key,
        eligible=eligible,
        counts=counts,
        n_to_remove=np.where(skewed, excess, 0),
        find_pods=lambda: _pods(inspection, constraint, eligible),
        max_existing=fewest + constraint.max_skew - own,
        skew=Skew(constraint.max_skew, constraint.min_domains, len(domains), fewest, bool(own)),
    )


def _eligible(inspection: Inspection, constraint: Constraint, with_keys: Mask) -> Mask:
    """Return the nodes that count: they have all keys and pass the constraint's node inclusion policies."""
    spec = inspection.pod.spec
    eligible = with_keys
    if constraint.honor_node_affinity and not spec.required_node_affinity.matches_all_nodes:
        eligible = eligible & inspection.snapshot.matching(spec.required_node_affinity)
    if constraint.honor_node_taints:
        eligible = eligible & inspection.snapshot.tolerated(spec.tolerations)
    return eligible


def _matcher(inspection: Inspection, constraint: Constraint) -> PodMatcher | None:
    """Return a matcher of the counted pods; None for an empty selector (common.go, countPodsMatchSelector, 1.36)."""
    if constraint.selector.is_empty or constraint.selector.is_nothing:
        return None
    own_namespace = NamespaceRule(frozenset((inspection.pod.namespace,)), NOTHING)
    return PodMatcher(((own_namespace, constraint.selector),))


def _counts(inspection: Inspection, constraint: Constraint) -> Amounts:
    """Return the number of selected, non-terminating pods per row: int64 array of shape (n_rows,)."""
    matcher = _matcher(inspection, constraint)
    if matcher is None:
        return np.zeros(inspection.snapshot.n_rows, dtype=np.int64)
    return inspection.snapshot.selected(matcher, live_only=True).by_row.astype(np.int64)


def _pods(inspection: Inspection, constraint: Constraint, eligible: Mask) -> Iterable[tuple[Pod, int]]:
    matcher = _matcher(inspection, constraint)
    if matcher is None:
        return
    for pod, row in inspection.selected_pods(matcher):
        if row < len(eligible) and eligible[row] and not pod.terminating:
            yield pod, row
