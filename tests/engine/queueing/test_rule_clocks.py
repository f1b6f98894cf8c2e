"""The clocks of rules with a fallback, against a list of what happened that is added up anew each time."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.engine.core.fallbacks import keeping_rules
from scheduler.engine.model.fallback import Fallback, waited_text
from scheduler.engine.model.pod_decoder import PodDecoder
from scheduler.engine.model.pods import Pod
from scheduler.engine.queueing.rule_clocks import (
    BLIND_S,
    MAX_STEP_S,
    QUESTION_STEP_S,
    TICK_S,
    RuleClocks,
    save_step_s,
)
from tests.support import build

TIMES_S = {"a": 20, "b": 100, "c": 1000}
RULES = {
    name: Fallback("podAntiAffinity", name, (), after_s, name == "c", 100)
    for name, after_s in TIMES_S.items()
}
NAMES = {rule.name: key for key, rule in RULES.items()}
POD = PodDecoder().decode(json.dumps(build.pod()).encode())


class _Life:
    """A scheduler with rule clocks, and the times that a plain count beside it expects."""

    def __init__(self) -> None:
        self.clocks = RuleClocks()
        self.now_s = 50.0
        self.saved: dict[str, int] = {}
        self.running: set[str] = set()
        #: What each rule waited while the scheduler lived, at the least and at the most.
        self.least_s = dict.fromkeys(TIMES_S, 0.0)
        self.most_s = dict.fromkeys(TIMES_S, 0.0)

    def pod(self) -> Pod:
        return replace(POD, fallback_waited_s=tuple((RULES[key].name, s) for key, s in self.saved.items()))

    def attempt(self, keys: tuple[str, ...]) -> None:
        """Try the pod: each of these rules keeps it pending."""
        self.clocks.run(self.pod(), [(RULES[key],) for key in keys], self.now_s)
        self.running = set(keys)
        self._save()

    def live(self, seconds: float) -> None:
        until_s = self.now_s + seconds
        self._bind_if_due()
        while (wake_s := self.clocks.next_wake_s(self.now_s)) is not None and wake_s <= until_s:
            assert wake_s - self.now_s <= TICK_S + 1e-6
            self._passes(wake_s - self.now_s)
            for pod in self.clocks.on_time(self.now_s):
                self.clocks.take_question(pod.uid)
            self._save()
            self._bind_if_due()
        self._passes(until_s - self.now_s)

    def freeze(self, seconds: float) -> None:
        """Stop the process for a while, of which at most one step counts."""
        self.now_s += seconds
        for key in self.running:
            self.most_s[key] += min(seconds, MAX_STEP_S)

    def interrupted(self) -> None:
        """Break a watch: the time so far counts, the next step does not."""
        self.clocks.on_interrupted(self.now_s)
        self.now_s += BLIND_S

    def restart(self) -> None:
        """Start another process, with another clock, from what was saved."""
        self.clocks, self.now_s, self.running = RuleClocks(), 7.0, set()
        for key in TIMES_S:
            known = self.saved.get(key, 0)
            # The sums of the two clocks are rounded differently.
            assert known <= self.most_s[key] + 1e-6
            assert known >= self.least_s[key] - save_step_s(TIMES_S[key]) - TICK_S - 1
            self.least_s[key] = self.most_s[key] = known

    def check(self) -> None:
        waited = {NAMES[name]: s for name, s in self.clocks.waited_s(POD.uid).items()}
        for key, seconds in waited.items():
            # What passed since the last look is not counted yet.
            assert self.least_s[key] - MAX_STEP_S - 1 <= seconds <= self.most_s[key] + 1e-6
        due = self.clocks.due(POD.uid)
        for rule in due or ():
            assert rule.topology_key in self.running
            assert self.most_s[rule.topology_key] >= TIMES_S[rule.topology_key] - 1e-6
        for key in self.running if due is None else ():
            assert self.least_s[key] - MAX_STEP_S < TIMES_S[key]

    def _bind_if_due(self) -> None:
        """Try a pod with rules that are due; its bind fails, and then other reasons keep it pending."""
        self.check()
        if self.clocks.due(POD.uid) is not None:
            self.clocks.stop(POD.uid, self.now_s)
            self.running = set()

    def _passes(self, seconds: float) -> None:
        self.now_s += seconds
        for key in self.running:
            self.least_s[key] += seconds
            self.most_s[key] += seconds

    def _save(self) -> None:
        unsaved = self.clocks.take_unsaved(POD.uid)
        if unsaved is not None:
            assert waited_text(unsaved)
            self.saved |= {NAMES[name]: s for name, s in unsaved.items()}
        assert self.clocks.take_unsaved(POD.uid) is None


STEPS = st.one_of(
    st.tuples(st.just("attempt"), st.sets(st.sampled_from(sorted(TIMES_S))).map(lambda s: tuple(sorted(s)))),
    st.tuples(st.just("live"), st.sampled_from((0.3, 4.0, 30.0, 250.0))),
    st.tuples(st.just("live"), st.floats(0.0, 60.0)),
    st.tuples(st.just("freeze"), st.sampled_from((1.0, 3600.0))),
    st.just(("interrupted", None)),
    st.just(("restart", None)),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(STEPS, max_size=25))
def test_only_time_that_a_live_scheduler_saw_counts(steps: list[tuple[str, object]]) -> None:
    """However it is stopped, restarted, and found that other rules keep the pod: nothing is added and little lost."""
    life = _Life()
    for name, argument in steps:
        getattr(life, name)(*([] if argument is None else [argument]))
        life.check()


@given(
    wanted=st.lists(st.sets(st.sampled_from(sorted(TIMES_S)), min_size=1), max_size=3),
    n_rules=st.integers(1, 3),
)
def test_the_rules_that_keep_a_pod_are_the_smallest_sets(wanted: list[set[str]], n_rules: int) -> None:
    """Against all subsets: a pod that fits without some rules fits without more of them too."""
    rules = tuple(RULES.values())[:n_rules]

    def fits_without(left_out: tuple[Fallback, ...]) -> bool:
        return any(need <= {one.topology_key for one in left_out} for need in wanted)

    found = keeping_rules(rules, fits_without)
    alone = [(rule,) for rule in rules if fits_without((rule,))]
    if alone or not fits_without(rules):
        assert found == alone
        return
    (needed,) = found
    assert fits_without(needed)
    assert not any(fits_without(tuple(one for one in needed if one is not rule)) for rule in needed)


def test_a_namespace_is_asked_about_once_for_all_of_its_pods() -> None:
    """Ten pods wait for an autoscaler's word; one question every 15 s."""
    clocks, now_s, asked = RuleClocks(), 0.0, 0
    for number in range(10):
        clocks.run(replace(POD, uid=str(number)), [(RULES["c"],)], now_s)
        clocks.take_unsaved(str(number))
    while now_s < 3 * QUESTION_STEP_S:
        wake_s = clocks.next_wake_s(now_s)
        assert wake_s is not None
        now_s = wake_s
        for pod in clocks.on_time(now_s):
            asked += clocks.take_question(pod.uid)
            clocks.take_unsaved(pod.uid)
    assert asked == 4
    assert clocks.give_up("3", now_s)
    assert clocks.due("3") == (RULES["c"],)
    assert clocks.due("4") is None
    lived(clocks, now_s, now_s + QUESTION_STEP_S)
    assert not clocks.take_question("3"), "it was answered"
    assert clocks.take_question("4")
    for number in range(9):
        clocks.forget(str(number))
    assert not clocks.take_question("9"), "it was asked just now"
    clocks.forget("9")
    clocks.run(POD, [(RULES["c"],)], now_s + QUESTION_STEP_S)
    assert clocks.take_question(POD.uid), "nothing is remembered of a namespace without pods that wait"


