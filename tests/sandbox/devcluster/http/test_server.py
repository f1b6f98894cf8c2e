"""The listener: who is let in, how much is read, which faults can be asked for."""

import asyncio
import gc
import io
import socket
import stat
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
import yaml

from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.http.faults import FAULTS_PATH, Effect, Fault
from scheduler.sandbox.devcluster.http.server import MAX_BODY_BYTES
from scheduler.sandbox.devcluster.kinds import CONFIG_MAP
from tests.support.api_client import Api

pytestmark = pytest.mark.asyncio


@asynccontextmanager
async def _cluster(**options: Any) -> AsyncIterator[tuple[DevCluster, Api]]:
    async with DevCluster(**options) as cluster, Api(cluster.url, cluster.headers) as api:
        api.namespace = "default"
        yield cluster, api


# -- access --------------------------------------------------------------------------------------------------


async def test_a_cluster_with_a_random_token_refuses_all_others(tmp_path):
    """The token is long, and in the kubeconfig."""
    async with _cluster(token="") as (cluster, api):
        assert (await api.get("/api/v1/pods")).code == 200
        for header in ("", "Bearer wrong", "Basic c2VjcmV0"):
            async with Api(api.url, {"Authorization": header} if header else {}) as stranger:
                assert (await stranger.get("/api/v1/pods")).refused(401, "Unauthorized") == "Unauthorized"
                assert (await stranger.get(FAULTS_PATH)).code == 401
                assert (await stranger.get("/healthz")).code == 200
        path = tmp_path / "kubeconfig"
        cluster.write_kubeconfig(path)
        written = yaml.safe_load(path.read_text())
        assert written == cluster.kubeconfig()
        assert written["users"][0]["user"]["token"] == cluster.token
        assert len(cluster.token or "") >= 32
        assert written["clusters"][0]["cluster"]["server"] == cluster.url
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_a_body_beyond_the_limit_is_refused():
    async with _cluster() as (_, api):
        body = io.BytesIO(b" " * (MAX_BODY_BYTES + 1))
        answer = await api.post(api.in_namespace("configmaps"), body)
        assert (
            answer.refused(413, "RequestEntityTooLarge")
            == f"Request entity too large: limit is {MAX_BODY_BYTES}"
        )


async def test_a_version_of_the_future_says_when_to_try_again():
    async with (
        _cluster() as (cluster, _),
        aiohttp.request("GET", f"{cluster.url}/api/v1/pods?resourceVersion=99999") as answer,
    ):
        assert (answer.status, answer.headers["Retry-After"]) == (504, "1")


async def test_a_taken_port_is_an_os_error():
    async with _cluster() as (cluster, _):
        with pytest.raises(OSError, match="address already in use"):
            await DevCluster(port=cluster.port).start()


async def test_stopping_ends_open_watches():
    cluster = DevCluster()
    await cluster.start()
    async with Api(cluster.url, {}) as api, api.watch("/api/v1/pods") as events:
        async with asyncio.timeout(5):
            await cluster.stop()
        with pytest.raises((aiohttp.ClientError, AssertionError)):
            assert await events.next() is not None


async def test_stopping_leaves_no_half_of_a_connection_that_is_just_coming(monkeypatch):
    """asyncio ends such a one with an AssertionError and an unclosed transport (Python 3.11)."""
    monkeypatch.setattr("scheduler.sandbox.devcluster.cluster._SHUTDOWN_S", 0.1)
    cluster = DevCluster()
    await cluster.start()
    with (
        warnings.catch_warnings(record=True) as warned,
        socket.create_connection(("127.0.0.1", cluster.port)),
    ):
        warnings.simplefilter("always", ResourceWarning)
        await asyncio.sleep(0)  # the loop has seen it
        await asyncio.sleep(0)  # and accepted it
        await cluster.stop()
        gc.collect()
    assert [str(each.message) for each in warned] == []


# -- watches -------------------------------------------------------------------------------------------------


async def test_a_client_that_leaves_during_a_write_is_no_error(monkeypatch, caplog):
    tried = asyncio.Event()

    async def gone(*_: object) -> None:
        tried.set()
        raise aiohttp.ClientConnectionResetError("Cannot write to closing transport")

    async with _cluster() as (_, api), api.watch("/api/v1/namespaces/default/configmaps") as events:
        await api.create_map("one")
        await events.next()
        monkeypatch.setattr(aiohttp.web.StreamResponse, "write", gone)
        await api.create_map("two")
        await tried.wait()
    assert not caplog.records


async def test_bookmarks_come_as_often_as_asked_for():
    async with _cluster(bookmark_interval_s=0.05) as (cluster, api):
        since = str(cluster.store.resource_version)
        async with api.watch("/api/v1/pods", resourceVersion=since, allowWatchBookmarks="true") as events:
            cluster.store.create(CONFIG_MAP, "default", {"metadata": {"name": "elsewhere"}})
            while (event := await events.next()) is not None:
                assert event["type"] == "BOOKMARK"
                if event["object"]["metadata"]["resourceVersion"] == str(cluster.store.resource_version):
                    break
    assert event is not None
    assert event["object"]["kind"] == "Pod"


async def test_a_bookmark_comes_before_the_end():
    async with _cluster() as (cluster, api):
        since = str(cluster.store.resource_version)
        query = {"resourceVersion": since, "allowWatchBookmarks": "true", "timeoutSeconds": "1"}
        async with api.watch("/api/v1/pods", **query) as events:
            bookmark = await events.next()
            assert bookmark is not None
            assert bookmark["type"] == "BOOKMARK"
            assert await events.next() is None


