"""The whole room against the embedded cluster: list-watch, writes, faults."""

import asyncio
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace

import msgspec
import pytest

from scheduler.daemon.assembly.watched_kinds import LIVE_PODS
from scheduler.daemon.kube import requests
from scheduler.daemon.kube.changes import Deleted, Interrupted, Malformed, Synced, Upserted
from scheduler.daemon.kube.client import KubeClient
from scheduler.daemon.kube.credentials import Credentials, Endpoint, load_credentials
from scheduler.daemon.kube.event_series import EventKey, EventSeries, ObjectReference
from scheduler.daemon.kube.login import Identity
from scheduler.daemon.kube.reflector import Reflector
from scheduler.daemon.kube.requests import ConditionPatch, patch_pod_status
from scheduler.daemon.writes.binder import Binder
from scheduler.daemon.writes.sending import Sender
from scheduler.engine.model.instructions import Bind
from scheduler.errors import Invalid, NotFound, Unauthorized
from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.http.faults import Effect, Fault
from scheduler.sandbox.devcluster.kinds import EVENT, POD
from tests.support.driving import Driver
from tests.support.scripted_server import FakeSleep

pytestmark = pytest.mark.asyncio


@asynccontextmanager
async def cluster(tmp_path):
    """Yield a cluster, and a client of its kubeconfig."""
    async with DevCluster(token="t") as served:
        served.write_kubeconfig(tmp_path / "config")
        credentials = await load_credentials(kubeconfig=str(tmp_path / "config"), master=None, environ={})
        async with KubeClient(credentials) as client:
            yield served, client


def put(served, name):
    """Create or update a pod in the cluster and return its uid."""
    spec = {"containers": [{"name": "c", "image": "i"}]}
    return served.store.create(POD, "default", {"metadata": {"name": name}, "spec": spec})["metadata"]["uid"]


def remove(served, name):
    served.store.delete(POD, "default", name, grace_period_s=0)


class _Pod(msgspec.Struct):
    class Meta(msgspec.Struct):
        name: str
        labels: dict[str, str] = {}

    metadata: Meta


class Mirror:
    """The state that a reflector has published: pods by uid."""

    def __init__(self, client, *, watch_list):
        decoder = msgspec.json.Decoder(_Pod)
        self._reflector = Reflector(
            client,
            LIVE_PODS,
            lambda raw: decoder.decode(raw).metadata.name,
            watch_list=watch_list,
            sleep=FakeSleep(),
        )
        self.changes = []
        self.names = {}
        self._moved = asyncio.Event()

    async def __aenter__(self):
        self._task = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_):
        self._task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await self._task

    async def _read(self):
        async with aclosing(self._reflector.batches()) as batches:
            async for batch in batches:
                for change in batch:
                    self.changes.append(change)
                    match change:
                        case Upserted(uid=uid, object=name):
                            self.names[uid] = name
                        case Deleted(uid=uid):
                            del self.names[uid]
                self._moved.set()

    async def until(self, names):
        """Wait until it equals the cluster."""
        async with asyncio.timeout(10):
            while set(self.names.values()) != set(names) or not self.published(Synced):
                self._moved.clear()
                await self._moved.wait()

    async def until_told(self, kind, count=1):
        async with asyncio.timeout(10):
            while len(self.published(kind)) < count:
                self._moved.clear()
                await self._moved.wait()

    def published(self, kind):
        return [change for change in self.changes if isinstance(change, kind)]


BOTH_WAYS = pytest.mark.parametrize("watch_list", [True, False], ids=["streamed list", "paged list"])


@BOTH_WAYS
async def test_a_collection_larger_than_a_page_is_mirrored(tmp_path, watch_list):
    """Adds, deletes, and a recreated pod."""
    async with cluster(tmp_path) as (served, client):
        names = [f"p{number}" for number in range(1201)]
        uids = [put(served, name) for name in names]
        async with Mirror(client, watch_list=watch_list) as mirror:
            await mirror.until(names)
            remove(served, "p7")
            await mirror.until(set(names) - {"p7"})
            put(served, "p7")
            await mirror.until(names)
        assert uids[7] not in mirror.names
        assert mirror.published(Interrupted) == []


