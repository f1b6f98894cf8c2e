"""SIGKILL to real processes: two `affinity-scheduler run` on one Lease, judged by the write log."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from scheduler.sandbox.devcluster.cluster import DevCluster
from tests.proof.chaos.caches import left_over
from tests.proof.chaos.happenings import AddNamespace, AddNode, AddPod
from tests.proof.chaos.instance import OURS
from tests.proof.chaos.journal import Journal, node_of
from tests.proof.chaos.judging import Judge
from tests.proof.chaos.release import CHECKOUT
from tests.proof.chaos.replicas import KILL_POINTS, Replica, Replicas
from tests.proof.chaos.stage import Embedded, Stage
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.asyncio]

#: The longest delay of a watch on this machine.
_BLIND_S = 2.0
_N_NODES, _N_PODS, _N_DEATHS = 6, 24, 2


@pytest.mark.parametrize("point", KILL_POINTS)
async def test_killed_leaders_lose_and_double_nothing(point: str, tmp_path: Path) -> None:
    """The leader is killed twice during a burst of pods with anti-affinity, at the same point of a bind."""
    chance = random.Random(point)
    async with DevCluster() as cluster:
        journal, server = Journal(asyncio.get_running_loop().time), Embedded(cluster)
        journal.follow(cluster.store)
        stage = Stage(server, [], journal)
        await stage.perform(AddNamespace("red", "x"))
        for number in range(_N_NODES):
            await stage.perform(AddNode(f"n{number}", "8", "abc"[number % 3], "ssd" if number % 2 else None))
        async with Replicas(cluster, journal, tmp_path) as replicas:
            await asyncio.gather(*(replicas.start(CHECKOUT) for _ in range(2)))

            async def leads() -> Replica | None:
                return replicas.leader

            for death in range(_N_DEATHS):
                leader = await until(leads, what="a leader")
                assert leader is not None
                n_lives = leader.n_lives
                leader.doom = (point, chance.randrange(6))
                for number in range(_N_PODS // _N_DEATHS):
                    shape = chance.choice(("alone", "small", "port", "picky", "plain"))
                    await stage.perform(AddPod(f"red/p{death}-{number}", shape, OURS))
                await until(leader.lives, n_lives.__lt__, what="its death")

            async def left() -> list[object]:
                return [*left_over(server.objects, frozenset({OURS}))]

            await until(left, lambda pods: not pods, timeout_s=20.0, what="all placed")
            bound = [pod for pod in server.objects("Pod") if node_of(pod)]
            for each in replicas.all:
                await until(each.cached, lambda n: n == (len(bound), 0.0), what="a cache as the server")
            await replicas.end()
    names = [each.name for each in replicas.all]
    judge = Judge(journal, dict.fromkeys(names, OURS), elected=names, blind_s=_BLIND_S)
    assert list(map(str, judge.wrongs())) == []
    assert judge.n_binds == len(bound) > _N_PODS // 2
    assert sum(each.n_lives for each in replicas.all) == 2 + _N_DEATHS
