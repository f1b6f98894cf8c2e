"""The limit on binds in flight."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.daemon.kube.client import KubeClient
from scheduler.daemon.kube.credentials import load_credentials
from scheduler.daemon.writes.binder import Binder
from scheduler.daemon.writes.concurrency_limit import MAX_LIMIT, MIN_LIMIT, SLOW_S, BindLimit
from scheduler.daemon.writes.sending import Sender
from scheduler.engine.model.instructions import Bind
from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.http.faults import Effect, Fault
from scheduler.sandbox.devcluster.kinds import POD
from tests.support import build
from tests.support.driving import Driver


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_it_halves_on_overload_down_to_the_minimum() -> None:
    clock = Clock()
    limit = BindLimit(now_s=clock)
    seen = []
    for _ in range(6):
        seen.append(limit())
        limit.on_overload()
        clock.now += 1.0
    assert seen == [MAX_LIMIT, 32, 16, 8, MIN_LIMIT, MIN_LIMIT]


def test_overloads_within_a_second_count_once() -> None:
    limit = BindLimit(now_s=Clock())
    for _ in range(50):
        limit.on_overload()
    assert limit() == MAX_LIMIT // 2


def test_each_round_of_fast_answers_adds_one() -> None:
    limit = BindLimit(now_s=Clock())
    limit.on_overload()
    for _ in range(33):
        limit.on_answer(0.01)
    assert limit() == 33
    for _ in range(100_000):
        limit.on_answer(0.01)
    assert limit() == MAX_LIMIT


def test_a_slow_answer_is_an_overload() -> None:
    limit = BindLimit(now_s=Clock())
    limit.on_answer(SLOW_S)
    assert limit() == MAX_LIMIT
    limit.on_answer(SLOW_S * 1.01)
    assert limit() == MAX_LIMIT // 2


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault(action=Effect.RESPOND, path="/binding$", code=429), id="429"),
        pytest.param(Fault(action=Effect.LOSE_ANSWER, path="/binding$"), id="no answer"),
    ],
)
async def test_the_binder_reports_overload(fault: Fault) -> None:
    """429 and lost answers lower the limit."""
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
            sender = Sender(client, on_throttled=lambda _: limit.on_overload())
            binder = Binder(sender, on_answer=limit.on_answer)
            problem = await binder.bind(Bind(replace(Driver().pod("p"), uid=uid), "node-0001"))
    assert problem == ""
    assert limit() in (MAX_LIMIT // 2, MAX_LIMIT // 2 + 1)