WATCH_FAULTS = {
    "stream ended": Fault(Effect.END_STREAM, kind="pods"),
    "stream cut inside an object": Fault(Effect.CUT_STREAM, kind="pods"),
    "410 inside the stream": Fault(Effect.EXPIRE_STREAM, kind="pods"),
}


@BOTH_WAYS
@pytest.mark.parametrize("fault", WATCH_FAULTS.values(), ids=WATCH_FAULTS)
async def test_no_change_is_missed_when_a_watch_breaks(tmp_path, watch_list, fault):
    """Not even deletions in between."""
    async with cluster(tmp_path) as (served, client):
        for name in ("a", "b"):
            put(served, name)
        async with Mirror(client, watch_list=watch_list) as mirror:
            await mirror.until({"a", "b"})
            served.faults.add(fault)
            remove(served, "a")
            put(served, "c")
            await mirror.until({"b", "c"})
            put(served, "d")
            await mirror.until({"b", "c", "d"})


@BOTH_WAYS
async def test_a_relist_makes_up_for_compacted_history(tmp_path, watch_list):
    """The watch gets 410 as a status; the difference includes deletions."""
    async with cluster(tmp_path) as (served, client):
        for name in ("a", "b"):
            put(served, name)
        async with Mirror(client, watch_list=watch_list) as mirror:
            await mirror.until({"a", "b"})
            served.faults.add(Fault(Effect.RESPOND, verb="watch", kind="pods", code=410))
            served.faults.add(Fault(Effect.END_STREAM, kind="pods"))
            remove(served, "a")
            await mirror.until_told(Interrupted)
            put(served, "c")
            await mirror.until({"b", "c"})
            await mirror.until_told(Synced, 2)
        assert len(mirror.published(Upserted)) == 3, "b is not published twice"


@BOTH_WAYS
async def test_throttling_and_failures_are_retried(tmp_path, watch_list):
    """429, 503 and a dropped connection, one after the other."""
    async with cluster(tmp_path) as (served, client):
        put(served, "a")
        served.faults.add(
            Fault(Effect.RESPOND, kind="pods", code=429, retry_after_s=3),
            Fault(Effect.RESPOND, kind="pods", code=503),
            Fault(Effect.DROP, kind="pods", times=2),
        )
        async with Mirror(client, watch_list=watch_list) as mirror:
            await mirror.until({"a"})
        assert [change.error.status for change in mirror.published(Interrupted)] == [429, 503, 0]


@BOTH_WAYS
async def test_a_malformed_pod_affects_no_other(tmp_path, watch_list):
    """A label of the wrong type, which API servers normally refuse."""
    async with cluster(tmp_path) as (served, client):
        put(served, "a")
        meta = {"name": "bad", "namespace": "default", "uid": "bad", "labels": {"app": 7}}
        served.store.inject(POD, {"metadata": meta})
        async with Mirror(client, watch_list=watch_list) as mirror:
            await mirror.until({"a"})
            put(served, "b")
            await mirror.until({"a", "b"})
        assert [str(change.key) for change in mirror.published(Malformed)] == ["default/bad"]


async def test_a_wrong_token_is_unauthorized():
    """For every kind of request."""
    async with DevCluster(token="t") as served:
        stranger = Credentials(Endpoint(served.url), Identity("Bearer other"))
        async with KubeClient(stranger) as client:
            with pytest.raises(Unauthorized):
                await client.request(requests.get_pod("default", "a"), timeout_s=5)


async def bound(client, name, uid, node_name="n1"):
    pod = replace(Driver().pod(name), uid=uid)
    binder = Binder(Sender(client, sleep=FakeSleep()))
    return await binder.bind(Bind(pod, node_name, {"why": "because"}))


LOST = Fault(Effect.LOSE_ANSWER, method="post", path="/binding$")


BIND_FAULTS = {
    "nothing": [],
    "the answer is lost after it took effect": [LOST],
    "the request is lost": [Fault(Effect.DROP, method="post", path="/binding$")],
    "429": [Fault(Effect.RESPOND, method="post", path="/binding$", code=429)],
    "500": [Fault(Effect.RESPOND, method="post", path="/binding$", code=500)],
    "lost, and reading fails too": [LOST, Fault(Effect.RESPOND, verb="get", code=500, times=3)],
}


