"""SIGKILL at every moment between the pop of a pod and the confirmation of its bind; the next life takes over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from scheduler.sandbox.devcluster.http.faults import Effect, Fault
from tests.proof.chaos.happenings import AddNamespace, AddNode, AddPod, Happening, Kill
from tests.proof.chaos.instance import KILL_POINTS, OURS
from tests.proof.chaos.journal import node_of
from tests.proof.chaos.kinds import Shape
from tests.proof.chaos.run import repeatable, virtually
from tests.proof.chaos.scene import Scene, told
from tests.proof.chaos.virtual import after_turns, run_virtually

#: Two nodes with room for one pod each; the first two pods repel each other, so decisions depend on each other.
_CLUSTER: list[Happening] = [AddNamespace("red", "x"), AddNode("n1", "1", "a"), AddNode("n2", "1", "b")]
_PODS: list[Happening] = [AddPod(f"red/p{number}", "alone", OURS) for number in range(2)]
#: A Lease that is not renewed expires after 15 s.
_BORN_AGAIN_S = 40.0


@asynccontextmanager
async def begun(
    cluster: Sequence[Happening], *then: Happening, shape: Shape = Shape.ALONE
) -> AsyncIterator[Scene]:
    """Yield a scene in which the rest happens as soon as an instance may place pods."""
    async with told(*cluster, shape=shape) as scene:
        await asyncio.sleep(20.0)
        await scene.stage.perform(*then)
        yield scene


async def ended(scene: Scene) -> dict[str, str]:
    """Wait for the end, assert that no promise is broken, and return the nodes of all pods."""
    await asyncio.sleep(_BORN_AGAIN_S)
    await scene.settled(10.0)
    return {one.key: node_of(one.obj) for one in scene.journal.written if one.bound_node}


def deaths_at(play: Callable[[int], Coroutine[Any, Any, bool]], turns: Iterable[int]) -> int:
    """Play with a death after so many turns of the loop, until one comes too late; return the number of the others."""
    for n_deaths, turn in enumerate(turns):
        with repeatable(1):
            if not run_virtually(play(turn)):
                return n_deaths
    raise AssertionError("every death was early enough")


@pytest.mark.parametrize("after", [0, 1], ids=["first bind", "second bind"])
@pytest.mark.parametrize("point", KILL_POINTS)
@virtually
async def test_a_standby_finishes_the_work(point: str, after: int) -> None:
    deaths = [Kill(name, point, after) for name in Shape.ELECTED.scheduler_of]
    async with begun([*deaths, *_CLUSTER], *_PODS, shape=Shape.ELECTED) as scene:
        assert sorted((await ended(scene)).values()) == ["n1", "n2"]
        assert scene.n_lives > len(scene.instances)


def test_there_is_no_moment_at_which_it_must_not_die() -> None:
    """One alone is killed between turns of the loop, from pod creation to the confirmation of both binds."""

    async def play(turn: int) -> bool:
        """Returns whether it died before both were confirmed."""
        # One after the other: else the server takes both binds in one turn, and none dies in between.
        late = Fault(action=Effect.DELAY, path="/pods/p1/binding$", delay_s=0.01)
        async with begun([late, *_CLUSTER], *_PODS) as scene:
            machine = scene.instances[0].machine
            assert machine is not None

            def die() -> None:
                if sum(not one.assumed for one in machine.state.placed.values()) < len(_PODS):
                    scene.instances[0].kill()

            with after_turns(turn, die):
                await asyncio.sleep(1.0)
            assert sorted((await ended(scene)).values()) == ["n1", "n2"]
            return scene.n_lives > 1

    assert deaths_at(play, range(0, 1000, 2)) > 10
