"""The webhook on a real API server, installed as the README says, with the rights of its manifests."""

from __future__ import annotations

import base64
import io
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from scheduler.daemon.kube.client import KubeClient
from scheduler.daemon.kube.credentials import load_credentials
from scheduler.daemon.metrics.logs import configure
from scheduler.tools.webhook.certificate_rotation import CertificateRotation
from scheduler.tools.webhook.certificate_store import SecretStore
from tests.support import build
from tests.support.api_client import Answer, Api
from tests.support.apiserver import Address
from tests.support.build import Json
from tests.support.cluster import kubeconfig_of
from tests.support.daemon import Daemon
from tests.support.kubectl import Kubectl
from tests.support.manifest_files import MANIFESTS
from tests.support.waiting import until
from tests.support.webhook_process import webhook
from tests.system.processes.conftest import real
from tests.tools.webhook.client import MERGED, OWN
from tests.tools.webhook.memory_store import Served
from tests.tools.webhook.test_mutating import ANTI_HARD, HARD, expressions, pod_with, term

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("daemon"), pytest.mark.asyncio(loop_scope="module")]

NAME = "affinity-scheduler-webhook"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1"
KINDS = ("mutating", "validating")
#: Paths of the webhooks, by the kind of their configuration.
PATHS = {"mutating": ("mutate",), "validating": ("validate", "validate-reach")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("webhook")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(real_server: Address, folder: Path) -> AsyncIterator[Api]:
    """Yield the real server, with a namespace for this module."""
    async with real(folder, real_server) as cluster:
        await cluster.api.enter_namespace()
        yield cluster.api


@pytest.fixture(scope="module")
def kubectl(real_server: Address, folder: Path) -> Kubectl:
    return Kubectl(kubeconfig_of(real_server, folder / "admin"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def installed(kubectl: Kubectl) -> AsyncIterator[Kubectl]:
    """Apply manifests/webhook, as the README says."""
    kubectl("apply", "-k", MANIFESTS / "webhook")
    yield kubectl
    kubectl("delete", "--wait=false", "-k", MANIFESTS / "webhook")


@pytest.fixture(scope="module")
def reapplied() -> Json:
    """kubectl's output when the manifests are applied again, and the caBundles afterwards."""
    return {}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def daemon(
    api: Api, installed: Kubectl, reapplied: Json, real_server: Address, folder: Path
) -> AsyncIterator[Daemon]:
    """Run the webhook with its ServiceAccount's token. The API server calls it by URL, since there are no Services."""
    token = installed("create", "token", NAME, "--namespace", NAME).strip()
    kubeconfig = kubeconfig_of(real_server, folder / "account", token=token)
    async with webhook("--kubeconfig", str(kubeconfig), "--host", "127.0.0.1") as (daemon, port):
        said = installed("apply", "--validate=strict", "-k", MANIFESTS / "webhook")
        reapplied.update(said=said, bundles=[await bundle(api, kind) for kind in KINDS])
        for kind, paths in PATHS.items():
            change = [
                operation
                for index, path in enumerate(paths)
                for operation in _call_by_url(index, f"https://127.0.0.1:{port}/{path}")
            ]
            installed("patch", f"{kind}webhookconfiguration", NAME, "--type=json", "-p", json.dumps(change))

        async def is_asked() -> bool:
            answer = await create(api, pod_with({ANTI_HARD: "no JSON"}), dry_run=True)
            harmful = await create(api, harmful_pod(), dry_run=True)
            reaching = await create(api, pod_with({OWN: ACROSS}), dry_run=True)
            return (answer.code, harmful.code, reaching.code) == (422, 403, 403)

        await until(is_asked, what="the API server's asking")
        yield daemon


def _call_by_url(index: int, url: str) -> list[Json]:
    """Return the JSON patch that lets the API server call a webhook by its URL."""
    client = f"/webhooks/{index}/clientConfig"
    return [
        {"op": "remove", "path": f"{client}/service"},
        {"op": "add", "path": f"{client}/url", "value": url},
    ]


async def create(
    api: Api, pod: Json, *, dry_run: bool = False, scheduler: str = "affinity-scheduler"
) -> Answer:
    """Create the pod in the module's namespace. Return the server's answer."""
    return await api.post(api.pods() + ("?dryRun=All" if dry_run else ""), _bare(pod, scheduler))


def _bare(pod: Json, scheduler: str = "affinity-scheduler") -> Json:
    """Return the pod of this scheduler as a client sends it."""
    pod["spec"]["schedulerName"] = scheduler
    for name in ("uid", "namespace"):
        pod["metadata"].pop(name, None)
    pod.pop("status", None)
    return pod


async def bundle(api: Api, kind: str) -> str:
    """Return the caBundle of the webhook of this kind."""
    found = (await api.get(f"{CONFIGURATIONS}/{kind}webhookconfigurations/{NAME}")).ok
    text: str = found["webhooks"][0]["clientConfig"].get("caBundle", "")
    return text


#: Affinity to pods of another namespace.
ACROSS: Json = {"podAffinity": {HARD: [{**build.term(build.HOSTNAME, {}), "namespaces": ["kube-system"]}]}}


def harmful_pod(name: str = "harmful") -> Json:
    everywhere = {**build.term(build.ZONE, build.selector("a=b")), "namespaceSelector": {}}
    return build.pod(name, affinity=build.affinity(anti_required=[everywhere]))


async def test_applying_the_manifests_again_leaves_the_certificate_and_its_authority(reapplied):
    assert "warning" not in reapplied["said"].lower()
    assert len(set(reapplied["bundles"])) == 1
    assert reapplied["bundles"][0]


async def test_terms_of_kep_3633_alts_annotations_are_stored_as_fields(api):
    answer = await create(api, pod_with({ANTI_HARD: [term("tier")]}))
    (stored,) = answer.ok["spec"]["affinity"]["podAntiAffinity"][HARD]
    assert expressions(stored) == [("tier", "In", ["front"])]
    assert answer.ok["metadata"]["annotations"][MERGED] == '{"tier":"front"}'


async def test_a_stored_pod_can_be_recreated(api):
    """A second merge changes nothing, with the server's decoding and defaults in between."""
    written = {**term("tier"), "topologyKey": build.HOSTNAME, "namespaces": [], "namespaceSelector": {}}
    pod = pod_with({ANTI_HARD: [written]})
    pod["metadata"]["name"] = "again"
    stored = (await create(api, pod, dry_run=True)).ok
    again = {**stored, "metadata": {k: stored["metadata"][k] for k in ("name", "labels", "annotations")}}
    second = (await create(api, again, dry_run=True)).ok
    assert second["spec"]["affinity"] == stored["spec"]["affinity"]
    assert second["metadata"]["annotations"] == stored["metadata"]["annotations"]


def _large() -> str:
    """Return a pod that is 4 MB of JSON after the API server's escaping."""
    return json.dumps(_bare(harmful_pod("large"))).replace(
        '"image"', '"args": ["%s"], "image"' % ("<" * 700_000)
    )


def _deep() -> str:
    """Return a pod with managed fields that are deeper than the decoder allows."""
    pod = _bare(harmful_pod("deep"))
    managed = {"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"}
    pod["metadata"]["managedFields"] = [{**managed, "fieldsV1": "@"}]
    fields = '{"f:metadata":' + '{"f:a":' * 5000 + "{}" + "}" * 5001
    return json.dumps(pod).replace('"@"', fields)


@pytest.mark.parametrize("made", [_large, _deep], ids=["large", "deep"])
async def test_large_and_deep_pods_are_validated(api: Api, made: Callable[[], str]) -> None:
    """The API server would ignore a failing webhook and create the pod."""
    answer = await api.post(api.pods(), made())
    assert (answer.code, "webhook" in answer.body["message"]) == (403, True)


async def test_harmful_anti_affinity_is_refused_at_creation_and_update(api):
    answer = await create(api, harmful_pod())
    assert (answer.code, answer.body["reason"]) == (403, "Forbidden")
    (await create(api, build.pod("later"))).ok  # noqa: B018 - asserts success
    harmful = json.dumps(harmful_pod()["spec"]["affinity"])
    change = {"metadata": {"annotations": {OWN: harmful}}}
    assert (await api.patch(api.pods("later"), change)).code == 403
    labelled = {"metadata": {"labels": {"a": "b"}}}
    (await api.patch(api.pods("later"), labelled)).ok  # noqa: B018 - asserts success


async def test_terms_by_annotation_about_other_namespaces_are_refused_until_the_namespace_is_marked(
    api, kubectl
):
    """In one line that kubectl prints; at an update too, but not for an annotation that stays."""
    (await create(api, build.pod("reaching"))).ok  # noqa: B018 - asserts success
    across = {"metadata": {"annotations": {OWN: json.dumps(ACROSS)}}}
    refused = await api.patch(api.pods("reaching"), across)
    assert (refused.code, refused.body["message"]) == (
        403,
        'admission webhook "reach.affinity-scheduler.io" denied the request: pods "reaching" is forbidden: annotation '
        f"{OWN}: a term is about other namespaces, which annotationNamespaces of the configuration does not allow pods "
        f"of namespace {api.namespace}",
    )
    mark = "affinity-scheduler.io/annotation-reach"
    kubectl("label", "namespace", api.namespace, f"{mark}=cluster")

    async def is_allowed() -> bool:
        return bool((await api.patch(api.pods("reaching"), across)).code == 200)

    await until(is_allowed, what="the API server's seeing the label")
    kubectl("label", "namespace", api.namespace, f"{mark}-")

    async def is_refused() -> bool:
        pod = pod_with({OWN: ACROSS})
        pod["metadata"]["name"] = "later-reaching"
        return (await create(api, pod, dry_run=True)).code == 403

    await until(is_refused, what="the API server's seeing the label gone")
    labelled = {"metadata": {"labels": {"a": "b"}}}
    (await api.patch(api.pods("reaching"), labelled)).ok  # noqa: B018 - asserts success


async def test_a_changed_fallback_is_refused_and_misspelt_names_are_warned_of(api):
    """Names of labels too; a group's own are not asked about."""
    (await create(api, build.pod("relaxing"))).ok  # noqa: B018 - asserts success
    change = {"metadata": {"annotations": {"affinity-scheduler.io/fallback": "[1]"}}}
    assert (await api.patch(api.pods("relaxing"), change)).code == 422
    misspelt = {"affinity-scheduler.io/affinty": "{}"}
    updated = await api.patch(api.pods("relaxing"), {"metadata": {"annotations": misspelt}})
    labels = {"affinity-scheduler.io/pod-group": "g", "affinity-scheduler.io/pod-group-min": "2"}
    created = await create(api, build.pod("member", labels=labels), dry_run=True)
    for answer, name in ((updated, "affinity-scheduler.io/affinty"), (created, [*labels][1])):
        answer.ok  # noqa: B018 - asserts success
        assert [name in warning for warning in answer.warnings] == [True]


async def test_the_server_does_not_send_other_pods(api, daemon):
    """Pods without terms, of a group, of another scheduler, with the ignore label, and in kube-system."""
    before = await daemon.metric("affinity_scheduler_webhook_requests_total")
    (await create(api, build.pod("plain"), dry_run=True)).ok  # noqa: B018 - asserts success
    members = build.pod("member", labels={"affinity-scheduler.io/pod-group": "g"})
    (await create(api, members, dry_run=True)).ok  # noqa: B018 - asserts success
    others = harmful_pod("of-others")
    (await create(api, others, dry_run=True, scheduler="default-scheduler")).ok  # noqa: B018
    labels = {"kep-3633-alt.10h.in/ignore": ""}
    opted_out = pod_with({ANTI_HARD: "{"}, labels=labels)
    opted_out["metadata"]["name"] = "opted-out"
    (await create(api, opted_out, dry_run=True)).ok  # noqa: B018 - asserts success
    pod = pod_with({ANTI_HARD: [term("tier")]})
    pod["metadata"] |= {"namespace": "kube-system", "name": "in-kube-system"}
    pod["spec"]["schedulerName"] = "affinity-scheduler"
    pod["metadata"].pop("uid")
    (await api.post("/api/v1/namespaces/kube-system/pods?dryRun=All", pod)).ok  # noqa: B018
    # Of the opted-out pod only the validating webhook hears, which no label switches off.
    assert await daemon.metric("affinity_scheduler_webhook_requests_total") - before == 1


async def test_an_overwritten_ca_bundle_is_restored(api, daemon, kubectl, folder):
    """The next check of any replica restores it."""
    for kind in KINDS:
        wrong = {"webhooks": [{"name": _hook(kind), "clientConfig": {"caBundle": ""}}]}
        kubectl("patch", f"{kind}webhookconfiguration", NAME, "--type=strategic", "-p", json.dumps(wrong))
    served = Served()
    credentials = await load_credentials(kubeconfig=str(folder / "account"), master=None, environ={})
    async with KubeClient(credentials) as client:
        store = SecretStore(client, namespace=NAME, name=NAME)
        log = configure(verbosity=0, form="text", stream=io.StringIO())
        await CertificateRotation(store, ["127.0.0.1"], served, log=log, clock_s=time.time).check()
    secret = (await api.get(f"/api/v1/namespaces/{NAME}/secrets/{NAME}")).ok["data"]
    assert [pair.cert for pair in served.pairs] == [base64.b64decode(secret["tls.crt"])]
    for kind in KINDS:
        assert await bundle(api, kind) == secret["ca.crt"]
    assert await daemon.metric("rest_client_requests_total", code="403") == 0


def _hook(kind: str) -> str:
    return "merge.affinity-scheduler.io" if kind == "mutating" else "check.affinity-scheduler.io"
