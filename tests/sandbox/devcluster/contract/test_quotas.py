"""ResourceQuotas: which are accepted, which pods they refuse, and the messages."""

import asyncio
import time

import pytest

from tests.support.api_client import JSON_PATCH, Answer, Api

pytestmark = pytest.mark.asyncio

_ACROSS = {"matchExpressions": [{"scopeName": "CrossNamespacePodAffinity", "operator": "Exists"}]}
_PATIENCE_S = 10.0
_CONTAINER = {"name": "c", "image": "registry.test/pause:1"}


def _term(**parts: object) -> dict[str, object]:
    return {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "a"}}, **parts}


def _affinity(side: str, *, required: bool = True, **parts: object) -> dict[str, object]:
    if required:
        return {side: {"requiredDuringSchedulingIgnoredDuringExecution": [_term(**parts)]}}
    preferred = {"weight": 1, "podAffinityTerm": _term(**parts)}
    return {side: {"preferredDuringSchedulingIgnoredDuringExecution": [preferred]}}


def _pod(name: str, **spec: object) -> dict[str, object]:
    return {"metadata": {"name": name}, "spec": {"containers": [_CONTAINER], **spec}}


def _sized(name: str, requests: dict[str, str], limits: dict[str, str] | None = None) -> dict[str, object]:
    resources = {"requests": requests, "limits": limits or {}}
    return _pod(name, containers=[{**_CONTAINER, "resources": resources}])


async def _try_quota(api: Api, hard: dict[str, str], **spec: object) -> Answer:
    body = {"metadata": {"name": "q"}, "spec": {"hard": hard, **spec}}
    return await api.post(api.in_namespace("resourcequotas"), body)


async def _quota(api: Api, hard: dict[str, str], used: dict[str, str] | None = None, **spec: object) -> None:
    """Create the quota `q` with the status that its controller would write."""
    (await _try_quota(api, hard, **spec)).ok  # noqa: B018 - asserts success
    status = {"hard": hard, "used": dict.fromkeys(hard, "0") if used is None else used}
    path = api.in_namespace("resourcequotas", "q/status")
    (await api.patch(path, {"status": status})).ok  # noqa: B018


async def _refusal(api: Api, pod: dict[str, object]) -> str:
    """Return why the pod is refused. A real server reads quotas from a cache, so it may take a moment to know one."""
    ends_s = time.monotonic() + _PATIENCE_S
    while (answer := await api.post(api.pods(), pod, dryRun="All")).code == 201:
        assert time.monotonic() < ends_s, "the pod is never refused"
        await asyncio.sleep(0.02)
    return answer.refused(403, "Forbidden")


async def _used(api: Api) -> dict[str, str]:
    used: dict[str, str] = (await api.get(api.in_namespace("resourcequotas", "q"))).ok["status"]["used"]
    return used


# -- scope CrossNamespacePodAffinity ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "affinity",
    [
        _affinity("podAntiAffinity", namespaceSelector={}),
        _affinity("podAffinity", namespaces=["elsewhere"]),
        _affinity("podAffinity", required=False, namespaceSelector={"matchLabels": {"a": "b"}}),
        _affinity("podAntiAffinity", required=False, namespaces=["elsewhere"]),
    ],
    ids=[
        "selector of all namespaces",
        "a list of namespaces",
        "preferred affinity",
        "preferred anti-affinity",
    ],
)
async def test_a_quota_of_no_pods_forbids_affinity_across_namespaces(api: Api, affinity: object):
    await _quota(api, {"pods": "0"}, scopeSelector=_ACROSS)
    assert await _refusal(api, _pod("p", affinity=affinity)) == (
        'pods "p" is forbidden: exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0'
    )


async def test_naming_ones_own_namespace_counts_as_reaching_across(api: Api):
    await _quota(api, {"pods": "0"}, scopes=["CrossNamespacePodAffinity"])
    affinity = _affinity("podAntiAffinity", namespaces=[api.namespace])
    assert "exceeded quota: q" in await _refusal(api, _pod("p", affinity=affinity))


