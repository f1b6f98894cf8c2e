"""Admission webhooks: which the server calls, in which order, and what follows from their answers."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from tests.sandbox.devcluster.contract.hooks import Hooks, labelling, patching, rule, serving
from tests.support.api_client import APPLY, Answer, Api

pytestmark = pytest.mark.asyncio(loop_scope="module")

_GROUP = "/apis/admissionregistration.k8s.io/v1"
_MUTATING, _VALIDATING = "mutatingwebhookconfigurations", "validatingwebhookconfigurations"
_PATIENCE_S = 20.0


class Configured:
    """The webhook server, and configurations that make the API server ask it about one namespace's pods."""

    def __init__(self, api: Api, hooks: Hooks) -> None:
        self.api = api
        self.hooks = hooks
        self.paths: list[str] = []

    def hook(self, path: str, **fields: Any) -> dict[str, Any]:
        """Return a webhook for the test's namespace."""
        here = {"matchLabels": {"kubernetes.io/metadata.name": self.api.namespace}}
        return self.hooks.webhook(path, **{"namespaceSelector": here, **fields})

    async def send(self, kind: str, *hooks: dict[str, Any], name: str = "a") -> Answer:
        """Return the answer to the creation of a configuration."""
        full = f"{name}-{self.api.namespace}"
        answer = await self.api.post(
            f"{_GROUP}/{kind}", {"metadata": {"name": full}, "webhooks": list(hooks)}
        )
        if answer.code == 201:
            self.paths.append(f"{_GROUP}/{kind}/{full}")
        return answer

    async def install(self, kind: str, *hooks: dict[str, Any], name: str = "a") -> None:
        """Create the configuration and wait until the server uses it."""
        (await self.send(kind, *hooks, name=name)).ok  # noqa: B018 - asserts success
        # A real server reads configurations from a cache, those of one kind in their order. The sentinel is called
        # first, so the answers of others do not keep it from being called.
        path = f"sentinel-{len(self.paths)}"
        sentinel = self.hook(path, objectSelector={"matchLabels": {"probe": "yes"}})
        (await self.send(kind, sentinel, name=f"0-{path}")).ok  # noqa: B018
        ends_s = time.monotonic() + _PATIENCE_S
        while not self.hooks.asked_of(path):
            assert time.monotonic() < ends_s, "the server never asks"
            await self.api.post(self.api.pods(), pod("probe", probe="yes"), dryRun="All")
            await asyncio.sleep(0.05)
        self.hooks.asked.clear()

    async def clear(self) -> None:
        """Delete the configurations of the test."""
        for path in self.paths:
            await self.api.delete(path)


@pytest_asyncio.fixture(loop_scope="module")
async def configured(api: Api, tmp_path: Path) -> AsyncIterator[Configured]:
    async with serving(tmp_path) as hooks:
        found = Configured(api, hooks)
        try:
            yield found
        finally:
            await found.clear()


