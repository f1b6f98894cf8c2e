"""What is known of a group: its object, or what its members say of themselves."""

from __future__ import annotations

from scheduler.model.pod_groups import COSCHEDULING_GROUP, GROUP, MIN_COUNT, PodGroup
from scheduler.state.pod_groups import PodGroups
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
