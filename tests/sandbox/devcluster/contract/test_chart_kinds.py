"""The kinds that charts bring: jobs, daemon sets, policies, and CustomResourceDefinitions with their objects."""

from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from tests.support.api_client import APPLY, JSON_PATCH, STRATEGIC, Api
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio

_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_BATCH = "apis/batch/v1"
_APPS = "apis/apps/v1"


def pod_template(restart_policy="Never", **labels: str) -> dict[str, Any]:
    spec = {"containers": [{"name": "c", "image": "i:1"}], "restartPolicy": restart_policy}
    return {"metadata": {"labels": labels}, "spec": spec}


def job_body(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "j"}, "spec": {"template": pod_template(), **spec}}


# -- jobs and daemon sets ------------------------------------------------------------------------------------


async def test_a_job_gets_defaults_and_a_selector_of_its_own(api: Api):
    stored = (await api.post(api.in_namespace("jobs", group=_BATCH), job_body())).ok
    uid, spec = stored["metadata"]["uid"], stored["spec"]
    counts = {name: spec[name] for name in ("completions", "parallelism", "backoffLimit", "suspend")}
    assert counts == {"completions": 1, "parallelism": 1, "backoffLimit": 6, "suspend": False}
    assert spec["completionMode"] == "NonIndexed"
    assert spec["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    labels = spec["template"]["metadata"]["labels"]
    assert labels == {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": "j",
        "controller-uid": uid,
        "job-name": "j",
    }
    assert (stored["metadata"]["generation"], stored["status"]) == (1, {})


async def test_a_job_whose_pods_never_end_is_refused(api: Api):
    body = job_body(template=pod_template("Always"))
    answer = await api.post(api.in_namespace("jobs", group=_BATCH), body)
    answer.refused(422, "Invalid")
    assert ("spec.template.spec.restartPolicy") in {field for _, field in answer.causes()}


# -- plain data ----------------------------------------------------------------------------------------------


_TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "w"}


@pytest.mark.parametrize(
    ("group", "plural", "spec"),
    [
        ("apis/networking.k8s.io/v1", "networkpolicies", {"podSelector": {}}),
        ("apis/autoscaling/v2", "horizontalpodautoscalers", {"maxReplicas": 5, "scaleTargetRef": _TARGET}),
        ("apis/policy/v1", "poddisruptionbudgets", {"maxUnavailable": 1}),
        ("api/v1", "limitranges", {"limits": [{"type": "Pod", "max": {"cpu": "1"}}]}),
    ],
)
async def test_what_charts_bring_is_stored(api: Api, group, plural, spec):
    path = api.in_namespace(plural, group=group)
    stored = (await api.post(path, {"metadata": {"name": "x"}, "spec": spec})).ok["spec"]
    assert {name: stored[name] for name in spec} == spec
    listed = (await api.get(path)).ok["items"]
    assert [one["metadata"]["name"] for one in listed] == ["x"]


async def test_text_in_a_secret_is_encoded(api: Api):
    body = {"metadata": {"name": "s"}, "stringData": {"a": "b"}, "data": {"c": "ZA=="}}
    stored = (await api.post(api.in_namespace("secrets"), body)).ok
    assert (stored["type"], stored["data"]) == ("Opaque", {"c": "ZA==", "a": "Yg=="})
    assert "stringData" not in stored


# -- custom resources ----------------------------------------------------------------------------------------


def definition(api: Api, **spec: Any) -> dict[str, Any]:
    """Return a definition of Widgets in a group that no other test uses."""
    group = f"{api.namespace}.test"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    columns = [
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
        {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
    ]
    newest = {"name": "v1", "served": True, "storage": True, "schema": schema, "subresources": {"status": {}}}
    own = {
        "group": group,
        "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
        "versions": [
            {**newest, "additionalPrinterColumns": columns},
            {"name": "v1beta1", "served": True, "storage": False, "schema": schema},
        ],
    }
    return {"metadata": {"name": f"widgets.{group}"}, "spec": {**own, **spec}}


def widget(api: Api, name: str = "w", **fields: Any) -> dict[str, Any]:
    """Return an object of the kind that is defined."""
    kind = {"apiVersion": f"{api.namespace}.test/v1", "kind": "Widget"}
    return {**kind, "metadata": {"name": name}, **fields}


async def until_found(api: Api, path: str) -> Any:
    """Return the answer at a path, which a real server serves a moment after the definition is created."""
    return (await until(partial(api.get, path), lambda answer: answer.code == 200)).body


@asynccontextmanager
async def widgets(api: Api):
    """Create the definition and yield the path of Widgets; delete it at the end."""
    body = definition(api)
    name = body["metadata"]["name"]
    (await api.post(_DEFINITIONS, body)).ok  # noqa: B018 - asserts success
    path = api.in_namespace("widgets", group=f"apis/{api.namespace}.test/v1")
    try:
        await until_found(api, path)
        yield path
    finally:
        await api.delete(f"{_DEFINITIONS}/{name}")


async def test_a_definition_is_established_and_serves_its_kind(api: Api):
    async with widgets(api):
        stored = await until_found(api, f"{_DEFINITIONS}/widgets.{api.namespace}.test")
        met = {one["type"]: one["status"] for one in stored["status"]["conditions"]}
        resources = (await api.get(f"/apis/{api.namespace}.test/v1")).ok["resources"]
    assert met == {"NamesAccepted": "True", "Established": "True"}
    names = {"kind": "Widget", "listKind": "WidgetList", "plural": "widgets", "shortNames": ["wd"]}
    assert stored["status"]["acceptedNames"] == {**names, "singular": "widget"}
    assert stored["status"]["storedVersions"] == ["v1"]
    assert {one["name"]: one["kind"] for one in resources} == {
        "widgets": "Widget",
        "widgets/status": "Widget",
    }
    assert (resources[0]["shortNames"], resources[0]["singularName"]) == (["wd"], "widget")


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"group": "other.test"}, "metadata.name"),
        ({"scope": "Nowhere"}, "spec.scope"),
        ({"versions": [{"name": "v1", "served": True, "storage": True}]}, "spec.versions[0].schema.openAPIV3Schema"),
    ],
)  # fmt: skip
async def test_a_definition_that_breaks_rules_is_refused(api: Api, spec, field):
    answer = await api.post(_DEFINITIONS, definition(api, **spec))
    answer.refused(422, "Invalid")
    assert field in {where for _, where in answer.causes()}


