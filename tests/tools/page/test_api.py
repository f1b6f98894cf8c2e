"""Access to the page, its data and /debug/explain: on loopback by Host and Origin, elsewhere by token."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.kinds import CLUSTER_ROLE, DEPLOYMENT, NAMESPACE, POD
from scheduler.tools.page.proxy import page_proxy
from scheduler.tools.page.stream import MAX_VIEWERS
from tests.support import accounts, build
from tests.support.cluster import kubeconfig_text
from tests.support.daemon import Daemon, running
from tests.support.manifest_files import MANIFESTS
from tests.support.port_forwarding import port_forwarding
from tests.support.waiting import until
from tests.support.workloads import workload

pytestmark = pytest.mark.asyncio(loop_scope="module")

VIEWER = MANIFESTS / "explain" / "viewer.yaml"
OUTSIDE = ("--bind-address", "0.0.0.0")
MAY_GET = {"nonResourceURLs": ["/ui"], "verbs": ["get"]}
MAY_LIST = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}


def workloads(number: int) -> str:
    """Return a manifest of this number of Deployments."""
    made = (
        workload("Deployment", f"web-{one}", build.pod(labels={"app": "web"}), 1200) for one in range(number)
    )
    return "\n---\n".join(map(json.dumps, made))


@dataclass
class Port:
    """A scheduler's port, and tokens by name."""

    cluster: DevCluster
    kubeconfig: Path
    daemon: Daemon
    tokens: Mapping[str, str]

    async def ask(
        self, path: str, who: str = "", *, method: str = "GET", body: Any = None, **headers: str
    ) -> tuple[int, Any, Mapping[str, str]]:
        """Return status, body and headers; `Sec_Fetch_Site` stands for Sec-Fetch-Site."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if who:
            sent["Authorization"] = f"Bearer {self.tokens[who]}"
        url = f"{'https' if self.daemon.is_secure else 'http'}://127.0.0.1:{self.daemon.port}{path}"
        async with self.daemon.session.request(method, url, headers=sent, json=body, ssl=False) as answer:
            text = await answer.text()
            is_json = answer.content_type == "application/json"
            return answer.status, json.loads(text) if is_json else text, answer.headers


def add_pod(cluster: DevCluster, namespace: str, name: str, **more: Any) -> None:
    pod = build.pod(name, namespace=namespace, spec={"schedulerName": "affinity-scheduler"}, **more)
    del pod["metadata"]["uid"]
    cluster.store.create(POD, namespace, pod)


def new_account(cluster: DevCluster, folder: Path, name: str, *rules: Mapping[str, list[str]]) -> str:
    """Return a token of a new account with these rights in the whole cluster and no others."""
    role = {"apiVersion": CLUSTER_ROLE.api_version, "kind": "ClusterRole", "metadata": {"name": name}}
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps({**role, "rules": list(rules)}))
    return accounts.new_account(cluster, name, path)


@asynccontextmanager
async def served(folder: Path, *arguments: str) -> AsyncIterator[Port]:
    """Yield two namespaces, each with a pod that runs and a pod that fits nowhere."""
    async with DevCluster(nodes=2) as cluster:
        for namespace in ("mine", "theirs"):
            cluster.store.create(NAMESPACE, "", {"metadata": {"name": namespace}})
            add_pod(cluster, namespace, f"{namespace}-runs")
            add_pod(cluster, namespace, f"{namespace}-waits", node_selector={"no": "where"})
        tokens = {
            "viewer": accounts.new_account(cluster, "viewer", VIEWER),
            "stranger": accounts.new_account(cluster, "stranger"),
            "no lister": new_account(cluster, folder, "no-lister", MAY_GET),
            "no page": new_account(cluster, folder, "no-page", MAY_LIST),
            "explainer": accounts.new_account(cluster, "explainer", MANIFESTS / "explain" / "role.yaml"),
        }
        kubeconfig = accounts.account_kubeconfig(cluster, "scheduler", folder)
        async with running(kubeconfig, *arguments) as daemon:
            port = Port(cluster, kubeconfig, daemon, tokens)

            async def all_are_tried() -> bool:
                pods = [
                    cluster.store.revision(POD, namespace, f"{namespace}-{which}").obj
                    for namespace in ("mine", "theirs")
                    for which in ("runs", "waits")
                ]
                return all(pod["spec"].get("nodeName") or pod["status"].get("conditions") for pod in pods)

            await until(all_are_tried, what="an attempt of each pod")
            yield port


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outside(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Port]:
    async with served(tmp_path_factory.mktemp("outside"), *OUTSIDE) as port:
        yield port


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Port]:
    async with served(tmp_path_factory.mktemp("local")) as port:
        yield port


@pytest.mark.parametrize(
    ("who", "path", "status"),
    [
        pytest.param("", "/ui/", 200, id="the page itself has nothing of the cluster"),
        pytest.param("", "/ui/app.js", 200, id="nor have its files"),
        pytest.param("", "/ui/nothing.js", 404, id="no such file"),
        pytest.param("", "/ui/../page_files.py", 404, id="nothing beside the page's folder"),
        pytest.param("", "/api/v1/now", 403, id="data without a token"),
        pytest.param("stranger", "/api/v1/now", 403, id="data without the right, though all may get /api/*"),
        pytest.param("viewer", "/api/v1/now", 200, id="data with the right"),
        pytest.param("viewer", "/api/v1/rules", 200, id="rules"),
        pytest.param("viewer", "/api/v1/groups", 200, id="groups"),
        pytest.param("viewer", "/api/v1/nodes?search=n", 200, id="nodes"),
        pytest.param("viewer", "/api/v1/rules/none", 404, id="no such rule"),
        pytest.param("viewer", "/api/v1/devices?search=gpu", 200, id="devices"),
        pytest.param("viewer", "/api/v1/room?namespace=a&name=b&within=c&hierarchy=d", 200, id="the room"),
        pytest.param("viewer", "/api/v1/room?search=gpu", 400, id="a parameter that the room has not"),
        pytest.param("viewer", "/api/v1/devices/pool?driver=a&pool=b", 404, id="no such pool"),
        pytest.param("no lister", "/api/v1/now", 403, id="data without the right to list pods"),
        pytest.param("no page", "/api/v1/now", 403, id="data without the right to the path"),
        pytest.param("viewer", "/api/v1/pods/mine/mine-waits", 200, id="a pod that one may list"),
        pytest.param("viewer", "/api/v1/pods/mine/nothing", 404, id="no such pod"),
        pytest.param("viewer", f"/api/v1/pending?name={'x' * 300}", 400, id="a parameter that is too long"),
        pytest.param("viewer", "/metrics", 403, id="nothing else of the port"),
        pytest.param("viewer", "/api/v1/pending?label=%3Dweb", 400, id="a label without its key"),
        pytest.param("viewer", "/api/v1/pending?pod=mine", 400, id="an unknown parameter"),
        pytest.param("viewer", "/api/v1/pending?name=a&name=b", 400, id="a parameter twice"),
        pytest.param("viewer", "/api/v1/decisions?after=-1", 400, id="a negative number"),
        pytest.param("viewer", "/api/v1/pods/mine/mine-waits?changes=yes", 400, id="neither true nor false"),
        pytest.param("viewer", "/debug/explain", 403, id="explanations have a right of their own"),
        pytest.param("explainer", "/debug/explain", 200, id="the last attempts"),
        pytest.param("explainer", "/debug/explain?namespace=mine&pod=mine-waits", 200, id="a pending pod"),
        pytest.param("explainer", "/debug/explain?namespace=mine&pod=mine-runs", 404, id="a pod that runs"),
        pytest.param("explainer", "/debug/explain?pod=mine-waits", 400, id="a pod without its namespace"),
        pytest.param("explainer", "/debug/explain?namespace=mine", 400, id="a namespace without its pod"),
    ],
)
async def test_a_request_is_answered_by_token_and_path(
    outside: Port, who: str, path: str, status: int
) -> None:
    assert (await outside.ask(path, who))[0] == status


@pytest.mark.parametrize(
    ("who", "lacks"),
    [("no lister", 'list resource "pods" at the cluster scope'), ("no page", 'get path "/ui"')],
)
async def test_who_may_not_view_is_told_the_role_to_ask_for(outside: Port, who: str, lacks: str) -> None:
    """In one sentence, of the page's data and of its stream."""
    for path in ("/api/v1/decisions", "/api/v1/stream"):
        status, answer, _ = await outside.ask(path, who)
        user = f"system:serviceaccount:default:{who.replace(' ', '-')}"
        told = f'forbidden: User "{user}" cannot {lacks}: ask for the ClusterRole affinity-scheduler-viewer'
        assert (status, answer["message"]) == (403, told)