async def test_affinity_within_the_namespace_is_none_of_that_quotas_business(api: Api):
    await _quota(api, {"pods": "0"}, scopeSelector=_ACROSS)
    across = _affinity("podAntiAffinity", namespaceSelector={})
    await _refusal(api, _pod("p", affinity=across))
    within = _pod("p", affinity=_affinity("podAntiAffinity"))
    (await api.post(api.pods(), within)).ok  # noqa: B018
    assert await _used(api) == {"pods": "0"}


@pytest.mark.parametrize(
    "resource", ["services", "configmaps", "ephemeral-storage", "requests.storage", "resourcequotas"]
)
@pytest.mark.parametrize(
    ("spec", "field"),
    [
        pytest.param({"scopes": ["CrossNamespacePodAffinity"]}, "spec.scopes", id="scopes"),
        pytest.param({"scopeSelector": _ACROSS}, "spec.scopeSelector.matchExpressions", id="selector"),
    ],
)
async def test_the_scope_is_for_pods_and_their_compute_alone(
    api: Api, resource: str, spec: dict[str, object], field: str
):
    answer = await _try_quota(api, {resource: "1", "pods": "1"}, **spec)
    assert "unsupported scope applied to resource" in answer.refused(422, "Invalid")
    assert answer.causes() == [("FieldValueInvalid", field)]


@pytest.mark.parametrize(
    ("need", "told"),
    [
        pytest.param(
            {"operator": "In", "values": ["a"]},
            "scopeSelector.matchExpressions.operator: Invalid value: \"In\": must be 'Exists' when scope is any of",
            id="In",
        ),
        pytest.param(
            {"operator": "Exists", "values": ["a"]},
            "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
            id="values",
        ),
        pytest.param({"operator": "Maybe"}, "not a valid selector operator", id="no operator"),
    ],
)
async def test_the_scope_selector_takes_exists_alone(api: Api, need: dict[str, object], told: str):
    selector = {"matchExpressions": [{"scopeName": "CrossNamespacePodAffinity", **need}]}
    answer = await _try_quota(api, {"pods": "1"}, scopeSelector=selector)
    assert told in answer.refused(422, "Invalid")


@pytest.mark.parametrize(
    ("hard", "spec", "told"),
    [
        ({"pods": "-1"}, {}, 'spec.hard[pods]: Invalid value: "-1": must be greater than or equal to 0'),
        ({"pods": "1500m"}, {}, 'spec.hard[pods]: Invalid value: "1500m": must be an integer'),
        ({"count/pods": "500m"}, {}, 'spec.hard[count/pods]: Invalid value: "500m": must be an integer'),
        ({"gadgets": "1"}, {}, 'Invalid value: "gadgets": must be a standard resource for quota'),
        ({"storage": "1"}, {}, 'Invalid value: "storage": must be a standard resource for quota'),
        ({"pods": "1"}, {"scopes": ["Sunny"]}, 'Invalid value: ["Sunny"]: unsupported scope'),
        ({"pods": "1"}, {"scopes": ["BestEffort", "NotBestEffort"]}, "conflicting scopes"),
        ({"cpu": "1"}, {"scopes": ["BestEffort"]}, "unsupported scope applied to resource"),
    ],
)
async def test_a_quota_that_makes_no_sense_is_refused(
    api: Api, hard: dict[str, str], spec: dict[str, object], told: str
):
    assert told in (await _try_quota(api, hard, **spec)).refused(422, "Invalid")


