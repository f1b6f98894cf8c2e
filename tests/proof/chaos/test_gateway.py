"""The gateway of runs on a real server, here before the embedded one, has the same faults and verdicts."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator

import aiohttp
import pytest

from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.http.faults import Effect, Fault, Faults
from scheduler.sandbox.devcluster.kinds import NODE
from tests.proof.chaos.gateway import Call, Gateway
from tests.proof.chaos.kinds import Shape
from tests.proof.chaos.real import RealVenue
from tests.proof.chaos.run import run_at, virtually
from tests.support import build
from tests.support.api_client import Api

_NODES = "/api/v1/nodes"


@pytest.mark.parametrize("shape", [Shape.ELECTED, Shape.RANKED], ids=lambda shape: shape.value)
@virtually
async def test_a_run_behind_it_is_as_any_other(shape: Shape) -> None:
    async with DevCluster() as cluster:
        outcome = await run_at(RealVenue(cluster.url), 2, shape)
    assert not outcome.wrongs, outcome.story()
    assert outcome.judgement.n_binds > 0


@pytest.mark.parametrize(
    ("fault", "code", "n_nodes"),
    [
        pytest.param(Fault(action=Effect.RESPOND, code=429, retry_after_s=3), 429, 0, id="refused"),
        pytest.param(Fault(action=Effect.DROP), None, 0, id="dropped"),
        pytest.param(Fault(action=Effect.LOSE_ANSWER), None, 1, id="answer lost"),
        pytest.param(Fault(action=Effect.RESPOND_AFTER, code=504), 504, 1, id="done and refused"),
        pytest.param(Fault(action=Effect.DELAY, delay_s=5.0), 201, 1, id="late"),
        pytest.param(Fault(action=Effect.RESPOND, verb="list"), 201, 1, id="meant for others"),
    ],
)
@virtually
async def test_a_write_meets_the_fault_that_is_meant_for_it(
    fault: Fault, code: int | None, n_nodes: int
) -> None:
    calls: list[Call] = []
    async with _opened(fault, calls) as (cluster, api):
        got: int | None = None
        with contextlib.suppress(aiohttp.ClientError):
            got = (await api.post(_NODES, build.node("n1"))).code
        assert got == code
        assert len(cluster.store.list(NODE)[0]) == n_nodes
    assert [(call.agent, call.method, call.path) for call in calls] == [("me", "POST", _NODES)]


@pytest.mark.parametrize(
    ("action", "told"),
    [
        pytest.param(Effect.END_STREAM, ["n1", "end"], id="ended"),
        pytest.param(Effect.REPEAT_EVENT, ["n1", "n2", "n2"], id="repeated"),
        pytest.param(Effect.STALL_STREAM, ["n1", "n2"], id="stalled"),
        pytest.param(Effect.EXPIRE_STREAM, ["n1", "410", "end"], id="expired"),
        pytest.param(Effect.CUT_STREAM, ["n1", "broken"], id="cut inside a line"),
    ],
)
@virtually
async def test_a_watch_meets_the_fault_after_so_many_lines(action: Effect, told: list[str]) -> None:
    """The first line passes; the fault meets the second."""
    fault = Fault(action=action, kind="nodes", after_events=1, delay_s=5.0)
    async with _opened(fault, []) as (cluster, api), api.watch(_NODES, resourceVersion="1") as events:
        heard: list[str] = []
        for name in ("n1", "n2"):
            cluster.store.create(NODE, "", build.node(name))
        while len(heard) < len(told):
            try:
                event = await events.next()
            except (aiohttp.ClientError, json.JSONDecodeError):
                heard.append("broken")
                break
            status = event["object"] if event else {}
            heard.append("end" if event is None else str(status.get("code") or status["metadata"]["name"]))
        assert heard == told


@contextlib.asynccontextmanager
async def _opened(fault: Fault, calls: list[Call]) -> AsyncIterator[tuple[DevCluster, Api]]:
    """Open a cluster behind a gateway with the fault, and a client of the gateway."""
    faults = Faults()
    faults.add(fault)
    async with (
        DevCluster() as cluster,
        Gateway(cluster.url, faults=faults, on_arrival=calls.append).opened() as gateway,
        Api(f"http://127.0.0.1:{gateway.port}", {"User-Agent": "me"}) as api,
    ):
        yield cluster, api