async def test_a_viewer_sees_pods_of_all_namespaces(outside: Port) -> None:
    """In the feed and among pending pods, and a question may name one."""
    _, found, _ = await outside.ask("/api/v1/decisions", "viewer")
    assert {one["pod"] for one in found["decisions"]} == {
        f"{namespace}-{which}" for namespace in ("mine", "theirs") for which in ("runs", "waits")
    }
    _, pending, _ = await outside.ask("/api/v1/pending", "viewer")
    assert {one["pod"] for one in pending["groups"][0]["shown"]} == {"mine-waits", "theirs-waits"}
    question = {"like": {"namespace": "theirs", "name": "theirs-waits"}}
    assert (await outside.ask("/api/v1/what-if", "viewer", method="POST", body=question))[0] == 200


async def test_every_answer_has_the_policy(outside: Port) -> None:
    for path in ("/ui/", "/ui/app.js", "/api/v1/now"):
        _, _, headers = await outside.ask(path, "viewer")
        assert headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self'")
        assert headers["X-Content-Type-Options"] == "nosniff"


async def test_the_proxy_of_the_command_ui_adds_the_token(outside: Port) -> None:
    """And passes on the page and its data, nothing else, for requests to loopback names only."""

    async def authorization() -> str:
        return f"Bearer {outside.tokens['viewer']}"

    async with (
        page_proxy(f"https://127.0.0.1:{outside.daemon.port}", authorization, port=0) as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
    ):

        async def status(path: str, **headers: str) -> int:
            async with session.get(path, headers=headers) as answer:
                await answer.read()
                return answer.status

        assert await status("/ui") == 200
        assert await status("/ui/vendor/uplot.js") == 200
        assert await status("/api/v1/now") == 200
        assert await status("/api/v1/now", Host="evil.example") == 403
        assert await status("/api/v1/now", Origin="http://evil.example") == 403
        assert await status("/metrics") == 404
        async with session.post("/api/v1/what-if", json={"manifest": "kind: Pod"}) as answer:
            assert answer.status == 400
        async with session.get("/api/v1/stream") as answer:
            assert (await answer.content.readline()) == b"event: now\n"