@pytest.mark.parametrize("faults", BIND_FAULTS.values(), ids=BIND_FAULTS)
async def test_a_bind_happens_exactly_once_whatever_goes_wrong(tmp_path, faults):
    """The pod is on our node with our annotations, and the outcome says so."""
    async with cluster(tmp_path) as (served, client):
        uid = put(served, "a")
        served.faults.add(*faults)
        assert await bound(client, "a", uid) == ""
        pod = served.store.get(POD, "default", "a")
    assert (pod["spec"]["nodeName"], pod["metadata"]["annotations"]) == ("n1", {"why": "because"})
    assert served.faults.pending() == []


async def test_binds_that_cannot_happen_say_why(tmp_path):
    """Another node, another uid, no pod, gates."""
    async with cluster(tmp_path) as (served, client):
        uid = put(served, "a")
        assert await bound(client, "a", "other-uid") == 'pods "a" not found'
        assert await bound(client, "a", uid) == ""
        assert await bound(client, "a", uid) == "", "our own earlier bind is no conflict"
        assert (
            await bound(client, "a", uid, "n2")
            == 'Operation cannot be fulfilled on pods/binding "a": pod a is already assigned to node "n1"'
        )
        assert await bound(client, "gone", "u") == 'pods "gone" not found'
        spec = {"containers": [{"name": "c", "image": "i"}], "schedulingGates": [{"name": "g"}]}
        gated = served.store.create(POD, "default", {"metadata": {"name": "g"}, "spec": spec})
        refused = await bound(client, "g", gated["metadata"]["uid"])
    assert "has non-empty .spec.schedulingGates" in refused


async def test_a_condition_and_a_nomination_are_merged_into_the_status(tmp_path):
    """By type: a second patch replaces the first, other conditions stay."""
    async with cluster(tmp_path) as (served, client):
        uid = put(served, "a")
        for message, nominated in (("first", "n1"), ("second", "")):
            condition = ConditionPatch(
                type="PodScheduled",
                status="False",
                reason="Unschedulable",
                message=message,
                observed_generation=1,
            )
            patch = patch_pod_status(
                namespace="default", name="a", uid=uid, condition=condition, nominated_node_name=nominated
            )
            await client.request(patch, timeout_s=5.0)
            status = served.store.get(POD, "default", "a")["status"]
            assert status.get("nominatedNodeName", "") == nominated
        missing = patch_pod_status(namespace="default", name="gone", uid=uid, condition=condition)
        with pytest.raises(NotFound):
            await client.request(missing, timeout_s=5.0)
        other = patch_pod_status(namespace="default", name="a", uid="other", condition=condition)
        with pytest.raises(Invalid, match=r"metadata\.uid"):
            await client.request(other, timeout_s=5.0)
    [scheduled] = [one for one in status["conditions"] if one["type"] == "PodScheduled"]
    assert (scheduled["reason"], scheduled["message"]) == ("Unschedulable", "second")


async def test_events_are_created_and_patched_into_series(tmp_path):
    """As events.k8s.io/v1 requires."""
    async with cluster(tmp_path) as (served, client):
        uid = put(served, "a")
        key = EventKey(
            type="Warning",
            action="Scheduling",
            reason="FailedScheduling",
            reporting_controller="affinity-scheduler",
            reporting_instance="affinity-scheduler-host",
            regarding=ObjectReference("Pod", "default", "a", uid, resource_version="1"),
        )
        series = EventSeries()
        for at_s in (1.0, 2.0):
            write = series.observe(key, "0/2 nodes are available.", at_s, at_s)
            assert write is not None
            await client.request(write.request, timeout_s=5)
        [event], _ = served.store.list(EVENT)
        assert (event["note"], event["series"]["count"]) == ("0/2 nodes are available.", 2)
        served.store.delete(EVENT, "default", event["metadata"]["name"])
        (write,) = series.refresh()
        with pytest.raises(NotFound):
            await client.request(write.request, timeout_s=5)
        assert write.on_missing is not None
        await client.request(write.on_missing, timeout_s=5)
        [event], _ = served.store.list(EVENT)
        assert event["series"]["count"] == 2
