"""The command shadow beside the real kube-scheduler: the same decisions, but for ties and races."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.explain.random_clusters import random_node, random_pod
from tests.support.api_client import Api
from tests.support.apiserver import Address
from tests.support.cluster import kubeconfig_text
from tests.support.ports import free_port
from tests.support.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.asyncio]

KUBE_SCHEDULER = Path(os.environ.get("KUBEBUILDER_ASSETS", "")) / "kube-scheduler"
OTHER = "shadowed"
N_PODS = 60


@asynccontextmanager
async def process(*command: str, log: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    with log.open("wb") as stream:
        started = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=stream
        )
    try:
        yield started
    finally:
        if started.returncode is None:
            started.kill()
        await started.wait()


def kube_scheduler(kubeconfig: Path, folder: Path) -> list[str]:
    """The command of a kube-scheduler that scores all nodes."""
    config = folder / "kube-scheduler.json"
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "leaderElection": {"leaderElect": False},
        "percentageOfNodesToScore": 100,
        "profiles": [{"schedulerName": OTHER}],
    }
    config.write_text(json.dumps(document))
    return [
        str(KUBE_SCHEDULER),
        f"--config={config}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={free_port()}",
        f"--cert-dir={folder}",
    ]


async def is_decided(api: Api, path: str) -> bool:
    """Whether the pod has a node, or is reported as unschedulable."""
    pod = (await api.get(path)).ok
    conditions = pod["status"].get("conditions", [])
    return bool(pod["spec"].get("nodeName")) or any(c.get("reason") == "Unschedulable" for c in conditions)


@pytest.mark.skipif(not KUBE_SCHEDULER.is_file(), reason="no kube-scheduler beside the API server's binaries")
async def test_kube_scheduler_decides_as_we_would(real_server: Address, tmp_path: Path) -> None:
    """Random pods of all shapes, one after another: every difference is a tie or a race."""
    chance = random.Random(1)
    kubeconfig = tmp_path / "kubeconfig"
    ca_file = str(real_server.ca_file)
    kubeconfig.write_text(kubeconfig_text(real_server.url, token=real_server.token, ca_file=ca_file))
    shadow = [sys.executable, "-m", "scheduler", "shadow", "--of", OTHER, "--kubeconfig", str(kubeconfig)]
    log = tmp_path / "shadow.log"
    headers = {"Authorization": f"Bearer {real_server.token}"}
    async with Api(real_server.url, headers, ssl=ssl.create_default_context(cafile=ca_file)) as api:
        await api.enter_namespace()
        nodes = [random_node(chance, number) for number in range(8)]
        for node in nodes:
            status = node["status"]
            (await api.post("/api/v1/nodes", node)).ok  # noqa: B018 - asserts success
            name = node["metadata"]["name"]
            stored = (await api.get(f"/api/v1/nodes/{name}")).ok
            (await api.request("PUT", f"/api/v1/nodes/{name}/status", {**stored, "status": status})).ok  # noqa: B018
        scheduler = kube_scheduler(kubeconfig, tmp_path)
        async with (
            process(*scheduler, log=tmp_path / "kube-scheduler.log"),
            process(*shadow, "-o", "json", "--percentage-of-nodes-to-score", "100", log=log) as watching,
        ):

            async def compares() -> bool:
                return "Comparing decisions" in log.read_text()

            await until(compares, what="the shadow's first list")
            for number in range(N_PODS):
                pod = random_pod(chance, f"p{number}", api.namespace, OTHER)
                (await api.post(api.pods(), pod)).ok  # noqa: B018 - asserts success
                path = api.pods(f"p{number}")
                await until(partial(is_decided, api, path), what=f"a decision on p{number}")
            watching.send_signal(signal.SIGINT)
            out, _ = await watching.communicate()
        for number in range(N_PODS):
            await api.delete(api.pods(f"p{number}"), {"gracePeriodSeconds": 0})
        for node in nodes:
            await api.delete(f"/api/v1/nodes/{node['metadata']['name']}")
    report = json.loads(out)
    assert report["bound"] > N_PODS / 5
    assert report["pending"] > 0
    assert [each for each in report["differences"] if each["cause"] != "race"] == []
    assert report["bound"] == report["alike"] + report["causes"].get("race", 0)
