"""
How long rules with a fallback have kept pending pods pending, and when a fallback is due.

 1. The clock of a pod's rule runs from an attempt that found the pod unschedulable although it would fit if this rule
    were a preference, until the next attempt, which may find otherwise and comes at the latest when the clock is saved.
    It never starts over: its count stays.
 2. Only time that a live scheduler saw counts. Time is seen in steps, at least every `TICK_S` while a clock runs; a
    longer step counts as `MAX_STEP_S`. So neither a scheduler that was stopped, nor one that was not there, counts.
    Nor does the time for `BLIND_S` after a watch was interrupted: room may have come and gone unseen.
 3. What a clock has counted is saved on the pod when it starts, and whenever it has grown by `save_step_s`. A scheduler
    that starts continues from there: a restart costs the pod at most that step, and never gives it time.
 4. A set of rules is due once each of them is: its time is over, or an autoscaler has said NotTriggerScaleUp about the
    pod and the rule accepts that. While such a rule's clock runs, its namespace is asked about at once and then every
    `QUESTION_STEP_S`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final

from sortedcontainers import SortedDict

from scheduler.engine.model.fallback import Fallback
from scheduler.engine.model.pods import Pod

TICK_S: Final = 5.0
MAX_STEP_S: Final = 10.0
#: Sums of steps differ from the whole by less.
_ROUNDING_S: Final = 1e-6
#: Longer than the longest pause between two attempts to list or watch, which is 30 s.
BLIND_S: Final = 40.0
_MIN_SAVE_STEP_S: Final = 30
QUESTION_STEP_S: Final = 15.0
#: Pods that an autoscaler gave up and that are not known to wait for it; the oldest go first.
_MOST_GIVEN_UP: Final = 10_000

#: Rules that together keep a pod pending: it fits if all of them are preferences, and not if fewer are.
RuleSet = tuple[Fallback, ...]


def save_step_s(after_s: int) -> int:
    """Return the seconds after which a clock is saved again: a tenth of its time, at least 30 s."""
    return max(_MIN_SAVE_STEP_S, after_s // 10)


@dataclass(slots=True)
class _Wait:
    """The clocks of one pod. The clocks of `rule_sets` run since `since_s`, in seconds of the live time."""

    pod: Pod
    counted_s: dict[str, float]
    saved_s: dict[str, int]
    rule_sets: Sequence[RuleSet] = ()
    since_s: float = 0.0
    #: When it is next to be looked at: its key in `RuleClocks._wakes`.
    wake: tuple[float, int] | None = None

    @property
    def running(self) -> set[Fallback]:
        """The rules whose clocks run."""
        return {rule for rules in self.rule_sets for rule in rules}


@dataclass(slots=True)
class RuleClocks:
    """The clocks of all pending pods with fallbacks."""

    #: The live time, in seconds since some moment; see rule 2.
    _live_s: float = 0.0
    _seen_s: float = -inf
    _blind_until_s: float = -inf
    _waits: dict[str, _Wait] = field(default_factory=dict)
    #: The pods whose rules will be due or have to be saved, by the live time and the number of the entry.
    _wakes: SortedDict = field(default_factory=SortedDict)
    _n_wakes: int = 0
    _given_up: dict[str, None] = field(default_factory=dict)
    #: The live time of the last question about a namespace's events.
    _asked_s: dict[str, float] = field(default_factory=dict)

    def run(self, pod: Pod, rule_sets: Sequence[RuleSet], now_s: float) -> None:
        """Let the clocks of exactly these rules of the pod run from now on. O(rules + log pods)."""
        self._see(now_s)
        wait = self._waits.get(pod.uid)
        if wait is None:
            if not rule_sets:
                return
            saved = dict(pod.fallback_waited_s)
            wait = self._waits[pod.uid] = _Wait(pod, {name: float(s) for name, s in saved.items()}, saved)
        self._count(wait)
        wait.pod, wait.rule_sets = pod, tuple(rule_sets)
        for rule in wait.running:
            wait.counted_s.setdefault(rule.name, 0.0)
        self._set_wake(wait)

    def stop(self, uid: str, now_s: float) -> None:
        """Let no clock of the pod run, since it is being bound."""
        wait = self._waits.get(uid)
        if wait is not None:
            self.run(wait.pod, (), now_s)

    def forget(self, uid: str) -> None:
        """Forget a pod that is bound or gone."""
        wait = self._waits.pop(uid, None)
        if wait is not None and wait.wake is not None:
            del self._wakes[wait.wake]
        self._given_up.pop(uid, None)
        if not self._waits:
            self._asked_s.clear()

    def give_up(self, uid: str, now_s: float) -> bool:
        """Note that an autoscaler cannot help the pod. Return whether a set of rules is due now that was not before."""
        if uid in self._given_up:
            return False
        was_due = self.due(uid) is not None
        while len(self._given_up) >= _MOST_GIVEN_UP:
            del self._given_up[next(iter(self._given_up))]
        self._given_up[uid] = None
        wait = self._waits.get(uid)
        if wait is None:
            return False
        self._see(now_s)
        self._count(wait)
        self._set_wake(wait)
        return not was_due and self.due(uid) is not None

    def is_given_up(self, uid: str) -> bool:
        """Return whether an autoscaler has said that it cannot help the pod."""
        return uid in self._given_up

    def due(self, uid: str) -> RuleSet | None:
        """Return the first set of rules of the pod that is due, by what the last call counted; None if none is."""
        wait = self._waits.get(uid)
        if wait is None:
            return None
        return next(
            (rules for rules in wait.rule_sets if self._remaining_s(wait, rules) <= _ROUNDING_S), None
        )

    def waited_s(self, uid: str) -> dict[str, int]:
        """Return the whole seconds counted by the name of the rule."""
        wait = self._waits.get(uid)
        if wait is None:
            return {}
        self._count(wait)
        return {name: int(counted) for name, counted in wait.counted_s.items()}

    def on_time(self, now_s: float) -> list[Pod]:
        """
        See the time. Return the pods of which a set of rules may have become due, or clocks have to be saved.

        O(their number * log pods).
        """
        self._see(now_s)
        reached: list[_Wait] = []
        while self._wakes and self._wakes.peekitem(0)[0][0] <= self._live_s + _ROUNDING_S:
            reached.append(self._wakes.popitem(0)[1])
        for wait in reached:
            wait.wake = None
            self._count(wait)
            self._set_wake(wait)
        return [wait.pod for wait in reached]

    def next_wake_s(self, now_s: float) -> float | None:
        """Return when `on_time` is next to be called, None if no clock runs."""
        if not self._wakes:
            return None
        first_s: float = self._wakes.peekitem(0)[0][0]
        until_s = max(0.0, first_s - self._live_s)
        return max(now_s, max(self._seen_s, self._blind_until_s) + min(TICK_S, until_s))

    def take_unsaved(self, uid: str) -> Mapping[str, int] | None:
        """Return what has to be saved on the pod now, and take it as saved; None if nothing has."""
        wait = self._waits.get(uid)
        if wait is None or all(until_s > _ROUNDING_S for until_s in _until_saves_s(wait)):
            return None
        wait.saved_s = {name: int(counted) for name, counted in wait.counted_s.items()}
        self._set_wake(wait)
        return wait.saved_s

    def take_question(self, uid: str) -> bool:
        """Return whether the pod's namespace is to be asked about now, and take it as asked."""
        wait = self._waits.get(uid)
        if wait is None or self._until_question_s(wait) > _ROUNDING_S:
            return False
        self._asked_s[wait.pod.namespace] = self._live_s
        self._set_wake(wait)
        return True

    def _until_question_s(self, wait: _Wait) -> float:
        if wait.pod.uid in self._given_up or not any(r.after_not_trigger_scale_up for r in wait.running):
            return inf
        return self._asked_s.get(wait.pod.namespace, -inf) + QUESTION_STEP_S - self._live_s

    def on_interrupted(self, now_s: float) -> None:
        """Let no clock count for a while, since a watch was interrupted."""
        self._see(now_s)
        self._blind_until_s = now_s + BLIND_S

    def _see(self, now_s: float) -> None:
        from_s = max(self._seen_s, min(self._blind_until_s, now_s))
        self._live_s += max(0.0, min(now_s - from_s, MAX_STEP_S))
        self._seen_s = now_s

    def _count(self, wait: _Wait) -> None:
        """Add the live time since the last count to the clocks that run."""
        for rule in wait.running:
            wait.counted_s[rule.name] += self._live_s - wait.since_s
        wait.since_s = self._live_s

    def _remaining_s(self, wait: _Wait, rules: RuleSet) -> float:
        """Return the live time until the rules are due, infinite if only an autoscaler can make them so."""
        return max(self._remaining_of_one_s(wait, rule) for rule in rules)

    def _remaining_of_one_s(self, wait: _Wait, rule: Fallback) -> float:
        if rule.after_not_trigger_scale_up and wait.pod.uid in self._given_up:
            return 0.0
        return inf if rule.after_s is None else rule.after_s - wait.counted_s[rule.name]

    def _set_wake(self, wait: _Wait) -> None:
        """Enter the next moment at which the pod has to be looked at; none once it is due, until its next attempt."""
        if wait.wake is not None:
            del self._wakes[wait.wake]
            wait.wake = None
        remaining_s = min((self._remaining_s(wait, rules) for rules in wait.rule_sets), default=inf)
        until_s = min(remaining_s, self._until_question_s(wait), *_until_saves_s(wait))
        if remaining_s > _ROUNDING_S and until_s < inf:
            self._n_wakes += 1
            wait.wake = (self._live_s + max(until_s, 0.0), self._n_wakes)
            self._wakes[wait.wake] = wait


def _until_saves_s(wait: _Wait) -> Iterator[float]:
    """Yield the live time until each clock that runs is to be saved."""
    for rule in wait.running:
        if rule.after_s is not None:
            saved_s = wait.saved_s.get(rule.name)
            step_s = save_step_s(rule.after_s)
            yield 0.0 if saved_s is None else saved_s + step_s - wait.counted_s[rule.name]
