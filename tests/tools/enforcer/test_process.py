"""The enforcer as a process on the embedded cluster and on a real API server, with the rights of its manifests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from scheduler.cli.main import main
from scheduler.daemon.kube.client import KubeClient
from scheduler.daemon.kube.credentials import load_credentials
from scheduler.engine.model.pods import Pod
from scheduler.tools.enforcer.evictor import evict
from scheduler.tools.enforcer.instructions import EvictionResult
from tests.support.apiserver import Address
from tests.support.build import ZONE, Json, selector, term
from tests.support.cluster import kubeconfig_of
from tests.support.daemon import Daemon
from tests.support.enforcer_driver import rules
from tests.support.enforcer_process import Shop, enforcing, output, shop, started
from tests.support.json_cluster import decoded
from tests.support.kubectl import Kubectl
from tests.support.waiting import until
from tests.system.manifests.test_enforcer import CONTAINER, FOLDER, NAMESPACE
from tests.system.processes.conftest import real

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

NAME = "affinity-scheduler-enforcer"
WEB, DB = {"app": "web"}, {"app": "db"}
APART = rules(far=[term(ZONE, selector("app=web"))])
NEAR_DB = rules(near=[term(ZONE, selector("app=db"))])
EVICTIONS = "affinity_scheduler_enforcement_evictions_total"
WAITING = "affinity_scheduler_enforcement_waiting"

REAL = pytest.param("real", marks=pytest.mark.real)
#: For tests of the embedded cluster's faults, and of what a real API server alone does.
on_devcluster = pytest.mark.parametrize("cluster", ["devcluster"], indirect=True)
on_real_server = pytest.mark.parametrize("cluster", [REAL], indirect=True)


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


class BareShop(Shop):
    """The same on a real API server, where the test does what kubelets and controllers would."""

    async def runs(self, name: str) -> None:
        ready = {"type": "Ready", "status": "True"}
        status = {"status": {"phase": "Running", "conditions": [ready]}}
        (await self.api.patch(f"{self.path('pods')}/{name}/status", status)).ok  # noqa: B018 - asserts success

    async def judged(self, path: str, n_allowed: int) -> None:
        counts = {"disruptionsAllowed": n_allowed, "currentHealthy": 1 + n_allowed, "desiredHealthy": 1}
        status = {"status": {**counts, "expectedPods": 1 + n_allowed, "observedGeneration": 1}}
        (await self.api.patch(f"{path}/status", status)).ok  # noqa: B018 - asserts success


@asynccontextmanager
async def bare_shop(address: Address, account: Path, folder: Path) -> AsyncIterator[Shop]:
    async with real(folder, address) as server:
        await server.api.enter_namespace()
        made = BareShop(server.api, account, server.api.namespace)
        await made.nodes()
        yield made
        await server.clear()


@pytest_asyncio.fixture(loop_scope="module", params=["devcluster", REAL])
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shop]:
    """Yield four nodes and a namespace for this test; `kubeconfig` is the enforcer's."""
    if request.param == "devcluster":
        opened = shop(tmp_path)
    else:
        address = request.getfixturevalue("real_server")
        opened = bare_shop(address, request.getfixturevalue("account"), tmp_path)
    async with opened as made:
        yield made


def _arguments() -> list[str]:
    """Return the Deployment's arguments, without address, port and what the kubelet fills in."""
    given = CONTAINER["args"][1:]
    ours = ("--config=", "--bind-address=", "--port=", "--max-share=", "--namespace=")
    kept = [each for each in given if not each.startswith(ours)]
    return [*kept, f"--config={FOLDER / 'configuration.yaml'}", f"--namespace={NAMESPACE}"]


