"""Pods with claims, of volumes and of devices: answers are lost, and instances die between Reserve and Bind."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any
from unittest import mock
from unittest.mock import AsyncMock

import pytest

from scheduler.daemon.writes.conditions import ConditionWriter
from scheduler.engine.state.nominated_pods import NominatedPods
from scheduler.sandbox.devcluster.http.faults import Effect, Fault
from tests.proof.chaos.claim_worlds import (
    LOCAL,
    NODES,
    claiming_pod,
    device_class,
    device_slice,
    local_class,
    local_volume,
    provisioner,
    shared_claim,
    templates,
    volume_claim,
)
from tests.proof.chaos.happenings import AddPriorityClass, Change, Happening, Kill, Remove
from tests.proof.chaos.instance import RESERVATION_KILL_POINTS
from tests.proof.chaos.journal import Preempted, node_of
from tests.proof.chaos.judging import judged
from tests.proof.chaos.kinds import DEVICES, VOLUMES, Kind, Shape
from tests.proof.chaos.run import run, virtually
from tests.proof.chaos.scene import told
from tests.proof.chaos.test_deaths import deaths_at
from tests.proof.chaos.verdicts import Verdict
from tests.proof.chaos.virtual import after_turns

_DEVICES: list[Happening] = [device_class(), *templates(), *map(device_slice, NODES)]
_STATUS = r"/pods/[^/]+/status$"


@dataclass(frozen=True)
class _Case:
    """A kind, the cluster that its pods need, and the pods."""

    kind: Kind
    cluster: list[Happening]
    pods: list[Happening]
    n_pods: int

    @property
    def paths(self) -> str:
        """Return the paths of requests that write claims."""
        assert self.kind.targets is not None
        return self.kind.targets.paths


_CASES = (
    # Each of two pods takes one of two volumes, and has another one made.
    _Case(
        VOLUMES,
        [local_class(), provisioner(after_s=0.5), local_volume("v1"), local_volume("v2")],
        [
            *(volume_claim(f"{name}-local", LOCAL) for name in "pq"),
            *(volume_claim(f"{name}-made") for name in "pq"),
            *(claiming_pod(name, volumes=[f"{name}-local", f"{name}-made"]) for name in "pq"),
        ],
        2,
    ),
    # One has a claim of its own and a shared one, one the shared one, and one extended resources.
    _Case(
        DEVICES,
        _DEVICES,
        [
            shared_claim("s0"),
            claiming_pod("p", template="two", shared="s0"),
            claiming_pod("q", shared="s0"),
            claiming_pod("r", extended=2),
        ],
        3,
    ),
)
_of_both = pytest.mark.parametrize("case", _CASES, ids=lambda case: case.kind.name)


@_of_both
@pytest.mark.parametrize(
    ("shape", "after"),
    [
        pytest.param(Shape.ALONE, 0, id="alone, first"),
        pytest.param(Shape.ELECTED, 0, id="standby, first"),
        pytest.param(Shape.ELECTED, 1, id="standby, second"),
    ],
)
@pytest.mark.parametrize("point", RESERVATION_KILL_POINTS)
@virtually
async def test_the_next_life_binds_pods_with_claims(
    point: str, shape: Shape, after: int, case: _Case
) -> None:
    async with told(*case.cluster, kind=case.kind, shape=shape) as scene:
        await asyncio.sleep(20.0)
        await scene.stage.perform(*(Kill(one.name, point, after) for one in scene.instances), *case.pods)
        await asyncio.sleep(40.0)
        assert (await scene.settled(10.0)).n_binds == case.n_pods
        assert scene.n_lives > len(scene.instances)


@_of_both
def test_there_is_no_moment_between_reserve_and_bind_at_which_it_must_not_die(case: _Case) -> None:
    """It is killed between turns of the event loop, from the creation of the pods to their end."""

    async def play(turn: int) -> bool:
        """Returns whether it died."""
        async with told(*case.cluster, kind=case.kind) as scene:
            await asyncio.sleep(5.0)
            await scene.stage.perform(*case.pods)

            def die() -> None:
                if not all(map(node_of, scene.server.objects("Pod"))):
                    scene.instances[0].kill()

            with after_turns(turn, die):
                await asyncio.sleep(3.0)
            assert (await scene.settled(30.0)).n_binds == case.n_pods
            return scene.n_lives > 1

    assert deaths_at(play, range(1, 1000, 5)) > 6


@_of_both
@pytest.mark.parametrize("lost", [Effect.LOSE_ANSWER, Effect.RESPOND_AFTER, Effect.DROP, Effect.RESPOND])
@virtually
async def test_writes_of_claims_without_a_clear_answer_are_settled(lost: Effect, case: _Case) -> None:
    fault = Fault(action=lost, verb="patch", path=case.paths, code=503, times=3)
    async with told(*case.cluster, kind=case.kind) as scene:
        await asyncio.sleep(5.0)
        await scene.stage.perform(fault, *case.pods)
        assert (await scene.settled(30.0)).n_binds == case.n_pods


@virtually
async def test_a_claim_for_extended_resources_lets_go_of_a_pod_that_is_deleted_while_no_scheduler_lives() -> (
    None
):
    """The claim is deleted before, so that only what the pod says of it leads the controller to it."""
    async with told(*_DEVICES, kind=DEVICES) as scene:
        await asyncio.sleep(5.0)
        scene.server.faults.add(Fault(action=Effect.DROP, verb="patch", path=_STATUS, times=3))
        scene.journal.may_lose_nominations = True
        await scene.stage.perform(claiming_pod("p", extended=1))
        await asyncio.sleep(0.1)
        await scene.stage.perform(Kill("one", "", returns_after_s=8.0))
        for claim in scene.server.objects("ResourceClaim"):
            await scene.stage.perform(Remove("ResourceClaim", f"default/{claim['metadata']['name']}"))
        await asyncio.sleep(1.0)
        await scene.stage.perform(Remove("Pod", "default/p"))
        await scene.settled(30.0)


@virtually
async def test_no_condition_is_written_about_a_pod_that_ends_before_the_server_takes_it() -> None:
    busy = Fault(action=Effect.RESPOND, path=_STATUS, verb="patch", code=429, retry_after_s=2)
    async with told(*_DEVICES, kind=DEVICES) as scene:
        await asyncio.sleep(5.0)
        await scene.stage.perform(busy, claiming_pod("p", template="two", extended=2))
        await asyncio.sleep(1.0)
        assert node_of(scene.pod("default/p")) == ""
        slow = {"metadata": {"finalizers": ["example.com/slow"]}}
        await scene.stage.perform(Change("Pod", "default/p", slow), Remove("Pod", "default/p", 30))
        await asyncio.sleep(5.0)
        pod = scene.pod("default/p")
        assert pod is not None
        assert "conditions" not in pod["status"]


@virtually
async def test_a_claim_that_is_deleted_after_a_death_lets_its_pod_go() -> None:
    """Its devices come free, though the pod that they are reserved for waits on."""
    async with told(*_DEVICES, kind=DEVICES) as scene:
        await asyncio.sleep(5.0)
        death = Kill("one", "reservation answered", returns_after_s=5.0)
        await scene.stage.perform(death, shared_claim("s0"), claiming_pod("p", shared="s0"))
        await asyncio.sleep(2.0)
        await scene.stage.perform(Remove("ResourceClaim", "default/s0"))
        (claim,) = scene.server.objects("ResourceClaim")
        assert claim["status"]["reservedFor"]
        await asyncio.sleep(15.0)
        assert scene.server.objects("ResourceClaim") == []
        await scene.stage.perform(shared_claim("s0"))
        assert (await scene.settled(15.0)).n_binds == 1


@virtually
async def test_a_claim_whose_creation_lost_its_answer_holds_its_pod_up_for_a_moment_only() -> None:
    """The next life deletes what it cannot use, hears of the deletion, and creates another one."""
    lost = Fault(action=Effect.LOSE_ANSWER, verb="create", path=_CASES[1].paths)
    async with told(*_DEVICES, kind=DEVICES) as scene:
        await asyncio.sleep(5.0)
        await scene.stage.perform(lost, claiming_pod("r", extended=1))
        assert (await scene.settled(20.0)).n_binds == 1


@virtually
async def test_a_provisioner_that_fails_does_not_keep_the_pod_for_ever() -> None:
    async with told(provisioner(fails=True), kind=VOLUMES) as scene:
        await asyncio.sleep(5.0)
        await scene.stage.perform(volume_claim("c"), claiming_pod("p", volumes=["c"]))
        await asyncio.sleep(20.0)
        (condition,) = (scene.pod("default/p") or {})["status"]["conditions"]
        assert condition["reason"] == "SchedulerError"
        assert condition["message"] == (
            'running PreBind plugin "VolumeBinding": binding volumes: provisioning failed for PVC "c"'
        )
        await scene.stage.perform(provisioner())
        assert (await scene.settled(15.0)).n_binds == 1


@virtually
async def test_pods_that_wait_for_a_slow_provisioner_hold_nobody_up() -> None:
    async with told(provisioner(after_s=60.0), kind=VOLUMES) as scene:
        await asyncio.sleep(5.0)
        slow = range(100)
        await scene.stage.perform(*(volume_claim(f"c{number}") for number in slow))
        await scene.stage.perform(
            *(claiming_pod(f"slow-{number}", volumes=[f"c{number}"]) for number in slow)
        )
        await asyncio.sleep(10.0)
        assert not any(map(node_of, scene.server.objects("Pod")))
        await scene.stage.perform(*(claiming_pod(f"quick-{number}") for number in range(20)))
        await asyncio.sleep(2.0)
        assert sum(bool(node_of(pod)) for pod in scene.server.objects("Pod")) == 20
        assert (await scene.settled(90.0)).n_binds == 120


@virtually
async def test_a_pod_that_takes_a_place_between_reserve_and_bind_waits_for_its_other_victim() -> None:
    """The place comes free at once, and that of a pod that runs with its end, before which nobody is chosen again."""
    ranks = [AddPriorityClass("low", 10), AddPriorityClass("high", 1000)]
    async with told(*ranks, provisioner(after_s=60.0), kind=VOLUMES) as scene:
        await asyncio.sleep(5.0)
        await scene.stage.perform(*(claiming_pod(f"runs-{node}", cpu="3", priority="low") for node in NODES))
        await asyncio.sleep(2.0)
        await scene.stage.perform(*(volume_claim(node) for node in NODES))
        waiting = (claiming_pod(f"waits-{node}", volumes=[node], cpu="1", priority="low") for node in NODES)
        await scene.stage.perform(*waiting)
        await asyncio.sleep(2.0)
        await scene.stage.perform(claiming_pod("high", cpu="4", priority="high"))
        await asyncio.sleep(5.0)
        assert node_of(scene.pod("default/high"))
        assert sum(isinstance(one, Preempted) for one in scene.journal.evictions) == 1
        judgement = judged(scene.journal)
        assert judgement.n_evictions == 1
        assert [str(one) for one in judgement.wrongs] == []


@pytest.mark.parametrize(
    ("guard", "instead"),
    [
        pytest.param((NominatedPods, "__bool__"), lambda _: False, id="nominations do not count"),
        pytest.param((ConditionWriter, "hasten"), AsyncMock(), id="claims come first"),
    ],
)
def test_the_runs_notice_a_scheduler_that_does_not_keep_the_room(
    guard: tuple[Any, str], instead: object
) -> None:
    with mock.patch.object(*guard, instead):
        runs = (run(seed, Shape.ALONE, VOLUMES).wrongs for seed in range(104, 108))
        assert any(one.verdict is Verdict.ROOM for wrongs in runs for one in wrongs)
