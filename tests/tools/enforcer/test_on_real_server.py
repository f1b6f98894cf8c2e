"""The enforcer on a real API server, installed as the README says, with the rights of its manifests."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from scheduler.daemon.kube.client import KubeClient
from scheduler.daemon.kube.credentials import load_credentials
from scheduler.daemon.kube.requests import JSON, Request
from scheduler.engine.model.pod_decoder import PodDecoder
from scheduler.engine.model.pods import Pod
from scheduler.errors import ApiError, Forbidden
from scheduler.tools.enforcer.evictor import evict
from scheduler.tools.enforcer.instructions import EvictionResult
from tests.support.apiserver import Address
from tests.support.build import ZONE, Json, selector, term
from tests.support.cluster import kubeconfig_of
from tests.support.daemon import Daemon
from tests.support.enforcer_driver import rules
from tests.support.enforcer_process import Shop, enforcing
from tests.support.kubectl import Kubectl
from tests.support.waiting import until
from tests.system.manifests.test_enforcer import CONTAINER, FOLDER, NAMESPACE, all_requests
from tests.system.processes.conftest import real

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

NAME = "affinity-scheduler-enforcer"
WEB, DB = {"app": "web"}, {"app": "db"}
APART = rules(far=[term(ZONE, selector("app=web"))])
NEAR_DB = rules(near=[term(ZONE, selector("app=db"))])
EVICTIONS = "affinity_scheduler_enforcement_evictions_total"
WAITING = "affinity_scheduler_enforcement_waiting"


@pytest.fixture(scope="module")
def kubectl(real_server: Address, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    return Kubectl(kubeconfig_of(real_server, tmp_path_factory.mktemp("admin") / "kubeconfig"))


@pytest.fixture(scope="module")
def account(
    real_server: Address, kubectl: Kubectl, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """Apply manifests/enforcer and return a kubeconfig with only a token of its ServiceAccount."""
    said = kubectl("apply", "--validate=strict", "-k", FOLDER)
    assert "warning" not in said.lower()
    token = kubectl("create", "token", NAME, "--namespace", NAMESPACE).strip()
    yield kubeconfig_of(real_server, tmp_path_factory.mktemp("account") / "kubeconfig", token=token)
    kubectl("delete", "--wait=false", "-k", FOLDER)


@pytest_asyncio.fixture(loop_scope="module")
async def cluster(real_server: Address, account: Path, tmp_path: Path) -> AsyncIterator[Shop]:
    """Yield four nodes and a namespace for this test; `kubeconfig` is the enforcer's."""
    async with real(tmp_path, real_server) as server:
        await server.api.enter_namespace()
        shop = Shop(server.api, account, server.api.namespace)
        await shop.nodes()
        yield shop
        await server.clear()


def _arguments() -> list[str]:
    """Return the Deployment's arguments, without address, port and what the kubelet fills in."""
    given = CONTAINER["args"][1:]
    ours = ("--config=", "--bind-address=", "--port=", "--max-share=", "--namespace=")
    kept = [each for each in given if not each.startswith(ours)]
    return [*kept, f"--config={FOLDER / 'configuration.yaml'}", f"--namespace={NAMESPACE}"]


async def _runs(cluster: Shop, name: str) -> None:
    """Set the pod ready, as its kubelet would: a budget ignores pods that are not."""
    ready = {"type": "Ready", "status": "True"}
    status = {"status": {"phase": "Running", "conditions": [ready]}}
    (await cluster.api.patch(f"{cluster.path('pods')}/{name}/status", status)).ok  # noqa: B018 - asserts success


async def _budget(cluster: Shop, name: str, app: str, n_allowed: int) -> str:
    """Create a budget with the status that its controller would set."""
    path = cluster.path("poddisruptionbudgets", group="apis/policy/v1")
    budget: Json = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"minAvailable": 1, "selector": selector(f"app={app}")},
    }
    (await cluster.api.post(path, budget)).ok  # noqa: B018 - asserts success
    await _judged(cluster, f"{path}/{name}", n_allowed)
    return f"{path}/{name}"


async def _judged(cluster: Shop, path: str, n_allowed: int) -> None:
    counts = {"disruptionsAllowed": n_allowed, "currentHealthy": 1 + n_allowed, "desiredHealthy": 1}
    status = {"status": {**counts, "expectedPods": 1 + n_allowed, "observedGeneration": 1}}
    (await cluster.api.patch(f"{path}/status", status)).ok  # noqa: B018 - asserts success