async def test_the_scopes_of_a_quota_never_change(api: Api):
    stored = (await _try_quota(api, {"pods": "1"})).ok
    assert stored["status"] == {}
    assert "generation" not in stored["metadata"]
    path = api.in_namespace("resourcequotas", "q")
    answer = await api.patch(path, {"spec": {"scopes": ["CrossNamespacePodAffinity"]}})
    assert answer.causes() == [("FieldValueInvalid", "spec.scopes")]
    assert "field is immutable" in answer.refused(422, "Invalid")
    assert (await api.patch(path, {"spec": {"hard": {"pods": "2"}}})).ok["spec"]["hard"] == {"pods": "2"}


# -- usage ---------------------------------------------------------------------------------------------------


async def test_every_pod_is_charged_until_the_quota_is_used_up(api: Api):
    await _quota(api, {"pods": "2", "count/pods": "5"}, {"pods": "1", "count/pods": "4"})
    assert (await api.post(api.pods(), _pod("a"))).code == 201
    ends_s = time.monotonic() + _PATIENCE_S
    while await _used(api) != {"pods": "2", "count/pods": "5"}:
        # A real server may have let the first ones in before it knew of the quota.
        assert time.monotonic() < ends_s, await _used(api)
        await api.delete(api.pods("a"))
        await api.post(api.pods(), _pod("a"))
    assert await _refusal(api, _pod("b")) == (
        'pods "b" is forbidden: exceeded quota: q, requested: count/pods=1,pods=1, used: count/pods=5,pods=2, '
        "limited: count/pods=5,pods=2"
    )


async def test_a_dry_run_charges_nothing(api: Api):
    await _quota(api, {"pods": "1"})
    await _known(api)
    assert (await api.post(api.pods(), _pod("a"), dryRun="All")).code == 201
    assert await _used(api) == {"pods": "0"}


async def _known(api: Api) -> None:
    """Wait until the server knows every quota made so far: create another one, wait for it, and delete it."""
    hard = {"limits.cpu": "1"}
    body = {"metadata": {"name": "known"}, "spec": {"hard": hard}}
    (await api.post(api.in_namespace("resourcequotas"), body)).ok  # noqa: B018
    path = api.in_namespace("resourcequotas", "known/status")
    (await api.patch(path, {"status": {"hard": hard, "used": {"limits.cpu": "0"}}})).ok  # noqa: B018
    await _refusal(api, _pod("p"))
    (await api.delete(api.in_namespace("resourcequotas", "known"))).ok  # noqa: B018
    ends_s = time.monotonic() + _PATIENCE_S
    while (await api.post(api.pods(), _pod("p"), dryRun="All")).code != 201:
        assert time.monotonic() < ends_s
        await asyncio.sleep(0.02)