def pod(name: str, **labels: str) -> dict[str, Any]:
    metadata = {"name": name, "labels": {"app": "web", **labels}}
    return {"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "registry.test/pause:1"}]}}


# -- asking --------------------------------------------------------------------------------------------------


async def test_a_mutating_webhook_sees_the_defaulted_pod_and_its_patch_is_stored(
    configured: Configured, api: Api
):
    """Also that of a server-side apply, and of a dry run, of which nothing is stored."""
    configured.hooks.judges["m"] = lambda _: labelling("seen")
    await configured.install(_MUTATING, configured.hook("m"))
    labels = {"app": "web", "seen": "yes"}
    assert (await api.post(api.pods(), pod("p"))).ok["metadata"]["labels"] == labels
    assert (await api.post(api.pods(), pod("dry"), dryRun="All")).ok["metadata"]["labels"] == labels
    assert (await api.get(api.pods("dry"))).code == 404
    body = {"apiVersion": "v1", "kind": "Pod", **pod("q")}
    applied = (await api.patch(api.pods("q"), body, APPLY, fieldManager="test")).ok
    assert applied["metadata"]["labels"] == labels
    request, *others = configured.hooks.asked_of("m")
    assert [one["dryRun"] for one in others] == [True, False]
    assert {
        "operation": "CREATE",
        "namespace": api.namespace,
        "name": "p",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "oldObject": None,
        "dryRun": False,
        "query": "timeout=2s",
    }.items() <= request.items()
    seen = request["object"]
    assert (seen["kind"], seen["apiVersion"]) == ("Pod", "v1")
    assert (seen["spec"]["schedulerName"], seen["spec"]["priority"]) == ("default-scheduler", 0)
    assert len(seen["spec"]["tolerations"]) == 2
    assert seen["metadata"]["namespace"] == api.namespace


async def test_fields_from_a_webhook_are_defaulted_and_merged_like_the_users_own(
    configured: Configured, api: Api
):
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "web"}},
        "matchLabelKeys": ["rev"],
    }
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    side = {"name": "side", "image": "i:1"}
    configured.hooks.judges["m"] = lambda _: patching(
        {"op": "add", "path": "/spec/affinity", "value": {"podAntiAffinity": required}},
        {"op": "add", "path": "/metadata/labels/rev", "value": "7"},
        {"op": "add", "path": "/spec/containers/-", "value": {**side, "ports": [{"containerPort": 80}]}},
    )
    await configured.install(_MUTATING, configured.hook("m"))
    spec = (await api.post(api.pods(), pod("p"))).ok["spec"]
    (stored,) = spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    expected = {"key": "rev", "operator": "In", "values": ["7"]}
    assert stored["labelSelector"]["matchExpressions"] == [expected]
    assert spec["containers"][1]["ports"][0]["protocol"] == "TCP"


async def test_webhooks_are_called_in_the_order_of_names_and_see_earlier_changes(
    configured: Configured, api: Api
):
    for name in ("one", "two", "three"):
        configured.hooks.judges[name] = lambda _, name=name: labelling(name)  # type: ignore[misc] # bound per turn
    await configured.install(_MUTATING, configured.hook("three"), name="b")
    await configured.install(_MUTATING, configured.hook("one"), configured.hook("two"), name="a")
    (await api.post(api.pods(), pod("p"))).ok  # noqa: B018
    seen = [(path, sorted(one["object"]["metadata"]["labels"])) for path, one in configured.hooks.asked]
    assert seen == [
        ("one", ["app"]),
        ("two", ["app", "one"]),
        ("three", ["app", "one", "two"]),
    ]


_OPT_OUT = {"matchExpressions": [{"key": "skip", "operator": "DoesNotExist"}]}
_ELSEWHERE = {"matchLabels": {"kubernetes.io/metadata.name": "elsewhere"}}


#: What a webhook is configured with -> whether it is asked about a pod of app=web, and of one that opts out.
_CONCERNED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "objects": ({"objectSelector": {"matchLabels": {"app": "web"}}}, ["p", "opts-out"]),
    "other-objects": ({"objectSelector": {"matchLabels": {"app": "db"}}}, []),
    "objects-that-stay": ({"objectSelector": _OPT_OUT}, ["p"]),
    "other-namespaces": ({"namespaceSelector": _ELSEWHERE}, []),
    "no-rule": ({"rules": []}, []),
    "with-subresources": ({"rules": [rule(resources=["pods/*"])]}, ["p", "opts-out"]),
    "updates": ({"rules": [rule(operations=["UPDATE"])]}, []),
}


async def test_only_webhooks_that_a_pod_concerns_are_asked(configured: Configured, api: Api):
    hooks = [configured.hook(path, **fields) for path, (fields, _) in _CONCERNED.items()]
    await configured.install(_MUTATING, *hooks)
    for name, labels in (("p", {}), ("opts-out", {"skip": ""})):
        (await api.post(api.pods(), pod(name, **labels))).ok  # noqa: B018
    asked = {path: [one["name"] for one in configured.hooks.asked_of(path)] for path in _CONCERNED}
    assert asked == {path: names for path, (_, names) in _CONCERNED.items()}


