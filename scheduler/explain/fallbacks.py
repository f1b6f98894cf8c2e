"""Explains the fallbacks of a pod: which nodes they would open, and which rules they relaxed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import inf

from scheduler.core.decide import fits
from scheduler.core.fallbacks import keeping_rules
from scheduler.framework.profile import Profile
from scheduler.model.fallback import Fallback
from scheduler.model.pods import Pod, relaxed_spec
from scheduler.queueing.rule_clocks import RuleSet
from scheduler.state.cluster_view import ClusterView


def first_to_relax(pod: Pod, view: ClusterView, profile: Profile) -> RuleSet | None:
    """Return the rules that would be relaxed first for a pod that does not fit; None if that would not help."""
    sets = _keeping(pod, view, profile)
    return min(sets, key=_time_s, default=None)


def relaxed_by(pod: Pod, rules: RuleSet) -> Pod:
    """Return the pod with these rules as preferences."""
    return replace(pod, spec=relaxed_spec(pod.spec, rules))


def pending_notes(pod: Pod, view: ClusterView, profile: Profile) -> Iterator[str]:
    """Yield what relaxes each set of rules that keeps the pod pending; or that no fallback would help."""
    if not pod.spec.fallbacks:
        return
    sets = _keeping(pod, view, profile)
    waited_s = dict(pod.fallback_waited_s)
    for rules in sets:
        parts = [
            _relaxing(rule) + (f" ({waited_s.get(rule.name, 0)} s so far)" if rule.after_s else "")
            for rule in rules
        ]
        yield f"fallback: the pod fits once {' and '.join(parts)}"
    if not sets:
        yield "fallback: the pod would not fit without the rules that have one either, so no time counts"


def relaxed_text(rules: RuleSet) -> str:
    """Return which rules count as what, and when."""
    return " and ".join(map(_relaxing, rules))


def bound_notes(pod: Pod) -> Iterator[str]:
    """Yield the rules that were relaxed when the pod was bound, and why, as its mark says."""
    softened = {one.name: one.softened for one in pod.spec.relaxed}
    for one in pod.relaxed:
        if one.rule in softened:
            yield f"relaxed: {one.rule} counts as {softened[one.rule]} since the bind: {one.why}"


def _keeping(pod: Pod, view: ClusterView, profile: Profile) -> list[RuleSet]:
    if not pod.spec.fallbacks:
        return []
    return keeping_rules(pod.spec.fallbacks, lambda rules: fits(relaxed_by(pod, rules), view, profile))


def _relaxing(rule: Fallback) -> str:
    when = [f"after {rule.after_s} s"] if rule.after_s is not None else []
    when += ["when an autoscaler says NotTriggerScaleUp"] if rule.after_not_trigger_scale_up else []
    return f"{rule.name} counts as {rule.softened}, {' or '.join(when)}"


def _time_s(rules: RuleSet) -> float:
    return max(inf if rule.after_s is None else rule.after_s for rule in rules)
