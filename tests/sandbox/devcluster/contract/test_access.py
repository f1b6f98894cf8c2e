"""Authentication and authorization: tokens of ServiceAccounts, roles, bindings, and access reviews."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.api_client import Answer, Api

pytestmark = pytest.mark.asyncio(loop_scope="module")

_RBAC = "apis/rbac.authorization.k8s.io/v1"
_TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


async def _account(api: Api, name: str = "worker") -> str:
    """Return a token of a new ServiceAccount."""
    (await api.post(api.in_namespace("serviceaccounts"), {"metadata": {"name": name}})).ok  # noqa: B018
    return str((await _token(api, name)).ok["status"]["token"])


async def _token(api: Api, name: str, **spec: object) -> Answer:
    return await api.post(api.in_namespace("serviceaccounts", f"{name}/token"), {"spec": spec})


def _user(api: Api, name: str = "worker") -> str:
    return f"system:serviceaccount:{api.namespace}:{name}"


async def _grant(
    api: Api, rule: Mapping[str, object], *, in_namespace: bool = False, by_cluster_role: bool = True
) -> None:
    """Grant the ServiceAccount `worker` one rule, in all namespaces or in its own."""
    name = api.namespace
    role = "clusterroles" if by_cluster_role else "roles"
    path = f"/{_RBAC}/{role}" if by_cluster_role else api.in_namespace(role, group=_RBAC)
    (await api.post(path, {"metadata": {"name": name}, "rules": [rule]})).ok  # noqa: B018
    reference = {"kind": "ClusterRole" if by_cluster_role else "Role", "name": name}
    reference["apiGroup"] = "rbac.authorization.k8s.io"
    subjects = [{"kind": "ServiceAccount", "name": "worker", "namespace": api.namespace}]
    bindings = (
        api.in_namespace("rolebindings", group=_RBAC) if in_namespace else f"/{_RBAC}/clusterrolebindings"
    )
    body = {"metadata": {"name": name}, "roleRef": reference, "subjects": subjects}
    (await api.post(bindings, body)).ok  # noqa: B018


async def _asked(api: Api, token: str, method: str, path: str, body: object = None) -> Answer:
    """Return the answer to a request with this token."""
    async with api.speaking_for(token) as other:
        return await other.request(method, path, body)


async def _reviewed(api: Api, user: str, **spec: object) -> bool:
    """Return whether an access review says that the user may do this."""
    review = {"spec": {"user": user, **spec}}
    allowed: bool = (await api.post(_ACCESS_REVIEWS, review)).ok["status"]["allowed"]
    return allowed


# -- tokens --------------------------------------------------------------------------------------------------


async def test_a_token_is_issued_for_an_hour_unless_asked_otherwise(api: Api):
    await _account(api)
    issued = (await _token(api, "worker")).ok
    assert (issued["kind"], issued["apiVersion"]) == ("TokenRequest", "authentication.k8s.io/v1")
    assert issued["metadata"]["name"] == "worker"
    assert issued["spec"]["expirationSeconds"] == 3600
    assert issued["status"]["token"]
    assert issued["status"]["expirationTimestamp"].endswith("Z")
    asked = await _token(api, "worker", expirationSeconds=600)
    assert asked.ok["spec"]["expirationSeconds"] == 600


async def test_a_token_review_names_the_user_of_a_token(api: Api):
    token = await _account(api)
    answer = await api.post(_TOKEN_REVIEWS, {"spec": {"token": token}})
    assert answer.code == 201
    status = answer.ok["status"]
    assert status["authenticated"] is True
    account = (await api.get(api.in_namespace("serviceaccounts", "worker"))).ok
    user = status["user"]
    assert (user["username"], user["uid"]) == (_user(api), account["metadata"]["uid"])
    assert user["groups"] == [
        "system:serviceaccounts",
        f"system:serviceaccounts:{api.namespace}",
        "system:authenticated",
    ]
    assert status["audiences"]


async def test_a_token_review_needs_a_token_that_is_known(api: Api):
    """A token is worth nothing once its account is gone, nor when there is another one of that name."""
    token = await _account(api)
    (await api.delete(api.in_namespace("serviceaccounts", "worker"))).ok  # noqa: B018
    for unknown in ("nobody's", token, token):
        status = (await api.post(_TOKEN_REVIEWS, {"spec": {"token": unknown}})).ok["status"]
        assert (status["user"], "authenticated" in status) == ({}, False)
        assert "invalid bearer token" in status["error"]
        await api.post(api.in_namespace("serviceaccounts"), {"metadata": {"name": "worker"}})
    answer = await api.post(_TOKEN_REVIEWS, {"spec": {}})
    assert answer.refused(400, "BadRequest") == "token is required for TokenReview in authentication"


async def test_an_unknown_token_is_unauthorized(api: Api):
    answer = await _asked(api, "nobody's", "GET", api.pods())
    assert answer.refused(401, "Unauthorized") == "Unauthorized"


# -- rights --------------------------------------------------------------------------------------------------


_LEASE = "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases/x"


@pytest.mark.parametrize(
    ("method", "path", "subject", "refusal"),
    [
        ("GET", "/api/v1/pods", "pods", 'list resource "pods" in API group "" {all}'),
        ("GET", "{pods}", "pods", 'list resource "pods" in API group "" {here}'),
        ("GET", "{pods}/x", 'pods "x"', 'get resource "pods" in API group "" {here}'),
        ("GET", "{pods}?watch=true", "pods", 'watch resource "pods" in API group "" {here}'),
        ("POST", "{pods}/x/binding", 'pods "x"', 'create resource "pods/binding" in API group "" {here}'),
        ("DELETE", "/api/v1/nodes/x", 'nodes "x"', 'delete resource "nodes" in API group "" {all}'),
        ("GET", _LEASE, 'leases.coordination.k8s.io "x"',
         'get resource "leases" in API group "coordination.k8s.io" {here}'),
        ("POST", _TOKEN_REVIEWS, "tokenreviews.authentication.k8s.io",
         'create resource "tokenreviews" in API group "authentication.k8s.io" {all}'),
        ("GET", "/metrics", "", 'get path "/metrics"'),
    ],
)  # fmt: skip
async def test_a_user_without_rights_is_refused(api: Api, method: str, path: str, subject: str, refusal: str):
    token = await _account(api)
    where = {"here": f'in the namespace "{api.namespace}"', "all": "at the cluster scope"}
    path = path.format(pods=api.pods(), ns=api.namespace)
    answer = await _asked(api, token, method, path, {} if method == "POST" else None)
    head = f"{subject} is forbidden" if subject else "forbidden"
    assert answer.refused(403, "Forbidden") == f'{head}: User "{_user(api)}" cannot {refusal.format(**where)}'


_LIST: dict[str, Any] = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
_ONE = "{pods}?fieldSelector=metadata."
_ELSEWHERE = ["/api/v1/pods", "/api/v1/namespaces/default/pods"]


@pytest.mark.parametrize(
    ("rule", "how", "allowed", "refused"),
    [
        pytest.param(_LIST, {}, ["/api/v1/pods", "{pods}"], ["{pods}/mine", "{pods}?watch=true", "/api/v1/nodes"],
                     id="a cluster role holds everywhere"),
        pytest.param(_LIST, {"in_namespace": True}, ["{pods}"], _ELSEWHERE, id="in the namespace of its binding"),
        pytest.param(_LIST, {"in_namespace": True, "by_cluster_role": False}, ["{pods}"], _ELSEWHERE, id="a role"),
        pytest.param(
            {**_LIST, "resources": ["pods", "pods/status"], "resourceNames": ["mine"], "verbs": ["get"]}, {},
            ["{pods}/mine", "{pods}/mine/status"], ["{pods}/yours"], id="names and subresources",
        ),
        # A watch of one object needs no right to its neighbours.
        pytest.param(
            {**_LIST, "resourceNames": ["mine"]}, {}, [f"{_ONE}name%3Dmine"],
            [f"{_ONE}name%3Dyours", f"{_ONE}name!%3Dmine", f"{_ONE}namespace%3Dmine", "{pods}",
             f"{_ONE}name%3Dmine&watch=true"],
            id="lists and watches that select a name",
        ),
    ],
)  # fmt: skip
async def test_a_binding_gives_the_rights_of_its_role(
    api: Api, rule: Mapping[str, object], how: dict[str, bool], allowed: list[str], refused: list[str]
):
    token = await _account(api)
    await api.create_pod("mine")
    await _grant(api, rule, **how)
    for path in allowed:
        await _eventually(api, token, "GET", path.format(pods=api.pods()))
    for path in refused:
        assert (await _asked(api, token, "GET", path.format(pods=api.pods()))).code == 403, path
    assert (await _asked(api, token, "POST", api.pods("mine/eviction"), {})).code == 403


async def _eventually(api: Api, token: str, method: str, path: str) -> None:
    """Repeat the request until it is allowed: upstream reads roles from a cache."""
    for _ in range(200):
        if (await _asked(api, token, method, path)).code != 403:
            return
    raise AssertionError(f"{method} {path} stays forbidden")


# -- access reviews ------------------------------------------------------------------------------------------


async def test_an_access_review_says_whether_it_is_allowed(api: Api):
    token = await _account(api)
    await _grant(api, {"nonResourceURLs": ["/metrics", "/debug/*"], "verbs": ["get"]})
    await _eventually(api, token, "GET", "/metrics")
    for path in ("/metrics", "/debug/", "/debug/pprof"):
        wanted = {"path": path, "verb": "get"}
        assert await _reviewed(api, _user(api), nonResourceAttributes=wanted)
    for path, verb in (("/metrics", "head"), ("/metrics/", "get"), ("/debug", "get"), ("//metrics", "get")):
        wanted = {"path": path, "verb": verb}
        assert not await _reviewed(api, _user(api), nonResourceAttributes=wanted)
    wanted = {"path": "/metrics", "verb": "get"}
    assert not await _reviewed(api, "somebody", nonResourceAttributes=wanted)


async def test_masters_may_everything(api: Api):
    wanted = {"path": "/anything", "verb": "delete"}
    assert await _reviewed(api, "x", groups=["system:masters"], nonResourceAttributes=wanted)


async def test_a_binding_keeps_its_role(api: Api):
    path = api.in_namespace("rolebindings", group=_RBAC)
    group = "rbac.authorization.k8s.io"
    body = {
        "metadata": {"name": "b"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "r"},
        "subjects": [{"kind": "User", "name": "x"}],
    }
    (await api.post(path, body)).ok  # noqa: B018 - asserts success
    answer = await api.patch(f"{path}/b", {"roleRef": {"name": "other"}})
    answer.refused(422, "Invalid")
    assert answer.causes() == [("FieldValueInvalid", "roleRef")]
