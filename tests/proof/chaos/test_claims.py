"""Pods with claims, of volumes and of devices: answers are lost, and instances die between Reserve and Bind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

import pytest

from scheduler.sandbox.devcluster.http.faults import Effect, Fault
from scheduler.sandbox.devcluster.kinds import POD, RESOURCE_CLAIM
from tests.proof.chaos.claim_stage import SPACE, ClaimStage
from tests.proof.chaos.device_stage import DeviceStage, Writers, device_stage
from tests.proof.chaos.instance import RESERVATION_KILL_POINTS
from tests.proof.chaos.journal import node_of
from tests.proof.chaos.run import virtually
from tests.proof.chaos.test_deaths import deaths_at
from tests.proof.chaos.virtual import after_turns
from tests.proof.chaos.volume_stage import LOCAL, VolumeStage, volume_stage


@dataclass(frozen=True)
class _Case:
    """A stage, alone or with a standby, the pods that are created there, and the requests that write their claims."""

    name: str
    opened: Callable[[bool], AbstractAsyncContextManager[Any]]
    create_pods: Callable[[Any], None]
    n_pods: int
    paths: str

    def check(self, stage: ClaimStage) -> None:
        """Assert that every pod was bound, and all promises were kept."""
        assert stage.wrongs == []
        assert stage.n_binds == self.n_pods


def _two_pods(stage: VolumeStage) -> None:
    """Each takes one of two volumes, and has another one made."""
    stage.provisioner(after_s=0.5)
    for name in ("v1", "v2"):
        stage.add_volume(name)
    for name in ("p", "q"):
        stage.add_claim(f"{name}-local", LOCAL)
        stage.add_claim(f"{name}-made")
        stage.add_pod(name, f"{name}-local", f"{name}-made")


def _three_pods(stage: DeviceStage) -> None:
    """One has a claim of its own and a shared one, one the shared one, and one extended resources."""
    stage.add_claim("s0")
    stage.add_pod("p", template="two", claim="s0")
    stage.add_pod("q", claim="s0")
    stage.add_pod("r", extended=2)


_CASES = (
    _Case("volumes", lambda elected: volume_stage(elected=elected), _two_pods, 2, VolumeStage.paths),
    _Case(
        "devices",
        lambda elected: device_stage(Writers.ELECTED if elected else Writers.ALONE),
        _three_pods,
        3,
        DeviceStage.paths,
    ),
)
_of_both = pytest.mark.parametrize("case", _CASES, ids=lambda case: case.name)


@_of_both
@pytest.mark.parametrize("elected", [False, True], ids=["alone", "standby"])
@pytest.mark.parametrize("after", [0, 1, 2])
@pytest.mark.parametrize("point", RESERVATION_KILL_POINTS)
@virtually
async def test_the_next_life_binds_pods_with_claims(
    point: str, after: int, case: _Case, *, elected: bool
) -> None:
    async with case.opened(elected) as stage:
        await asyncio.sleep(20.0)
        for instance in stage.instances:
            instance.doom = (point, after)
        case.create_pods(stage)
        await asyncio.sleep(40.0)
        await stage.settled(10.0)
        if after < case.n_pods:
            assert sum(each.n_lives for each in stage.instances) > len(stage.instances)
        case.check(stage)


@_of_both
def test_there_is_no_moment_between_reserve_and_bind_at_which_it_must_not_die(case: _Case) -> None:
    """It is killed between any two turns of the event loop, from the creation of the pods to their end."""

    async def story(turn: int) -> bool:
        """Returns whether it died."""
        async with case.opened(False) as stage:
            await asyncio.sleep(5.0)
            case.create_pods(stage)

            def die() -> None:
                if not all(map(node_of, stage.objects(POD))):
                    stage.instances[0].kill()

            with after_turns(turn, die):
                await asyncio.sleep(3.0)
            await stage.settled(30.0)
            case.check(stage)
            return bool(stage.instances[0].n_lives > 1)

    assert deaths_at(story, range(1, 1000, 3)) > 10


@_of_both
@pytest.mark.parametrize("lost", [Effect.LOSE_ANSWER, Effect.RESPOND_AFTER, Effect.DROP, Effect.RESPOND])
@virtually
async def test_writes_of_claims_without_a_clear_answer_are_settled(lost: Effect, case: _Case) -> None:
    async with case.opened(False) as stage:
        await asyncio.sleep(5.0)
        fault = Fault(action=lost, verb="patch", path=case.paths, code=503, times=3)
        stage.cluster.faults.add(fault)
        case.create_pods(stage)
        await stage.settled(30.0)
        case.check(stage)


@virtually
async def test_a_claim_for_extended_resources_lets_go_of_a_pod_that_is_deleted_while_no_scheduler_lives() -> (
    None
):
    """The claim is deleted before, so that only what the pod says of it leads the controller to it."""
    async with device_stage() as stage:
        await asyncio.sleep(5.0)
        (instance,) = stage.instances
        instance.restart_after_s = 8.0
        stage.cluster.faults.add(
            Fault(action=Effect.DROP, verb="patch", path=r"/pods/[^/]+/status$", times=3)
        )
        stage.add_pod("p", extended=1)
        await asyncio.sleep(0.1)
        instance.kill()
        for claim in stage.objects(RESOURCE_CLAIM):
            stage.store.delete(RESOURCE_CLAIM, SPACE, claim["metadata"]["name"])
        await asyncio.sleep(1.0)
        stage.store.delete(POD, SPACE, "p", grace_period_s=0)
        await stage.settled(30.0)
        assert stage.wrongs == []


@virtually
async def test_no_condition_is_written_about_a_pod_that_ends_before_the_server_takes_it() -> None:
    async with device_stage() as stage:
        await asyncio.sleep(5.0)
        busy = Fault(
            action=Effect.RESPOND, path=r"/pods/[^/]+/status$", verb="patch", code=429, retry_after_s=2
        )
        stage.cluster.faults.add(busy)
        stage.add_pod("p", template="two", extended=2)
        await asyncio.sleep(1.0)
        pod = stage.store.find(POD, SPACE, "p")
        assert pod is not None
        assert not node_of(pod)
        stage.store.patch(POD, SPACE, "p", {"metadata": {"finalizers": ["example.com/slow"]}})
        stage.store.delete(POD, SPACE, "p")
        await asyncio.sleep(5.0)
        pod = stage.store.find(POD, SPACE, "p")
        assert pod is not None
        assert "conditions" not in pod["status"]
