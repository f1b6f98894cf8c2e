"""The last failed attempts, and explanations of the running scheduler's own pending pods."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.daemon.settings.loading import default_settings
from scheduler.engine.model.instructions import Attempted, PatchCondition
from scheduler.engine.model.pods import Pod
from scheduler.tools.explain.formats.explanation import Explanation
from scheduler.tools.page.attempts import MAX_ATTEMPTS, MAX_MESSAGE, FailedAttempts, PendingPod
from scheduler.tools.page.what_if_service import WhatIfService
from tests.support import build
from tests.support.driving import Driver, each_of
from tests.support.messages import no_victims

ALONE = build.affinity(anti_required=[build.term(build.ZONE, build.selector("app=web"))])
REFUSED = f"0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules. {no_victims(1)}"


class Explained:
    """A driven machine with one zone whose only place is taken, and what the page remembers and explains of it."""

    def __init__(self) -> None:
        self.driver = Driver()
        self.driver.node("a", labels={build.ZONE: "z"})
        driver = self.driver
        self.attempts = FailedAttempts(driver.state, driver.queue, now_s=lambda: driver.now_s)
        self.questions = WhatIfService(default_settings(), driver.state, now_s=lambda: driver.now_s)
        self.bound = self.web("web-0")
        self.attempt()
        self.driver.confirm(self.bound, "a")

    def web(self, name: str, **more: Any) -> Pod:
        return self.driver.pod(name, labels={"app": "web"}, affinity=ALONE, **more)

    def attempt(self) -> str:
        """Run a cycle and record its end. Returns: the condition's message, if there is one."""
        instructions = self.driver.cycle()
        for each in instructions:
            if isinstance(each, Attempted):
                self.attempts.record(each)
        return "".join(each.message for each in each_of(instructions, PatchCondition))

    def last(self, name: str) -> PendingPod:
        queued = self.attempts.find("default", name)
        assert queued is not None
        return self.attempts.of(queued)

    def explained(self, name: str) -> Explanation:
        queued = self.attempts.find("default", name)
        assert queued is not None
        return self.questions.explanation(queued.pod, [other.pod for other in self.attempts.pending()])


@pytest.fixture
def asked() -> Explained:
    return Explained()


def test_a_pending_pod_is_explained_in_the_words_of_its_condition(asked: Explained) -> None:
    """With the name of the blocking pod; explaining changes no metric."""
    asked.web("web-1")
    message = asked.attempt()
    asked.driver.now_s += 7.0
    pending, explanation = asked.last("web-1"), asked.explained("web-1")
    assert pending.last is not None
    assert message == explanation.message == pending.last.message == REFUSED
    assert (pending.queue, pending.attempts, pending.last.seconds_ago) == ("unschedulable", 1, 7.0)
    assert explanation.rules[0].pods.shown[0].name == "web-0"
    assert explanation.suggestions == ()
    assert "affinity-scheduler explain" in explanation.notes[0]
    asked.driver.audit()


def test_a_pod_that_was_not_tried_yet_is_explained_too(asked: Explained) -> None:
    """As on a standby."""
    asked.web("web-1", gates=["example.com/later"])
    pending = asked.last("web-1")
    assert (pending.queue, pending.last) == ("gated", None)
    assert asked.explained("web-1").state == "gated"


def test_failed_attempts_are_listed_latest_first(asked: Explained) -> None:
    """A pod that is no longer pending is left out; pods without an attempt are only counted."""
    first, _ = asked.web("web-1"), asked.web("web-2")
    asked.attempt()
    asked.attempt()
    asked.web("gated", gates=["g"])
    listed = asked.attempts.listed()
    assert [pod.pod for pod in listed.pods] == ["web-2", "web-1"]
    assert (listed.kind, listed.n_more) == ("PendingPods", 1)
    asked.driver.lose(first)
    assert [pod.pod for pod in asked.attempts.listed().pods] == ["web-2"]


def test_a_pod_whose_bind_is_in_flight_is_not_found(asked: Explained) -> None:
    """It is counted on its node and would block itself."""
    asked.driver.node("b", labels={build.ZONE: "y"})
    asked.web("web-1")
    asked.attempt()
    assert asked.attempts.find("default", "web-1") is None


def test_remembered_attempts_are_bounded_in_number_and_size(asked: Explained) -> None:
    for number in range(MAX_ATTEMPTS + 5):
        pod = asked.web(f"p{number}")
        asked.attempts.record(
            Attempted(
                pod=pod,
                result="unschedulable",
                started_s=0.0,
                attempts=1,
                first_active_s=0.0,
                after_flush=False,
                n_evaluated=1,
                n_feasible=0,
                message="x" * (MAX_MESSAGE + 1),
            )
        )
    listed = asked.attempts.listed()
    assert (len(listed.pods), listed.n_more) == (MAX_ATTEMPTS, 5)
    assert {len(pod.last.message) for pod in listed.pods if pod.last} == {MAX_MESSAGE}
    assert listed.pods[-1].pod == "p5"
