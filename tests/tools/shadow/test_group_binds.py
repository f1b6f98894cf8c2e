"""Members of a group that another scheduler places are compared as one decision."""

from __future__ import annotations

from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from scheduler.engine.model.pod_groups import GROUP, MIN_COUNT
from scheduler.engine.model.stimuli import PodSeen
from scheduler.tools.shadow.orders import RACE_S
from scheduler.tools.shadow.report import Cause
from tests.support import build
from tests.support.build import Json
from tests.support.json_cluster import decoded
from tests.tools.shadow.test_shadow import Watched, needs, on, unschedulable

RACK = "rack"
IN_ONE_RACK = {"affinity-scheduler.io/pod-group-required-topology": RACK}
NEAR = {"affinity-scheduler.io/pod-group-preferred-topology": RACK}


def racks(*names: str) -> list[Json]:
    """Return a node of 4 cpu for each name, in the rack of its first letter."""
    return [
        build.node(name, labels={RACK: name[0]}, allocatable={"cpu": "4", "memory": "8Gi"}) for name in names
    ]


def member(name: str, n: int = 2, cpu: str = "3", topology: Json | None = None) -> Json:
    return needs(name, cpu, labels={GROUP: "g", MIN_COUNT: str(n)}, annotations=topology or {})


def left_pending(name: str, n: int = 2, cpu: str = "3") -> Json:
    return unschedulable(member(name, n, cpu), "minCount")


def waiting(watched: Watched, n_pods: int, **more: Any) -> list[Json]:
    pods = [member(f"m{index}", **more) for index in range(n_pods)]
    for pod in pods:
        watched.see(pod)
    return pods


def compared(watched: Watched) -> tuple[int, int, int]:
    report = watched.shadow.report()
    assert not list(watched.shadow.state.groups.keys())
    return report.n_bound, report.n_alike, len(report.differences)


@pytest.mark.parametrize(
    ("names", "topology", "cpu", "places", "cause"),
    [
        # Ours is the tighter one.
        pytest.param("a1 a2 b1 b2 b3", IN_ONE_RACK, "3", "b1 b2", None, id="another rack than ours"),
        pytest.param("a1 a2", IN_ONE_RACK, "3", "a2 a1", None, id="our places in another order"),
        # No order of its own members' binds is tried.
        pytest.param(
            "a1 a2 b1", IN_ONE_RACK, "3", "a1 b1", Cause.RULE, id="two racks, where one is required"
        ),
        pytest.param("a1 a2 b1", NEAR, "3", "a1 b1", Cause.SCORE, id="more racks than need be"),
        pytest.param("a1 a2", {}, "3", "a1 a1", Cause.RULE, id="a node without room for both"),
        pytest.param("a1 a2", {}, "1", "a2 a1", None, id="two small members spread over two nodes"),
        pytest.param("a1 a2", {}, "1", "a1 a1", Cause.SCORE, id="two small members on one node"),
    ],
)
def test_a_group_is_placed_as_by_us_or_differs_by_a_cause(
    names: str, topology: Json, cpu: str, places: str, cause: Cause | None, snapshot: SnapshotAssertion
) -> None:
    watched = Watched(racks(*names.split()))
    pods = waiting(watched, 2, topology=topology, cpu=cpu)
    for pod, node in zip(pods, places.split(), strict=True):
        watched.see(on(pod, node), after_s=0.1)
    assert compared(watched) == ((1, 1, 0) if cause is None else (1, 0, 1))
    differences = watched.shadow.report().differences
    assert [each.cause for each in differences] == ([] if cause is None else [cause])
    assert [each.explanation for each in differences] == snapshot


def test_a_group_is_compared_in_pieces() -> None:
    """The pieces are of a decision each; other tasks run in between."""
    watched = Watched(racks("a1", "a2", "b1"))
    pods = waiting(watched, 2, topology=IN_ONE_RACK)
    last = [on(pod, f"a{n + 1}") for n, pod in enumerate(pods)]
    watched.see(last[0], after_s=0.1)
    assert sum(1 for _ in watched.shadow.apply(PodSeen(decoded(last[1])), watched.now_s)) >= 4
    assert compared(watched) == (1, 1, 0)


def test_a_half_of_a_group_breaks_its_rule_once_no_other_member_follows() -> None:
    watched = Watched(racks("a1", "a2"))
    pods = waiting(watched, 2)
    watched.see(on(pods[0], "a1"))
    assert watched.shadow.report().n_bound == 0
    watched.see(needs("another"), after_s=RACE_S + 0.5)
    assert watched.difference.cause is Cause.RULE
    assert watched.difference.explanation.startswith(
        "pod group default/g: it has 1 places, the group needs 2"
    )


def test_a_group_whose_last_members_may_still_come_is_compared_at_the_end() -> None:
    watched = Watched(racks("a1", "a2", "a3"))
    for pod, node in zip(waiting(watched, 3), ("a1", "a2"), strict=False):
        watched.see(on(pod, node), after_s=0.1)
    watched.shadow.end(watched.now_s)
    assert compared(watched) == (1, 1, 0)


def test_a_change_shortly_before_may_explain_where_the_group_is() -> None:
    """Without the other pod a2 and a3 are no better than a1."""
    watched = Watched(racks("a1", "a2", "a3"))
    pods = waiting(watched, 2, cpu="1")
    watched.bind(needs("other", "1"), "a1", after_s=0.5)
    for pod, node in zip(pods, ("a1", "a2"), strict=True):
        watched.see(on(pod, node), after_s=0.1)
    assert watched.difference.cause is Cause.RACE


def test_a_group_that_is_left_pending_is_asked_only_whether_it_has_places() -> None:
    watched = Watched(racks("a1"))
    waiting(watched, 2)
    watched.see(left_pending("m0"))
    report = watched.shadow.report()
    assert (report.n_pending, report.n_same_reasons) == (1, 1)
    watched.see(left_pending("m1", cpu="1"))
    assert watched.difference.cause is Cause.RULE
    assert watched.difference.explanation == "there: minCount here: pod group default/g has places"


def test_a_group_whose_members_are_reported_pending_together_is_asked_once() -> None:
    watched = Watched(racks("a1", "a2"))
    waiting(watched, 3, cpu="1")
    for index in range(2):
        watched.see(left_pending(f"m{index}", cpu="1"), after_s=0.1)
    assert (watched.shadow.report().n_pending, watched.difference.pod) == (1, "m0")
    watched.see(left_pending("m2", cpu="1"), after_s=RACE_S + 0.5)
    assert watched.shadow.report().n_pending == 2


def test_no_orders_are_tried_for_a_large_group() -> None:
    """Each would be a search."""
    watched = Watched(racks(*(f"a{index}" for index in range(13))))
    for index in range(101):
        watched.see(member(f"m{index}", 101, cpu="100m"), after_s=0.001)
    watched.see(left_pending("m0", 101, cpu="100m"))
    assert watched.difference.explanation.endswith("has places; no other order is tried for a group of 101")


def test_what_was_bound_of_a_group_when_a_watch_was_interrupted_is_not_compared() -> None:
    watched = Watched(racks("a1", "a2"))
    pods = waiting(watched, 2)
    watched.see(on(pods[0], "a1"), after_s=0.1)
    watched.shadow.interrupt(watched.now_s)
    watched.shadow.end(watched.now_s)
    report = watched.shadow.report()
    assert (report.n_bound, report.n_unseen) == (0, 1)
