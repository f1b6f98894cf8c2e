"""
Every set of values is installed over earlier releases, runs, goes back, and leaves pods that run and pods that wait.

kubectl does what Helm does with what the chart renders: apply it, and delete what the release before it had besides.
"""

from __future__ import annotations

import asyncio
import io
import re
import subprocess
import tarfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from scheduler.sandbox.devcluster.cluster import DevCluster
from tests.proof.chaos.release import COMMIT_OF_0_1_0, COMMIT_OF_1_0_0
from tests.support.api_client import Api
from tests.support.apiserver import Address
from tests.support.build import Json
from tests.support.cluster import Cluster, kubeconfig_of, kubeconfig_text
from tests.support.daemon import Daemon, attended, orderly
from tests.support.forking import forked
from tests.support.image import IMAGE_ROOT, in_container
from tests.support.kubectl import Kubectl
from tests.support.manifest_files import MANIFESTS, OWN_NAMESPACE, ROOT, container, named
from tests.support.ports import free_port
from tests.support.webhook_process import STRICT
from tests.system.processes.conftest import real

helm = pytest.importorskip(
    "helm_python", reason="helm-python-sdk is not installed: no wheel for this platform"
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

NAME = "affinity-scheduler"
NO_ROOM = "0/1 nodes are available: 1 Insufficient cpu."
WEBHOOK: Json = {"enabled": True}
PEER: Json = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
ENFORCER: Json = {"enabled": True}
TEAM_PER_RACK: Json = {"multiPoint": {"enabled": [{"name": "TeamPerRack"}]}}
RULE = (MANIFESTS / "examples" / "plugins" / "team_per_rack.py").read_text()
#: Each value is in one of them; the defaults are what the kustomizations install.
SETS: dict[str, tuple[str, Json]] = {
    "everything in a namespace of its own": (
        "scheduling",
        {
            "podSecurityContext": {"runAsUser": 1001},
            "networkPolicy": {"enabled": True, "metricsFrom": [PEER]},
            "dashboard": {"enabled": True},
            "scheduler": {"priorityClassName": "system-node-critical"},
            "enforcer": ENFORCER,
            "webhook": WEBHOOK,
        },
    ),
    "what writes most": (
        "kube-system",
        {
            "fullnameOverride": "placer",
            "enforcer": {
                **ENFORCER,
                "rebalance": {"enabled": True, "forGroups": 2},
                "deletionCosts": "write",
            },
            "webhook": {**WEBHOOK, "pods": "all", "mergeFields": True},
        },
    ),
    "what writes least, with a rule of one's own": (
        "kube-system",
        {
            "enforcer": {**ENFORCER, "dryRun": True},
            "webhook": {**WEBHOOK, "mutating": False, "reportOnly": True},
            "scheduler": {
                "plugins": {"team_per_rack.py": RULE},
                "configuration": {"profiles": [{"schedulerName": NAME, "plugins": TEAM_PER_RACK}]},
            },
        },
    ),
}


class Installed(NamedTuple):
    cluster: Cluster
    kubectl: Kubectl
    #: Of a real server.
    address: Address | None

    def kubeconfig(self, folder: Path, namespace: str, account: str) -> Path:
        """Return a kubeconfig with a token of the account and nothing else."""
        path = folder / f"{account}.kubeconfig"
        if self.address is not None:
            token = self.kubectl("create", "token", account, "--namespace", namespace).strip()
            return kubeconfig_of(self.address, path, token=token)
        assert self.cluster.devcluster is not None
        token = self.cluster.devcluster.token_of(namespace, account)
        path.write_text(kubeconfig_text(self.cluster.devcluster.url, token=token))
        return path

    async def kubectl_(self, *arguments: str, given: str | None = None) -> str:
        """Run kubectl while the embedded cluster answers."""
        return await asyncio.to_thread(self.kubectl, *arguments, given=given)

    async def replace(self, before: list[Json], objects: list[Json]) -> None:
        """Apply a release, and delete the objects of the one before that are not in it, as Helm does."""
        await self.kubectl_("apply", "-f", "-", given=yaml.safe_dump_all(objects))
        kept = {_identity(each) for each in objects}
        await self.delete([each for each in before if _identity(each) not in kept])

    async def delete(self, objects: list[Json]) -> None:
        """Delete the objects, which all have to be there."""
        if objects:
            await self.kubectl_("delete", "--wait=false", "-f", "-", given=yaml.safe_dump_all(objects))

    async def left(self) -> set[str]:
        """Return what still has a label of the product, but for pods that the kubelets would end."""
        kinds = (
            "deployments,services,serviceaccounts,configmaps,secrets,poddisruptionbudgets,networkpolicies,roles,rolebindings,"
            "clusterroles,clusterrolebindings,mutatingwebhookconfigurations,validatingwebhookconfigurations,flowschemas"
        )
        label = f"app.kubernetes.io/name in ({NAME}, {NAME}-enforcer, {NAME}-webhook)"
        return {*(await self.kubectl_("get", kinds, "-A", "-l", label, "-o", "name")).split()}


@pytest.fixture(params=["devcluster", pytest.param("real", marks=pytest.mark.real)])
async def installed(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Installed]:
    """Yield a cluster of one node, with a namespace for the test's pods."""
    address = None
    if request.param == "real":
        address = request.getfixturevalue("real_server")
        made = real(tmp_path, address)
    else:
        made = _empty()
    async with made as cluster:
        await cluster.api.enter_namespace()
        await cluster.add_node("n", allocatable={"cpu": "4", "pods": "110"})
        admin = tmp_path / "admin"
        if address is not None:
            kubeconfig_of(address, admin)
        else:
            assert cluster.devcluster is not None
            admin.write_text(kubeconfig_text(cluster.devcluster.url))
        yield Installed(cluster, Kubectl(admin), address)
        await cluster.clear()


@asynccontextmanager
async def _empty() -> AsyncIterator[Cluster]:
    async with DevCluster(controllers=True) as devcluster, Api(devcluster.url, {}) as api:
        yield Cluster(api, "", devcluster)


@pytest.fixture(scope="module")
def earlier_charts(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return the charts of 0.1.0 and of 1.0.0, from the repository's history."""
    charts = []
    for commit in (COMMIT_OF_0_1_0, COMMIT_OF_1_0_0):
        folder = tmp_path_factory.mktemp(commit)
        done = subprocess.run(["git", "archive", commit, "manifests"], cwd=ROOT, capture_output=True)
        if done.returncode:
            pytest.skip(f"the history does not reach to 0.1.0: {done.stderr.decode()}")
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as tar:
            tar.extractall(folder, filter="data")
        charts.append(folder / "manifests" / "chart")
    return charts


@pytest.mark.parametrize("values", SETS)
async def test_a_release_comes_works_goes_back_and_leaves(
    installed: Installed, earlier_charts: list[Path], tmp_path: Path, values: str
) -> None:
    namespace, given = SETS[values]
    webhook = given.get("webhook", {"enabled": False})
    # The embedded cluster evaluates no match conditions; a real one refuses those that do not compile.
    given = {**given, "webhook": {"matchConditions": installed.address is not None, **webhook}}
    new = _rendered(MANIFESTS / "chart", given, namespace)
    earlier = [_rendered(chart, _known(given, chart), namespace) for chart in earlier_charts]
    if namespace != "kube-system":
        await installed.kubectl_("create", "namespace", namespace)
    first, last = earlier
    await installed.replace([], first)
    await installed.replace(first, new)
    # An upgrade from 1.0.0 takes its roles for users along; CHANGELOG says to apply them after it.
    await installed.kubectl_("apply", "-k", str(MANIFESTS / "explain"))
    async with _at_work(installed, new, tmp_path):
        pass
    await installed.replace(new, last)
    await installed.replace(last, new)
    await installed.kubectl_("apply", "-k", str(MANIFESTS / "explain"))
    placed = await installed.cluster.pod("runs")
    await installed.delete(new)
    roles = {f"clusterrole.rbac.authorization.k8s.io/{NAME}-{name}" for name in ("viewer", "explain")}
    assert await installed.left() == roles
    await _nothing_happens_to_pods(installed, placed)
    await _free_leases(installed, namespace)
    await installed.kubectl_("delete", "-k", str(MANIFESTS / "explain"))
    assert await installed.left() == set()


@pytest.mark.parametrize(
    ("namespace", "folders"),
    [("kube-system", (MANIFESTS, MANIFESTS / "enforcer")), (NAME, (OWN_NAMESPACE,))],
    ids=["kube-system", "own-namespace"],
)
async def test_kustomizations_come_work_and_leave(
    installed: Installed, tmp_path: Path, namespace: str, folders: tuple[Path, ...]
) -> None:
    objects = [each for folder in folders for each in installed.kubectl.rendered(folder)]
    for folder in folders:
        await installed.kubectl_("apply", "-k", str(folder))
    async with _at_work(installed, objects, tmp_path):
        pass
    placed = await installed.cluster.pod("runs")
    if namespace == "kube-system":
        await _free_leases(installed, namespace)
        page = (MANIFESTS / "README.md").read_text()
        for line in re.findall(r"^kubectl (--namespace kube-system delete [^#\n]+)", page, re.MULTILINE):
            await installed.kubectl_(*line.split())
    for folder in folders:
        await installed.kubectl_("delete", "--ignore-not-found", "--wait=false", "-k", str(folder))
    assert await installed.left() == set()
    await _nothing_happens_to_pods(installed, placed)


@asynccontextmanager
async def _at_work(installed: Installed, objects: list[Json], tmp_path: Path) -> AsyncIterator[None]:
    """Run every Deployment; one pod is placed, and one waits."""
    cluster = installed.cluster
    async with AsyncExitStack() as stack:
        for deployment in named(objects, "Deployment").values():
            await stack.enter_async_context(_running(installed, objects, deployment, tmp_path))
        await cluster.add_pod("runs", cpu="1")
        await cluster.add_pod("waits", cpu="7")
        assert await cluster.node_of("runs") == "n"
        await cluster.condition("waits", NO_ROOM)
        yield


async def _nothing_happens_to_pods(installed: Installed, placed: Json) -> None:
    """The pod that runs stays as it is, with its annotations; the one that waits waits; others can be created."""
    cluster = installed.cluster
    after = await cluster.pod("runs")
    annotations = after["metadata"]["annotations"]
    assert (after["spec"], annotations) == (placed["spec"], placed["metadata"]["annotations"])
    assert [each for each in annotations if each.startswith(f"{NAME}.io/")]
    assert "nodeName" not in (await cluster.pod("waits"))["spec"]
    await cluster.add_pod("for-another", scheduler="default-scheduler")


async def _free_leases(installed: Installed, namespace: str) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    leases = (await installed.cluster.api.get(path)).ok["items"]
    ours = [each["spec"] for each in leases if each["metadata"]["name"].startswith((NAME, "placer"))]
    assert ours
    # On a server that several tests use, one may have left a Lease that nobody has held.
    assert [spec for spec in ours if spec.get("holderIdentity")] == []


@asynccontextmanager
async def _running(
    installed: Installed, objects: list[Json], deployment: Json, tmp_path: Path
) -> AsyncIterator[Daemon]:
    """Run the Deployment's container with the rights of its account, none of whose requests may be refused."""
    pod, namespace = deployment["spec"]["template"]["spec"], deployment["metadata"]["namespace"]
    folder = tmp_path / deployment["metadata"]["name"]
    folder.mkdir()
    words = [each.replace("$(NAMESPACE)", namespace) for each in container(deployment)["args"]]
    files = {
        volume["name"]: volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume
    }
    for mount in container(deployment)["volumeMounts"]:
        if mount["name"] in files:
            mounted = folder / mount["name"]
            mounted.mkdir()
            for name, text in named(objects, "ConfigMap")[files[mount["name"]]]["data"].items():
                (mounted / name).write_text(text)
            at = re.compile(rf"={mount['mountPath']}(?=/|$)")
            words = [at.sub(f"={mounted}", each) for each in words]
    port = free_port()
    kubeconfig = installed.kubeconfig(folder, namespace, pod["serviceAccountName"])
    words += [f"--kubeconfig={kubeconfig}", "--bind-address=127.0.0.1", f"--port={port}"]
    if words[0] == "webhook":
        words.append(f"--webhook-port={free_port()}")
    process = (
        await asyncio.create_subprocess_exec(*in_container(folder, *words), stderr=asyncio.subprocess.PIPE)
        if IMAGE_ROOT
        else await forked("scheduler", *words, options=STRICT)
    )
    async with attended(process, port, is_secure=False) as daemon, orderly(daemon):
        yield daemon
        for code in ("401", "403"):
            assert await daemon.metric("rest_client_requests_total", code=code) == 0, daemon.log()


def _identity(each: Json) -> tuple[str, str, str]:
    return each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]


def _rendered(folder: Path, values: Json, namespace: str) -> list[Json]:
    with helm.Chart.load(folder) as chart:
        files = chart.render(values, name=NAME, namespace=namespace)
    texts = [text for path, text in files.items() if path.endswith(".yaml")]
    return [each for text in texts for each in yaml.safe_load_all(text) if each]


def _known(values: Json, chart: Path) -> Json:
    return _among(values, yaml.safe_load((chart / "values.yaml").read_text()))


def _among(values: Json, defaults: Json) -> Json:
    found: dict[str, Any] = {}
    for name, value in values.items():
        if name in defaults:
            is_part = isinstance(value, dict) and isinstance(defaults[name], dict) and name != "configuration"
            found[name] = _among(value, defaults[name]) if is_part else value
    if "plugins" not in defaults and "plugins" in values:
        del found["configuration"]
    return found
