"""
An out-of-tree plugin that fails or overruns again and again is shut off for its profile, and pods that need it wait.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from scheduler.daemon.metrics.metrics import Metrics
from scheduler.daemon.metrics.out_of_tree_watch import LONGEST_CALL_S, MOST_FAILURES_IN_A_ROW
from scheduler.engine.core.machine import Machine
from scheduler.engine.model.instructions import Attempted, EmitEvent, Instruction
from scheduler.engine.model.stimuli import PluginFailing
from scheduler.sdk.plugin import (
    SKIP,
    Action,
    ClusterEventWithHint,
    FinalScores,
    Resource,
    queue_if,
    unschedulable,
)
from scheduler.sdk.testing import Cluster
from tests.daemon.metrics.scheduling import Samples, samples, value
from tests.support import build
from tests.support.driving import NAME, Driver, kinds

FAILED = "running PreFilter plugin \"Mine\": KeyError: 'team' (test_shut_off.py, line "


class Identity:
    """Fails or overruns as the test says, for pods with a team; a filter and a score."""

    name = "Mine"
    only_pods_with_label = "team"
    filtering: Callable[[], Any] = staticmethod(lambda: SKIP)
    scoring: Callable[[], Any] = staticmethod(lambda: SKIP)

    hinting: Callable[[], Any] = staticmethod(lambda: queue_if(True))

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return [ClusterEventWithHint(Resource.NODE, Action.ADD, lambda *_: self.hinting())]

    def prefilter(self, context: Any, view: Any) -> Any:
        del context, view
        return self.filtering()

    def prescore(self, context: Any, view: Any, feasible: Any) -> Any:
        del context, view, feasible
        return self.scoring()


class _Run:
    """A machine whose profile has the plugin, its metrics, and what it told."""

    def __init__(self) -> None:
        self.clock_s = 0.0
        self.metrics = Metrics()
        self.driver = Driver(settings=Cluster(plugins=[Identity]).settings)
        driver = self.driver
        self.failing: list[PluginFailing] = []
        driver.machine = Machine(
            state=driver.state,
            queue=driver.queue,
            profiles=driver.profiles,
            rng=random.Random(1),
            observer=self.metrics.cycle_observer(
                driver.profiles, seed=1, on_failing=self.failing.append, now_s=lambda: self.clock_s
            ),
        )
        for number in range(2):
            driver.node(f"n{number}")
        self.n_pods = 0

    def overrun(self, result: Any) -> Any:
        """Return the result after too long a time."""
        self.clock_s += 1.5 * LONGEST_CALL_S
        return result

    def schedule(self, **labels: str) -> list[Instruction]:
        """Create a pod and run a cycle; handle what the watch reports, and return all instructions."""
        self.n_pods += 1
        pod = self.driver.pod(f"p{self.n_pods}", labels=labels)
        told = self.driver.cycle()
        while self.failing:
            told += self.driver.handle(self.failing.pop())
        self.driver.lose(pod)
        return told

    def samples(self) -> Samples:
        return samples(self.metrics.render())

    def counted(self, reason: str) -> float:
        name = "affinity_scheduler_plugin_failures_total"
        return value(self.samples(), name, plugin="Mine", profile=NAME, reason=reason)

    @property
    def is_off(self) -> bool:
        name = "affinity_scheduler_plugin_shut_off"
        return value(self.samples(), name, plugin="Mine", profile=NAME) == 1


@pytest.fixture
def run() -> _Run:
    return _Run()


def _fail() -> Any:
    raise KeyError("team")


def _message(told: list[Instruction]) -> str:
    (attempt,) = [one for one in told if isinstance(one, Attempted)]
    return attempt.message


def _events(told: list[Instruction], reason: str) -> list[str]:
    events = [one for one in told if isinstance(one, EmitEvent) and one.reason == reason]
    assert all(event.type == "Warning" for event in events)
    return [event.note for event in events]


def test_a_filter_that_raises_again_and_again_is_shut_off_and_pods_that_need_it_wait(
    run: _Run, monkeypatch: pytest.MonkeyPatch
):
    """Each failure fails the pod's cycle; then the plugin is not called, and no pod that it is about gets through."""
    monkeypatch.setattr(Identity, "filtering", staticmethod(_fail))
    for _ in range(MOST_FAILURES_IN_A_ROW - 1):
        told = run.schedule(team="a")
        assert _message(told).startswith(FAILED)
        assert not run.is_off
    last = run.schedule(team="a")
    (note,) = _events(last, "PluginShutOff")
    why = f"10 calls in a row failed, the last one: {FAILED}"
    expected = f"plugin Mine of profile {NAME} is shut off, and pods with the label team wait: {why}"
    assert note.startswith(expected)
    assert run.is_off
    assert run.counted("error") == MOST_FAILURES_IN_A_ROW
    monkeypatch.setattr(Identity, "filtering", staticmethod(lambda: pytest.fail("it is shut off")))
    waiting = _message(run.schedule(team="a"))
    refused = "0/2 nodes are available: plugin Mine is shut off until the scheduler restarts: 10 calls in a row failed"
    assert waiting.startswith(refused)
    assert kinds(run.schedule()) == ["Bind"]


