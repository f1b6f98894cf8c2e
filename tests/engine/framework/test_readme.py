"""The plugin that scheduler/README.md shows does what the page says."""

import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from scheduler.engine.core.decide import ScheduleResult, decide
from scheduler.engine.framework.diagnosis import FitError
from scheduler.engine.framework.out_of_tree import GuardedPlugin
from scheduler.engine.framework.profile import Profile
from scheduler.engine.state.cluster_view import ClusterView
from tests.support.driving import Driver
from tests.support.messages import refusals

_README = Path(__file__).parents[3] / "scheduler" / "README.md"
_RACK = "example.com/rack"


def _shown_plugin() -> Any:
    (source,) = re.findall(r"```python\n(.*?)```", _README.read_text(), flags=re.DOTALL)
    names: dict[str, Any] = {}
    exec(source, names)  # what the page shows is what runs
    return GuardedPlugin("TeamPerRack", names["TeamPerRack"](), "readme")


def _profile(driver: Driver) -> Profile:
    (profile,) = driver.profiles.values()
    return replace(profile, filters=(*profile.filters, _shown_plugin()))


def test_the_shown_plugin_keeps_a_fourth_pod_of_a_team_off_a_rack() -> None:
    """Three pods of the team are on each rack: a fourth fits on neither, and a pod of another team does."""
    driver = Driver()
    for rack in ("r1", "r2"):
        driver.node(f"node-{rack}", labels={_RACK: rack})
        for number in range(3):
            driver.pod(f"{rack}-{number}", labels={"team": "blue"}, node=f"node-{rack}")
    view, profile = ClusterView(driver.state), _profile(driver)
    fourth = driver.pod("fourth", labels={"team": "blue"})
    refused = decide(fourth, view, profile, random.Random(1))
    assert isinstance(refused, FitError)
    expected = "0/2 nodes are available: 2 node(s) had enough pods of the team in their rack."
    assert refusals(refused.message()) == expected
    other = driver.pod("other", labels={"team": "red"})
    assert isinstance(decide(other, view, profile, random.Random(1)), ScheduleResult)
    driver.audit()


def test_the_shown_plugin_follows_pods_that_go_and_racks_that_change() -> None:
    """It keeps nothing itself."""
    driver = Driver()
    for name, rack in (("a1", "r1"), ("a2", "r1"), ("b", "r2")):
        driver.node(name, labels={_RACK: rack})
    driver.node("elsewhere", unschedulable=True)
    running = [
        driver.pod(f"p{number}", labels={"team": "blue"}, node=node)
        for number, node in enumerate(("a1", "a2", "a2", "b", "b", "b"))
    ]
    profile = _profile(driver)

    def chosen(**labels: str) -> set[str]:
        """Return the nodes that are feasible for a pod with these labels."""
        pod = driver.pod("new", labels=labels)
        decision = decide(pod, ClusterView(driver.state), profile, random.Random(1))
        if not isinstance(decision, ScheduleResult):
            return set()
        mask = decision.scores.feasible.mask
        return {name for name, row in driver.state.nodes.row_by_name.items() if mask[row]}

    assert chosen(team="blue") == set()
    assert chosen() == {"a1", "a2", "b"}
    driver.lose(running[0])
    assert chosen(team="blue") == {"a1", "a2"}
    driver.node("a1", labels={_RACK: "r2"})
    assert chosen(team="blue") == {"a2"}
    driver.node("a1", labels={_RACK: "r3"})
    assert chosen(team="blue") == {"a1", "a2"}
    driver.audit()