async def test_a_watch_from_a_forgotten_version_gets_an_error_event():
    async with _cluster(history_capacity=1) as (cluster, api):
        for name in "abc":
            cluster.store.create(CONFIG_MAP, "default", {"metadata": {"name": name}})
        async with api.watch(api.in_namespace("configmaps"), resourceVersion="1") as events:
            event = await events.next()
            assert await events.next() is None
    assert event is not None
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
    assert event["object"]["message"].startswith("too old resource version: 1 (")


async def test_the_rest_of_a_forgotten_list_is_expired():
    async with _cluster() as (_, api):
        (await api.get("/api/v1/namespaces", limit="1", **{"continue": "7"})).refused(410, "Expired")
        page = (await api.get("/api/v1/namespaces", limit="1")).ok["metadata"]
        assert (await api.get("/api/v1/namespaces", limit="1", **{"continue": page["continue"]})).code == 200


async def test_a_watch_that_falls_too_far_behind_gets_an_error_event():
    async with _cluster(history_capacity=5) as (cluster, api):
        since = str(cluster.store.resource_version)
        cluster.faults.add(Fault(action=Effect.STALL_STREAM, kind="configmaps", delay_s=0.2))
        async with api.watch(api.in_namespace("configmaps"), resourceVersion=since) as events:
            for index in range(40):
                cluster.store.create(CONFIG_MAP, "default", {"metadata": {"name": f"m{index}"}})
            types = []
            while (event := await events.next()) is not None:
                types.append(event["type"])
    assert types[-1] == "ERROR"


# -- faults --------------------------------------------------------------------------------------------------


async def test_an_answer_can_be_replaced_so_many_times():
    async with _cluster() as (cluster, api):
        cluster.faults.add(
            Fault(Effect.RESPOND, kind="pods", verb="list", code=429, retry_after_s=3, times=2)
        )
        assert (await api.get("/api/v1/nodes")).code == 200
        for _ in range(2):
            answer = await api.get("/api/v1/pods")
            answer.refused(429, "TooManyRequests")
            assert answer.body["details"]["retryAfterSeconds"] == 3
        assert (await api.get("/api/v1/pods")).code == 200


@pytest.mark.parametrize(
    ("fault", "answer", "is_stored"),
    [
        pytest.param(Fault(action=Effect.LOSE_ANSWER, method="POST"), None, True, id="the answer is lost"),
        pytest.param(
            Fault(action=Effect.RESPOND_AFTER, verb="create", code=504), 504, True, id="it is too late"
        ),
        pytest.param(
            Fault(action=Effect.DROP, path="/configmaps$"), None, False, id="the request is dropped"
        ),
    ],
)
async def test_a_write_with_a_fault_takes_effect_or_not(fault, answer, is_stored):
    async with _cluster() as (cluster, api):
        cluster.faults.add(fault)
        writing = api.post(api.in_namespace("configmaps"), {"metadata": {"name": "a"}})
        if answer is None:
            with pytest.raises(aiohttp.ClientError):
                await writing
        else:
            (await writing).refused(answer, "Timeout")
        assert (cluster.store.find(CONFIG_MAP, "default", "a") is not None) is is_stored


@pytest.mark.parametrize("action", [Effect.END_STREAM, Effect.EXPIRE_STREAM, Effect.CUT_STREAM])
async def test_a_stream_can_end_after_some_events(action):
    async with _cluster() as (cluster, api):
        for name in ("a", "b", "c"):
            cluster.store.create(CONFIG_MAP, "default", {"metadata": {"name": name}})
        cluster.faults.add(Fault(action=action, kind="configmaps", after_events=2))
        async with api.watch(api.in_namespace("configmaps")) as events:
            assert await events.seen(2) == [("ADDED", "a"), ("ADDED", "b")]
            if action is Effect.CUT_STREAM:
                with pytest.raises((aiohttp.ClientError, ValueError)):
                    await events.next()
                return
            if action is Effect.EXPIRE_STREAM:
                event = await events.next()
                assert event is not None
                assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
            assert await events.next() is None
        async with api.watch(api.in_namespace("configmaps")) as events:
            assert len(await events.seen(3)) == 3


async def test_an_idle_stream_is_hit_at_once():
    async with _cluster() as (cluster, api), api.watch("/api/v1/pods") as events:
        waiting = asyncio.create_task(events.next(), name="the next event")
        assert cluster.faults.streams
        cluster.faults.add(Fault(action=Effect.END_STREAM))
        assert await waiting is None


async def test_faults_are_set_and_cleared_over_http():
    async with _cluster() as (cluster, api):
        rule = {"action": "respond", "kind": "pods", "code": 503, "times": 5}
        assert (await api.post(FAULTS_PATH, [rule])).code == 204
        assert cluster.faults.pending() == [Fault(action=Effect.RESPOND, kind="pods", code=503, times=5)]
        (await api.get("/api/v1/pods")).refused(503, "ServiceUnavailable")
        assert (await api.delete(FAULTS_PATH)).code == 204
        assert (await api.get("/api/v1/pods")).code == 200


async def test_a_fault_that_makes_no_sense_is_a_bad_request():
    async with _cluster() as (cluster, api):
        for rule in ({"action": "respond", "nope": 1}, {"action": "respond", "path": "("}):
            answer = await api.post(FAULTS_PATH, [rule])
            assert answer.refused(400, "BadRequest").startswith("faults: ")
        assert cluster.faults.pending() == []
