"""Device claims, templates, slices and classes: their defaults, their rules, their tables."""

from typing import Any

import pytest

from tests.sandbox.devcluster.contract.conftest import TABLE, named_causes
from tests.support.api_client import STRATEGIC, Answer, Api

pytestmark = pytest.mark.asyncio(loop_scope="module")

_GROUP = "apis/resource.k8s.io/v1"
_PROTECTION = "resource.kubernetes.io/delete-protection"
_POD = {"resource": "pods", "name": "p", "uid": "u-1"}


def claims(api: Api, name: str = "") -> str:
    return api.in_namespace("resourceclaims", name, group=_GROUP)


def exactly(name: str = "r", **asked: Any) -> dict[str, Any]:
    """Return a request for devices of a class."""
    return {"name": name, "exactly": {"deviceClassName": "gpu", **asked}}


def claim_body(*requests: dict[str, Any], name: str = "c", **devices: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": list(requests), **devices}}}


def allocation(**result: Any) -> dict[str, Any]:
    named = {"request": "r", "driver": "d.test", "pool": "n", "device": "gpu-0", **result}
    return {"devices": {"results": [named]}}


async def with_status(api: Api, name: str = "c", **status: Any) -> Answer:
    stored = (await api.get(claims(api, name))).ok
    return await api.put(f"{claims(api, name)}/status", {**stored, "status": status})


# -- claims --------------------------------------------------------------------------------------------------


async def test_a_claim_asks_for_exactly_one_device_by_default(api: Api):
    alternative = {"name": "a", "deviceClassName": "gpu", "tolerations": [{"key": "k", "value": "v"}]}
    stored = (
        await api.post(
            claims(api),
            claim_body(exactly(allocationMode=""), {"name": "s", "firstAvailable": [alternative]}),
        )
    ).ok
    one, two = stored["spec"]["devices"]["requests"]
    assert (one["exactly"]["allocationMode"], one["exactly"]["count"]) == ("ExactCount", 1)
    assert two["firstAvailable"][0]["tolerations"][0]["operator"] == "Equal"
    assert stored.get("status", {}) == {}


@pytest.mark.parametrize(
    ("body", "causes"),
    [
        pytest.param(claim_body({"name": "r"}), "Required spec.devices.requests[0]", id="nothing asked"),
        pytest.param(claim_body({"name": "r", "exactly": {}}),
                     "Required spec.devices.requests[0].exactly.deviceClassName", id="of no class"),
        pytest.param(claim_body({**exactly(), "firstAvailable": [{"name": "a", "deviceClassName": "g"}]}),
                     "Invalid spec.devices.requests[0]", id="both asked"),
        pytest.param(claim_body(exactly(deviceClassName="")),
                     "Required spec.devices.requests[0].exactly.deviceClassName", id="no class"),
        pytest.param(claim_body(exactly(count=-1)), "Invalid spec.devices.requests[0].exactly.count", id="negative"),
        pytest.param(claim_body(exactly(allocationMode="All", count=2)),
                     "Invalid spec.devices.requests[0].exactly.count", id="a number of all"),
        pytest.param(claim_body(exactly(allocationMode="Some")),
                     "NotSupported spec.devices.requests[0].exactly.allocationMode", id="unknown mode"),
        pytest.param(claim_body(exactly(), exactly()), "Duplicate spec.devices.requests[1]", id="a name twice"),
        pytest.param(claim_body(exactly(), constraints=[{"requests": ["r", "x"], "matchAttribute": "d.test/a"}]),
                     "Invalid spec.devices.constraints[0].requests[1]", id="an unknown request"),
        pytest.param(claim_body(exactly(), constraints=[{}]),
                     "Required spec.devices.constraints[0]", id="no attribute"),
        pytest.param(claim_body(*(exactly(f"r{i}") for i in range(33))), "TooMany spec.devices.requests",
                     id="too many"),
        pytest.param(claim_body(exactly(), config=[{}]), "Required spec.devices.config[0].opaque", id="no parameters"),
        pytest.param(claim_body(exactly(selectors=[{}])),
                     "Required spec.devices.requests[0].exactly.selectors[0].cel", id="no expression"),
    ],
)  # fmt: skip
async def test_a_claim_that_breaks_rules_is_refused(api: Api, body, causes):
    assert named_causes(await api.post(claims(api), body)) == causes


async def test_the_spec_of_a_claim_never_changes(api: Api):
    await api.post(claims(api), claim_body(exactly()))
    answer = await api.patch(claims(api, "c"), {"spec": {"devices": {"requests": [exactly("other")]}}})
    assert "field is immutable" in answer.refused(422, "Invalid")
    (await api.patch(claims(api, "c"), {"metadata": {"finalizers": [_PROTECTION]}})).ok  # noqa: B018 - asserts success


async def test_admin_access_needs_a_labelled_namespace(api: Api):
    answer = await api.post(claims(api), claim_body(exactly(adminAccess=True)))
    assert "admin access to devices requires" in answer.refused(422, "Invalid")
    label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    await api.patch(f"/api/v1/namespaces/{api.namespace}", label)
    (await api.post(claims(api), claim_body(exactly(adminAccess=True)))).ok  # noqa: B018 - asserts success


# -- the status of claims ------------------------------------------------------------------------------------


async def test_an_allocation_is_written_once_and_only_goes(api: Api):
    """The table shows how far it is."""

    async def state() -> Any:
        return (await api.get(claims(api, "c"), accept=TABLE)).ok["rows"][0]["cells"][1]

    await api.post(claims(api), claim_body(exactly()))
    states = [await state()]
    await with_status(api, allocation=allocation())
    states.append(await state())
    stored = (await with_status(api, allocation=allocation(), reservedFor=[_POD])).ok
    states.append(await state())
    assert states == ["pending", "allocated", "allocated,reserved"]
    assert stored["status"]["allocation"]["devices"]["results"][0]["device"] == "gpu-0"
    changed = await with_status(api, allocation=allocation(device="gpu-1"), reservedFor=[_POD])
    assert named_causes(changed) == "Invalid status.allocation"
    assert "field is immutable" in changed.body["message"]
    assert "allocation" not in (await with_status(api)).ok.get("status", {})


async def test_what_a_driver_reports_of_a_device_ends_with_its_allocation(api: Api):
    """Or a condition of the device before would hold for the next one."""
    await api.post(claims(api), claim_body(exactly()))
    report = {key: allocation()["devices"]["results"][0][key] for key in ("driver", "pool", "device")}
    stored = (await with_status(api, allocation=allocation(), devices=[report])).ok
    assert [each["device"] for each in stored["status"]["devices"]] == ["gpu-0"]
    assert "devices" not in (await with_status(api, devices=[report])).ok.get("status", {})


@pytest.mark.parametrize(
    ("status", "causes"),
    [
        pytest.param({"reservedFor": [_POD]}, "Forbidden status.reservedFor", id="a consumer needs an allocation"),
        pytest.param({"allocation": allocation(), "reservedFor": [{**_POD, "uid": f"u-{i}"} for i in range(257)]},
                     "TooMany status.reservedFor", id="at most 256 consumers"),
        pytest.param({"allocation": allocation(request="x")},
                     "Invalid status.allocation.devices.results[0].request", id="a result names a request"),
    ],
)  # fmt: skip
async def test_a_status_that_breaks_rules_is_refused(api: Api, status, causes):
    await api.post(claims(api), claim_body(exactly()))
    assert named_causes(await with_status(api, **status)) == causes


async def test_one_consumer_leaves_by_its_uid(api: Api):
    await api.post(claims(api), claim_body(exactly()))
    other = {**_POD, "uid": "u-2"}
    stored = (await with_status(api, allocation=allocation(), reservedFor=[_POD, other])).ok
    leave = {
        "metadata": {"uid": stored["metadata"]["uid"]},
        "status": {"reservedFor": [{"$patch": "delete", "uid": "u-1"}]},
    }
    left = (await api.patch(f"{claims(api, 'c')}/status", leave, STRATEGIC)).ok
    assert left["status"]["reservedFor"] == [other]


async def test_a_deleted_claim_takes_no_further_consumer(api: Api):
    body = claim_body(exactly())
    body["metadata"]["finalizers"] = [_PROTECTION]
    await api.post(claims(api), body)
    (await with_status(api, allocation=allocation(), reservedFor=[_POD])).ok  # noqa: B018 - asserts success
    await api.delete(claims(api, "c"))
    answer = await with_status(api, allocation=allocation(), reservedFor=[_POD, {**_POD, "uid": "u-2"}])
    assert "new entries may not be added" in answer.refused(422, "Invalid")


# -- templates, slices and classes ---------------------------------------------------------------------------


async def test_a_template_is_checked_as_its_claims_are_and_never_changes(api: Api):
    path = api.in_namespace("resourceclaimtemplates", group=_GROUP)
    refused = await api.post(
        path, {"metadata": {"name": "t"}, "spec": {"spec": claim_body({"name": "r"})["spec"]}}
    )
    assert named_causes(refused) == "Required spec.spec.devices.requests[0]"
    stored = (
        await api.post(path, {"metadata": {"name": "t"}, "spec": {"spec": claim_body(exactly())["spec"]}})
    ).ok
    assert stored["spec"]["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1
    changed = await api.patch(f"{path}/t", {"spec": {"metadata": {"labels": {"a": "b"}}}})
    assert "field is immutable" in changed.refused(422, "Invalid")


def slice_body(api: Api, **spec: Any) -> dict[str, Any]:
    stated = {
        "driver": "d.test",
        "nodeName": "n",
        "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
        "devices": [
            {
                "name": "gpu-0",
                "attributes": {"model": {"string": "a"}},
                "capacity": {"memory": {"value": "1Gi"}},
            }
        ],
        **spec,
    }
    return {"metadata": {"name": f"slice-{api.namespace}"}, "spec": stated}


async def test_slices_are_selected_by_node_and_driver(api: Api):
    body = slice_body(api, nodeName=api.namespace)
    (await api.post(f"/{_GROUP}/resourceslices", body)).ok  # noqa: B018 - asserts success
    selector = f"spec.nodeName={api.namespace},spec.driver=d.test"
    listed = (await api.get(f"/{_GROUP}/resourceslices", fieldSelector=selector)).ok
    assert [one["metadata"]["name"] for one in listed["items"]] == [body["metadata"]["name"]]
    path = f"/{_GROUP}/resourceslices/{body['metadata']['name']}"
    rows = (await api.get(path, accept=TABLE)).ok["rows"]
    assert rows[0]["cells"][:4] == [body["metadata"]["name"], api.namespace, "d.test", "n"]


# -- pods ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claims", "causes"),
    [
        pytest.param([{"name": "a"}], "Invalid spec.resourceClaims[0]", id="no source"),
        pytest.param([{"name": "a", "resourceClaimName": "c", "resourceClaimTemplateName": "t"}],
                     "Invalid spec.resourceClaims[0]", id="two sources"),
        pytest.param([{"name": "a", "resourceClaimName": "c"}, {"name": "a", "resourceClaimName": "d"}],
                     "Duplicate spec.resourceClaims[1].name", id="a name twice"),
        pytest.param([{"resourceClaimName": "c"}], "Required spec.resourceClaims[0].name", id="no name"),
    ],
)  # fmt: skip
async def test_a_pod_names_each_claim_once_and_by_one_source(api: Api, claims, causes):
    spec = {"containers": [{"name": "main", "image": "i"}], "resourceClaims": claims}
    answer = await api.post(api.pods(), {"metadata": {"name": "p"}, "spec": spec})
    assert named_causes(answer) == causes
