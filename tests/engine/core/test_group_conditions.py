"""When the condition of a PodGroup is written, and as what."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

from scheduler.engine.core.outcomes import report_group
from scheduler.engine.model.instructions import PatchPodGroup
from scheduler.engine.model.pod_groups import (
    COSCHEDULING_GROUP,
    WHOLE,
    GroupCondition,
    GroupKey,
    GroupKind,
    PodGroup,
)
from scheduler.engine.model.stimuli import BindDone, PodGroupSeen
from tests.support.driving import Driver, bind_of, each_of, only

OURS = PodGroup(GroupKey(GroupKind.KUBERNETES, "default", "gang"), 2, api_version="v1beta1")
PLACED = GroupCondition("PodGroupInitiallyScheduled", "True", "Scheduled", "")
WAITING = GroupCondition("PodGroupInitiallyScheduled", "False", "Unschedulable", "too small")


@pytest.mark.parametrize(
    ("before", "reason", "message", "is_true"),
    [
        pytest.param(None, "Scheduled", "", True, id="placed"),
        pytest.param(None, "Unschedulable", "too small", False, id="it does not fit"),
        pytest.param(None, "SchedulerError", "a plugin failed", False, id="an error"),
        pytest.param(WAITING, "Unschedulable", "too small", None, id="nothing new"),
        pytest.param(WAITING, "Unschedulable", "full", False, id="another message"),
        pytest.param(WAITING, "SchedulerError", "too small", False, id="another reason"),
        pytest.param(WAITING, "Scheduled", "", True, id="placed at last"),
        pytest.param(PLACED, "Unschedulable", "too small", None, id="it stays placed"),
    ],
)
def test_the_condition_of_a_group_is_written_where_it_changes(
    before: GroupCondition | None,
    reason: Literal["Scheduled", "Unschedulable", "SchedulerError"],
    message: str,
    is_true: bool | None,
) -> None:
    group = replace(OURS, conditions=() if before is None else (before,))
    told = report_group(group, reason, message)
    assert told == ([] if is_true is None else [PatchPodGroup(group, is_true, reason, message)])
    assert report_group(replace(group, api_version=""), reason, message) == [], "not ours"
    assert report_group(None, reason, message) == []


@pytest.mark.parametrize(
    ("n_nodes", "text"),
    [
        (1, "pod group default/mpi needs 2 places: 1 found; the next, m1: "),
        (0, "pod group default/mpi: no nodes available to schedule pods"),
    ],
)
def test_the_condition_of_a_group_without_places_says_why(driver: Driver, n_nodes: int, text: str) -> None:
    if n_nodes:
        driver.node("n", allocatable={"cpu": "1"})
    key = GroupKey(GroupKind.COSCHEDULING, "default", "mpi")
    group = PodGroup(key, 2, api_version="v1alpha1")
    driver.handle(PodGroupSeen(group))
    for index in range(2):
        driver.pod(f"m{index}", labels={COSCHEDULING_GROUP: "mpi"}, cpu="1")
    patch = only(driver.cycle(), PatchPodGroup)
    assert (patch.group, patch.is_true, patch.reason) == (group, False, "Unschedulable")
    assert patch.message.startswith(text)


def test_a_group_is_whole_again_once_a_member_that_was_lost_is_replaced(driver: Driver) -> None:
    driver.node("n")
    key = GroupKey(GroupKind.COSCHEDULING, "default", "mpi")
    group = PodGroup(key, 2, api_version="v1alpha1", conditions=(PLACED,))
    driver.handle(PodGroupSeen(group))
    pods = [driver.pod(f"m{index}", labels={COSCHEDULING_GROUP: "mpi"}, node="n") for index in range(2)]
    driver.lose(pods[0])
    text = "pod group default/mpi was placed and has lost members: 1 of the 2 that it needs are on nodes"
    assert each_of(driver.live(31.0), PatchPodGroup) == [
        PatchPodGroup(group, False, "MembersLost", text, WHOLE)
    ]
    for name, told in (("m0-new", [PatchPodGroup(group, True, "Whole", "", WHOLE)]), ("one-more", [])):
        new = driver.pod(name, labels={COSCHEDULING_GROUP: "mpi"})
        assert bind_of(driver.cycle()).pod == new
        assert each_of(driver.handle(BindDone(new.uid)), PatchPodGroup) == told
