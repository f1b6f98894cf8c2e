"""Objects: creation, reading, replacement, deletion, and the refusals that go with them."""

from typing import Any

import pytest

from tests.sandbox.devcluster.contract.conftest import named_causes
from tests.support import build
from tests.support.api_client import STRATEGIC, Api
from tests.support.workloads import workload

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_created_object_has_the_fields_that_the_server_adds(api: Api):
    stored = await api.create_map("one", {"k": "v"})
    metadata = stored["metadata"]
    assert (stored["kind"], stored["apiVersion"], stored["data"]) == ("ConfigMap", "v1", {"k": "v"})
    assert metadata["namespace"] == api.namespace
    assert len(metadata["uid"]) == 36
    assert metadata["creationTimestamp"].endswith("Z")
    assert int(metadata["resourceVersion"]) > 0


_OTHER_UID = "00000000-0000-0000-0000-000000000000"
_MAPS, _ONE = "/api/v1/namespaces/{ns}/configmaps", "/api/v1/namespaces/{ns}/configmaps/one"
_NAME = {"metadata": {"name": "one"}}


@pytest.mark.parametrize(
    ("method", "path", "body", "code", "reason", "message"),
    [
        ("POST", _MAPS, _NAME, 409, "AlreadyExists", 'configmaps "one" already exists'),
        ("GET", "/apis/apps/v1/namespaces/{ns}/deployments/x", None, 404, "NotFound", 'deployments.apps "x" not found'),
        ("POST", "/api/v1/namespaces/nowhere/configmaps", _NAME, 404, "NotFound", 'namespaces "nowhere" not found'),
        ("POST", _MAPS, {"metadata": {}}, 422, "Invalid",
         'ConfigMap "" is invalid: metadata.name: Required value: name or generateName is required'),
        ("POST", _MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "two", "labels": {"k": 1}}}, 400,
         "BadRequest",
         'ConfigMap in version "v1" cannot be handled as a ConfigMap...'),
        ("POST", _MAPS, {"metadata": ""}, 400, "BadRequest", "..."),
        ("POST", _MAPS, {"metadata": {"name": "two", "namespace": 3}}, 400, "BadRequest",
         'ConfigMap in version "v1" cannot be handled as a ConfigMap: json: ...'),
        ("POST", _MAPS, {"metadata": {"name": "two", "namespace": "other"}}, 400, "BadRequest",
         "the namespace of the provided object does not match the namespace sent on the request"),
        ("POST", _MAPS, {"metadata": {"name": "two", "resourceVersion": "5"}}, 500, None,
         "resourceVersion should not be set on objects to be created"),
        ("POST", _MAPS, {"apiVersion": "v1", "kind": "Pod", **_NAME}, 400, "BadRequest", "..."),
        ("PUT", _ONE, {"metadata": {"name": "one", "uid": _OTHER_UID}}, 409, "Conflict",
         f"...Precondition failed: UID in precondition: {_OTHER_UID}, UID in object meta: ..."),
        ("PUT", _MAPS + "/two", {"metadata": {"name": "two"}}, 404, "NotFound", 'configmaps "two" not found'),
        ("PUT", _ONE, {"metadata": {"name": "two"}}, 400, "BadRequest",
         "the name of the object (two) does not match the name on the URL (one)"),
        ("POST", _ONE, {}, 405, "MethodNotAllowed", "the server does not allow this method on the requested resource"),
        ("GET", "/api/v1/widgets", None, 404, "NotFound", "the server could not find the requested resource"),
        ("GET", "/api/v1/namespaces/default/widgets/w", None, 404, "NotFound",
         "the server could not find the requested resource"),
    ],
)  # fmt: skip
async def test_a_request_that_cannot_be_met_is_refused(
    api: Api, method: str, path: str, body: object, code: int, reason: str, message: str
):
    await api.create_map("one")
    answer = await api.request(method, path.format(ns=api.namespace), body)
    refusal = answer.refused(code, reason)
    assert refusal == message or ("..." in message and all(part in refusal for part in message.split("...")))


