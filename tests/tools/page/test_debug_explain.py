"""/debug/explain over real connections: access, arguments, rate."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from scheduler.daemon.metrics.logs import Logger
from scheduler.daemon.port.delegated_auth import DelegatedAuth
from scheduler.daemon.port.status_server import ServingOptions, StatusServer
from scheduler.tools.page.debug_explain import PATH, DebugExplain, Explain

pytestmark = pytest.mark.asyncio


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


async def answer(namespace: str, pod: str) -> bytes | None:
    return None if pod == "unknown" else json.dumps([namespace, pod]).encode()


class Routes:
    paths = (PATH,)

    def add_to(self, app: web.Application, auth: DelegatedAuth | None) -> None:
        explaining = DebugExplain(answer, is_plain_http=auth is None, now_s=Clock(), is_synced=lambda: True)
        app.router.add_get(PATH, explaining.handle)


@asynccontextmanager
async def served(
    *,
    explain: Explain = answer,
    is_plain_http: bool = True,
    clock: Clock | None = None,
    is_synced: Callable[[], bool] = lambda: True,
) -> AsyncIterator[aiohttp.ClientSession]:
    debugging = DebugExplain(
        explain, is_plain_http=is_plain_http, now_s=clock or Clock(), is_synced=is_synced
    )
    app = web.Application()
    app.router.add_get(PATH, debugging.handle)
    async with TestServer(app) as server, aiohttp.ClientSession(server.make_url("/")) as client:
        yield client


@pytest.mark.parametrize(
    ("query", "status", "body"),
    [
        ("", 200, '["", ""]'),
        ("?namespace=a&pod=b", 200, '["a", "b"]'),
        ("?pod=b", 400, "expected ?namespace=NAMESPACE&pod=NAME, or neither of them\n"),
        ("?namespace=a", 400, "expected ?namespace=NAMESPACE&pod=NAME, or neither of them\n"),
        (
            f"?namespace=a&pod={'b' * 254}",
            400,
            "expected ?namespace=NAMESPACE&pod=NAME, or neither of them\n",
        ),
        ("?namespace=a&pod=unknown", 404, "this scheduler has no such pending pod\n"),
    ],
)
async def test_the_query_names_one_pod_or_none(query: str, status: int, body: str) -> None:
    async with served() as client, client.get(PATH + query) as response:
        assert (response.status, await response.text()) == (status, body)


async def test_nothing_is_explained_before_the_first_lists_are_complete() -> None:
    """A pod could seem unknown, or to have no node at all."""
    knows = False
    async with served(is_synced=lambda: knows) as client:
        async with client.get(PATH) as response:
            assert (response.status, response.headers["Retry-After"]) == (503, "1")
            assert "still being listed" in await response.text()
        knows = True
        async with client.get(PATH) as response:
            assert response.status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_only_reading_is_served(method: str) -> None:
    async with served() as client, client.request(method, PATH) as response:
        assert response.status == 405


@pytest.mark.parametrize(
    ("host", "is_plain_http", "status"),
    [
        ("localhost:10259", True, 200),
        ("127.0.0.1", True, 200),
        ("[::1]:10259", True, 200),
        ("evil.example", True, 403),
        ("localhost.evil.example:10259", True, 403),
        ("127.0.0.1.evil.example", True, 403),
        ("10.0.0.1", True, 403),
        ("[::1", True, 403),
        ("", True, 403),
        pytest.param("10.0.0.1:10259", False, 200, id="with authentication"),
    ],
)
async def test_on_plain_http_only_loopback_host_names_are_answered(
    host: str, is_plain_http: bool, status: int
) -> None:
    """A web page whose name was rebound to 127.0.0.1 still sends its own name."""
    async with (
        served(is_plain_http=is_plain_http) as client,
        client.get(PATH, headers={"Host": host}) as response,
    ):
        assert response.status == status


async def test_answers_take_at_most_a_tenth_of_the_time() -> None:
    """After an answer that took 0.5 s, requests get 429 for 4.5 s."""
    clock = Clock()

    async def slow(_namespace: str, _pod: str) -> bytes | None:
        clock.now_s += 0.5
        return b"{}"

    async with served(explain=slow, clock=clock) as client:
        found = []
        for wait_s in (0.0, 0.0, 4.4, 0.2):
            clock.now_s += wait_s
            async with client.get(PATH) as response:
                found.append((response.status, response.headers.get("Retry-After")))
    assert found == [(200, None), (429, "5"), (429, "1"), (200, None)]


async def test_a_question_that_comes_during_an_answer_is_turned_away() -> None:
    """As one that comes right after it: answers would otherwise follow each other without a pause."""
    asked, ended = asyncio.Event(), asyncio.Event()

    async def waits(_namespace: str, _pod: str) -> bytes | None:
        asked.set()
        await ended.wait()
        return b"{}"

    async with served(explain=waits) as client:
        first = asyncio.create_task(client.get(PATH))
        await asked.wait()
        async with client.get(PATH) as response:
            assert (response.status, response.headers.get("Retry-After")) == (429, "1")
        ended.set()
        assert (await first).status == 200


@pytest.mark.parametrize(
    ("address", "status"),
    [("127.0.0.1", 200), pytest.param("0.0.0.0", 404, id="--insecure-http")],
)
async def test_it_is_not_served_on_plain_http_outside_loopback(address: str, status: int) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = int(taken.getsockname()[1])
    probes = StatusServer(
        ServingOptions(address, port, insecure_http=True),
        log=Logger(logging.getLogger("test")),
        render=lambda: b"",
        configz=lambda: "{}",
        ready={},
        routes=Routes(),
    )
    await probes.start()
    async with aiohttp.ClientSession() as client, client.get(f"http://127.0.0.1:{port}{PATH}") as response:
        assert response.status == status
    await probes.stop()
