"""
Relaxes required rules of a pending pod whose fallback is due, and finds pods that only annotations keep pending.

Both ask of a pod that fits nowhere: would it fit without this rule alone? The hard rules are always tried first, and
preemption goes before a fallback: while a node is nominated for the pod, no clock runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from typing import Final

from scheduler.engine.core.decide import fits
from scheduler.engine.core.pod_records import PodRecords, Relaxation
from scheduler.engine.framework.diagnosis import FitError
from scheduler.engine.framework.profile import Profile
from scheduler.engine.model.fallback import Fallback, RelaxedRule
from scheduler.engine.model.instructions import EmitEvent, FindScaleUpEvents, Instruction, SaveWaits
from scheduler.engine.model.pods import Pod, PodSpec, relaxed_spec
from scheduler.engine.queueing.rule_clocks import RuleClocks, RuleSet
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.errors import PluginFailed

#: Specs that are remembered with rules left out; a pod that waits is asked about them in each attempt.
_MEMOIZED_SPECS: Final = 1_024

_KEPT_BY_ANNOTATIONS: Final = "only affinity by annotation keeps the pod pending; autoscalers do not see it"


class Fallbacks:
    """Asks what keeps pods pending, and lets the clocks of these rules run."""

    def __init__(
        self, state: ClusterState, view: ClusterView, records: PodRecords, clocks: RuleClocks
    ) -> None:
        self._state, self._view = state, view
        self._records, self._clocks = records, clocks
        self._relaxed_spec = lru_cache(maxsize=_MEMOIZED_SPECS)(relaxed_spec)
        self._bare_spec = lru_cache(maxsize=_MEMOIZED_SPECS)(_without_annotations)

    def consider(self, pod: Pod, error: FitError, profile: Profile, now_s: float) -> Relaxation | None:
        """Let the clocks of the rules run that keep the unfit pod pending; return it relaxed if some are due."""
        if not pod.spec.fallbacks:
            return None
        rule_sets: list[RuleSet] = []
        if not self._is_preempting(pod, error):
            rule_sets = keeping_rules(
                pod.spec.fallbacks, lambda rules: would_fit(self._relaxed(pod, rules), self._view, profile)
            )
        self._clocks.run(pod, rule_sets, now_s)
        due = self._clocks.due(pod.uid)
        if due is None:
            return None
        why = partial(self._why, pod.uid, is_alone=len(due) == 1)
        return Relaxation(self._relaxed(pod, due), tuple(RelaxedRule(rule.name, why(rule)) for rule in due))

    def reports(self, pod: Pod, error: FitError, profile: Profile) -> list[Instruction]:
        """Return the saves of an unfit pod's clocks, and the event if only annotations keep the pod pending."""
        reports: list[Instruction] = [*self._saves(pod)]
        record, is_kept = self._records.get(pod.uid), self._is_kept_by_annotations(pod, error, profile)
        if record is not None and is_kept and not record.is_kept_by_annotations:
            reports.append(EmitEvent(pod, "Warning", "KeptByAnnotations", "Scheduling", _KEPT_BY_ANNOTATIONS))
        if record is not None:
            record.is_kept_by_annotations = is_kept
        return reports

    def on_time(self, now_s: float) -> tuple[list[str], list[Instruction]]:
        """
        Return the pods to try at once, and the instructions that save clocks and ask about autoscalers.

        They are pods with rules that are due, and pods whose clocks are saved: nothing wakes a pod when its rules
        become only one of several reasons, so that it is asked again before more time counts.
        """
        reached = self._clocks.on_time(now_s)
        due = [pod.uid for pod in reached if self._clocks.due(pod.uid) is not None]
        saves = [save for pod in reached for save in self._saves(pod)]
        saved = [save.pod.uid for save in saves]
        questions = [
            FindScaleUpEvents(pod.namespace) for pod in reached if self._clocks.take_question(pod.uid)
        ]
        return [*due, *saved], [*saves, *questions]

    def on_assumed(self, uid: str, now_s: float) -> None:
        """Stop the clocks of a pod that is being bound."""
        self._clocks.stop(uid, now_s)
        self._forget_kept(uid)

    def forget(self, uid: str) -> None:
        """Forget a pod that is bound or gone."""
        self._clocks.forget(uid)
        self._forget_kept(uid)

    def _forget_kept(self, uid: str) -> None:
        if (record := self._records.get(uid)) is not None:
            record.is_kept_by_annotations = False

    def _saves(self, pod: Pod) -> list[SaveWaits]:
        unsaved = self._clocks.take_unsaved(pod.uid)
        return [] if unsaved is None else [SaveWaits(pod, unsaved)]

    def _relaxed(self, pod: Pod, rules: RuleSet) -> Pod:
        return replace(pod, spec=self._relaxed_spec(pod.spec, rules))

    def _is_preempting(self, pod: Pod, error: FitError) -> bool:
        result = error.postfilter
        if result is not None and result.nominated_node_name is not None:
            return result.nominated_node_name != ""
        return bool(self._state.nominated and self._state.nominated.node_of(pod.uid))

    def _is_kept_by_annotations(self, pod: Pod, error: FitError, profile: Profile) -> bool:
        bare = pod.spec.without_annotations
        if bare is None:
            if not self._view.has_anti_affinity_by_annotation:
                return False
            bare = self._bare_spec(pod.spec)
        return not self._is_preempting(pod, error) and would_fit(replace(pod, spec=bare), self._view, profile)

    def _why(self, uid: str, rule: Fallback, *, is_alone: bool) -> str:
        if rule.after_not_trigger_scale_up and self._clocks.is_given_up(uid):
            return "an autoscaler said NotTriggerScaleUp"
        kept = "alone" if is_alone else "with the other rules"
        return f"it kept the pod pending {kept} for {self._clocks.waited_s(uid)[rule.name]} s"


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

    Each rule without which it fits is one. If there is none, one smallest set is returned: from the last rule to the
    first, each is left out that the others do not need. Asks 2 * len(rules) + 1 questions at most.
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


def _without_annotations(spec: PodSpec) -> PodSpec:
    return replace(spec, ignores_annotations=True)