async def test_dry_run_stores_nothing(api: Api):
    created = await api.post(api.in_namespace("configmaps"), {"metadata": {"name": "one"}}, dryRun="All")
    assert (created.code, created.body["metadata"]["name"]) == (201, "one")
    (await api.get(api.in_namespace("configmaps", "one"))).refused(404, "NotFound")


async def test_a_replacement_needs_the_current_resource_version(api: Api):
    """An unchanged one keeps it."""
    stored = await api.create_map("one", {"k": "1"})
    path = api.in_namespace("configmaps", "one")
    version, again = stored["metadata"]["resourceVersion"], (await api.put(path, stored)).ok
    assert again["metadata"]["resourceVersion"] == version
    newer = (await api.put(path, {**stored, "data": {"k": "2"}})).ok
    assert int(newer["metadata"]["resourceVersion"]) > int(version)
    answer = await api.put(path, {**stored, "data": {"k": "3"}})
    assert answer.refused(409, "Conflict") == (
        'Operation cannot be fulfilled on configmaps "one": the object has been modified; please apply your '
        "changes to the latest version and try again"
    )


async def test_leases_are_not_replaced_without_resource_version(api: Api):
    group = "apis/coordination.k8s.io/v1"
    body = {"metadata": {"name": "lock"}, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15}}
    (await api.post(api.in_namespace("leases", group=group), body)).ok  # noqa: B018
    answer = await api.put(api.in_namespace("leases", "lock", group=group), body)
    assert answer.refused(422, "Invalid") == (
        'leases.coordination.k8s.io "lock" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified '
        "for an update"
    )


_NO_POLICY = (
    'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Unsupported value: "x": supported values: '
    '"Foreground", "Background", "Orphan", "nil"'
)


@pytest.mark.parametrize(
    ("query", "options", "code", "message"),
    [
        ({"dryRun": "x"}, None, 422, 'dryRun: Unsupported value: ["x"]: supported values: "All"'),
        ({"gracePeriodSeconds": "x"}, None, 400, 'strconv.ParseInt: parsing "x": invalid syntax'),
        ({"propagationPolicy": "x"}, None, 422, _NO_POLICY),
        ({}, {"propagationPolicy": "x"}, 422, _NO_POLICY),
        ({}, {"dryRun": ["x"]}, 422, 'dryRun: Unsupported value: ["x"]: supported values: "All"'),
        ({}, {"preconditions": {"uid": "other"}}, 409,
         'Operation cannot be fulfilled on ConfigMap "one": the UID in the precondition (other) does not match the '
         "UID in record ({uid}). The object might have been deleted and then recreated"),
    ],
)  # fmt: skip
async def test_a_deletion_that_makes_no_sense_is_refused(api: Api, query, options, code, message):
    uid = (await api.create_map("one"))["metadata"]["uid"]
    path = api.in_namespace("configmaps", "one")
    answer = await api.delete(path, options, **query)
    reason = {400: "BadRequest", 409: "Conflict", 422: "Invalid"}[code]
    assert message.replace("{uid}", uid) in answer.refused(code, reason)
    assert (await api.get(path)).code == 200


async def test_a_deletion_answers_with_a_status_that_names_the_object(api: Api):
    stored = await api.create_map("one")
    body = (await api.delete(api.in_namespace("configmaps", "one"))).ok
    assert (body["kind"], body["status"]) == ("Status", "Success")
    assert body["details"] == {"name": "one", "kind": "configmaps", "uid": stored["metadata"]["uid"]}
    (await api.get(api.in_namespace("configmaps", "one"))).refused(404, "NotFound")


async def test_finalizers_keep_an_object_until_they_are_gone(api: Api):
    await api.create_map("one", finalizers=["example.com/hold"])
    path = api.in_namespace("configmaps", "one")
    marked = (await api.delete(path)).ok
    assert marked["metadata"]["deletionTimestamp"]
    assert (await api.get(path)).code == 200
    refused = await api.patch(path, {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}})
    assert set(refused.causes()) == {("FieldValueForbidden", "metadata.finalizers")}
    (await api.patch(path, {"metadata": {"finalizers": None}})).ok  # noqa: B018
    (await api.get(path)).refused(404, "NotFound")


def _workload(**spec: Any) -> dict[str, Any]:
    made = workload("Deployment", "web", build.pod(labels={"app": "a"}), **spec)
    return {"metadata": {"name": "web"}, "spec": made["spec"]}


