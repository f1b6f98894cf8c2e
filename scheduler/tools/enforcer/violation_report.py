"""Writes broken rules as text."""

from __future__ import annotations

from scheduler.engine.model.pods import Pod
from scheduler.engine.model.terms import Shares
from scheduler.engine.model.wording import namespaces_text, selector_text, share_text
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.columns import ABSENT
from scheduler.tools.enforcer.instructions import ViolationReport
from scheduler.tools.enforcer.rules import RuleSpec, Side
from scheduler.tools.enforcer.violations import Violation, staying_in_domain


def violation_report(
    state: ClusterState, violation: Violation, about: str, other: Pod | None
) -> ViolationReport:
    """Return the violation as text, for an event about the pod with UID `about`. O(nodes + pods of the domain)."""
    spec = violation.rule.spec
    if other is None and spec.side is Side.ANTI_AFFINITY:
        staying = (placed.pod for placed in staying_in_domain(state, violation))
        other = next((pod for pod in staying if pod.uid not in (about, violation.uid)), None)
    domains = ", ".join(_domain_text(state, violation.row, key) for key in spec.keys)
    declared_in = state.placed[violation.uid].pod.namespace
    return ViolationReport(spec.side, spec.enforced, rule_text(spec), domains, other, declared_in)


def rule_text(spec: RuleSpec) -> str:
    """Return what the rule requires."""
    which = " and ".join(
        f"{selector_text(selector)} in {namespaces_text(rule.names, rule.selector)}"
        for rule, selector in spec.matcher.parts
    )
    keys = ", ".join(spec.keys)
    if spec.side is Side.AFFINITY:
        return f"affinity: one more pod with {which} in the same {keys}"
    if isinstance(spec.max_pods, Shares):
        return (
            f"anti-affinity: at most {share_text(spec.max_pods)} of the pods with {which} in the same {keys}"
        )
    n_others = spec.max_pods - 1
    limit = "no other pod" if n_others == 0 else f"at most {n_others} other pod{'s' if n_others > 1 else ''}"
    return f"anti-affinity: {limit} with {which} in the same {keys}"


def _domain_text(state: ClusterState, row: int, key: str) -> str:
    column = state.nodes.column(key)
    domain_id = int(column.ids[row])
    if domain_id == ABSENT:
        return f"node {state.nodes.name_of(row)} without {key}"
    return f"{key}={column.value_of(domain_id)}"
