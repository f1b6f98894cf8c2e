"""An out-of-tree plugin that fails again and again fails its pods; failures and overruns are in the metrics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from scheduler.daemon.metrics.instrument import LONGEST_CALL_S
from scheduler.engine.model.instructions import Instruction
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
from tests.daemon.metrics.scheduling import Observed, value
from tests.support.driving import NAME, Driver, attempt_of, kinds

N_CALLS = 30


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


class _Run(Observed):
    """A scheduler whose profile has the plugin."""

    def __init__(self) -> None:
        self.clock_s = 0.0
        super().__init__(settings=Cluster(plugins=[Identity]).settings, now_s=lambda: self.clock_s)
        for number in range(2):
            self.driver.node(f"n{number}")
        self.n_pods = 0

    def overrun(self, result: Any) -> Any:
        """Return the result after too long a time."""
        self.clock_s += 1.5 * LONGEST_CALL_S
        return result

    def schedule(self, **labels: str) -> list[Instruction]:
        """Create a pod and run a cycle; return its instructions."""
        self.n_pods += 1
        pod = self.driver.pod(f"p{self.n_pods}", labels=labels)
        told = self.cycle()
        self.driver.lose(pod)
        return told

    def counted(self, reason: str) -> float:
        name = "affinity_scheduler_plugin_failures_total"
        return value(self.samples(), name, plugin="Mine", profile=NAME, reason=reason)


@pytest.fixture
def run() -> _Run:
    return _Run()


def _fail() -> Any:
    raise KeyError("team")


@pytest.mark.parametrize(
    ("method", "failing"),
    [
        pytest.param("filtering", _fail, id="a filter that raises"),
        pytest.param("scoring", lambda: FinalScores(np.full(2, 200)), id="scores that are none"),
    ],
)
def test_a_plugin_that_fails_fails_each_pod_that_it_is_about(
    run: _Run, monkeypatch: pytest.MonkeyPatch, method: str, failing: Callable[[], Any]
):
    monkeypatch.setattr(Identity, method, staticmethod(failing))
    for _ in range(N_CALLS):
        assert attempt_of(run.schedule(team="a")).result == "error"
    assert run.counted("error") == N_CALLS
    assert kinds(run.schedule()) == ["Bind"]
    monkeypatch.setattr(Identity, method, staticmethod(lambda: SKIP))
    assert kinds(run.schedule(team="a"))[0] == "Bind"


def test_a_hint_that_raises_is_counted_and_its_pod_tried(run: _Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Identity, "filtering", staticmethod(lambda: unschedulable("no room")))
    monkeypatch.setattr(Identity, "hinting", staticmethod(_fail))
    for number in range(N_CALLS):
        run.driver.pod(f"waits-{number}", labels={"team": str(number)})
        run.driver.cycle()
    run.driver.node("n3")
    assert run.counted("error") == N_CALLS


def test_no_pod_is_evicted_for_a_pod_that_a_guest_fails(monkeypatch: pytest.MonkeyPatch):
    """A failure does not end the scheduler either: right before an eviction the filters are asked again."""
    driver = Driver(settings=Cluster(plugins=[Identity]).settings)
    driver.node("n", allocatable={"cpu": "1"})
    low = driver.pod("low", node="n", cpu="1")
    high = driver.pod("high", priority=9, labels={"team": "a"}, cpu="1")
    driver.cycle()
    assert driver.needs_eviction(high.uid, low.uid)
    monkeypatch.setattr(Identity, "filtering", staticmethod(_fail))
    assert not driver.needs_eviction(high.uid, low.uid)


def test_calls_are_timed_in_every_cycle_and_observed_in_the_sampled_ones(
    run: _Run, monkeypatch: pytest.MonkeyPatch
):
    """In the same series as all others'. The answer of one that takes too long counts."""
    monkeypatch.setattr(
        Identity, "filtering", staticmethod(lambda: run.overrun(SKIP) if run.n_pods % 2 else SKIP)
    )
    for _ in range(100):
        assert kinds(run.schedule(team="a"))[0] == "Bind"
    assert run.counted("overrun") == 50
    name = "scheduler_plugin_execution_duration_seconds_count"
    n_observed = value(run.samples(), name, plugin="Mine", extension_point="PreFilter", status="Skip")
    assert 1 <= n_observed <= 40