async def test_the_generation_counts_changes_of_the_spec_alone(api: Api):
    path = api.in_namespace("deployments", group="apis/apps/v1")
    created = (await api.post(path, _workload())).ok
    assert created["metadata"]["generation"] == 1
    labelled = (await api.patch(f"{path}/web", {"metadata": {"labels": {"x": "y"}}})).ok
    assert labelled["metadata"]["generation"] == 1
    scaled = (await api.patch(f"{path}/web", {"spec": {"replicas": 3}})).ok
    assert scaled["metadata"]["generation"] == 2
    observed = (
        await api.patch(f"{path}/web/status", {"status": {"replicas": 3}, "spec": {"replicas": 9}})
    ).ok
    assert (observed["spec"]["replicas"], observed["status"]["replicas"]) == (3, 3)
    assert observed["metadata"]["generation"] == 2


async def test_the_scale_subresource_reads_and_writes_replicas(api: Api):
    path = api.in_namespace("replicasets", group="apis/apps/v1")
    (await api.post(path, _workload(replicas=2))).ok  # noqa: B018
    scale = (await api.get(f"{path}/web/scale")).ok
    assert (scale["kind"], scale["apiVersion"], scale["spec"]) == ("Scale", "autoscaling/v1", {"replicas": 2})
    assert scale["status"]["replicas"] == 0
    assert (await api.patch(f"{path}/web/scale", {"spec": {"replicas": 5}})).ok["spec"] == {"replicas": 5}
    scale["spec"] = {"replicas": 6}
    (await api.put(f"{path}/web/scale", scale)).refused(409, "Conflict")
    assert (await api.get(f"{path}/web")).ok["spec"]["replicas"] == 5


_NEGATIVE = _workload(replicas=-1), "Invalid spec.replicas"
_INVALID = {
    "name": ("configmaps", {"metadata": {"name": "Bad_Name"}}, "Invalid metadata.name"),
    "label key": ("configmaps", {"metadata": {"name": "one", "labels": {"a b": "v"}}}, "Invalid metadata.labels"),
    "label value": ("configmaps", {"metadata": {"name": "one", "labels": {"k": "b!"}}}, "Invalid metadata.labels"),
    "fewer pods than none": ("deployments", *_NEGATIVE),
    "fewer pods of a replica set": ("replicasets", *_NEGATIVE),
    "fewer pods of a stateful set": ("statefulsets", *_NEGATIVE),
    "others' pods": ("deployments", _workload(selector={"matchLabels": {"app": "other"}}),
                     "Invalid spec.template.metadata.labels"),
    "no time": ("events", {"eventTime": None}, "Required eventTime"),
    "no instance": ("events", {"reportingInstance": None}, "Required reportingInstance"),
    "no action": ("events", {"action": None}, "Required action"),
    "type": ("events", {"type": "Odd"}, "Invalid type"),
    "note too long": ("events", {"note": "x" * 1025}, "Invalid message"),
    "series": ("events", {"series": {"count": 1}}, ""),
    "a node's event in a team's namespace": ("events", {"regarding": {"kind": "Node", "name": "n"}}, ""),
}  # fmt: skip
_GROUPS = {"configmaps": "api/v1", "events": "apis/events.k8s.io/v1"}


@pytest.mark.parametrize(("plural", "body", "causes"), _INVALID.values(), ids=_INVALID)
async def test_an_object_that_breaks_a_rule_is_invalid(api: Api, plural, body, causes):
    body = _event(api, **body) if plural == "events" else body
    answer = await api.post(api.in_namespace(plural, group=_GROUPS.get(plural, "apis/apps/v1")), body)
    assert named_causes(answer) == causes or not causes
    is_negative = causes == "Invalid spec.replicas"
    assert not is_negative or "Invalid value: -1: must be greater than or" in answer.body["message"]


async def test_namespaces_carry_their_name_as_a_label(api: Api):
    stored = (await api.get(f"/api/v1/namespaces/{api.namespace}")).ok
    assert stored["metadata"]["labels"] == {"kubernetes.io/metadata.name": api.namespace}
    assert stored["status"] == {"phase": "Active"}
    assert stored["spec"] == {"finalizers": ["kubernetes"]}