def test_the_heap_of_wakes_is_bounded() -> None:
    """A pod that is tried again and again for days leaves nothing behind."""
    clocks = RuleClocks()
    for attempt in range(10_000):
        clocks.run(POD, [(RULES["c"],)], attempt * 0.01)
    assert len(clocks._wakes) < 1_100
    clocks.forget(POD.uid)
    assert clocks.next_wake_s(200.0) is None


def lived(clocks: RuleClocks, from_s: float, until_s: float) -> None:
    """See every second."""
    for second in range(int(until_s - from_s)):
        clocks.on_time(from_s + second + 1.0)


def test_a_clock_is_saved_when_it_starts_and_whenever_it_has_grown_by_its_step() -> None:
    clocks, rule = RuleClocks(), RULES["c"]
    clocks.run(POD, [(rule,)], 0.0)
    assert clocks.next_wake_s(0.0) == 0.0
    assert clocks.take_unsaved(POD.uid) == {rule.name: 0}
    step_s = TIMES_S["c"] // 10
    lived(clocks, 0.0, step_s - 1.0)
    assert clocks.take_unsaved(POD.uid) is None
    lived(clocks, step_s - 1.0, step_s)
    assert clocks.take_unsaved(POD.uid) == {rule.name: step_s}


def test_the_next_look_is_at_the_second_at_which_a_rule_is_due() -> None:
    clocks = RuleClocks()
    clocks.run(POD, [(RULES["a"],)], 0.0)
    clocks.take_unsaved(POD.uid)
    lived(clocks, 0.0, TIMES_S["a"] - 2.0)
    assert clocks.next_wake_s(TIMES_S["a"] - 2.0) == TIMES_S["a"]
    lived(clocks, TIMES_S["a"] - 2.0, TIMES_S["a"])
    assert clocks.due(POD.uid) == (RULES["a"],)
    assert clocks.next_wake_s(TIMES_S["a"]) is None, "until the next attempt"
    clocks.stop(POD.uid, TIMES_S["a"])
    assert clocks.next_wake_s(TIMES_S["a"]) is None, "no clock runs"


def test_an_autoscaler_s_word_is_news_only_where_it_makes_rules_due() -> None:
    """Not for a rule that does not accept it, for one whose time is over, for an unknown pod, nor twice."""
    clocks = RuleClocks()
    assert not clocks.give_up("unknown", 0.0)
    for name in "ac":
        clocks.run(replace(POD, uid=name), [(RULES[name],)], 0.0)
    assert not clocks.give_up("a", 0.0)
    assert clocks.give_up("c", 0.0)
    assert not clocks.give_up("c", 0.0)
    clocks.run(replace(POD, uid="late"), [(RULES["c"],)], 0.0)
    lived(clocks, 0.0, TIMES_S["c"])
    clocks.run(replace(POD, uid="late"), [(RULES["c"],)], float(TIMES_S["c"]))
    assert clocks.due("late") == (RULES["c"],)
    assert not clocks.give_up("late", float(TIMES_S["c"]))
