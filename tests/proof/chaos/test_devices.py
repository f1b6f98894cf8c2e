"""Pods with claims of devices: several schedulers allocate at once, and claims come and go."""

from __future__ import annotations

import asyncio

import pytest

from scheduler.sandbox.devcluster.http.faults import Effect, Fault
from scheduler.sandbox.devcluster.kinds import RESOURCE_CLAIM
from tests.proof.chaos.claim_stage import SPACE
from tests.proof.chaos.device_stage import DeviceStage, Writers, device_stage
from tests.proof.chaos.devices import run_devices
from tests.proof.chaos.run import virtually


def _is_right(stage: DeviceStage, n_binds: int) -> None:
    assert stage.wrongs == []
    assert stage.n_binds == n_binds


@virtually
async def test_a_claim_that_is_deleted_after_a_death_lets_its_pod_go() -> None:
    """Its devices come free, though the pod that they are reserved for waits on."""
    async with device_stage() as stage:
        await asyncio.sleep(5.0)
        (instance,) = stage.instances
        instance.doom, instance.restart_after_s = ("reservation answered", 0), 5.0
        stage.add_claim("s0")
        stage.add_pod("p", claim="s0")
        await asyncio.sleep(2.0)
        stage.store.delete(RESOURCE_CLAIM, SPACE, "s0")
        claim = stage.store.find(RESOURCE_CLAIM, SPACE, "s0")
        assert claim is not None
        assert claim["status"]["reservedFor"]
        await asyncio.sleep(15.0)
        assert stage.store.find(RESOURCE_CLAIM, SPACE, "s0") is None
        stage.add_claim("s0")
        await stage.settled(15.0)
        _is_right(stage, 1)


@virtually
async def test_a_claim_whose_creation_lost_its_answer_holds_its_pod_up_for_a_moment_only() -> None:
    """The next life deletes what it cannot use, hears of the deletion, and creates another one."""
    async with device_stage() as stage:
        await asyncio.sleep(5.0)
        fault = Fault(action=Effect.LOSE_ANSWER, verb="create", path=DeviceStage.paths)
        stage.cluster.faults.add(fault)
        stage.add_pod("r", extended=1)
        await stage.settled(20.0)
        _is_right(stage, 1)


@pytest.mark.parametrize("writers", Writers)
def test_no_device_is_given_twice_and_no_pod_lost(writers: Writers) -> None:
    """Rivals give some devices to two claims, or their runs show nothing."""
    stages = [run_devices(seed, writers) for seed in range(2)]
    for stage in stages:
        assert stage.wrongs == []
        assert stage.n_binds > 3
    if writers is Writers.RIVALS:
        assert sum(stage.n_collisions() for stage in stages) > 5
