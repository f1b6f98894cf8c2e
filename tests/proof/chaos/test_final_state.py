"""The checks of the final state find each kind of damage."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from scheduler.engine.core.machine import Machine
from scheduler.engine.model.stimuli import NodeGone, ObjectGone, PodGone
from tests.proof.chaos.caches import FinalState
from tests.proof.chaos.happenings import AddNamespace, AddNode, AddPod, Happening
from tests.proof.chaos.instance import OURS
from tests.proof.chaos.kinds import THEIRS
from tests.proof.chaos.run import virtually
from tests.proof.chaos.scene import Scene
from tests.proof.chaos.test_deaths import begun
from tests.proof.chaos.verdicts import Verdict

_CLUSTER: list[Happening] = [AddNamespace("red", "x"), AddNode("n1", "2", "a")]
#: One is placed and one fits nowhere.
_PODS: list[Happening] = [AddPod("red/placed", "plain", OURS), AddPod("red/waiting", "big", OURS)]


def _machine(scene: Scene) -> Machine:
    machine = scene.instances[0].machine
    assert machine is not None
    return machine


async def _none(_scene: Scene) -> None:
    """Damage nothing."""


async def _a_node_lost(scene: Scene) -> None:
    _machine(scene).handle(NodeGone("n1"), 0.0)


async def _a_namespace_lost(scene: Scene) -> None:
    _machine(scene).handle(ObjectGone("Namespace", "red"), 0.0)


async def _a_placed_pod_lost(scene: Scene) -> None:
    _machine(scene).handle(PodGone(next(iter(_machine(scene).state.placed))), 0.0)


async def _a_waiting_pod_forgotten(scene: Scene) -> None:
    machine = _machine(scene)
    machine.queue.delete(next(record.uid for record in machine.records if record.shown is not None))


async def _nobody_there(scene: Scene) -> None:
    scene.instances[0].restart_after_s = 1e6
    scene.instances[0].kill()


async def _a_pod_that_nobody_takes(scene: Scene) -> None:
    await scene.stage.perform(AddPod("red/theirs", "plain", THEIRS))


@pytest.mark.parametrize(
    ("damage", "verdicts"),
    [
        pytest.param(_none, [], id="whole"),
        pytest.param(_a_node_lost, [Verdict.CACHE], id="node"),
        pytest.param(_a_namespace_lost, [Verdict.CACHE], id="namespace"),
        pytest.param(_a_placed_pod_lost, [Verdict.CACHE], id="placed pod"),
        pytest.param(_nobody_there, [Verdict.CACHE], id="no instance"),
        pytest.param(_a_waiting_pod_forgotten, [Verdict.LEFT], id="waiting pod"),
        pytest.param(_a_pod_that_nobody_takes, [Verdict.LEFT], id="left over"),
    ],
)
@virtually
async def test_the_final_state_is_wrong_if_anything_is_missing(
    damage: Callable[[Scene], Awaitable[None]], verdicts: list[Verdict]
) -> None:
    """Half a minute does not repair the damage."""
    async with begun(_CLUSTER, *_PODS) as scene:
        await asyncio.sleep(20.0)
        await damage(scene)
        final_state = FinalState(scene.server, scene.instances, frozenset({OURS, THEIRS}), scene.journal)
        await final_state.settled(30.0)
        assert sorted({wrong.verdict for wrong in final_state.wrongs}, key=str) == verdicts