async def test_a_validating_webhook_sees_the_pod_as_it_will_be_stored(configured: Configured, api: Api):
    """It may not patch."""
    configured.hooks.judges["m"] = lambda _: labelling("seen")
    await configured.install(_MUTATING, configured.hook("m"))
    await configured.install(_VALIDATING, configured.hook("v"), name="v")
    (await api.post(api.pods(), {**pod("p"), "metadata": {"generateName": "p-", "labels": {"a": "b"}}})).ok  # noqa: B018
    (request,) = configured.hooks.asked_of("v")
    assert request["object"]["metadata"]["labels"] == {"a": "b", "seen": "yes"}
    assert request["object"]["metadata"]["name"].startswith("p-")
    assert request["object"]["status"]["phase"] == "Pending"
    configured.hooks.judges["v"] = lambda _: labelling("more")
    message = (await api.post(api.pods(), pod("p"))).refused(500, "InternalError")
    assert 'failed calling webhook "v.hooks.test": received invalid webhook response: ' in message


# -- refusals ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "status", "code", "reason", "why"),
    [
        (
            _MUTATING,
            {"code": 403, "reason": "Forbidden", "message": "not here"},
            403,
            "Forbidden",
            ": not here",
        ),
        (_VALIDATING, {"reason": "Invalid"}, 400, "Invalid", ": Invalid"),
        (_VALIDATING, {}, 400, None, " without explanation"),
    ],
)
async def test_a_webhooks_refusal_is_the_answer(
    configured: Configured, api: Api, kind: str, status: dict[str, Any], code: int, reason: str, why: str
):
    configured.hooks.judges["h"] = lambda _: {"allowed": False, "status": status}
    await configured.install(kind, configured.hook("h", failurePolicy="Ignore"))
    answer = await api.post(api.pods(), pod("p"))
    assert answer.refused(code, reason) == f'admission webhook "h.hooks.test" denied the request{why}'
    assert (await api.get(api.pods("p"))).code == 404


async def test_an_invalid_pod_is_refused_before_validating_webhooks_see_it(configured: Configured, api: Api):
    configured.hooks.judges["m"] = lambda _: patching(
        {"op": "replace", "path": "/spec/containers/0/name", "value": "Bad"}
    )
    await configured.install(_VALIDATING, configured.hook("v"), name="v")
    await configured.install(_MUTATING, configured.hook("m"))
    answer = await api.post(api.pods(), pod("p"))
    assert answer.causes() == [("FieldValueInvalid", "spec.containers[0].name")]
    assert not configured.hooks.asked_of("v")


async def test_warnings_reach_the_user_whether_the_pod_does_or_not(configured: Configured, api: Api):
    configured.hooks.judges["m"] = lambda _: {"allowed": True, "warnings": ['say "when"', "twice", "twice"]}
    configured.hooks.judges["v"] = lambda request: {
        "allowed": request["object"]["metadata"]["name"] != "bad",
        "warnings": ["checked", "two\nlines"],
    }
    await configured.install(_MUTATING, configured.hook("m"))
    await configured.install(_VALIDATING, configured.hook("v"), name="v")
    expected = ('299 - "say \\"when\\""', '299 - "twice"', '299 - "checked"')
    good, bad = [await api.post(api.pods(), pod(name)) for name in ("good", "bad")]
    assert (good.code, good.warnings) == (201, expected)
    assert (bad.code, bad.warnings) == (400, expected)


# -- failures ------------------------------------------------------------------------------------------------


_EMPTY = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
_FAILURES: list[Any] = [
    lambda _: web.Response(status=500, text="out of order\n"),
    lambda _: web.json_response(_EMPTY),
    lambda _: {"allowed": True, "uid": "other"},
    lambda _: {"allowed": True, "patch": "W10="},
    lambda _: {"allowed": True, "patchType": "JSONPatch", "patch": "bm8="},
]