def test_a_filter_that_takes_too_long_again_and_again_is_shut_off(run: _Run, monkeypatch: pytest.MonkeyPatch):
    """Its answers count until then."""
    monkeypatch.setattr(Identity, "filtering", staticmethod(lambda: run.overrun(SKIP)))
    for _ in range(MOST_FAILURES_IN_A_ROW):
        told = run.schedule(team="a")
        assert kinds(told)[0] == "Bind"
    (note,) = _events(told, "PluginShutOff")
    assert note.endswith("the last one: PreFilter took 0.150 s, more than 0.1 s")
    assert (run.is_off, run.counted("overrun")) == (True, MOST_FAILURES_IN_A_ROW)


def test_the_scores_of_a_guest_that_is_shut_off_are_left_out(run: _Run, monkeypatch: pytest.MonkeyPatch):
    """A preference is no reason to wait, and the filter of the same plugin works; until it fails, too."""
    monkeypatch.setattr(Identity, "scoring", staticmethod(lambda: FinalScores(np.full(2, 200))))
    for _ in range(MOST_FAILURES_IN_A_ROW):
        last = run.schedule(team="a")
        assert "expected 0 to 100" in _message(last)
    (note,) = _events(last, "PluginShutOff")
    assert note.startswith(
        f"plugin Mine of profile {NAME} is shut off, and its scores are left out: 10 calls"
    )
    assert run.is_off
    monkeypatch.setattr(Identity, "scoring", staticmethod(lambda: pytest.fail("it is shut off")))
    assert kinds(run.schedule(team="a"))[0] == "Bind"
    monkeypatch.setattr(Identity, "filtering", staticmethod(lambda: unschedulable("no room")))
    assert "no room" in _message(run.schedule(team="a"))
    monkeypatch.setattr(Identity, "filtering", staticmethod(_fail))
    for _ in range(MOST_FAILURES_IN_A_ROW):
        assert _message(run.schedule(team="a")).startswith(FAILED)
    assert "is shut off" in _message(run.schedule(team="a"))


def test_a_plugin_is_shut_off_once_and_only_the_one_that_fails(run: _Run):
    pod = run.driver.pod("p")
    (mine,) = run.driver.profiles[NAME].out_of_tree
    assert run.driver.handle(PluginFailing(NAME, "Other", "it is late", pod)) == []
    assert not mine.shut_off
    note = f"plugin Mine of profile {NAME} is shut off, and pods with the label team wait: it is late"
    assert run.driver.handle(PluginFailing(NAME, "Mine", "it is late", pod)) == [
        EmitEvent(pod, "Warning", "PluginShutOff", "Scheduling", note)
    ]
    assert run.driver.handle(PluginFailing(NAME, "Mine", "it is late", pod)) == []


def test_failures_with_a_success_in_between_shut_nothing_off(run: _Run, monkeypatch: pytest.MonkeyPatch):
    for number in range(3 * MOST_FAILURES_IN_A_ROW):
        works = number % MOST_FAILURES_IN_A_ROW == 0
        monkeypatch.setattr(Identity, "filtering", staticmethod((lambda: SKIP) if works else _fail))
        run.schedule(team="a")
    assert not run.is_off


def test_a_hint_that_raises_again_and_again_is_counted_and_shut_off(
    run: _Run, monkeypatch: pytest.MonkeyPatch
):
    """The pod is tried in doubt; an out-of-tree plugin that is shut off is not asked any more."""
    monkeypatch.setattr(Identity, "filtering", staticmethod(lambda: unschedulable("no room")))
    monkeypatch.setattr(Identity, "hinting", staticmethod(_fail))
    for number in range(MOST_FAILURES_IN_A_ROW):
        run.driver.pod(f"waits-{number}", labels={"team": str(number)})
        run.driver.cycle()
    run.driver.node("n3")
    assert run.counted("error") == MOST_FAILURES_IN_A_ROW
    assert "KeyError: 'team' (test_shut_off.py, line " in run.failing[0].why
    told = run.driver.handle(run.failing.pop())
    assert _events(told, "PluginShutOff")
    monkeypatch.setattr(Identity, "hinting", staticmethod(lambda: pytest.fail("it is shut off")))
    run.driver.node("n4")


def test_no_pod_is_evicted_for_a_pod_that_a_guest_fails(monkeypatch: pytest.MonkeyPatch):
    """A failure does not end the scheduler either: right before an eviction the filters are asked again."""
    driver = Driver(settings=Cluster(plugins=[Identity]).settings)
    driver.node("n", allocatable={"cpu": "1"})
    low = driver.pod("low", node="n", containers=[build.container(requests={"cpu": "1"})])
    high = driver.pod(
        "high", priority=9, labels={"team": "a"}, containers=[build.container(requests={"cpu": "1"})]
    )
    driver.cycle()
    assert driver.needs_eviction(high.uid, low.uid)
    monkeypatch.setattr(Identity, "filtering", staticmethod(_fail))
    assert not driver.needs_eviction(high.uid, low.uid)


def test_calls_are_timed_in_every_cycle_and_observed_in_the_sampled_ones(
    run: _Run, monkeypatch: pytest.MonkeyPatch
):
    """An out-of-tree plugin's time is in the same series as the time of all others."""
    monkeypatch.setattr(
        Identity, "filtering", staticmethod(lambda: run.overrun(SKIP) if run.n_pods % 2 else SKIP)
    )
    for _ in range(100):
        run.schedule(team="a")
    assert run.counted("overrun") == 50
    name = "scheduler_plugin_execution_duration_seconds_count"
    n_observed = value(run.samples(), name, plugin="Mine", extension_point="PreFilter", status="Skip")
    assert 1 <= n_observed <= 40
