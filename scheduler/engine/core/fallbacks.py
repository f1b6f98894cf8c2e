"""
Relaxes required rules of a pending pod whose fallback is due, and finds pods that only annotations keep pending.

Both ask about a pod that fits nowhere: would it fit without this rule? A fallback is due once the pod has been
unschedulable for its time and the rule is what keeps it pending. The hard rules are always tried first, and preemption
goes before a fallback: none is due while a node is nominated for the pod.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from typing import Final

from sortedcontainers import SortedSet

from scheduler.engine.core.decide import fits
from scheduler.engine.core.pod_records import PodRecords, Relaxation
from scheduler.engine.framework.diagnosis import FitError
from scheduler.engine.framework.profile import Profile
from scheduler.engine.model.fallback import Fallback, RelaxedRule, relaxed_spec
from scheduler.engine.model.instructions import EmitEvent, Instruction
from scheduler.engine.model.pods import Pod
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.errors import PluginFailed

#: Specs that are remembered with rules left out; a pod that waits is asked about them in each attempt.
_MEMOIZED_SPECS: Final = 1_024

#: Rounding errors of sums of seconds are smaller.
_ROUNDING_S: Final = 1e-6

#: Rules that together keep a pod pending: it fits if all of them are preferences, and not if fewer are.
RuleSet = tuple[Fallback, ...]

_KEPT_BY_ANNOTATIONS: Final = "only affinity by annotation keeps the pod pending; autoscalers do not see it"


class Fallbacks:
    """Asks what keeps pods pending, and when their fallbacks are due. Holds the pods that have any until they leave."""

    def __init__(self, state: ClusterState, view: ClusterView, records: PodRecords) -> None:
        self._state, self._view, self._records = state, view, records
        self._relaxed_spec = lru_cache(maxsize=_MEMOIZED_SPECS)(relaxed_spec)
        self._bare_spec = lru_cache(maxsize=_MEMOIZED_SPECS)(partial(replace, ignores_annotations=True))
        #: Since when each pod is unschedulable.
        self._since_s: dict[str, float] = {}
        #: When each pod is to be tried again, and the same in this order.
        self._due_s: dict[str, float] = {}
        self._by_time: SortedSet[tuple[float, str]] = SortedSet()

    def consider(self, pod: Pod, error: FitError, profile: Profile, now_s: float) -> Relaxation | None:
        """Return the unfit pod relaxed if rules are due that keep it pending; else have it tried again in time."""
        self._forget_time(pod.uid)
        if not pod.spec.fallbacks:
            return None
        known_s = waited_s(pod, self._state.devices.epoch_s)
        waits_s = now_s - self._since_s.setdefault(pod.uid, now_s - known_s)
        if is_preempting(pod, error, self._state):
            return None
        rule_sets = keeping_rules(
            pod.spec.fallbacks, lambda rules: would_fit(self._relaxed(pod, rules), self._view, profile)
        )
        if not rule_sets:
            return None
        rules = next((each for each in rule_sets if _longest_s(each) <= waits_s + _ROUNDING_S), None)
        if rules is None:
            self._due_s[pod.uid] = due_s = now_s - waits_s + min(map(_longest_s, rule_sets))
            self._by_time.add((due_s, pod.uid))
            return None
        kept = "alone" if len(rules) == 1 else "with the other rules"
        why = f"after {int(waits_s + _ROUNDING_S)} s it kept the pod pending {kept}"
        return Relaxation(self._relaxed(pod, rules), tuple(RelaxedRule(rule.name, why) for rule in rules))

    def reports(self, pod: Pod, error: FitError, profile: Profile) -> list[Instruction]:
        """Return the event if only annotations keep the unfit pod pending, and no event has said so."""
        record, is_kept = self._records.get(pod.uid), self._is_kept_by_annotations(pod, error, profile)
        if record is None:
            return []
        was_kept, record.is_kept_by_annotations = record.is_kept_by_annotations, is_kept
        if not is_kept or was_kept:
            return []
        return [EmitEvent(pod, "Warning", "KeptByAnnotations", "Scheduling", _KEPT_BY_ANNOTATIONS)]

    def take_due(self, now_s: float) -> list[str]:
        """Return the UIDs of pods with a fallback that is due, each once; they are to be tried at once."""
        due: list[str] = []
        while self._by_time and self._by_time[0][0] <= now_s:
            due.append(self._by_time[0][1])
            self._forget_time(due[-1])
        return due

    def next_wake_s(self) -> float | None:
        """Return when `take_due` is next to be called, None if no pod waits for a fallback."""
        return self._by_time[0][0] if self._by_time else None

    def on_assumed(self, uid: str) -> None:
        """Note that the pod is being bound."""
        self._forget_time(uid)
        if (record := self._records.get(uid)) is not None:
            record.is_kept_by_annotations = False

    def forget(self, uid: str) -> None:
        """Forget a pod that is bound or gone."""
        self.on_assumed(uid)
        self._since_s.pop(uid, None)

    def _forget_time(self, uid: str) -> None:
        if (due_s := self._due_s.pop(uid, None)) is not None:
            self._by_time.remove((due_s, uid))

    def _relaxed(self, pod: Pod, rules: RuleSet) -> Pod:
        return replace(pod, spec=self._relaxed_spec(pod.spec, rules))

    def _is_kept_by_annotations(self, pod: Pod, error: FitError, profile: Profile) -> bool:
        bare = pod.spec.without_annotations
        if bare is None:
            if not self._view.state.terms.n_by_annotation:
                return False
            bare = self._bare_spec(pod.spec)
        return not is_preempting(pod, error, self._state) and would_fit(
            replace(pod, spec=bare), self._view, profile
        )


def is_preempting(pod: Pod, error: FitError, state: ClusterState) -> bool:
    """Return whether a node is nominated for the unfit pod after this attempt."""
    result = error.postfilter
    if result is not None and result.nominated_node_name is not None:
        return result.nominated_node_name != ""
    return bool(state.nominated and state.nominated.node_of(pod.uid))


def waited_s(pod: Pod, epoch_s: float) -> float:
    """
    Return for how long the pod has been unschedulable at this time of day, by its condition PodScheduled.

    The time with scheduling gates counts only if another scheduler found the pod unschedulable afterwards: the
    condition's transition is the one to False.
    """
    condition = pod.scheduled_condition
    if condition is None or condition.since_s is None or condition.reason == "SchedulingGated":
        return 0.0
    return max(0.0, epoch_s - condition.since_s)


def _longest_s(rules: RuleSet) -> int:
    return max(rule.after_s for rule in rules)


def would_fit(pod: Pod, view: ClusterView, profile: Profile) -> bool:
    """Return whether a node takes the pod; False if a plugin fails to say so."""
    try:
        return fits(pod, view, profile)
    except PluginFailed:
        # Its failures are counted where pods are decided.
        return False


def keeping_rules(rules: RuleSet, fits_without: Callable[[RuleSet], bool]) -> list[RuleSet]:
    """
    Return the sets of rules that keep a pod pending; none if it does not fit without all of them either.

    Each rule without which the pod fits is a set. If there is none, return one minimal set: rules that it can do
    without are dropped, the last one first. Asks 2 * len(rules) + 1 questions at most.
    """
    if not fits_without(rules):
        return []
    alone: list[RuleSet] = [(rule,) for rule in rules if len(rules) == 1 or fits_without((rule,))]
    if alone:
        return alone
    needed = rules
    for rule in reversed(rules):
        fewer = tuple(kept for kept in needed if kept is not rule)
        if fits_without(fewer):
            needed = fewer
    return [needed]