async def _never_refused(daemon: Daemon) -> None:
    for code in ("401", "403"):
        assert await daemon.metric("rest_client_requests_total", code=code) == 0, daemon.log()
    assert not daemon.logged("forbidden"), daemon.log()
    assert await daemon.metric("affinity_scheduler_events_dropped_total") == 0


async def test_it_does_its_work_without_a_refused_request(cluster: Shop) -> None:
    """Changed labels of a pod and a node cause evictions and events; the Lease is its own."""
    await cluster.pod("by-pod", "a1", APART)
    await cluster.pod("web", "a2", labels=DB)
    await cluster.pod("by-node", "b1", rules(far=[term(ZONE, selector("app=cache"))]))
    await cluster.pod("cache", "a1", labels={"app": "cache"})
    for name in ("by-pod", "web", "by-node", "cache"):
        await _runs(cluster, name)
    async with enforcing(cluster.kubeconfig, *_arguments()) as daemon:
        await cluster.label(f"{cluster.path('pods')}/web", app="web")
        await cluster.left("web", "by-node", "cache")
        events = await until(
            lambda: cluster.events("by-pod"), lambda found: len(found) == 2, what="both events"
        )
        (event,) = [each for each in events if each["action"] == "Evicting"]
        assert event["note"].startswith("Evicted: required anti-affinity: no other pod with app=web")
        assert event["related"]["name"] == "web"
        await cluster.label_node("b1", zone="a")
        await cluster.left("web", "cache")
        assert await daemon.metric(EVICTIONS, result="evicted") == 2
        assert await daemon.metric("leader_election_master_status") == 1
        await _never_refused(daemon)
    lease = await cluster.api.get(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{NAME}")
    assert lease.ok["spec"].get("holderIdentity", "") == ""


async def test_the_grace_period_continues_after_a_restart(cluster: Shop) -> None:
    await cluster.pod("db", "a1", labels=DB)
    await cluster.pod("p", "a2", NEAR_DB, grace="6")
    path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{NAME}"

    async def recorded() -> dict[str, float]:
        answer = await cluster.api.get(path)
        found: dict[str, float] = json.loads(answer.ok["data"]["lost-since.json"])["lostSince"]
        return found

    async with enforcing(cluster.kubeconfig, *_arguments()) as daemon:
        await cluster.delete("db")
        await until(lambda: daemon.metric(WAITING, reason="grace"), what="the wait")
    since = await recorded()
    assert len(since) == 1
    async with enforcing(cluster.kubeconfig, *_arguments()) as daemon:
        assert await cluster.names() == {"p"}
        await until(recorded, lambda found: found == since or not found, what="the same record")
        await cluster.left()
        await until(lambda: daemon.metric(EVICTIONS, result="evicted"), what="the count")
        await _never_refused(daemon)


async def test_a_disruption_budget_blocks_an_eviction_until_it_allows_it(cluster: Shop) -> None:
    await cluster.pod("picky", "a1", APART, labels={"app": "picky"})
    await cluster.pod("web", "a2", labels=WEB)
    for name in ("picky", "web"):
        await _runs(cluster, name)
    path = await _budget(cluster, "keep", "picky", 0)
    async with enforcing(cluster.kubeconfig, *_arguments()) as daemon:
        await until(lambda: daemon.metric(EVICTIONS, result="blocked"), what="a refusal")
        await until(lambda: daemon.metric(WAITING, reason="budget"), what="the gauge")
        assert await cluster.names() == {"picky", "web"}
        assert daemon.logged("Eviction not allowed now", "disruption budget")
        await _judged(cluster, path, 1)
        await cluster.left("web")
        await until(lambda: daemon.metric(EVICTIONS, result="evicted"), what="the count")
        await _never_refused(daemon)
    status = (await cluster.api.get(path)).ok["status"]
    assert status["disruptionsAllowed"] == 0
    assert list(status["disruptedPods"]) == ["picky"]


async def test_two_budgets_on_one_pod_are_a_failure_that_is_retried(cluster: Shop) -> None:
    """The API server answers 500 for two budgets, and the pod stays."""
    await cluster.pod("picky", "a1", APART, labels={"app": "picky"})
    await cluster.pod("web", "a2", labels=WEB)
    for name in ("picky", "web"):
        await _runs(cluster, name)
    paths = [await _budget(cluster, name, "picky", 1) for name in ("one", "two")]
    async with enforcing(cluster.kubeconfig, *_arguments()) as daemon:
        await until(lambda: daemon.metric(EVICTIONS, result="failed"), what="a failure")
        await until(_lines(daemon, "Eviction failed", "more than one PodDisruptionBudget"), what="the line")
        assert await cluster.names() == {"picky", "web"}
        (await cluster.api.delete(paths[0])).ok  # noqa: B018 - asserts success
        await cluster.left("web")
        await _never_refused(daemon)


async def test_a_new_pod_of_the_same_name_is_not_evicted(cluster: Shop) -> None:
    """The eviction of one UID does not affect the next pod with the name."""
    await cluster.pod("p", "a1")
    old = await _pod(cluster, "p")
    async with await _client(cluster.kubeconfig) as client:
        await cluster.delete("p")
        assert (await evict(client, old)).ended is EvictionResult.GONE
        await cluster.pod("p", "a1")
        assert (await evict(client, old)).ended is EvictionResult.GONE
        assert await cluster.names() == {"p"}
        assert (await evict(client, await _pod(cluster, "p"))).ended is EvictionResult.EVICTED
        # It stays terminating without a kubelet; a second eviction does no harm.
        assert (await evict(client, await _pod(cluster, "p"))).ended is EvictionResult.EVICTED
        assert await cluster.names() == set()


async def test_a_dry_run_needs_no_right_to_write_and_writes_nothing(cluster: Shop) -> None:
    await cluster.pod("picky", "a1", APART)
    await cluster.pod("web", "a2", labels=WEB)
    async with enforcing(cluster.kubeconfig, *_arguments(), "--dry-run") as daemon:
        await until(_lines(daemon, "Would evict"), what="the line")
        assert await daemon.metric("rest_client_requests_total", method="GET") > 0
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            assert await daemon.metric("rest_client_requests_total", method=method) == 0
    assert await cluster.names() == {"picky", "web"}
    assert await cluster.events("picky") == []


async def test_none_of_its_requests_is_refused(account: Path) -> None:
    async with await _client(account) as client:
        for request in all_requests():
            try:
                await client.request(request, timeout_s=15.0)
            except Forbidden as error:
                pytest.fail(f"{request.method} {request.path}: {error}")
            except ApiError:
                pass  # about the object, not about us


@pytest.mark.parametrize(
    ("method", "path"),
    [
        pytest.param("GET", "/api/v1/secrets", id="reading secrets"),
        pytest.param("GET", f"/api/v1/namespaces/{NAMESPACE}/configmaps/other", id="another ConfigMap"),
        pytest.param("GET", f"/api/v1/namespaces/default/configmaps/{NAME}", id="a ConfigMap elsewhere"),
        pytest.param("DELETE", "/api/v1/namespaces/default/pods/x", id="deleting a pod past its budget"),
        pytest.param("PATCH", "/api/v1/namespaces/default/pods/x", id="labelling a pod"),
        pytest.param("PATCH", "/api/v1/nodes/x", id="tainting a node"),
        pytest.param("POST", "/api/v1/namespaces/default/pods/x/binding", id="binding a pod"),
        pytest.param(
            "GET",
            f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/affinity-scheduler",
            id="the scheduler's Lease",
        ),
    ],
)
async def test_requests_that_it_never_makes_are_refused(account: Path, method: str, path: str) -> None:
    body = b"" if method in ("GET", "DELETE") else b"{}"
    async with await _client(account) as client:
        with pytest.raises(Forbidden):
            await client.request(Request(method, path, "get", (), body, JSON), timeout_s=10.0)


def _lines(daemon: Daemon, *words: str) -> Callable[[], Awaitable[list[str]]]:
    async def lines() -> list[str]:
        return daemon.logged(*words)

    return lines


async def _client(kubeconfig: Path) -> KubeClient:
    return KubeClient(await load_credentials(kubeconfig=str(kubeconfig), master=None, environ={}))


async def _pod(cluster: Shop, name: str) -> Pod:
    stored = (await cluster.api.get(f"{cluster.path('pods')}/{name}")).ok
    return PodDecoder().decode(json.dumps(stored).encode())
