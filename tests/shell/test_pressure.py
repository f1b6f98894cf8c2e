"""How many binds may be under way, as the server bears them."""

from __future__ import annotations

import pytest

from scheduler.devcluster.faults import Action, Fault
from scheduler.devcluster.kinds import POD
from scheduler.devcluster.server import DevCluster
from scheduler.kube.client import KubeClient
from scheduler.kube.credentials import load_credentials
from scheduler.shell.binder import Binder, Bound
from scheduler.shell.pressure import CEILING, FLOOR, SLOW_S, BindLimit
from tests.support import build


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_it_halves_under_pressure_and_never_ends() -> None:
    clock = Clock()
    limit = BindLimit(now_s=clock)
    seen = []
    for _ in range(6):
        seen.append(limit())
        limit.on_pressure()
        clock.now += 1.0
    assert seen == [CEILING, 32, 16, 8, FLOOR, FLOOR]


def test_what_many_binds_meet_at_once_counts_once() -> None:
    limit = BindLimit(now_s=Clock())
    for _ in range(50):
        limit.on_pressure()
    assert limit() == CEILING // 2


def test_each_round_that_goes_well_adds_one() -> None:
    limit = BindLimit(now_s=Clock())
    limit.on_pressure()
    for _ in range(33):
        limit.on_answer(0.01)
    assert limit() == 33
    for _ in range(100_000):
        limit.on_answer(0.01)
    assert limit() == CEILING


def test_a_slow_answer_is_pressure() -> None:
    limit = BindLimit(now_s=Clock())
    limit.on_answer(SLOW_S)
    assert limit() == CEILING
    limit.on_answer(SLOW_S * 1.01)
    assert limit() == CEILING // 2


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault(action=Action.RESPOND, path="/binding$", code=429), id="429"),
        pytest.param(Fault(action=Action.LOSE_ANSWER, path="/binding$"), id="no answer"),
    ],
)
async def test_the_binder_tells_of_pressure(fault: Fault) -> None:
    """Whatever says that the server has too much to do arrives at the limit."""
    limit = BindLimit(now_s=Clock())
    async with DevCluster(nodes=1) as cluster:
        pod = build.pod("p")
        del pod["metadata"]["uid"], pod["status"]
        uid = cluster.store.create(POD, "default", pod)["metadata"]["uid"]
        credentials = await load_credentials(
            kubeconfig=None, master=cluster.url, environ={"HOME": "/nowhere"}
        )
        cluster.faults.add(fault)
        async with KubeClient(credentials) as client:
            binder = Binder(client, on_throttled=lambda _: limit.on_pressure(), on_answered=limit.on_answer)
            bound = await binder.bind(namespace="default", name="p", uid=uid, node_name="node-0001")
    assert bound == Bound()
    assert limit() in (CEILING // 2, CEILING // 2 + 1)