_GADGET = "example.com/gadget"
_SIDECAR = {"restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}


@pytest.mark.parametrize(
    ("hard", "used", "pod", "told"),
    [
        ({"requests.cpu": "1"}, {"requests.cpu": "500m"}, _sized("p", {"cpu": "600m"}),
         "requested: requests.cpu=600m, used: requests.cpu=500m, limited: requests.cpu=1"),
        ({"memory": "2Gi", "cpu": "9"}, {"memory": "1536Mi", "cpu": "0"}, _sized("p", {"memory": "1024Mi", "cpu": "1"}),
         "requested: memory=1Gi, used: memory=1536Mi, limited: memory=2Gi"),
        ({"limits.memory": "1e9"}, {"limits.memory": "0"}, _sized("p", {}, {"memory": "1Gi"}),
         "requested: limits.memory=1Gi, used: limits.memory=0, limited: limits.memory=1e9"),
        ({f"requests.{_GADGET}": "1"}, {f"requests.{_GADGET}": "0"}, _sized("p", {_GADGET: "2"}, {_GADGET: "2"}),
         f"requested: requests.{_GADGET}=2, used: requests.{_GADGET}=0, limited: requests.{_GADGET}=1"),
        ({"cpu": "1500m"}, {"cpu": "0"}, _pod(
            "p",
            containers=[{**_CONTAINER, "resources": {"requests": {"cpu": "250m"}}}],
            initContainers=[
                {**_CONTAINER, "name": "s", **_SIDECAR},
                {**_CONTAINER, "name": "i", "resources": {"requests": {"cpu": "700m"}}},
            ],
        ), "requested: cpu=1700m, used: cpu=0, limited: cpu=1500m"),
    ],
    ids=["cpu", "memory", "limits", "extended resource", "containers that start it"],
)  # fmt: skip
async def test_cpu_and_memory_are_summed_over_the_pod_in_their_own_notation(
    api: Api, hard: dict[str, str], used: dict[str, str], pod: dict[str, object], told: str
):
    await _quota(api, hard, used)
    assert await _refusal(api, pod) == f'pods "p" is forbidden: exceeded quota: q, {told}'


async def test_a_quota_of_compute_wants_every_container_to_say_it(api: Api):
    hard = {"limits.memory": "1Gi", "requests.cpu": "1"}
    await _quota(api, hard)
    pod = _pod("p", containers=[{**_CONTAINER, "name": "b"}, {**_CONTAINER, "name": "a"}])
    assert await _refusal(api, pod) == (
        'pods "p" is forbidden: failed quota: q: must specify limits.memory for: a,b; requests.cpu for: a,b'
    )


async def test_a_quota_without_a_count_refuses_every_pod(api: Api):
    await _quota(api, {"pods": "5", "count/pods": "5"}, {"pods": "0"})
    assert await _refusal(api, _pod("p")) == (
        'pods "p" is forbidden: status unknown for quota: q, resources: count/pods,pods'
    )


@pytest.mark.parametrize(
    ("scope", "inside", "outside"),
    [
        ("Terminating", _pod("p", activeDeadlineSeconds=5), _pod("p")),
        ("NotTerminating", _pod("p"), _pod("p", activeDeadlineSeconds=5)),
        ("BestEffort", _pod("p"), _sized("p", {"cpu": "1"})),
        ("NotBestEffort", _sized("p", {"cpu": "1"}), _pod("p")),
        ("PriorityClass", _pod("p", priorityClassName="system-node-critical"), _pod("p")),
    ],
)
async def test_each_scope_is_about_its_own_pods(
    api: Api, scope: str, inside: dict[str, object], outside: dict[str, object]
):
    await _quota(api, {"pods": "0"}, scopes=[scope])
    assert "exceeded quota: q" in await _refusal(api, inside)
    assert (await api.post(api.pods(), outside)).code == 201


@pytest.mark.parametrize(
    ("operator", "values", "is_inside"),
    [
        ("In", ["system-node-critical"], True),
        ("NotIn", ["system-node-critical"], False),
        ("DoesNotExist", [], False),
    ],
)
async def test_priority_classes_are_selected_by_name(
    api: Api, operator: str, values: list[str], is_inside: bool
):
    need = {"scopeName": "PriorityClass", "operator": operator, "values": values}
    await _quota(api, {"pods": "0"}, scopeSelector={"matchExpressions": [need]})
    pods = [_pod("p", priorityClassName="system-node-critical"), _pod("p")]
    inside, outside = pods if is_inside else reversed(pods)
    assert "exceeded quota: q" in await _refusal(api, inside)
    assert (await api.post(api.pods(), outside)).code == 201


async def test_a_pod_that_gets_a_deadline_is_charged_to_the_quota_of_such_pods(api: Api):
    await _quota(api, {"pods": "0"}, scopes=["Terminating"])
    await _refusal(api, _pod("p", activeDeadlineSeconds=5))
    (await api.post(api.pods(), _pod("p"))).ok  # noqa: B018
    answer = await api.patch(
        api.pods("p"), [{"op": "add", "path": "/spec/activeDeadlineSeconds", "value": 60}], JSON_PATCH
    )
    assert answer.refused(403, "Forbidden") == (
        'pods "p" is forbidden: exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0'
    )
