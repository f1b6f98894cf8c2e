"""What the running scheduler says of its own pending pods."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scheduler.model.instructions import Attempted, PatchCondition
from scheduler.model.pods import Pod
from scheduler.settings.loading import default_settings
from scheduler.shell.questions import MAX_KEPT, MAX_MESSAGE, Questions
from tests.support import build
from tests.support.driving import Driver

ALONE = build.affinity(anti_required=[build.term(build.ZONE, build.selector("app=web"))])
REFUSED = "0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules."


class Asked:
    """A driven machine with one zone, whose one place is taken, and what it is asked."""

    def __init__(self) -> None:
        self.driver = Driver()
        self.driver.node("a", labels={build.ZONE: "z"})
        self.questions = Questions(
            default_settings(), self.driver.state, self.driver.queue, now_s=lambda: self.driver.now_s
        )
        self.bound = self.web("web-0")
        self.attempt()
        self.driver.confirm(self.bound, "a")

    def web(self, name: str, **more: Any) -> Pod:
        return self.driver.pod(name, labels={"app": "web"}, affinity=ALONE, **more)

    def attempt(self) -> str:
        """A cycle, of whose end the questions hear; the condition's message, if there is one."""
        instructions = self.driver.cycle()
        for each in instructions:
            if isinstance(each, Attempted):
                self.questions.keep(each)
        return "".join(each.message for each in instructions if isinstance(each, PatchCondition))

    def about(self, name: str = "") -> Any:
        body = self.questions.answer("default" if name else "", name)
        return None if body is None else json.loads(body)


@pytest.fixture
def asked() -> Asked:
    return Asked()


def test_a_pending_pod_is_explained_in_the_words_of_its_condition(asked: Asked) -> None:
    """With the blocking pod by name; nothing is counted that was not before."""
    asked.web("web-1")
    message = asked.attempt()
    asked.driver.now_s += 7.0
    found = asked.about("web-1")
    explanation = found["explanation"]
    assert message == explanation["message"] == found["pending"]["last"]["message"] == REFUSED
    assert found["pending"]["queue"] == "unschedulable"
    assert (found["pending"]["attempts"], found["pending"]["last"]["secondsAgo"]) == (1, 7.0)
    assert explanation["rules"][0]["pods"]["shown"][0]["name"] == "web-0"
    assert explanation["suggestions"] == []
    assert "affinity-scheduler explain" in explanation["notes"][0]
    asked.driver.audit()


def test_a_pod_that_was_not_tried_yet_is_explained_too(asked: Asked) -> None:
    """As on an instance that stands by."""
    asked.web("web-1", gates=["example.com/later"])
    found = asked.about("web-1")
    assert (found["pending"]["queue"], found["pending"]["last"]) == ("gated", None)
    assert found["explanation"]["state"] == "gated"


def test_all_that_is_kept_is_listed_the_latest_attempt_first(asked: Asked) -> None:
    """A pod that is not pending any more is left out at once, one that was never tried is a number."""
    first, _ = asked.web("web-1"), asked.web("web-2")
    asked.attempt()
    asked.attempt()
    asked.web("gated", gates=["g"])
    listed = asked.about()
    assert [pod["pod"] for pod in listed["pods"]] == ["web-2", "web-1"]
    assert (listed["kind"], listed["more"]) == ("PendingPods", 1)
    asked.driver.lose(first)
    assert [pod["pod"] for pod in asked.about()["pods"]] == ["web-2"]


@pytest.mark.parametrize("name", ["web-0", "nobody"])
def test_a_pod_that_is_not_pending_here_has_no_answer(asked: Asked, name: str) -> None:
    assert asked.about(name) is None


def test_a_pod_whose_bind_is_under_way_has_no_answer(asked: Asked) -> None:
    """It is counted on its node: explained beside itself it would be in its own way."""
    asked.driver.node("b", labels={build.ZONE: "y"})
    asked.web("web-1")
    asked.attempt()
    assert asked.about("web-1") is None


def test_what_is_kept_is_bounded_in_number_and_size(asked: Asked) -> None:
    """The longest untold goes first."""
    for number in range(MAX_KEPT + 5):
        pod = asked.web(f"p{number}")
        asked.questions.keep(
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
    listed = asked.about()
    assert (len(listed["pods"]), listed["more"]) == (MAX_KEPT, 5)
    assert {len(pod["last"]["message"]) for pod in listed["pods"]} == {MAX_MESSAGE}
    assert listed["pods"][-1]["pod"] == "p5"
