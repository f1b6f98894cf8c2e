"""When the condition of a PodGroup is written, and as what."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

from scheduler.core.outcomes import report_group
from scheduler.model.instructions import PatchPodGroup
from scheduler.model.pod_groups import GroupKey, GroupKind, PodGroup
from scheduler.model.wire import GroupCondition

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
