"""What is known of a group: its object, or what its members say of themselves."""

from __future__ import annotations

from dataclasses import replace

from scheduler.engine.model.pod_groups import COSCHEDULING_GROUP, GROUP, MIN_COUNT, PodGroup
from scheduler.engine.state.audit import differences
from scheduler.engine.state.pod_groups import PodGroups
from tests.support import build
from tests.support.driving import Driver


def test_the_object_says_what_a_group_needs_where_the_cluster_has_one() -> None:
    groups, pod = PodGroups(), Driver().decoded(build.pod(labels={COSCHEDULING_GROUP: "gang"}))
    assert pod.group is not None
    key = pod.group.key
    groups.add_pending(pod)
    assert groups.get(key) is groups.known_by(pod, key) is None
    group = PodGroup(key, 3)
    groups.upsert(group)
    assert groups.get(key) is groups.known_by(pod, key) is group


def test_members_say_what_a_group_without_an_object_needs() -> None:
    groups = PodGroups()
    pod = Driver().decoded(build.pod(labels={GROUP: "gang"}, annotations={MIN_COUNT: "3"}))
    assert pod.group is not None
    key = pod.group.key
    assert groups.get(key) is None
    groups.add_pending(pod)
    assert groups.get(key) == groups.known_by(pod, key) == PodGroup(key, 3)


def test_members_that_have_a_node_or_end_need_not_agree_with_those_that_wait() -> None:
    groups, driver = PodGroups(), Driver()
    made = {
        name: driver.decoded(
            build.pod(name, labels={GROUP: "gang"}, annotations={MIN_COUNT: n}, terminating=name == "ends")
        )
        for name, n in (("waits", "3"), ("assumed", "2"), ("ends", "4"), ("another", "5"))
    }
    group = made["waits"].group
    assert group is not None
    for name in ("waits", "assumed", "ends"):
        groups.add_pending(made[name])
    groups.place(made["assumed"])
    assert groups.disagreement(group.key) == ""
    groups.add_pending(made["another"])
    assert groups.disagreement(group.key).startswith("pod group ")


def test_a_pod_without_a_group_waits_for_no_member() -> None:
    """Nor does one with the label of a kind of groups that the cluster does not have."""
    for labels in ({}, {COSCHEDULING_GROUP: "gang"}):
        assert PodGroups().is_complete(Driver().decoded(build.pod(labels=labels)))


def test_a_status_of_the_last_member_keeps_what_is_noted_of_its_group() -> None:
    """And a member that changes its group is one of the other from then on."""
    driver = Driver()
    driver.node("n1")
    pod, other = (
        driver.decoded(build.pod("p", node="n1", labels={GROUP: name}, annotations={MIN_COUNT: "1"}))
        for name in ("gang", "other")
    )
    assert pod.group is not None
    assert other.group is not None
    state, groups = driver.state, driver.state.groups
    state.upsert_pod(pod)
    groups.note_whole(pod.group.key, 1)
    started = replace(pod, started="2026-01-01T00:00:00Z")
    state.upsert_pod(started)
    assert differences(state) == []
    assert groups.is_whole(pod.group.key, 1)
    state.upsert_pod(replace(started, group=other.group))
    assert differences(state) == []
    assert [groups.n_placed(key) for key in (pod.group.key, other.group.key)] == [0, 1]
