"""The checks of the final state find each kind of damage."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from scheduler.engine.model.stimuli import NodeGone, ObjectGone, PodGone
from tests.proof.chaos.caches import FinalState
from tests.proof.chaos.happenings import AddNamespace, AddNode, AddPod
from tests.proof.chaos.instance import OURS, Instance, living
from tests.proof.chaos.journal import Journal
from tests.proof.chaos.run import THEIRS, repeatable
from tests.proof.chaos.stage import Stage
from tests.proof.chaos.venue import EMBEDDED, Setting
from tests.proof.chaos.verdicts import Verdict
from tests.proof.chaos.virtual import run_virtually

Damage = Callable[[Instance, Stage], Awaitable[None]]


async def _none(_instance: Instance, _stage: Stage) -> None:
    """Damage nothing."""


async def _a_node_lost(instance: Instance, _stage: Stage) -> None:
    assert instance.machine is not None
    instance.machine.handle(NodeGone("n1"), 0.0)


async def _a_namespace_lost(instance: Instance, _stage: Stage) -> None:
    assert instance.machine is not None
    instance.machine.handle(ObjectGone("Namespace", "red"), 0.0)


async def _a_placed_pod_lost(instance: Instance, _stage: Stage) -> None:
    assert instance.machine is not None
    instance.machine.handle(PodGone(next(iter(instance.machine.state.placed))), 0.0)


async def _a_waiting_pod_forgotten(instance: Instance, _stage: Stage) -> None:
    machine = instance.machine
    assert machine is not None
    machine.queue.delete(next(record.uid for record in machine.records if record.shown is not None))


async def _nobody_there(instance: Instance, _stage: Stage) -> None:
    instance.restart_after_s = 1e6
    instance.kill()


async def _a_pod_that_nobody_takes(_instance: Instance, stage: Stage) -> None:
    await stage.perform(AddPod("red/theirs", "plain", THEIRS))


@pytest.mark.parametrize(
    ("damage", "verdict"),
    [
        pytest.param(_none, None, id="whole"),
        pytest.param(_a_node_lost, Verdict.CACHE, id="node"),
        pytest.param(_a_namespace_lost, Verdict.CACHE, id="namespace"),
        pytest.param(_a_placed_pod_lost, Verdict.CACHE, id="placed pod"),
        pytest.param(_nobody_there, Verdict.CACHE, id="no instance"),
        pytest.param(_a_waiting_pod_forgotten, Verdict.LEFT, id="waiting pod"),
        pytest.param(_a_pod_that_nobody_takes, Verdict.LEFT, id="left over"),
    ],
)
def test_the_final_state_is_wrong_if_anything_is_missing(damage: Damage, verdict: Verdict | None) -> None:
    """One pod is placed and one fits nowhere; then the state is damaged, and half a minute does not repair it."""
    found: list[Verdict] = []

    async def play() -> None:
        async with EMBEDDED.opened(journal := Journal(asyncio.get_running_loop().time), Setting()) as opened:
            one = Instance("one", server_port=opened.port, journal=journal)
            stage = Stage(opened.server, [one], journal)
            async with living([one]):
                for happening in (
                    AddNamespace("red", "x"),
                    AddNode("n1", "2", "a"),
                    AddPod("red/placed", "plain", OURS),
                    AddPod("red/waiting", "big", OURS),
                ):
                    await stage.perform(happening)
                await asyncio.sleep(20.0)
                await damage(one, stage)
                final_state = FinalState(opened.server, [one], frozenset({OURS, THEIRS}), journal)
                await final_state.settled(30.0)
                found.extend({wrong.verdict for wrong in final_state.wrongs})

    with repeatable(1):
        run_virtually(play())
    assert found == ([] if verdict is None else [verdict])