def add_deployment(cluster: DevCluster) -> None:
    """Create the scheduler's Deployment and its pod, with the fields that kubectl reads."""
    labels = {"app": "scheduler"}
    spec = {"containers": [{"name": "scheduler", "image": "scheduler", "ports": [{"containerPort": 10259}]}]}
    template = {"metadata": {"labels": labels}, "spec": spec}
    metadata = {"name": "affinity-scheduler"}
    deployment = {"metadata": metadata, "spec": {"selector": {"matchLabels": labels}, "template": template}}
    cluster.store.create(DEPLOYMENT, "kube-system", deployment)
    pod = {"metadata": {**metadata, "labels": labels}, "spec": {**spec, "nodeName": "node-0001"}}
    cluster.store.create(POD, "kube-system", pod)
    stored = cluster.store.get(POD, "kube-system", "affinity-scheduler")
    cluster.store.rewrite(POD, {**stored, "status": {**stored["status"], "phase": "Running"}})


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on PATH")
async def test_the_command_ui_reaches_the_page_through_kubectls_port_forward(
    outside: Port, tmp_path: Path
) -> None:
    """With the token of the kubeconfig, until it gets a signal; kubectl ends with it."""
    add_deployment(outside.cluster)
    async with port_forwarding(outside.cluster.url, outside.daemon.port) as front:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(kubeconfig_text(front, token=outside.tokens["viewer"]))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "scheduler", "ui", "--no-browser", "--kubeconfig", str(kubeconfig)),
            stdout=PIPE,
        )
        assert process.stdout is not None
        line = (await process.stdout.readline()).decode()
        found = re.match(r"The scheduler's page is at (http://127\.0\.0\.1:\d+)/ui/\. Ctrl-C ends it\.", line)
        assert found, line
        async with aiohttp.ClientSession(found[1]) as session, session.get("/api/v1/now") as answer:
            assert (answer.status, len(await answer.read()) > 0) == (200, True)
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({}, 200, id="no browser"),
        pytest.param({"Host": "localhost:1"}, 200, id="localhost"),
        pytest.param({"Host": "[::1]:10259"}, 200, id="IPv6"),
        pytest.param({"Host": "evil.example"}, 403, id="a foreign name that resolves to loopback"),
        pytest.param({"Host": "localhost.evil.example"}, 403, id="a name that begins like ours"),
        pytest.param({"Host": "localhost:1", "Origin": "http://localhost:1"}, 200, id="our own page"),
        pytest.param(
            {"Host": "localhost:1", "Origin": "http://localhost:2"}, 403, id="a page on another port"
        ),
        pytest.param({"Host": "localhost:1", "Origin": "null"}, 403, id="a page without an origin"),
        pytest.param({"Sec_Fetch_Site": "same-origin"}, 200, id="fetched by our page"),
        pytest.param({"Sec_Fetch_Site": "same-site"}, 403, id="fetched by a page of another port"),
        pytest.param({"Sec_Fetch_Site": "cross-site"}, 403, id="fetched by a foreign page"),
    ],
)
async def test_on_loopback_host_and_origin_are_ours(
    local: Port, headers: dict[str, str], status: int
) -> None:
    for path in ("/api/v1/now", "/debug/explain"):
        assert (await local.ask(path, **headers))[0] == status


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        pytest.param(
            {"without": [{"key": "kubernetes.io/hostname", "value": "node-0001"}]}, 200, "", id="a lost node"
        ),
        pytest.param({}, 400, "nothing to place", id="nothing asked"),
        pytest.param({"replicas": -1, "manifest": "x: 1"}, 400, "replicas", id="a negative number"),
        pytest.param({"cordon": ["nowhere"], "manifest": "x: 1"}, 400, "nowhere", id="an unknown node"),
        pytest.param({"weights": {"Nothing": 1}, "manifest": "x: 1"}, 400, "Nothing", id="an unknown plugin"),
        pytest.param({"manifest": "kind: Secret"}, 400, "kind", id="a manifest that creates no pod"),
        pytest.param({"without": [{"key": "zone", "value": "none"}]}, 400, "zone=none", id="no such label"),
        pytest.param({"manifest": workloads(2)}, 400, "2400, expected at most 2000", id="too many replicas"),
        pytest.param({"manifest": workloads(21), "replicas": 1}, 400, "21 workloads", id="many workloads"),
        pytest.param({"delete": "everything"}, 400, "delete", id="an unknown field"),
        pytest.param({"like": {"namespace": "mine", "name": "nobody"}}, 404, "no such pod", id="no such pod"),
    ],
)
async def test_a_question_is_answered_or_told_what_is_wrong(
    local: Port, body: Any, status: int, told: str
) -> None:
    found, answer, _ = await local.ask("/api/v1/what-if", method="POST", body=body)
    assert (found, told in json.dumps(answer)) == (status, True)
    assert "\n" not in answer.get("message", "")


