"""Explanations of the running scheduler's own pending pods."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scheduler.daemon.settings.loading import default_settings
from scheduler.engine.model.instructions import Attempted, PatchCondition
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import PluginFailing
from scheduler.sdk.plugin import NodeByNode, NodeView
from scheduler.sdk.testing import Cluster
from scheduler.tools.page.pending_pods import MAX_ATTEMPTS, MAX_MESSAGE, PendingPodExplainer
from tests.support import build
from tests.support.driving import Driver
from tests.support.messages import no_victims

ALONE = build.affinity(anti_required=[build.term(build.ZONE, build.selector("app=web"))])
REFUSED = f"0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules. {no_victims(1)}"


class Explained:
    """A driven machine with one zone whose only place is taken, and its explainer."""

    def __init__(self) -> None:
        self.driver = Driver()
        self.driver.node("a", labels={build.ZONE: "z"})
        self.questions = PendingPodExplainer(
            default_settings(),
            self.driver.state,
            self.driver.queue,
            self.driver.profiles,
            now_s=lambda: self.driver.now_s,
        )
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
                self.questions.record(each)
        return "".join(each.message for each in instructions if isinstance(each, PatchCondition))

    def about(self, name: str = "") -> Any:
        body = self.questions.answer("default" if name else "", name)
        return None if body is None else json.loads(body)


@pytest.fixture
def asked() -> Explained:
    return Explained()


def test_a_pending_pod_is_explained_in_the_words_of_its_condition(asked: Explained) -> None:
    """With the name of the blocking pod; explaining changes no metric."""
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


def test_a_pod_that_was_not_tried_yet_is_explained_too(asked: Explained) -> None:
    """As on a standby."""
    asked.web("web-1", gates=["example.com/later"])
    found = asked.about("web-1")
    assert (found["pending"]["queue"], found["pending"]["last"]) == ("gated", None)
    assert found["explanation"]["state"] == "gated"


def test_failed_attempts_are_listed_latest_first(asked: Explained) -> None:
    """A pod that is no longer pending is left out; pods without an attempt are only counted."""
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
def test_a_pod_that_is_not_pending_is_not_explained(asked: Explained, name: str) -> None:
    assert asked.about(name) is None


def test_a_pod_whose_bind_is_in_flight_is_not_explained(asked: Explained) -> None:
    """It is counted on its node and would block itself."""
    asked.driver.node("b", labels={build.ZONE: "y"})
    asked.web("web-1")
    asked.attempt()
    assert asked.about("web-1") is None


def test_remembered_attempts_are_bounded_in_number_and_size(asked: Explained) -> None:
    """The oldest attempt is dropped first."""
    for number in range(MAX_ATTEMPTS + 5):
        pod = asked.web(f"p{number}")
        asked.questions.record(
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
    assert (len(listed["pods"]), listed["more"]) == (MAX_ATTEMPTS, 5)
    assert {len(pod["last"]["message"]) for pod in listed["pods"]} == {MAX_MESSAGE}
    assert listed["pods"][-1]["pod"] == "p5"


def test_a_plugin_that_is_shut_off_is_shut_off_in_explanations_too() -> None:
    """They are made by profiles of their own, which would ask the plugin again."""

    class Failing(NodeByNode):
        name = "Failing"

        def fits(self, pod: Pod, node: NodeView) -> bool:
            raise KeyError(pod.name, node.name)

    settings = Cluster(plugins=[Failing]).settings
    driver = Driver(settings=settings)
    explainer = PendingPodExplainer(
        settings, driver.state, driver.queue, driver.profiles, now_s=lambda: driver.now_s
    )
    driver.node("a")
    pod = driver.pod("web")
    driver.handle(PluginFailing(pod.scheduler_name, "Failing", "it failed", pod))
    driver.cycle()
    answer = explainer.answer("default", "web")
    assert answer is not None
    (group,) = json.loads(answer)["explanation"]["groups"]
    assert group["reason"] == "plugin Failing is shut off until the scheduler restarts: it failed"
