"""The message of a waiting group names the level that fails, in whatever words the group asks for its levels."""

from __future__ import annotations

import pytest

from tests.engine.core.test_group_disruption import group_seen
from tests.engine.core.test_group_levels import BLOCK, RACK, message, racks
from tests.support.build import Json
from tests.support.driving import Driver

OURS, KUEUE = "affinity-scheduler.io/pod-group", "kueue.x-k8s.io/podset"
JOB_SET, LWS = "jobset.sigs.k8s.io", "leaderworkerset.sigs.k8s.io"
GROUP = {OURS: "g", f"{OURS}-min-count": "16"}
IN_BLOCK = {f"{OURS}-required-topology": BLOCK}
PARTS = {f"{OURS}-part": "{part}", f"{OURS}-part-min-count": "4", f"{OURS}-part-required-topology": RACK}
INDEX = {"batch.kubernetes.io/job-completion-index": "{index}"}
SLICES = {f"{KUEUE}-slice-required-topology": RACK, f"{KUEUE}-slice-size": "4"}
JOBS = {f"{JOB_SET}/jobset-name": "g", f"{JOB_SET}/replicatedjob-name": "w"}
FROM_JOB_SET = {f"{OURS}-from": "JobSet", f"{OURS}-min-count": "16"}
REPLICA = {f"{LWS}/name": "g", f"{LWS}/group-index": "{part}", f"{LWS}/worker-index": "{member}"}
FROM_LWS = {f"{OURS}-from": "LeaderWorkerSet", f"{OURS}-min-count": "16", f"{LWS}/size": "4"}


def waiting(labels: Json, annotations: Json, *, leader: str = "1", pod_group: str = "") -> str:
    """
    Return the message of sixteen members, where one block has three racks with room for four, and another has one.

    `leader`: the CPUs of the first member of each four. `pod_group`: the PodGroup that all name.
    """
    driver = Driver()
    racks(driver, "block-1", r1=4)
    racks(driver, "block-2", r2=4, r3=4, r4=4, r5=3)
    if pod_group:
        driver.handle(group_seen(pod_group, 16, schedulingConstraints={"topology": [{"key": BLOCK}]}))
    for index in range(16):
        part, member = divmod(index, 4)
        marks = [
            {name: text.format(index=index, part=part, member=member) for name, text in each.items()}
            for each in (labels, annotations)
        ]
        spec = {"schedulingGroup": {"podGroupName": pod_group}} if pod_group else {}
        cpu = "1" if member else leader
        driver.pod(f"m{index}", labels=marks[0], annotations=marks[1], cpu=cpu, spec=spec)
    text = message(driver)
    driver.audit()
    return text


@pytest.mark.parametrize(
    ("labels", "annotations", "more"),
    [
        pytest.param(GROUP, {**IN_BLOCK, **PARTS}, {}, id="ours"),
        pytest.param(GROUP, {**IN_BLOCK, **PARTS}, {"leader": "500m"}, id="ours, with leaders unlike others"),
        pytest.param({}, PARTS, {"pod_group": "g"}, id="PodGroup"),
        pytest.param({**GROUP, **INDEX}, {f"{KUEUE}-required-topology": BLOCK, **SLICES}, {}, id="Kueue"),
        pytest.param(
            {**JOBS, f"{JOB_SET}/job-index": "{part}"},
            {
                **FROM_JOB_SET,
                **IN_BLOCK,
                f"{OURS}-part-min-count": "4",
                f"{OURS}-part-required-topology": RACK,
            },
            {},
            id="JobSet",
        ),
        pytest.param(
            {**JOBS, f"{JOB_SET}/job-index": "0", **INDEX},
            {**FROM_JOB_SET, f"{KUEUE}-required-topology": BLOCK, **SLICES},
            {},
            id="JobSet by Kueue's annotations",
        ),
        pytest.param(
            REPLICA,
            {**FROM_LWS, **IN_BLOCK, f"{KUEUE}-required-topology": RACK},
            {"leader": "500m"},
            id="LeaderWorkerSet by Kueue's annotations",
        ),
    ],
)
def test_the_racks_of_a_block_are_counted_that_have_room_for_a_part(
    labels: Json, annotations: Json, more: dict[str, str]
) -> None:
    text = waiting(labels, annotations, **more)
    assert text.startswith(
        f"pod group default/g needs 16 places in one {BLOCK}: block-2 has 3 {RACK} with room for 4,"
        f" block-1 has 1 {RACK} with room for 4, the group needs 4; the next, "
    )
    # Of parts that are alike, each takes what any other would.
    assert "leader" in more or "The search ended" not in text


@pytest.mark.parametrize(
    ("labels", "annotations", "more"),
    [
        pytest.param(GROUP, IN_BLOCK, {}, id="ours"),
        pytest.param({}, {}, {"pod_group": "g"}, id="PodGroup"),
        pytest.param(GROUP, {f"{KUEUE}-required-topology": BLOCK}, {}, id="Kueue"),
    ],
)
def test_without_parts_the_room_of_each_block_is_said(
    labels: Json, annotations: Json, more: dict[str, str]
) -> None:
    assert f"in one {BLOCK}: block-2 has room for 15, block-1 has room for 4; " in waiting(
        labels, annotations, **more
    )


@pytest.mark.parametrize("leader", ["1", "500m"])
def test_a_level_that_no_node_has_is_named(leader: str) -> None:
    absent = {**PARTS, f"{OURS}-part-required-topology": "example.com/absent"}
    text = waiting(GROUP, absent, leader=leader)
    assert "the cluster has 0 example.com/absent with room for 4, the group needs 4" in text
    assert text.endswith("no node is in a domain of example.com/absent that it may take.")