async def test_the_port_leads_to_its_page(local: Port) -> None:
    """By its root, by the line at the start and by /statusz."""
    status, text, _ = await local.ask("/")
    assert (status, text.lstrip()[:9].lower()) == (200, "<!doctype")
    assert local.daemon.logged("Serving the page", f"http://127.0.0.1:{local.daemon.port}/ui/")
    _, pages, _ = await local.ask("/statusz")
    (paths,) = [line for line in pages.splitlines() if line.startswith("Paths: ")]
    assert {"/ui/", "/debug/explain", "/metrics"} <= set(paths.split())


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_of_explanations_only_reading_is_served(local: Port, method: str) -> None:
    assert (await local.ask("/debug/explain", method=method))[0] == 405


async def test_a_form_of_a_foreign_page_asks_nothing(local: Port) -> None:
    """It can send text, but no JSON without asking first."""
    async with local.daemon.requested("/api/v1/what-if", method="POST") as answer:
        assert answer.status == 415


async def test_the_stream_tells_of_a_new_pod(local: Port) -> None:
    async with local.daemon.requested("/api/v1/stream") as answer:
        assert await answer.content.readline() == b"event: now\n"
        add_pod(local.cluster, "mine", "streamed")
        while (line := await answer.content.readline()) != b"event: decisions\n":
            assert line
        decisions = json.loads((await answer.content.readline()).removeprefix(b"data: "))
    assert [one["pod"] for one in decisions["decisions"]] == ["streamed"]
    assert decisions["decisions"][0]["top"]


