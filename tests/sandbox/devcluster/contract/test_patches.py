"""Patches of every type."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.api_client import APPLY, JSON_PATCH, MERGE, STRATEGIC, Api

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_merge_patch_adds_replaces_and_removes(api: Api):
    await api.create_map("one", {"keep": "1", "change": "1", "drop": "1"})
    patched = await api.patch(
        api.in_namespace("configmaps", "one"), {"data": {"change": "2", "drop": None, "new": "1"}}
    )
    assert patched.ok["data"] == {"keep": "1", "change": "2", "new": "1"}


async def test_a_json_patch_works_in_order(api: Api):
    await api.create_map("one", {"a": "1"}, labels={"x/y": "z"})
    operations = [
        {"op": "test", "path": "/data/a", "value": "1"},
        {"op": "add", "path": "/data/b", "value": "2"},
        {"op": "replace", "path": "/data/b", "value": "3"},
        {"op": "remove", "path": "/metadata/labels/x~1y"},
    ]
    patched = (await api.patch(api.in_namespace("configmaps", "one"), operations, JSON_PATCH)).ok
    assert patched["data"] == {"a": "1", "b": "3"}
    assert not patched["metadata"].get("labels")


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/data/a", "value": "other"},
        {"op": "remove", "path": "/data/none"},
        {"op": "add", "path": "/none/a/b", "value": "1"},
    ],
    ids=["failed test", "nothing to remove", "nowhere to add"],
)
async def test_a_json_patch_that_does_not_apply_changes_nothing(api: Api, operation):
    stored = await api.create_map("one", {"a": "1"})
    answer = await api.patch(
        api.in_namespace("configmaps", "one"),
        [{"op": "add", "path": "/data/b", "value": "2"}, operation],
        JSON_PATCH,
    )
    assert answer.refused(422, "Invalid") == "the server rejected our request due to an error in our request"
    assert (await api.get(api.in_namespace("configmaps", "one"))).ok["data"] == stored["data"]


async def test_a_stale_resource_version_in_a_patch_is_a_conflict(api: Api):
    stored = await api.create_map("one", {"a": "1"})
    path = api.in_namespace("configmaps", "one")
    (await api.patch(path, {"data": {"a": "2"}})).ok  # noqa: B018
    body = {"metadata": {"resourceVersion": stored["metadata"]["resourceVersion"]}, "data": {"a": "3"}}
    answer = await api.patch(path, body)
    assert "the object has been modified" in answer.refused(409, "Conflict")


async def test_an_unknown_patch_type_is_unsupported(api: Api):
    await api.create_map("one")
    answer = await api.patch(api.in_namespace("configmaps", "one"), {"data": {}}, "application/json")
    assert answer.refused(415, "UnsupportedMediaType") == "415: Unsupported Media Type"


async def test_conditions_merge_by_type(api: Api):
    await api.create_pod("p")
    path = f"{api.pods('p')}/status"
    one = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no"}
    two = {"type": "example.com/Other", "status": "True"}
    (await api.patch(path, {"status": {"conditions": [one]}}, STRATEGIC)).ok  # noqa: B018
    (await api.patch(path, {"status": {"conditions": [two]}}, STRATEGIC)).ok  # noqa: B018
    changed = {
        "$setElementOrder/conditions": [{"type": "PodScheduled"}],
        "conditions": [{**one, "message": "still no"}],
    }
    stored = (await api.patch(path, {"status": changed}, STRATEGIC)).ok
    by_type = {one["type"]: one for one in stored["status"]["conditions"]}
    assert by_type["PodScheduled"]["message"] == "still no"
    assert by_type["example.com/Other"]["status"] == "True"
    assert len(stored["status"]["conditions"]) == 2


def _deployment(containers: list[dict[str, object]]) -> dict[str, object]:
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": containers}}
    return {
        "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": template},
    }


async def test_containers_merge_by_name_and_their_environment_too(api: Api):
    path = api.in_namespace("deployments", group="apis/apps/v1")
    containers: list[dict[str, object]] = [
        {"name": "a", "image": "i:1", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "1"}]},
        {"name": "b", "image": "i:1"},
    ]
    (await api.post(path, _deployment(containers))).ok  # noqa: B018
    change = [
        {"name": "a", "image": "i:2", "env": [{"name": "X", "value": "2"}, {"name": "Y", "$patch": "delete"}]}
    ]
    patch = {"spec": {"template": {"spec": {"containers": change}}}}
    stored = (await api.patch(f"{path}/web", patch, STRATEGIC)).ok["spec"]["template"]["spec"]["containers"]
    assert [(one["name"], one["image"]) for one in stored] == [("a", "i:2"), ("b", "i:1")]
    assert stored[0]["env"] == [{"name": "X", "value": "2"}]


async def test_elements_are_deleted_ordered_and_replaced(api: Api):
    path = api.in_namespace("deployments", group="apis/apps/v1")
    (await api.post(path, _deployment([{"name": n, "image": "i"} for n in "abc"]))).ok  # noqa: B018

    async def containers_after(change: Mapping[str, object]) -> list[str]:
        stored = (await api.patch(f"{path}/web", {"spec": {"template": {"spec": change}}}, STRATEGIC)).ok
        return [one["name"] for one in stored["spec"]["template"]["spec"]["containers"]]

    assert await containers_after({"containers": [{"name": "b", "$patch": "delete"}]}) == ["a", "c"]
    order = {
        "$setElementOrder/containers": [{"name": "c"}, {"name": "a"}],
        "containers": [{"name": "a", "image": "j"}],
    }
    assert await containers_after(order) == ["c", "a"]
    replaced = {"containers": [{"name": "z", "image": "i"}, {"$patch": "replace"}]}
    assert await containers_after(replaced) == ["z"]


async def test_a_strategy_is_replaced_with_retain_keys(api: Api):
    path = api.in_namespace("deployments", group="apis/apps/v1")
    (await api.post(path, _deployment([{"name": "a", "image": "i"}]))).ok  # noqa: B018
    patch = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}
    assert (await api.patch(f"{path}/web", patch, STRATEGIC)).ok["spec"]["strategy"] == {"type": "Recreate"}


async def test_values_are_deleted_from_a_set(api: Api):
    await api.create_map("one", finalizers=["example.com/a", "example.com/b"])
    path = api.in_namespace("configmaps", "one")
    body = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a"]}}
    assert (await api.patch(path, body, STRATEGIC)).ok["metadata"]["finalizers"] == ["example.com/b"]
    added = {"metadata": {"finalizers": ["example.com/c"]}}
    assert set((await api.patch(path, added, STRATEGIC)).ok["metadata"]["finalizers"]) == {
        "example.com/b",
        "example.com/c",
    }


async def test_apply_creates_and_then_merges(api: Api):
    path = api.in_namespace("configmaps", "one")
    body = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: one\ndata:\n  k: '1'\n"
    created = await api.patch(path, body, APPLY, fieldManager="tester")
    assert (created.code, created.body["data"]) == (201, {"k": "1"})
    changed = await api.patch(path, body.replace("'1'", "'2'"), APPLY, fieldManager="tester")
    assert (changed.code, changed.body["data"]) == (200, {"k": "2"})


async def test_patches_of_status_and_object_leave_each_other_alone(api: Api):
    await api.create_pod("p")
    body: dict[str, Any] = {"spec": {"nodeName": "n1"}, "status": {"nominatedNodeName": "n2"}}
    stored = (await api.patch(f"{api.pods('p')}/status", body, MERGE)).ok
    assert ("nodeName" in stored["spec"], stored["status"]["nominatedNodeName"]) == (False, "n2")
    body = {"metadata": {"labels": {"a": "b"}}, "status": {"phase": "Running"}}
    stored = (await api.patch(api.pods("p"), body, MERGE)).ok
    assert (stored["metadata"]["labels"], stored["status"]["phase"]) == ({"a": "b"}, "Pending")