async def _budget(cluster: Shop, name: str, app: str, n_allowed: int) -> str:
    """Create a budget; without a controller, with the status that it would set."""
    path = cluster.path("poddisruptionbudgets", group="apis/policy/v1")
    budget: Json = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"minAvailable": 1, "selector": selector(f"app={app}")},
    }
    (await cluster.api.post(path, budget)).ok  # noqa: B018 - asserts success
    if isinstance(cluster, BareShop):
        await cluster.judged(f"{path}/{name}", n_allowed)
    return f"{path}/{name}"


async def _never_refused(daemon: Daemon) -> None:
    for code in ("401", "403"):
        assert await daemon.metric("rest_client_requests_total", code=code) == 0, daemon.log()
    assert not daemon.logged("forbidden"), daemon.log()
    assert await daemon.metric("affinity_scheduler_events_dropped_total") == 0


async def told(cluster: Shop, name: str, n_events: int = 2) -> list[Json]:
    """Wait for this many events about the pod, and return them."""
    return await until(lambda: cluster.events(name), lambda events: len(events) >= n_events, what="events")


async def test_changed_labels_of_pod_node_and_namespace_cause_evictions_with_an_event(cluster: Shop) -> None:
    """
    The declaring pod is evicted. An event on it names the rule, the domain and the other pod. No request is refused,
    and the Lease is the enforcer's own.
    """
    namespace = f"/api/v1/namespaces/{cluster.namespace}"
    blue = term(ZONE, selector("app=web"), namespace_selector=selector("team=blue"))
    await cluster.label(namespace, **{"affinity-scheduler.io/annotation-reach": "cluster"})
    await cluster.pod("by-pod", "a1", APART)
    await cluster.pod("web", "a2", labels=DB)
    await cluster.pod("by-node", "b1", rules(far=[term(ZONE, selector("app=cache"))]))
    await cluster.pod("cache", "a1", labels={"app": "cache"})
    await cluster.pod("by-namespace", "a1", rules(far=[blue]), labels={"app": "quiet"})
    for name in ("by-pod", "web", "by-node", "cache", "by-namespace"):
        await cluster.runs(name)
    async with enforcing(cluster.kubeconfig, *_arguments()) as daemon:
        await cluster.label(f"{cluster.path('pods')}/web", app="web")
        await cluster.left("web", "by-node", "cache", "by-namespace")
        (evicted,) = [one for one in await told(cluster, "by-pod") if one["action"] == "Evicting"]
        where = f"in namespace {cluster.namespace} in the same {ZONE} was broken in {ZONE}=a"
        rule = "required anti-affinity: no other pod with app=web"
        assert evicted["note"] == f"Evicted: {rule} {where}, beside {cluster.namespace}/web"
        assert evicted["related"]["name"] == "web"
        assert evicted["type"] == "Warning"
        await cluster.label_node("b1", "a")
        await cluster.left("web", "cache", "by-namespace")
        await cluster.label(namespace, team="blue")
        await cluster.left("web", "cache")
        assert await daemon.metric(EVICTIONS, rule="anti-affinity", result="evicted") == 3
        assert await daemon.metric("affinity_scheduler_violations_total", enforced="true") == 3
        assert await daemon.metric("leader_election_master_status") == 1
        await _never_refused(daemon)
    lease = await cluster.api.get(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{NAME}")
    assert lease.ok["spec"].get("holderIdentity", "") == ""


async def test_a_disruption_budget_blocks_an_eviction_until_it_allows_it(cluster: Shop) -> None:
    await cluster.pod("picky", "a1", APART, labels={"app": "picky"})
    await cluster.pod("web", "a2", labels=WEB)
    for name in ("picky", "web"):
        await cluster.runs(name)
    path = await _budget(cluster, "keep", "picky", 0)
    async with enforcing(cluster.kubeconfig, *_arguments()) as daemon:
        await until(lambda: daemon.metric(EVICTIONS, result="blocked"), what="a refusal")
        await until(lambda: daemon.metric(WAITING, reason="budget"), what="the gauge")
        assert await cluster.names() == {"picky", "web"}
        assert daemon.logged("Eviction not allowed now", "disruption budget")
        await _never_refused(daemon)
        if isinstance(cluster, BareShop):
            await cluster.judged(path, 1)
            await cluster.left("web")
            status = (await cluster.api.get(path)).ok["status"]
            assert status["disruptionsAllowed"] == 0
            assert list(status["disruptedPods"]) == ["picky"]


@on_devcluster
async def test_no_pod_is_evicted_before_all_caches_are_synced(cluster: Shop) -> None:
    """Without the namespaces the rule would look broken."""
    not_red = term(ZONE, selector("app=web"), namespace_selector=selector("!team"))
    await cluster.pod("picky", "a1", rules(far=[not_red]))
    await cluster.pod("web", "a2", labels=WEB)
    await cluster.pod("other", "b1", APART)
    await cluster.pod("web-b", "b2", labels=WEB)
    fault = {"action": "respond", "code": 503, "kind": "namespaces", "times": 1000}
    (await cluster.api.post("/devcluster/faults", [fault])).ok  # noqa: B018
    async with started(cluster.kubeconfig) as daemon:
        restarts = "affinity_scheduler_watch_restarts_total"
        await until(lambda: daemon.metric(restarts, kind="Namespace"), lambda n: n >= 2, what="attempts")
        assert (await daemon.get("/readyz"))[0] == 500
        assert await cluster.names() == {"picky", "web", "other", "web-b"}
        (await cluster.api.delete("/devcluster/faults")).ok  # noqa: B018
        await cluster.left("picky", "web", "web-b")
        assert await daemon.stop() == 0


async def test_of_two_instances_one_acts_and_the_other_takes_over(cluster: Shop) -> None:
    master = "leader_election_master_status"
    async with started(cluster.kubeconfig) as first:
        await until(lambda: first.metric(master), what="the first one leads")
        async with enforcing(cluster.kubeconfig) as second:
            await cluster.pod("picky", "a1", APART)
            await cluster.pod("web", "a2", labels=WEB)
            await cluster.left("web")
            await first.says('"Evicted"')
            assert await second.metric(master) == 0
            assert await first.stop() == 0
            await cluster.pod("next", "a1", APART)
            await cluster.left("web")
            await second.says('"Evicted"', f"{cluster.namespace}/next")


async def test_a_dry_run_logs_evictions_and_writes_nothing(cluster: Shop) -> None:
    """No event and no Lease; so it needs no right to write."""
    await cluster.pod("picky", "a1", APART)
    await cluster.pod("web", "a2", labels=WEB)
    async with enforcing(cluster.kubeconfig, *_arguments(), "--dry-run") as daemon:
        await daemon.says("Would evict", f"{cluster.namespace}/picky")
        assert await daemon.metric("affinity_scheduler_enforced_rules_broken", rule="anti-affinity") == 1
        assert await daemon.metric("rest_client_requests_total", method="GET") > 0
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            assert await daemon.metric("rest_client_requests_total", method=method) == 0
    assert await cluster.names() == {"picky", "web"}
    assert await cluster.events("picky") == []


async def test_once_prints_a_table_and_sets_the_exit_code(cluster: Shop) -> None:
    arguments = ("enforce", "--once", "--kubeconfig", str(cluster.kubeconfig))
    assert await output(*arguments) == (0, "Every required rule of every running pod holds.\n", "")
    await cluster.pod("picky", "a1", APART)
    await cluster.pod("web", "a2", labels=WEB)
    code, text, errors = await output(*arguments)
    assert (code, errors) == (1, "")
    head, line = text.splitlines()
    assert head.split() == ["POD", "ENFORCED", "RULE", "WHERE", "BESIDE", "WOULD", "EVICT"]
    assert line.startswith(f"{cluster.namespace}/picky  yes")
    assert line.split()[-3:] == [f"{ZONE}=a", f"{cluster.namespace}/web", f"{cluster.namespace}/picky"]


@on_real_server
async def test_two_budgets_on_one_pod_are_a_failure_that_is_retried(cluster: Shop) -> None:
    """The API server answers 500 for two budgets, and the pod stays."""
    await cluster.pod("picky", "a1", APART, labels={"app": "picky"})
    await cluster.pod("web", "a2", labels=WEB)
    for name in ("picky", "web"):
        await cluster.runs(name)
    paths = [await _budget(cluster, name, "picky", 1) for name in ("one", "two")]
    async with enforcing(cluster.kubeconfig, *_arguments()) as daemon:
        await until(lambda: daemon.metric(EVICTIONS, result="failed"), what="a failure")
        await daemon.says("Eviction failed", "more than one PodDisruptionBudget")
        assert await cluster.names() == {"picky", "web"}
        (await cluster.api.delete(paths[0])).ok  # noqa: B018 - asserts success
        await cluster.left("web")
        await _never_refused(daemon)


@on_real_server
async def test_a_new_pod_of_the_same_name_is_not_evicted(cluster: Shop) -> None:
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


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--max-share", "ten"], "--max-share: found ten, expected a percentage from 0% to 100%"),
        (["--grace", "soon"], "--grace: found soon, expected a duration such as 60s"),
        (["--max-evictions-per-node", "0"], "--max-evictions-per-node: found 0, expected 1 or more"),
        (["--rebalance", "--rebalance-gain", "0"], "--rebalance-gain: found 0, expected 1 or more"),
        (
            ["--rebalance", "--rebalance-for-groups", "21"],
            "--rebalance-for-groups: found 21, expected 0 to 20",
        ),
        (
            ["--rebalance", "--rebalance-hold", "soon"],
            "--rebalance-hold: found soon, expected a duration such as 60s",
        ),
        (["--rebalance", "--once"], "--rebalance: found --once as well, expected one of them"),
        (
            ["--rebalance-gain", "50"],
            "--rebalance: found only flags that say how, expected --rebalance as well",
        ),
        (["--deletion-costs", "--once"], "--deletion-costs: found --once as well, expected one of them"),
        (["--max-cost-writes-per-minute", "0"], "--max-cost-writes-per-minute: found 0, expected 1 or more"),
        (
            ["--max-cost-writes-per-minute", "5"],
            "--deletion-costs: found only a flag that says how, expected --deletion-costs as well",
        ),
        (["--port", "70000"], "--port: found 70000, expected a port from 0 to 65535"),
    ],
)
async def test_bad_input_is_one_line(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await asyncio.to_thread(main, ["enforce", *arguments]) == 2
    assert capsys.readouterr() == ("", f"{line}\n")


@pytest.mark.parametrize(
    ("lease", "line"),
    [
        (
            "leaseDuration: 15s, retryPeriod: 2s",
            'renewDeadline: Invalid value: "2s": must be greater than retryPeriod*JitterFactor',
        ),
        (
            "leaseDuration: 2s, retryPeriod: 1s",
            'leaseDuration: Invalid value: "2s": must be greater than `RenewDeadline`',
        ),
    ],
)
async def test_impossible_lease_durations_are_one_line(
    lease: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The scheduler may run without leader election, but the enforcer uses the durations for its own."""
    durations = f"{{leaderElect: false, resourceLock: x, renewDeadline: 2s, {lease}}}"
    file = tmp_path / "scheduler.yaml"
    head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    file.write_text(f"{head}leaderElection: {durations}\n")
    assert await asyncio.to_thread(main, ["enforce", "--config", str(file)]) == 2
    assert capsys.readouterr() == ("", f"leaderElection.{line}\n")


async def _client(kubeconfig: Path) -> KubeClient:
    return KubeClient(await load_credentials(kubeconfig=str(kubeconfig), master=None, environ={}))


async def _pod(cluster: Shop, name: str) -> Pod:
    stored = (await cluster.api.get(f"{cluster.path('pods')}/{name}")).ok
    return decoded(stored)
