"""Pods with claims of volumes while provisioners fail and stall, watches are late and instances die."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest import mock
from unittest.mock import AsyncMock

import pytest

from scheduler.daemon.writes.conditions import ConditionWriter
from scheduler.engine.state.nominated_pods import NominatedPods
from scheduler.sandbox.devcluster.kinds import POD
from tests.proof.chaos.run import virtually
from tests.proof.chaos.volume_stage import VolumeStage, volume_stage
from tests.proof.chaos.volumes import run_volumes


def _is_right(stage: VolumeStage, n_binds: int) -> None:
    assert stage.wrongs == []
    assert stage.n_binds == n_binds


@virtually
async def test_a_provisioner_that_fails_does_not_keep_the_pod_for_ever() -> None:
    async with volume_stage() as stage:
        stage.provisioner(fails=True)
        await asyncio.sleep(5.0)
        stage.add_claim("c")
        stage.add_pod("p", "c")
        await asyncio.sleep(20.0)
        (pod,) = stage.objects(POD)
        (condition,) = pod["status"]["conditions"]
        assert condition["reason"] == "SchedulerError"
        assert condition["message"] == (
            'running PreBind plugin "VolumeBinding": binding volumes: provisioning failed for PVC "c"'
        )
        stage.provisioner()
        await stage.settled(15.0)
        _is_right(stage, 1)


@virtually
async def test_pods_that_wait_for_a_slow_provisioner_hold_nobody_up() -> None:
    async with volume_stage() as stage:
        await asyncio.sleep(5.0)
        stage.provisioner(after_s=60.0)
        for number in range(100):
            stage.add_claim(f"c{number}")
            stage.add_pod(f"slow-{number}", f"c{number}")
        await asyncio.sleep(10.0)
        assert stage.n_binds == 0
        for number in range(20):
            stage.add_pod(f"quick-{number}")
        await asyncio.sleep(2.0)
        assert stage.n_binds == 20
        await stage.settled(90.0)
        _is_right(stage, 120)


@pytest.mark.parametrize("elected", [False, True], ids=["alone", "standby"])
@pytest.mark.parametrize("seed", range(2))
def test_no_volume_is_promised_twice_and_no_pod_lost(seed: int, *, elected: bool) -> None:
    stage = run_volumes(seed, elected=elected)
    assert stage.wrongs == []
    assert stage.n_binds > 5
    assert stage.n_nominated > 5


@pytest.mark.parametrize(
    ("guard", "instead", "wrong"),
    [
        pytest.param(
            (NominatedPods, "__bool__"), lambda _: False, "wait on node-", id="nominations do not count"
        ),
        pytest.param((ConditionWriter, "hasten"), AsyncMock(), "is not nominated to", id="claims come first"),
    ],
)
def test_the_runs_notice_a_scheduler_that_does_not_keep_the_room(
    guard: tuple[Any, str], instead: object, wrong: str
) -> None:
    with mock.patch.object(*guard, instead):
        stages = [run_volumes(seed, elected=False) for seed in (102, 104)]
    assert any(wrong in one for stage in stages for one in stage.wrongs)
