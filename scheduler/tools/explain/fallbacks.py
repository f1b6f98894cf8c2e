"""Explains the fallbacks of a pod: which nodes they would open, and which rules they relaxed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from scheduler.engine.core.fallbacks import keeping_rules, would_fit
from scheduler.engine.framework.profile import Profile
from scheduler.engine.model.pods import Pod, relaxed_spec
from scheduler.engine.queueing.rule_clocks import RuleSet
from scheduler.engine.state.cluster_view import ClusterView


def pending_notes(pod: Pod, view: ClusterView, profile: Profile) -> Iterator[str]:
    """Yield what relaxes each set of rules that keeps the pod pending; or that no fallback would help."""
    if not pod.spec.fallbacks:
        return

    def fits_without(rules: RuleSet) -> bool:
        return would_fit(replace(pod, spec=relaxed_spec(pod.spec, rules)), view, profile)

    sets = keeping_rules(pod.spec.fallbacks, fits_without)
    waited_s = dict(pod.fallback_waited_s)
    for rules in sets:
        parts = [
            rule.text + (f" ({waited_s.get(rule.name, 0)} s so far)" if rule.after_s else "")
            for rule in rules
        ]
        yield f"fallback: the pod fits once {' and '.join(parts)}"
    if not sets:
        yield "fallback: the pod would not fit without the rules that have one either, so no time counts"


def bound_notes(pod: Pod) -> Iterator[str]:
    """Yield the rules that were relaxed when the pod was bound, and why, as its mark says."""
    softened = {one.name: one.softened for one in pod.spec.relaxed}
    for one in pod.relaxed:
        if one.rule in softened:
            yield f"relaxed: {one.rule} counts as {softened[one.rule]} since the bind: {one.why}"
