"""Watches: what comes first, what follows, and how a stream ends."""

import pytest

from tests.sandbox.devcluster.contract.conftest import TABLE
from tests.support.api_client import MERGE, Api

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def _version(api: Api, path: str) -> str:
    version: str = (await api.get(path)).ok["metadata"]["resourceVersion"]
    return version


async def test_a_watch_tells_of_every_change_after_its_version(api: Api):
    path = api.in_namespace("configmaps")
    since = await _version(api, path)
    stored = await api.create_map("one", {"k": "1"})
    await api.create_pod("of-another-kind")
    (await api.patch(f"{path}/one", {"data": {"k": "2"}})).ok  # noqa: B018
    (await api.delete(f"{path}/one")).ok  # noqa: B018
    async with api.watch(path, resourceVersion=since) as events:
        added, modified, deleted = [await events.next() for _ in range(3)]
        await api.create_map("two")
        assert await events.seen(1) == [("ADDED", "two")], "each change is told once"
    assert added and modified and deleted
    assert [one["type"] for one in (added, modified, deleted)] == ["ADDED", "MODIFIED", "DELETED"]
    assert added["object"]["metadata"]["resourceVersion"] == stored["metadata"]["resourceVersion"]
    assert added["object"]["kind"] == "ConfigMap"
    assert modified["object"]["data"] == deleted["object"]["data"] == {"k": "2"}
    versions = [int(one["object"]["metadata"]["resourceVersion"]) for one in (added, modified, deleted)]
    assert versions == sorted(set(versions))
    assert "deletionTimestamp" not in deleted["object"]["metadata"]


async def test_a_pod_that_goes_at_once_is_seen_to_be_marked_first(api: Api):
    await api.create_pod("p")
    since = await _version(api, api.pods())
    (await api.delete(api.pods("p"))).ok  # noqa: B018
    async with api.watch(api.pods(), resourceVersion=since) as events:
        marked, deleted = await events.next(), await events.next()
    assert marked and deleted
    assert (marked["type"], deleted["type"]) == ("MODIFIED", "DELETED")
    assert marked["object"]["metadata"]["deletionGracePeriodSeconds"] == 0


@pytest.mark.parametrize("version", ["", "0"])
async def test_a_watch_without_a_version_starts_with_the_present_objects(api: Api, version):
    await api.create_map("one")
    async with api.watch(api.in_namespace("configmaps"), resourceVersion=version) as events:
        assert await events.seen(1) == [("ADDED", "one")]
        await api.create_map("two")
        assert await events.seen(1) == [("ADDED", "two")]


async def test_objects_enter_and_leave_a_label_selection(api: Api):
    path = api.in_namespace("configmaps")
    since = await _version(api, path)
    async with api.watch(path, resourceVersion=since, labelSelector="on=yes") as events:
        await api.create_map("one")
        (await api.patch(f"{path}/one", {"metadata": {"labels": {"on": "yes"}}})).ok  # noqa: B018
        (await api.patch(f"{path}/one", {"data": {"k": "v"}})).ok  # noqa: B018
        left = (await api.patch(f"{path}/one", {"metadata": {"labels": {"on": "no"}}})).ok
        (await api.delete(f"{path}/one")).ok  # noqa: B018
        assert await events.seen(2) == [("ADDED", "one"), ("MODIFIED", "one")]
        last = await events.next()
    assert last is not None
    assert last["type"] == "DELETED"
    assert last["object"]["metadata"]["labels"] == {"on": "yes"}
    assert last["object"]["metadata"]["resourceVersion"] == left["metadata"]["resourceVersion"]


async def test_a_pod_that_ends_leaves_a_watch_of_living_pods(api: Api):
    await api.create_pod("p", node="n1")
    since = await _version(api, api.pods())
    selector = "status.phase!=Succeeded,status.phase!=Failed"
    async with api.watch(api.pods(), resourceVersion=since, fieldSelector=selector) as events:
        (await api.patch(f"{api.pods('p')}/status", {"status": {"phase": "Running"}}, MERGE)).ok  # noqa: B018
        (await api.patch(f"{api.pods('p')}/status", {"status": {"phase": "Succeeded"}}, MERGE)).ok  # noqa: B018
        assert await events.seen(2) == [("MODIFIED", "p"), ("DELETED", "p")]


async def test_a_watch_of_a_namespace_shows_no_other(api: Api):
    since = await _version(api, api.in_namespace("configmaps"))
    mine = api.namespace
    await api.enter_namespace()
    await api.create_map("elsewhere")
    async with api.watch(f"/api/v1/namespaces/{mine}/configmaps", resourceVersion=since) as events:
        api.namespace = mine
        await api.create_map("here")
        assert await events.seen(1) == [("ADDED", "here")]


async def test_initial_events_end_with_an_annotated_bookmark(api: Api):
    await api.create_map("one")
    query = {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }
    async with api.watch(api.in_namespace("configmaps"), **query) as events:
        assert await events.seen(1) == [("ADDED", "one")]
        bookmark = await events.next()
        assert bookmark is not None
        assert bookmark["type"] == "BOOKMARK"
        assert bookmark["object"]["kind"] == "ConfigMap"
        metadata = bookmark["object"]["metadata"]
        assert metadata["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert int(metadata["resourceVersion"]) > 0
        await api.create_map("two")
        assert await events.seen(1) == [("ADDED", "two")]


async def test_a_watch_ends_when_its_time_is_up(api: Api):
    path = api.in_namespace("configmaps")
    since = await _version(api, path)
    async with api.watch(path, timeoutSeconds="1", resourceVersion=since) as events:
        assert await events.next() is None


async def test_a_watch_in_table_form_sends_one_row_at_a_time(api: Api):
    await api.create_pod("p")
    async with api.watch(api.pods(), accept=f"{TABLE},application/json") as events:
        first = await events.next()
        await api.create_pod("q")
        second = await events.next()
    assert first and second
    assert first["object"]["kind"] == "Table"
    assert first["object"]["columnDefinitions"][0]["name"] == "Name"
    assert [one["object"]["rows"][0]["cells"][0] for one in (first, second)] == ["p", "q"]
    assert not second["object"].get("columnDefinitions")


async def test_one_watch_sees_events_of_both_versions(api: Api):
    path = api.in_namespace("events", group="apis/events.k8s.io/v1")
    since = await _version(api, path)
    body = {
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "namespace": api.namespace, "name": "p"},
        "message": "text",
        "reason": "Why",
        "type": "Normal",
    }
    async with api.watch(path, resourceVersion=since) as events:
        (await api.post(api.in_namespace("events"), body)).ok  # noqa: B018
        event = await events.next()
    assert event is not None
    assert event["object"]["apiVersion"] == "events.k8s.io/v1"
    assert event["object"]["note"] == "text"