async def test_viewers_are_bounded_and_one_that_reads_nothing_holds_up_nobody(local: Port) -> None:
    """Its connection's buffer fills, and it gets no further message."""

    async def has_room() -> bool:
        async with local.daemon.requested("/api/v1/stream") as answer:
            return answer.status == 200

    async with AsyncExitStack() as stack:
        for _ in range(MAX_VIEWERS - 1):
            await stack.enter_async_context(local.daemon.requested("/api/v1/stream"))
        # Viewers of the tests before have left, which shows at the next message to them.
        await until(has_room, what="room for one more viewer")
        last = await stack.enter_async_context(local.daemon.requested("/api/v1/stream"))
        while last.status != 200:
            last = await stack.enter_async_context(local.daemon.requested("/api/v1/stream"))
        assert (await local.ask("/api/v1/stream"))[0] == 503
        for _ in range(4):
            assert await last.content.readline()
        assert await local.daemon.is_ready()
    await until(has_room, what="room for a viewer once the others have left")


async def test_a_standby_shows_its_own_caches_and_says_so(local: Port) -> None:
    """Its pods wait for the reason that the leader has written into their conditions."""
    async with running(local.kubeconfig) as daemon:
        standby = Port(local.cluster, local.kubeconfig, daemon, {})

        async def now() -> Any:
            return (await standby.ask("/api/v1/now"))[1]

        found = await until(now, lambda found: found["leader"], what="a leader")
        assert (found["role"], found["isSynced"], found["nodes"]) == ("standby", True, 2)
        missing = {cache["kind"].partition(".")[0] for cache in found["caches"] if not cache["isServed"]}
        assert missing == {"PodGroup", "Topology", "ResourceFlavor"}
        _, pending, _ = await standby.ask("/api/v1/pending")
        assert [group["reason"] for group in pending["groups"]] == [
            "node(s) didn't match Pod's node affinity/selector"
        ]
    assert (await local.ask("/api/v1/now"))[1]["role"] == "leader"
