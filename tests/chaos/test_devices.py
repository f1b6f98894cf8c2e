"""Pods with claims of devices: several allocate at once, answers are lost, watches are late and instances die."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from scheduler.devcluster.http.faults import Action, Fault
from scheduler.devcluster.kinds import POD, RESOURCE_CLAIM
from tests.chaos.claim_stage import SPACE
from tests.chaos.device_stage import DeviceStage, Writers, device_stage
from tests.chaos.devices import CLAIM_PATHS, run_devices
from tests.chaos.instance import RESERVATION_KILL_POINTS
from tests.chaos.journal import node_of
from tests.chaos.run import repeatable
from tests.chaos.test_deaths import deaths_at
from tests.chaos.virtual import after_turns, run_virtually


def _play(story: Coroutine[Any, Any, None]) -> None:
    with repeatable(1):
        run_virtually(story)


def _three_pods(stage: DeviceStage) -> None:
    """One has a claim of its own and a shared one, one the shared one, and one extended resources."""
    stage.add_claim("s0")
    stage.add_pod("p", template="two", claim="s0")
    stage.add_pod("q", claim="s0")
    stage.add_pod("r", extended=2)


def _is_right(stage: DeviceStage, n_binds: int) -> None:
    assert stage.wrongs == []
    assert stage.n_binds == n_binds


@pytest.mark.parametrize("writers", [Writers.ALONE, Writers.ELECTED])
@pytest.mark.parametrize("after", [0, 1, 2])
@pytest.mark.parametrize("point", RESERVATION_KILL_POINTS)
def test_the_next_life_binds_pods_with_claims(point: str, after: int, writers: Writers) -> None:
    async def story() -> None:
        async with device_stage(writers) as stage:
            await asyncio.sleep(20.0)
            for instance in stage.instances:
                instance.doom = (point, after)
            _three_pods(stage)
            await asyncio.sleep(40.0)
            await stage.settled(10.0)
            assert sum(each.n_lives for each in stage.instances) > len(stage.instances)
            _is_right(stage, 3)

    _play(story())


def test_there_is_no_moment_between_reserve_and_bind_at_which_it_must_not_die() -> None:
    """It is killed between any two turns of the event loop, from the creation of three pods to their end."""

    async def story(turn: int) -> bool:
        """Returns whether it died."""
        async with device_stage() as stage:
            await asyncio.sleep(5.0)
            _three_pods(stage)

            def die() -> None:
                if not all(map(node_of, stage.objects(POD))):
                    stage.instances[0].kill()

            with after_turns(turn, die):
                await asyncio.sleep(3.0)
            await stage.settled(30.0)
            _is_right(stage, 3)
            return stage.instances[0].n_lives > 1

    assert deaths_at(story, range(1, 1000, 3)) > 10


@pytest.mark.parametrize("lost", [Action.LOSE_ANSWER, Action.RESPOND_AFTER, Action.DROP, Action.RESPOND])
def test_writes_of_claims_without_a_clear_answer_are_settled(lost: Action) -> None:
    async def story() -> None:
        async with device_stage() as stage:
            await asyncio.sleep(5.0)
            fault = Fault(action=lost, verb="patch", path=CLAIM_PATHS, code=503, times=3)
            stage.cluster.faults.add(fault)
            _three_pods(stage)
            await stage.settled(30.0)
            _is_right(stage, 3)

    _play(story())


def test_a_claim_that_is_deleted_after_a_death_lets_its_pod_go() -> None:
    """Its devices come free, though the pod that they are reserved for waits on."""

    async def story() -> None:
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

    _play(story())


def test_a_claim_whose_creation_lost_its_answer_holds_its_pod_up_for_a_moment_only() -> None:
    """The next life deletes what it cannot use, hears of the deletion, and creates another one."""

    async def story() -> None:
        async with device_stage() as stage:
            await asyncio.sleep(5.0)
            fault = Fault(action=Action.LOSE_ANSWER, verb="create", path=CLAIM_PATHS)
            stage.cluster.faults.add(fault)
            stage.add_pod("r", extended=1)
            await stage.settled(20.0)
            _is_right(stage, 1)

    _play(story())


@pytest.mark.parametrize("writers", Writers)
@pytest.mark.parametrize("seed", range(3))
def test_no_device_is_given_twice_and_no_pod_lost(seed: int, writers: Writers) -> None:
    stage = run_devices(seed, writers)
    assert stage.wrongs == []
    assert stage.n_binds > 3


def test_rivals_collide() -> None:
    """The runs above have claims that two schedulers give one device, or they show nothing."""
    assert sum(run_devices(seed, Writers.RIVALS).n_collisions() for seed in range(2)) > 5
