"""The real kubectl against the embedded cluster."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from scheduler.devcluster.kinds import POD
from scheduler.devcluster.server import DevCluster

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


async def test_nodes_are_shown_with_their_zones(kubectl):
    lines = (await kubectl("get", "nodes", "-L", "topology.kubernetes.io/zone")).splitlines()
    assert lines[0].split() == ["NAME", "STATUS", "ROLES", "AGE", "VERSION", "ZONE"]
    assert [(line.split()[0], line.split()[1], line.split()[-1]) for line in lines[1:]] == [
        ("node-0001", "Ready", "zone-a"),
        ("node-0002", "Ready", "zone-b"),
    ]


async def test_a_deployment_is_applied_scaled_rolled_and_deleted(kubectl):
    assert await kubectl("apply", "-f", "-", stdin=_WEB) == "deployment.apps/web created\n"
    assert await kubectl("apply", "-f", "-", stdin=_WEB) == "deployment.apps/web unchanged\n"
    assert "successfully rolled out" in await kubectl("rollout", "status", "deployment/web", "--timeout=20s")
    assert await kubectl("scale", "deployment/web", "--replicas=4") == "deployment.apps/web scaled\n"
    changed = _WEB.replace("web:1", "web:2").replace("replicas: 3", "replicas: 4")
    assert await kubectl("apply", "-f", "-", stdin=changed) == "deployment.apps/web configured\n"
    assert "successfully rolled out" in await kubectl("rollout", "status", "deployment/web", "--timeout=20s")
    images = await kubectl("get", "pods", "-o", "jsonpath={.items[*].spec.containers[0].image}")
    assert "registry.test/web:2" in images
    assert await kubectl("delete", "deployment/web", "--timeout=20s") == 'deployment.apps "web" deleted\n'


async def test_a_pod_is_shown_labelled_described_and_deleted(kubectl):
    assert await kubectl("run", "p", "--image=registry.test/pause:1") == "pod/p created\n"
    row = (await kubectl("get", "pods", "-o", "wide")).splitlines()[1].split()
    assert (row[0], row[1], row[2], row[6]) == ("p", "0/1", "Pending", "<none>")
    assert await kubectl("label", "pod/p", "tier=db") == "pod/p labeled\n"
    assert "tier=db" in await kubectl("get", "pod", "p", "--show-labels")
    described = await kubectl("describe", "pod", "p")
    assert "registry.test/pause:1" in described
    assert "Pending" in described
    assert (
        await kubectl("get", "pods", "-l", "tier notin (db)") == "No resources found in default namespace.\n"
    )
    assert await kubectl("delete", "pod", "p", "--timeout=20s") == 'pod "p" deleted\n'


async def test_a_watch_shows_changes_as_they_come(kubectl):
    process = await kubectl.start("get", "pods", "-w", "--no-headers")
    assert process.stdout is not None
    spec = {"containers": [{"name": "c", "image": "i"}]}
    try:
        kubectl.cluster.store.create(POD, "default", {"metadata": {"name": "first"}, "spec": spec})
        async with asyncio.timeout(_TIMEOUT_S):
            assert (await process.stdout.readline()).split()[:3] == [b"first", b"0/1", b"Pending"]
            kubectl.cluster.store.create(POD, "default", {"metadata": {"name": "second"}, "spec": spec})
            assert (await process.stdout.readline()).split()[:3] == [b"second", b"0/1", b"Pending"]
    finally:
        process.kill()
        await process.communicate()


async def test_a_namespace_is_created_and_deleted(kubectl):
    assert await kubectl("create", "namespace", "team") == "namespace/team created\n"
    assert "Active" in await kubectl("get", "namespace", "team")
    assert await kubectl("delete", "namespace", "team", "--timeout=20s") == 'namespace "team" deleted\n'


async def test_a_node_is_cordoned_tainted_and_drained(kubectl):
    assert await kubectl("cordon", "node-0001") == "node/node-0001 cordoned\n"
    assert "Ready,SchedulingDisabled" in await kubectl("get", "node", "node-0001")
    assert await kubectl("taint", "node", "node-0002", "a=b:NoSchedule") == "node/node-0002 tainted\n"
    await kubectl("apply", "-f", "-", stdin=_WEB.replace("replicas: 3", "replicas: 1"))
    await kubectl("rollout", "status", "deployment/web", "--timeout=20s")
    await kubectl("uncordon", "node-0001")
    assert "evicting pod default/web-" in await kubectl("drain", "node-0001", "--timeout=20s")


async def test_an_invalid_object_is_refused_with_the_servers_words(kubectl):
    code, text = await kubectl.run("run", "Bad_Name", "--image=i")
    assert code == 1
    assert "metadata.name: Invalid value" in text


async def test_an_unknown_kind_is_said_to_be_unknown(kubectl):
    code, text = await kubectl.run("get", "widgets")
    assert (code, text) == (1, 'error: the server doesn\'t have a resource type "widgets"\n')


async def test_a_server_side_apply_creates_and_merges(kubectl):
    for _ in range(2):
        applied = await kubectl("apply", "--server-side", "-f", "-", stdin=_WEB)
        assert applied == "deployment.apps/web serverside-applied\n"


async def test_long_lists_are_paged(kubectl):
    for index in range(5):
        spec = {"containers": [{"name": "c", "image": "i"}]}
        kubectl.cluster.store.create(POD, "default", {"metadata": {"name": f"p{index}"}, "spec": spec})
    assert len((await kubectl("get", "pods", "--chunk-size=2", "--no-headers")).splitlines()) == 5
