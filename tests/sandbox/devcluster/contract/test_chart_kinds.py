"""The kinds that charts bring: jobs, daemon sets, policies, and CustomResourceDefinitions with their objects."""

from functools import partial
from typing import Any

import pytest
import pytest_asyncio

from tests.support.api_client import APPLY, JSON_PATCH, STRATEGIC, Api
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_BATCH = "apis/batch/v1"


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
    body = {"metadata": {"name": "s"}, "type": "", "stringData": {"a": "b"}, "data": {"c": "ZA=="}}
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


def widget(group: str, name: str = "w", **fields: Any) -> dict[str, Any]:
    """Return an object of the kind that is defined."""
    return {"apiVersion": f"{group}/v1", "kind": "Widget", "metadata": {"name": name}, **fields}


async def until_found(api: Api, path: str) -> Any:
    """Return the answer at a path, which a real server serves a moment after the definition is created."""
    return (await until(partial(api.get, path), lambda answer: answer.code == 200)).body


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def group(server: Api) -> str:
    """Return the group of Widgets, which are served for the tests of this module."""
    await server.enter_namespace()
    (await server.post(_DEFINITIONS, definition(server))).ok  # noqa: B018 - asserts success
    await until_found(server, f"/apis/{server.namespace}.test/v1/widgets")
    return f"{server.namespace}.test"


def widgets(api: Api, group: str, name: str = "") -> str:
    return api.in_namespace("widgets", name, group=f"apis/{group}/v1")


async def test_a_definition_is_established_and_serves_its_kind(api: Api, group: str):
    stored = await until_found(api, f"{_DEFINITIONS}/widgets.{group}")
    resources = (await api.get(f"/apis/{group}/v1")).ok["resources"]
    met = {one["type"]: one["status"] for one in stored["status"]["conditions"]}
    assert met == {"NamesAccepted": "True", "Established": "True"}
    names = {"kind": "Widget", "listKind": "WidgetList", "plural": "widgets", "shortNames": ["wd"]}
    assert stored["status"]["acceptedNames"] == {**names, "singular": "widget"}
    assert stored["status"]["storedVersions"] == ["v1"]
    kinds = {one["name"]: one["kind"] for one in resources}
    assert kinds == {"widgets": "Widget", "widgets/status": "Widget"}
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


async def test_custom_objects_are_stored_patched_and_listed(api: Api, group: str):
    made = (await api.post(widgets(api, group), widget(group, spec={"size": 3}))).ok
    assert (made["metadata"]["generation"], made["spec"]) == (1, {"size": 3})
    path = widgets(api, group, "w")
    larger = (await api.patch(path, {"spec": {"size": 4}})).ok
    assert (larger["metadata"]["generation"], larger["spec"]) == (2, {"size": 4})
    operations = [{"op": "replace", "path": "/spec/size", "value": 5}]
    assert (await api.patch(path, operations, JSON_PATCH)).ok["spec"] == {"size": 5}
    listed = (await api.get(widgets(api, group))).ok
    assert (listed["kind"], [one["spec"] for one in listed["items"]]) == ("WidgetList", [{"size": 5}])
    assert (await api.patch(path, {"spec": {"size": 1}}, STRATEGIC)).refused(415, "UnsupportedMediaType")
    refused = (await api.put(path, widget(group, spec={}))).refused(422, "Invalid")
    assert "metadata.resourceVersion: Invalid value: 0: must be specified for an update" in refused
    applied = await api.patch(path, widget(group, spec={"color": "red"}), APPLY, fieldManager="t")
    assert applied.ok["spec"] == {"size": 5, "color": "red"}
    (await api.delete(path)).ok  # noqa: B018 - asserts success
    (await api.get(path)).refused(404, "NotFound")


async def test_the_status_of_custom_objects_has_its_own_path_and_columns(api: Api, group: str):
    """They are printed with the columns of their definition, or their age."""
    made = (await api.post(widgets(api, group), widget(group, status={"phase": "Old"}))).ok
    assert "status" not in made
    path = widgets(api, group, "w")
    conditions = [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]
    status = {"phase": "New", "conditions": conditions}
    stored = (await api.patch(f"{path}/status", {"status": status, "spec": {"size": 9}})).ok
    assert (stored["status"], stored.get("spec"), stored["metadata"]["generation"]) == (status, None, 1)
    kept = (await api.patch(path, {"status": {"phase": "Other"}, "spec": {"size": 3}})).ok
    assert kept["status"] == status
    printed = (await api.request("GET", path, accept=_TABLE)).ok
    default = (await api.request("GET", path.replace("/v1/", "/v1beta1/"), accept=_TABLE)).ok
    assert [one["name"] for one in printed["columnDefinitions"]] == ["Name", "Size", "Ready"]
    assert [row["cells"] for row in printed["rows"]] == [["w", 3, "True"]]
    assert [one["name"] for one in default["columnDefinitions"]] == ["Name", "Age"]


async def test_a_deleted_definition_takes_its_objects_and_its_paths_with_it(api: Api, group: str):
    """The last test of the module: it deletes the definition of the others."""
    await api.post(widgets(api, group), widget(group))
    await api.delete(f"{_DEFINITIONS}/widgets.{group}")
    await until(partial(api.get, widgets(api, group)), lambda answer: answer.code == 404)
    assert (await api.post(widgets(api, group), widget(group, "x"))).code == 404
