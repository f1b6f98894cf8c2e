"""
Which hard spread constraints refuse which nodes, and the numbers behind it.

The same rule as the plugin's, constraint by constraint; `tests/explain` holds the two against each other.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from scheduler.explain.answers import Skew
from scheduler.explain.looking import Case
from scheduler.explain.rules import Finding
from scheduler.explain.wording import selector_text
from scheduler.framework.profile import Profile
from scheduler.framework.spread_constraints import Constraint
from scheduler.model.labels import NOTHING
from scheduler.model.pods import Pod
from scheduler.plugins.pod_topology_spread import NAME, PodTopologySpread
from scheduler.state.arrays import Amounts, Mask
from scheduler.state.columns import ABSENT
from scheduler.state.matching import NamespaceRule, PodMatcher


def hard_constraints(pod: Pod, profile: Profile) -> tuple[Constraint, ...]:
    """The DoNotSchedule constraints that the profile applies to the pod, the cluster's defaults included."""
    for plugin in profile.filters:
        if isinstance(plugin, PodTopologySpread):
            return plugin.constraints.of(pod, hard=True)
    return ()


def spread_findings(case: Case, constraints: tuple[Constraint, ...]) -> list[Finding]:
    """Every constraint that refuses a node, in the pod's order. O(constraints x nodes)."""
    with_keys = case.snapshot.alive.copy()
    for constraint in constraints:
        with_keys &= case.snapshot.column(constraint.topology_key).ids[: case.snapshot.n_rows] != ABSENT
    found = [_finding(case, constraint, with_keys) for constraint in constraints]
    return [finding for finding in found if finding.broken.any()]


def _finding(case: Case, constraint: Constraint, with_keys: Mask) -> Finding:
    snapshot, pod = case.snapshot, case.pod
    column = snapshot.column(constraint.topology_key)
    eligible = _eligible(case, constraint, with_keys)
    counted = np.where(eligible, _counted(case, constraint), 0)
    in_domain = column.sums(counted)
    domains = column.domains(eligible)
    is_empty = len(domains) < max(1, constraint.min_domains)
    fewest = 0 if is_empty else int(in_domain[domains].min())
    own = int(constraint.selects(pod))
    ids = column.ids[: snapshot.n_rows]
    excess = (in_domain + own - fewest - constraint.max_skew)[ids]
    lacking = snapshot.alive & (ids == ABSENT)
    skewed = snapshot.alive & ~lacking & (excess > 0)
    return Finding(
        plugin=NAME,
        kind="topologySpread",
        column=column,
        selects=selector_text(constraint.selector),
        namespaces=f"namespace {pod.namespace}",
        broken=skewed | lacking,
        lacking=lacking,
        counting=eligible,
        counted=counted,
        to_go=np.where(skewed, excess, 0),
        find_pods=lambda: _pods(case, constraint, eligible),
        most=fewest + constraint.max_skew - own,
        skew=Skew(constraint.max_skew, constraint.min_domains, len(domains), fewest, bool(own)),
    )


def _eligible(case: Case, constraint: Constraint, with_keys: Mask) -> Mask:
    """Nodes that make domains: with all keys, and let in by the inclusion policies."""
    spec = case.pod.spec
    eligible = with_keys
    if constraint.honor_node_affinity and not spec.node_rule.is_trivial:
        eligible = eligible & case.snapshot.matching(spec.node_rule)
    if constraint.honor_node_taints:
        eligible = eligible & case.snapshot.tolerated(spec.tolerations)
    return eligible


def _matcher(case: Case, constraint: Constraint) -> PodMatcher | None:
    """Who is counted; None for an empty selector, which counts nobody (common.go, countPodsMatchSelector, 1.36)."""
    if constraint.selector.is_empty or constraint.selector.is_nothing:
        return None
    own_namespace = NamespaceRule(frozenset((case.pod.namespace,)), NOTHING)
    return PodMatcher(((own_namespace, constraint.selector),))


def _counted(case: Case, constraint: Constraint) -> Amounts:
    """Selected pods per row that are not terminating: int64 array of shape (n_rows,)."""
    matcher = _matcher(case, constraint)
    if matcher is None:
        return np.zeros(case.snapshot.n_rows, dtype=np.int64)
    return case.snapshot.rows_of(case.snapshot.selected_live(matcher)).astype(np.int64)


def _pods(case: Case, constraint: Constraint, eligible: Mask) -> Iterable[tuple[Pod, int]]:
    matcher = _matcher(case, constraint)
    if matcher is None:
        return
    for pod, row in case.selected_pods(matcher):
        if row < len(eligible) and eligible[row] and not pod.terminating:
            yield pod, row
