"""Which kinds of members have to be near each other."""

from __future__ import annotations

import pytest

from scheduler.engine.core import group_members
from scheduler.engine.core.group_members import components_of, kinds_of
from scheduler.engine.state.batches import finished
from scheduler.engine.state.cluster_view import ClusterView
from tests.support import build
from tests.support.driving import Driver

RACK = "rack"


def _chain(n: int) -> tuple[list[tuple[str, ...]], list[str]]:
    """Return the members of each component of a chain, in which each pod needs the next, and of one pod beside it."""
    driver = Driver()
    driver.node("n", labels={RACK: "a"})
    members = [
        driver.pod(
            f"m{index}",
            labels={"app": f"a{index}"},
            affinity=build.affinity(required=[build.term(RACK, build.selector(f"app=a{index + 1}"))]),
        )
        for index in range(n)
    ]
    members.append(driver.pod("alone"))
    view = ClusterView(driver.state)
    components = finished(components_of(finished(kinds_of(members, view)), view))
    names = [tuple(sorted(pod.name for kind in one.kinds for pod in kind.pods)) for one in components]
    return names, [one.key for one in components]


def test_a_chain_is_one_component_and_a_pod_without_rules_another() -> None:
    assert _chain(4) == ([("m0", "m1", "m2", "m3"), ("alone",)], [RACK, ""])


def test_beyond_the_bound_every_kind_is_still_in_one_component(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_members, "_MOST_COMPARED", 3)
    names, _ = _chain(6)
    assert len(names) > 2
    assert sorted(name for one in names for name in one) == ["alone", *(f"m{index}" for index in range(6))]
