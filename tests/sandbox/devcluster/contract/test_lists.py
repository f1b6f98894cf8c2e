"""Lists: selectors, pages, versions and forms."""

import pytest

from tests.sandbox.devcluster.contract.conftest import TABLE
from tests.support.api_client import Api

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def _names(api: Api, **query: str) -> list[str]:
    return [
        one["metadata"]["name"]
        for one in (await api.get(api.in_namespace("configmaps"), **query)).ok["items"]
    ]


async def test_a_list_is_sorted_and_carries_a_resource_version(api: Api):
    for name in ("b", "a", "c"):
        await api.create_map(name)
    body = (await api.get(api.in_namespace("configmaps"))).ok
    assert (body["kind"], body["apiVersion"]) == ("ConfigMapList", "v1")
    assert [one["metadata"]["name"] for one in body["items"]] == ["a", "b", "c"]
    assert int(body["metadata"]["resourceVersion"]) >= max(
        int(one["metadata"]["resourceVersion"]) for one in body["items"]
    )
    assert "kind" not in body["items"][0]


_LABELS = {
    "app=web": ["one", "two"],
    "app==web,tier!=db": ["one"],
    "tier!=db,app": ["one", "three"],
    "app in (web, api)": ["one", "three", "two"],
    "app notin (web),app": ["three"],
    "tier": ["two"],
    "!tier,app": ["one", "three"],
    "app=": [],
    "app in (web,)": ["one", "two"],
}


async def test_label_selectors(api: Api):
    await api.create_map("one", labels={"app": "web"})
    await api.create_map("two", labels={"app": "web", "tier": "db"})
    await api.create_map("three", labels={"app": "api"})
    assert {each: await _names(api, labelSelector=each) for each in _LABELS} == _LABELS
    for selector in ("app in web", "a=b c", "=", "app in (web", "!", "a!b"):
        answer = await api.get(api.in_namespace("configmaps"), labelSelector=selector)
        message = answer.refused(400, "BadRequest")
        assert "unable to parse requirement: " in message or message.startswith("found '"), selector


_FIELDS = {
    "spec.nodeName=n1": ["bound"],
    "spec.nodeName=": ["loose"],
    "spec.nodeName!=n1": ["loose"],
    "spec.schedulerName=mine": ["loose"],
    "status.phase=Pending,metadata.name=bound": ["bound"],
    "status.phase!=Pending": [],
    "spec.restartPolicy=Always": ["bound", "loose"],
}


async def test_field_selectors_on_pods(api: Api):
    await api.create_pod("bound", node="n1")
    await api.create_pod("loose", schedulerName="mine")
    found = {each: (await api.get(api.pods(), fieldSelector=each)).ok["items"] for each in _FIELDS}
    assert {each: [one["metadata"]["name"] for one in items] for each, items in found.items()} == _FIELDS


async def test_pages_follow_each_other_and_show_one_version(api: Api):
    for index in range(5):
        await api.create_map(f"m{index}", labels={"mine": "yes"})
    path = api.in_namespace("configmaps")
    first = (await api.get(path, limit="2")).ok
    assert [one["metadata"]["name"] for one in first["items"]] == ["m0", "m1"]
    assert first["metadata"]["remainingItemCount"] == 3
    await api.create_map("m3-and-a-half")
    second = (await api.get(path, limit="2", **{"continue": first["metadata"]["continue"]})).ok
    assert [one["metadata"]["name"] for one in second["items"]] == ["m2", "m3"]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    third = (await api.get(path, limit="2", **{"continue": second["metadata"]["continue"]})).ok
    assert [one["metadata"]["name"] for one in third["items"]] == ["m4"]
    assert "continue" not in third["metadata"]


async def test_a_page_with_a_selector_does_not_count_the_rest(api: Api):
    for index in range(3):
        await api.create_map(f"m{index}", labels={"mine": "yes"})
    page = (await api.get(api.in_namespace("configmaps"), limit="1", labelSelector="mine=yes")).ok
    assert [one["metadata"]["name"] for one in page["items"]] == ["m0"]
    assert page["metadata"]["continue"]
    assert "remainingItemCount" not in page["metadata"]


@pytest.mark.parametrize(
    ("query", "code", "message"),
    [
        ({"fieldSelector": "spec.nothing=1"}, 400, "field label not supported: spec.nothing"),
        ({"limit": "1", "continue": "nonsense"}, 400, "invalid continue token: continue key is not valid: "),
        ({"resourceVersion": "100000000"}, 504, "Too large resource version: 100000000, current: "),
    ],
)
async def test_a_question_that_cannot_be_answered_is_refused(api: Api, query, code, message):
    answer = await api.get(api.pods(), **query)
    assert message in answer.refused(code, {400: "BadRequest", 504: "Timeout"}[code])
    assert code == 400 or answer.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


async def test_not_older_than_shows_that_version_or_a_later_one(api: Api):
    """It may be answered from the past: what the list has follows from the version that it carries."""
    then = int((await api.create_map("one"))["metadata"]["resourceVersion"])
    later = int((await api.create_map("two"))["metadata"]["resourceVersion"])
    match = {"resourceVersion": str(then), "resourceVersionMatch": "NotOlderThan"}
    body = (await api.get(api.in_namespace("configmaps"), **match)).ok
    listed = int(body["metadata"]["resourceVersion"])
    assert listed >= then
    names = [each["metadata"]["name"] for each in body["items"]]
    assert names == (["one", "two"] if listed >= later else ["one"])


async def test_a_table_has_columns_and_rows(api: Api):
    await api.create_pod("p")
    body = (await api.request("GET", api.pods(), accept=f"{TABLE},application/json")).ok
    assert (body["kind"], body["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    titles = [one["name"] for one in body["columnDefinitions"]]
    assert titles[:5] == ["Name", "Ready", "Status", "Restarts", "Age"]
    assert body["rows"][0]["cells"][:4] == ["p", "0/1", "Pending", "0"]
    whole = (
        await api.request("GET", api.pods(), accept=f"{TABLE},application/json", includeObject="Object")
    ).ok
    part, stored = body["rows"][0]["object"], whole["rows"][0]["object"]
    assert (part["kind"], part["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")
    assert (part["metadata"]["name"], part.keys()) == ("p", {"kind", "apiVersion", "metadata"})
    assert (stored["kind"], stored["spec"]["schedulerName"]) == ("Pod", "default-scheduler")
    assert body["metadata"]["resourceVersion"]


async def test_an_unknown_form_is_not_acceptable(api: Api):
    assert (await api.request("GET", api.pods(), accept="text/html")).code == 406


async def test_yaml_is_read(api: Api):
    body = "metadata:\n  name: one\ndata:\n  k: v\n"
    created = await api.request("POST", api.in_namespace("configmaps"), body, content_type="application/yaml")
    assert created.ok["data"] == {"k": "v"}