async def test_an_answer_that_is_none_fails_closed_or_open_as_configured(configured: Configured, api: Api):
    await configured.install(
        _MUTATING,
        configured.hook("open", failurePolicy="Ignore"),
        configured.hook("closed", objectSelector={"matchLabels": {"strict": "yes"}}),
    )
    for number, judge in enumerate(_FAILURES):
        configured.hooks.judges |= {"closed": judge, "open": judge}
        assert (await api.post(api.pods(), pod(f"lenient-{number}"))).code == 201
        message = (await api.post(api.pods(), pod("strict", strict="yes"))).refused(500, "InternalError")
        assert message.startswith('Internal error occurred: failed calling webhook "closed.hooks.test": ')


async def test_a_webhook_that_is_down_fails_closed_or_open_as_configured(configured: Configured, api: Api):
    url = "https://127.0.0.1:1/m"
    client = {"url": url, "caBundle": configured.hooks.bundle}
    await configured.install(
        _VALIDATING,
        configured.hook("open", failurePolicy="Ignore", clientConfig=client),
        configured.hook("closed", clientConfig=client, objectSelector={"matchLabels": {"strict": "yes"}}),
    )
    assert (await api.post(api.pods(), pod("lenient"))).code == 201
    answer = await api.post(api.pods(), pod("strict", strict="yes"))
    why = f'failed calling webhook "closed.hooks.test": failed to call webhook: Post "{url}?timeout=2s": '
    assert answer.refused(500, "InternalError").startswith(f"Internal error occurred: {why}")
    assert answer.body["details"]["causes"][0]["message"].startswith(why)


async def test_a_certificate_of_another_authority_is_not_trusted(
    configured: Configured, api: Api, tmp_path: Path
):
    folder = tmp_path / "other"
    folder.mkdir()
    async with serving(folder) as other:
        client = {"url": configured.hooks.url("m"), "caBundle": other.bundle}
        await configured.install(_MUTATING, configured.hook("m", clientConfig=client))
        message = (await api.post(api.pods(), pod("p"))).refused(500, "InternalError")
    assert 'failed calling webhook "m.hooks.test": failed to call webhook: ' in message
    assert not configured.hooks.asked_of("m")


async def test_a_webhook_that_is_too_slow_is_not_waited_for(configured: Configured, api: Api):
    connected: list[asyncio.StreamWriter] = []

    async def slow(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.append(writer)

    server = await asyncio.start_server(slow, "127.0.0.1", 0)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/m"
    client = {"url": url, "caBundle": configured.hooks.bundle}
    strict = {"matchLabels": {"strict": "yes"}}
    hook = configured.hook("m", clientConfig=client, timeoutSeconds=1, objectSelector=strict)
    await configured.install(_MUTATING, hook)
    began_s = time.monotonic()
    message = (await api.post(api.pods(), pod("p", strict="yes"))).refused(500, "InternalError")
    assert message.endswith(": context deadline exceeded")
    assert connected
    assert 0.9 < time.monotonic() - began_s < 10
    server.close()
    for writer in connected:
        writer.transport.abort()


async def test_a_patch_that_does_not_fit_fails_whatever_the_policy(configured: Configured, api: Api):
    configured.hooks.judges["m"] = lambda _: patching(
        {"op": "replace", "path": "/spec/nothing/here", "value": 1}
    )
    real = {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "probe", "operator": "DoesNotExist"}]}
    await configured.install(_MUTATING, configured.hook("m", failurePolicy="Ignore", objectSelector=real))
    message = (await api.post(api.pods(), pod("p"))).refused(500, "InternalError")
    assert message.startswith("Internal error occurred: ")


# -- configurations ------------------------------------------------------------------------------------------


async def test_a_configuration_gets_its_defaults(configured: Configured):
    hook = configured.hook("m")
    for name in ("timeoutSeconds", "namespaceSelector"):
        del hook[name]
    hook["rules"] = [{**hook["rules"][0], "resources": ["nothings"]}]
    stored = (await configured.send(_MUTATING, hook)).ok
    assert stored["metadata"]["generation"] == 1
    (kept,) = stored["webhooks"]
    assert {
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "namespaceSelector": {},
        "objectSelector": {},
        "timeoutSeconds": 10,
    }.items() <= kept.items()
    assert kept["rules"][0]["scope"] == "*"
