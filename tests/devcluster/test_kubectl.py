"""The real kubectl where it leans on the server's own rules: paging, apply, validation, namespaces."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from scheduler.devcluster.cluster import DevCluster
from scheduler.devcluster.kinds import POD

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on PATH"),
]

_TIMEOUT_S = 30.0

_WEB = """
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      nodeName: node-0001
      containers: [{name: c, image: "registry.test/web:1"}]
"""


@dataclass(frozen=True, slots=True)
class Kubectl:
    """A kubectl whose only cluster is the one under test."""

    cluster: DevCluster
    kubeconfig: Path

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        """kubectl runs, its input and output at hand."""
        pipe = asyncio.subprocess.PIPE
        home = str(self.kubeconfig.parent)
        environment = {
            "KUBECONFIG": str(self.kubeconfig),
            "HOME": home,
            "PATH": "/usr/local/bin:/usr/bin:/bin",
        }
        kubectl = shutil.which("kubectl") or "kubectl"
        return await asyncio.create_subprocess_exec(
            kubectl, *arguments, stdin=pipe, stdout=pipe, stderr=pipe, env=environment
        )

    async def run(self, *arguments: str, stdin: str = "") -> tuple[int, str]:
        """The exit code, and both outputs together."""
        process = await self.start(*arguments)
        async with asyncio.timeout(_TIMEOUT_S):
            out, err = await process.communicate(stdin.encode())
        assert process.returncode is not None
        return process.returncode, out.decode() + err.decode()

    async def __call__(self, *arguments: str, stdin: str = "") -> str:
        """The output of a run that must succeed."""
        code, text = await self.run(*arguments, stdin=stdin)
        assert code == 0, text
        return text


@pytest_asyncio.fixture
async def kubectl(tmp_path) -> AsyncIterator[Kubectl]:
    async with DevCluster(nodes=2, zones=2, controllers=True) as cluster:
        path = tmp_path / "kubeconfig"
        cluster.write_kubeconfig(path)
        yield Kubectl(cluster, path)


async def test_a_namespace_is_created_and_deleted(kubectl):
    assert await kubectl("create", "namespace", "team") == "namespace/team created\n"
    assert "Active" in await kubectl("get", "namespace", "team")
    assert await kubectl("delete", "namespace", "team", "--timeout=20s") == 'namespace "team" deleted\n'


async def test_an_invalid_object_is_refused_with_the_servers_words(kubectl):
    code, text = await kubectl.run("run", "Bad_Name", "--image=i")
    assert code == 1
    assert "metadata.name: Invalid value" in text


async def test_a_server_side_apply_creates_and_merges(kubectl):
    for _ in range(2):
        applied = await kubectl("apply", "--server-side", "-f", "-", stdin=_WEB)
        assert applied == "deployment.apps/web serverside-applied\n"


async def test_long_lists_are_paged(kubectl):
    for index in range(5):
        spec = {"containers": [{"name": "c", "image": "i"}]}
        kubectl.cluster.store.create(POD, "default", {"metadata": {"name": f"p{index}"}, "spec": spec})
    assert len((await kubectl("get", "pods", "--chunk-size=2", "--no-headers")).splitlines()) == 5


_QUOTA = """
apiVersion: v1
kind: ResourceQuota
metadata: {name: small}
spec: {hard: {pods: "1", limits.cpu: "2", requests.cpu: 1500m}}
"""


async def test_a_quota_is_counted_and_shown(kubectl):
    assert await kubectl("apply", "-f", "-", stdin=_QUOTA) == "resourcequota/small created\n"
    limits = '{"spec":{"containers":[{"name":"c","image":"i","resources":{"limits":{"cpu":"500m"}}}]}}'
    for _ in range(100):
        shown = await kubectl("get", "quota", "--no-headers")
        if "pods: 0/1" in shown:
            break
    await kubectl("run", "one", "--image=i", f"--overrides={limits}")
    name, request, limit = (await kubectl("get", "quota", "--no-headers")).split("   ")[:3]
    assert (name, request, limit.strip()) == (
        "small",
        "pods: 1/1, requests.cpu: 500m/1500m",
        "limits.cpu: 500m/2",
    )
    code, text = await kubectl.run("run", "two", "--image=i", f"--overrides={limits}")
    assert code == 1
    assert "exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1" in text
    described = await kubectl("describe", "quota", "small")
    assert ["pods", "1", "1"] in [line.split() for line in described.splitlines()]
    await kubectl("delete", "pod", "one", "--now")
    for _ in range(100):
        if "pods: 0/1" in (shown := await kubectl("get", "quota", "--no-headers")):
            break
    assert "pods: 0/1, requests.cpu: 0/1500m" in shown


async def test_a_quota_made_on_the_command_line_has_its_limits_and_scopes(kubectl):
    await kubectl("create", "quota", "across", "--hard=pods=0", "--scopes=CrossNamespacePodAffinity")
    described = await kubectl("describe", "quota", "across")
    assert "CrossNamespacePodAffinity" in described
