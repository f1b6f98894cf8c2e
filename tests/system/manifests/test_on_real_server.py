"""On a real API server: the manifests are valid, and the program works with exactly their rights."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import yaml

from scheduler.daemon.kube.client import KubeClient
from scheduler.daemon.kube.credentials import load_credentials
from scheduler.daemon.kube.requests import Request
from scheduler.errors import ApiError, Forbidden
from tests.support.apiserver import Address
from tests.support.cluster import Cluster, kubeconfig_of
from tests.support.daemon import refused, started
from tests.support.kubectl import Kubectl
from tests.support.manifest_files import MANIFESTS, OWN_NAMESPACE, one
from tests.support.rights import all_requests, needed
from tests.support.waiting import until
from tests.system.processes.conftest import real

pytestmark = pytest.mark.real

ACCOUNT = "affinity-scheduler"


@pytest.fixture(scope="module")
async def server(real_server: Address, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """Yield the real server, empty, with a namespace for this test."""
    async with real(tmp_path_factory.mktemp("server"), real_server) as cluster:
        await cluster.api.enter_namespace()
        yield cluster
        await cluster.clear()


@pytest.fixture(scope="module")
def kubectl(server: Cluster) -> Kubectl:
    return Kubectl(Path(server.kubeconfig))


def applied(kubectl: Kubectl, folder: Path) -> Iterator[Kubectl]:
    kubectl("apply", "-k", folder)
    yield kubectl
    kubectl("delete", "--wait=false", "--ignore-not-found", "-k", folder)


@pytest.fixture
def in_kube_system(kubectl: Kubectl) -> Iterator[Kubectl]:
    yield from applied(kubectl, MANIFESTS)


@pytest.fixture
def in_own_namespace(kubectl: Kubectl) -> Iterator[Kubectl]:
    yield from applied(kubectl, OWN_NAMESPACE)


@pytest.fixture
def account(real_server: Address, tmp_path: Path) -> Callable[[Kubectl, str], Path]:
    """Return a function that writes a kubeconfig with only a token of the ServiceAccount in a namespace."""

    def written(kubectl: Kubectl, namespace: str) -> Path:
        token = kubectl("create", "token", ACCOUNT, "--namespace", namespace).strip()
        return kubeconfig_of(real_server, tmp_path / "kubeconfig", token=token)

    return written


async def test_strict_validation_accepts_the_manifests(in_kube_system):
    """Without it, the server would silently drop unknown or duplicate fields."""
    applied = in_kube_system("apply", "--dry-run=server", "--validate=strict", "-k", MANIFESTS)
    assert len(applied.splitlines()) == len(in_kube_system.rendered(MANIFESTS))
    assert "warning" not in applied.lower()


async def test_none_of_its_requests_is_refused(in_kube_system, account):
    """Including rare ones: a pod read after a lost response, an Event's patch, the Lease."""
    async with _client(account(in_kube_system, "kube-system")) as client:
        requests = all_requests()
        answers = await asyncio.gather(*(_is_refused(client, request) for request in requests))
    assert len(answers) > 50
    assert [needed(request) for request, no in zip(requests, answers, strict=True) if no] == []


@pytest.mark.parametrize(
    ("method", "path"),
    [
        pytest.param("GET", "/api/v1/secrets", id="reading secrets"),
        pytest.param("GET", "/api/v1/namespaces/kube-system/configmaps/x", id="reading a ConfigMap"),
        pytest.param("GET", "/api/v1/nodes/x", id="reading one node"),
        pytest.param("DELETE", "/api/v1/namespaces/default/pods", id="deleting all pods"),
        pytest.param("POST", "/api/v1/namespaces/default/pods", id="making a pod"),
        pytest.param("PATCH", "/api/v1/namespaces/default/pods/x", id="labelling a pod"),
        pytest.param("PATCH", "/api/v1/nodes/x", id="tainting a node"),
        pytest.param("POST", "/api/v1/namespaces/default/events", id="events of the core group"),
        pytest.param(
            "GET",
            "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler",
            id="another scheduler's Lease",
        ),
        pytest.param(
            "POST", "/apis/coordination.k8s.io/v1/namespaces/default/leases", id="a Lease elsewhere"
        ),
    ],
)
async def test_requests_that_it_never_makes_are_refused(in_kube_system, account, method, path):
    request = Request(
        method, path, "get", (), b"" if method in ("GET", "DELETE") else b"{}", "application/json"
    )
    async with _client(account(in_kube_system, "kube-system")) as client:
        assert await _is_refused(client, request)


