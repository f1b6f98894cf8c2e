"""kubeadm's static pod of kube-scheduler with only its program replaced, on a real API server."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
import yaml

from tests.support.apiserver import Address
from tests.support.cluster import kubeconfig_of
from tests.support.daemon import Daemon, attended
from tests.support.kubectl import Kubectl
from tests.support.ports import free_port
from tests.support.waiting import until
from tests.system.processes.conftest import real

pytestmark = pytest.mark.real

#: What `kubeadm init phase control-plane scheduler` writes (1.36), without what only a kubelet reads.
MANIFEST: Final = """
spec:
  containers:
  - command:
    - kube-scheduler
    - --authentication-kubeconfig=/etc/kubernetes/scheduler.conf
    - --authorization-kubeconfig=/etc/kubernetes/scheduler.conf
    - --bind-address=127.0.0.1
    - --kubeconfig=/etc/kubernetes/scheduler.conf
    - --leader-elect=true
    livenessProbe: {httpGet: {host: 127.0.0.1, path: /livez, port: 10259, scheme: HTTPS}}
    readinessProbe: {httpGet: {host: 127.0.0.1, path: /readyz, port: 10259, scheme: HTTPS}}
    startupProbe: {httpGet: {host: 127.0.0.1, path: /livez, port: 10259, scheme: HTTPS}}
"""
PROBES: Final = ("startupProbe", "livenessProbe", "readinessProbe")


@asynccontextmanager
async def static_pod(container: dict[str, Any], kubeconfig: Path, port: int) -> AsyncIterator[Daemon]:
    """Run the container's command with our program and its kubeconfig; `port` differs, since 10259 may be in use."""
    program, *arguments = container["command"]
    assert program == "kube-scheduler"
    own = [each.replace("/etc/kubernetes/scheduler.conf", str(kubeconfig)) for each in arguments]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "scheduler", "run", *own, f"--port={port}"), stderr=asyncio.subprocess.PIPE
    )
    async with attended(process, port, is_secure=True) as daemon:
        yield daemon


async def probed(probe: dict[str, Any], port: int) -> int:
    """Return the status that the kubelet would see, which verifies no certificate; 0 without an answer."""
    get = probe["httpGet"]
    url = f"{get['scheme'].lower()}://{get['host']}:{port}{get['path']}"
    try:
        async with aiohttp.ClientSession() as session, session.get(url, ssl=False) as answer:
            return answer.status
    except aiohttp.ClientConnectionError:
        return 0


async def test_kubeadms_manifest_comes_up_with_the_program_replaced(
    real_server: Address, tmp_path: Path
) -> None:
    """As the user system:kube-scheduler, with what RBAC gives it in every cluster."""
    (container,) = yaml.safe_load(MANIFEST)["spec"]["containers"]
    kubeconfig = kubeconfig_of(real_server, tmp_path / "scheduler.conf", token=real_server.scheduler_token)
    port = free_port()
    async with real(tmp_path, real_server) as cluster, static_pod(container, kubeconfig, port) as daemon:
        await cluster.api.enter_namespace()
        for name in PROBES:
            await until(partial(probed, container[name], port), lambda code: code == 200, what=name)
        await cluster.add_node("n")
        await cluster.add_pod("p")
        await cluster.all_bound(1)
        await until(lambda: cluster.events("p", "Scheduled"), what="its event")
        admin = Kubectl(Path(cluster.kubeconfig))
        lease = admin("get", "lease", "affinity-scheduler", "-n", "kube-system", "-o", "name")
        assert lease.strip() == "lease.coordination.k8s.io/affinity-scheduler"
        daemon.token = real_server.token
        for path in ("/metrics", "/configz", "/statusz", "/flagz"):
            assert (await daemon.get(path))[0] == 200, path
        assert await daemon.stop() == 0, daemon.log()
        assert not daemon.logged("403 Forbidden"), daemon.log()
        await cluster.clear()