async def test_custom_objects_are_stored_patched_and_listed(api: Api):
    async with widgets(api) as path:
        made = (await api.post(path, widget(api, spec={"size": 3}))).ok
        assert (made["metadata"]["generation"], made["spec"]) == (1, {"size": 3})
        larger = (await api.patch(f"{path}/w", {"spec": {"size": 4}})).ok
        assert (larger["metadata"]["generation"], larger["spec"]) == (2, {"size": 4})
        replaced = await api.patch(
            f"{path}/w", [{"op": "replace", "path": "/spec/size", "value": 5}], JSON_PATCH
        )
        assert replaced.ok["spec"] == {"size": 5}
        listed = (await api.get(path)).ok
        assert (listed["kind"], [one["spec"] for one in listed["items"]]) == ("WidgetList", [{"size": 5}])
        (await api.delete(f"{path}/w")).ok  # noqa: B018 - asserts success
        (await api.get(f"{path}/w")).refused(404, "NotFound")


async def test_custom_objects_take_no_strategic_patch_and_no_put_without_a_version(api: Api):
    async with widgets(api) as path:
        body = widget(api, spec={})
        await api.post(path, body)
        answer = await api.patch(f"{path}/w", {"spec": {"size": 1}}, STRATEGIC)
        assert answer.refused(415, "UnsupportedMediaType")
        refused = (await api.put(f"{path}/w", body)).refused(422, "Invalid")
        assert "metadata.resourceVersion: Invalid value: 0: must be specified for an update" in refused
        applied = await api.patch(f"{path}/w", {**body, "spec": {"size": 2}}, APPLY, fieldManager="t")
        assert applied.ok["spec"] == {"size": 2}


async def test_the_status_of_custom_objects_has_its_own_path(api: Api):
    async with widgets(api) as path:
        made = (await api.post(path, widget(api, status={"phase": "Old"}))).ok
        assert "status" not in made
        stored = (await api.patch(f"{path}/w/status", {"status": {"phase": "New"}, "spec": {"size": 9}})).ok
        assert (stored["status"], stored.get("spec"), stored["metadata"]["generation"]) == (
            {"phase": "New"},
            None,
            1,
        )
        kept = (await api.patch(f"{path}/w", {"status": {"phase": "Other"}})).ok
        assert kept["status"] == {"phase": "New"}


async def test_custom_objects_are_printed_with_the_columns_of_their_definition(api: Api):
    async with widgets(api) as path:
        await api.post(path, widget(api, spec={"size": 3}))
        conditions = [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]
        await api.patch(f"{path}/w/status", {"status": {"conditions": conditions}})
        printed = (await api.request("GET", path, accept=_TABLE)).ok
        default = (await api.request("GET", path.replace("/v1/", "/v1beta1/"), accept=_TABLE)).ok
    assert [one["name"] for one in printed["columnDefinitions"]] == ["Name", "Size", "Ready"]
    assert [row["cells"] for row in printed["rows"]] == [["w", 3, "True"]]
    assert [one["name"] for one in default["columnDefinitions"]] == ["Name", "Age"]


async def test_a_deleted_definition_takes_its_objects_and_its_paths_with_it(api: Api):
    async with widgets(api) as path:
        await api.post(path, widget(api))
        await api.delete(f"{_DEFINITIONS}/widgets.{api.namespace}.test")
        await until(partial(api.get, path), lambda answer: answer.code == 404)
        assert (await api.post(path, widget(api, "x"))).code == 404