async def test_without_the_roles_it_says_so_in_one_line(server, kubectl, account):
    """A command that asks once ends with it; the scheduler logs it and asks again."""
    kubectl("create", "serviceaccount", ACCOUNT, "--namespace", server.api.namespace)
    kubeconfig = account(kubectl, server.api.namespace)
    line = await refused("enforce", "--once", "--kubeconfig", str(kubeconfig))
    assert "403 Forbidden" in line
    assert 'cannot list resource "pods"' in line
    async with started(kubeconfig) as daemon:
        await daemon.says("forbids the list of pods; trying again", 'cannot list resource \\"pods\\"')


async def test_its_requests_have_a_higher_priority_level_than_ordinary_workloads(
    in_kube_system, account, real_server
):
    level = _priority_level(in_kube_system, account(in_kube_system, "kube-system"), real_server)
    await until(level, lambda name: name == "workload-high", what="the level of kube-system's accounts")


async def test_in_its_own_namespace_they_have_the_same_priority_level(in_own_namespace, account, real_server):
    """The namespace's pod security admits the pod, and the FlowSchemas raise its requests' level."""
    kubectl = in_own_namespace
    deployment = one(kubectl.rendered(OWN_NAMESPACE), "Deployment")
    template = deployment["spec"]["template"]
    metadata = {"name": "p", "namespace": ACCOUNT, **template["metadata"]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    kubectl("create", "--dry-run=server", "-f", "-", given=json.dumps(pod))
    kubeconfig = account(kubectl, ACCOUNT)
    level = _priority_level(kubectl, kubeconfig, real_server)
    await until(level, lambda name: name == "workload-high", what="the level of the FlowSchema")
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{ACCOUNT}/leases/{ACCOUNT}"
    level = _priority_level(kubectl, kubeconfig, real_server, leases)
    await until(level, lambda name: name == "leader-election", what="the level of the Lease's FlowSchema")


@asynccontextmanager
async def _client(kubeconfig: Path) -> AsyncIterator[KubeClient]:
    credentials = await load_credentials(kubeconfig=str(kubeconfig), master=None, environ={})
    async with KubeClient(credentials) as client:
        yield client


async def _is_refused(client: KubeClient, request: Request) -> bool:
    """Return whether the server forbids the request; other failures are about the object."""
    try:
        await client.request(request, timeout_s=15.0)
    except Forbidden:
        return True
    except ApiError as error:
        assert error.status >= 400, str(error)
    return False


def _priority_level(
    kubectl: Kubectl, kubeconfig: Path, address: Address, path: str = "/api/v1/nodes"
) -> Callable[[], Awaitable[str]]:
    """Return a function that returns the priority level of the account's requests, from a response header."""
    levels = json.loads(kubectl("get", "prioritylevelconfigurations", "-o", "json"))["items"]
    name_by_uid = {level["metadata"]["uid"]: level["metadata"]["name"] for level in levels}
    context = ssl.create_default_context(cafile=str(address.ca_file))
    headers = {"Authorization": f"Bearer {_token(kubeconfig)}"}

    async def ask() -> str:
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
            session.get(address.url + path, headers=headers) as answer,
        ):
            uid = answer.headers["X-Kubernetes-PF-PriorityLevel-UID"]
            name: str = name_by_uid[uid]
            return name

    return ask


def _token(kubeconfig: Path) -> str:
    (user,) = yaml.safe_load(kubeconfig.read_text())["users"]
    token: str = user["user"]["token"]
    return token