async def test_a_terminating_namespace_takes_nothing_new(api: Api):
    await api.create_map("one", finalizers=["example.com/hold"])
    marked = (await api.delete(f"/api/v1/namespaces/{api.namespace}")).ok
    assert marked["status"]["phase"] == "Terminating"
    answer = await api.post(api.in_namespace("configmaps"), {"metadata": {"name": "two"}})
    assert answer.refused(403, "Forbidden") == (
        f'configmaps "two" is forbidden: unable to create new content in namespace {api.namespace} because it is '
        "being terminated"
    )
    assert answer.body["details"]["causes"] == [
        {
            "reason": "NamespaceTerminating",
            "message": f"namespace {api.namespace} is being terminated",
            "field": "metadata.namespace",
        }
    ]


def _event(api: Api, **changes: object) -> dict[str, object]:
    event = {
        "metadata": {"name": "e"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "example.com/s",
        "reportingInstance": "s-1",
        "action": "Scheduling",
        "reason": "FailedScheduling",
        "type": "Warning",
        "note": "no",
        "regarding": {"kind": "Pod", "namespace": api.namespace, "name": "p"},
        **changes,
    }
    return {key: value for key, value in event.items() if value is not None}


async def test_an_event_written_in_one_version_reads_in_the_other(api: Api):
    group = "apis/events.k8s.io/v1"
    created = (await api.post(api.in_namespace("events", group=group), _event(api))).ok
    assert (created["apiVersion"], created["note"]) == ("events.k8s.io/v1", "no")
    core = (await api.get(api.in_namespace("events", "e"))).ok
    assert (core["apiVersion"], core["message"]) == ("v1", "no")
    assert (core["involvedObject"]["name"], core["reportingComponent"]) == ("p", "example.com/s")
    listed = (await api.get(api.in_namespace("events"), fieldSelector="involvedObject.name=p")).ok
    assert [one["metadata"]["name"] for one in listed["items"]] == ["e"]
    regarding = (await api.get(api.in_namespace("events", group=group), fieldSelector="regarding.name=q")).ok
    assert regarding["items"] == []


# -- fields that the kind does not have ----------------------------------------------------------------------


def _misspelled() -> dict[str, object]:
    container = {"name": "c", "image": "i", "ports": [{"containerPort": 80, "port": 80}]}
    spec = {"affinity": {"podAntiafinity": {}}, "containers": [container]}
    return _workload(template={"metadata": {"labels": {"app": "a"}}, "spec": spec})


_AFFINITY = 'unknown field "spec.template.spec.affinity.podAntiafinity"'
_PORT = 'unknown field "spec.template.spec.containers[0].ports[0].port"'


async def test_a_field_that_is_none_is_refused_where_the_client_is_strict(api: Api):
    path = api.in_namespace("deployments", group="apis/apps/v1")
    answer = await api.post(path, _misspelled(), fieldValidation="Strict")
    assert answer.refused(400, "BadRequest") == (
        'Deployment in version "v1" cannot be handled as a Deployment: strict decoding error: '
        f"{_AFFINITY}, {_PORT}"
    )
    (await api.post(path, _workload(), fieldValidation="Strict")).ok  # noqa: B018 - asserts success
    affinity: dict[str, object] = {"podAntiafinity": {}}
    patch = {"spec": {"template": {"spec": {"affinity": affinity}}}}
    refused = await api.patch(f"{path}/web", patch, STRATEGIC, fieldValidation="Strict")
    assert refused.refused(422, "Invalid").endswith(f"strict decoding error: {_AFFINITY}")


async def test_a_field_that_is_none_is_warned_of_where_the_client_asks_for_it(api: Api):
    path = api.in_namespace("deployments", group="apis/apps/v1")
    answer = await api.post(path, _misspelled(), fieldValidation="Warn")
    assert answer.code == 201
    assert [text.replace("\\", "") for text in answer.warnings] == [
        f'299 - "{text}"' for text in (_AFFINITY, _PORT)
    ]
    assert (
        await api.post(api.pods(), {"metadata": {"name": "p"}, "spec": {}}, fieldValidation="Ignore")
    ).code == 422
