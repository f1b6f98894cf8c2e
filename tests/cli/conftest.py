"""The commands, called in this process; embedded clusters and snapshots for them."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias
from unittest import mock

import pytest

from scheduler.cli.main import main
from scheduler.daemon.kube.client import KubeClient
from scheduler.daemon.kube.credentials import Credentials, Endpoint
from scheduler.daemon.kube.login import Identity
from scheduler.daemon.kube.requests import bind, micro_time
from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.kinds import LEASE, POD
from tests.support import build

#: Takes arguments; returns exit code, standard output and standard error: texts, of which tuples equal snapshots too.
Called: TypeAlias = Callable[..., Awaitable[tuple[int, Any, Any]]]

SECRET = "s3cr3t"
ALONE = build.affinity(anti_required=[build.term(build.ZONE, build.selector("app=web"))])
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 5
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      schedulerName: affinity-scheduler
      containers: [{name: c, image: pause}]
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
          - topologyKey: topology.kubernetes.io/zone
            labelSelector: {matchLabels: {app: web}}
            matchLabelKeys: [pod-template-hash]
"""


@pytest.fixture
def called(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Called:
    """Return a function that runs a command in a thread with its own event loop. It prints the test's folder as DIR."""

    async def call(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        try:
            code = await asyncio.to_thread(main, list(arguments))
        except SystemExit as ended:
            code = int(str(ended.code))
        out, err = (text.replace(str(tmp_path), "DIR") for text in capsys.readouterr())
        return code, out, err

    return call


async def refused(called: Called, *arguments: str) -> str:
    """Return the one line that a command prints which cannot do what is asked, and only that."""
    code, out, err = await called(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1), (arguments, err)
    return str(err)


def hold_lease(
    cluster: DevCluster, *, holder: str = "scheduler-0", age_s: float = 0.0, name: str = "affinity-scheduler"
) -> None:
    """Write a scheduler's Lease as it was renewed so long ago; without a holder it has been released."""
    spec = {"leaseDurationSeconds": 15, "renewTime": micro_time(time.time() - age_s)}
    lease = {"metadata": {"name": name}, "spec": {**spec, "holderIdentity": holder}}
    cluster.store.create(LEASE, "kube-system", lease)


@asynccontextmanager
async def embedded(tmp_path: Path, **settings: Any) -> AsyncIterator[DevCluster]:
    """Yield a cluster, which KUBECONFIG names meanwhile."""
    kubeconfig = tmp_path / "kubeconfig"
    async with DevCluster(**settings) as cluster:
        cluster.write_kubeconfig(kubeconfig)
        with mock.patch.dict(os.environ, KUBECONFIG=str(kubeconfig)):
            yield cluster


def web(name: str, node: str | None = None) -> build.Json:
    """Return a pod that keeps apart from others by zone, with secrets."""
    pod = build.pod(
        name, labels={"app": "web"}, affinity=ALONE, node=node, spec={"schedulerName": "affinity-scheduler"}
    )
    pod["spec"]["containers"][0]["env"] = [{"name": "PASSWORD", "value": SECRET}]
    pod["spec"]["volumes"] = [{"name": "v", "secret": {"secretName": SECRET}}]
    return pod


@asynccontextmanager
async def served(tmp_path: Path) -> AsyncIterator[DevCluster]:
    """Yield six nodes in three zones. Each zone has a web pod, and a fourth one is pending. A scheduler runs."""
    async with embedded(tmp_path, nodes=6, zones=3) as cluster:
        hold_lease(cluster)
        for number, node in enumerate(("node-0001", "node-0002", "node-0003", None)):
            cluster.store.create(POD, "default", web(f"web-{number}", node))
        yield cluster


async def bind_pod(cluster: DevCluster, pod: build.Json, node: str, annotation: str) -> None:
    """Bind the stored pod as a scheduler does."""
    meta = pod["metadata"]
    request = bind(
        namespace=meta["namespace"],
        name=meta["name"],
        uid=meta["uid"],
        node_name=node,
        annotations={"affinity-scheduler.io/decision": annotation},
    )
    async with KubeClient(Credentials(Endpoint(cluster.url), Identity())) as client:
        await client.request(request, timeout_s=5)


def recorded(folder: Path, *objects: build.Json) -> str:
    """Write the objects as the command `snapshot` does, and return the file."""
    lines: list[build.Json] = [{"apiVersion": "affinity-scheduler.io/v1", "kind": "ClusterRecording"}]
    lines += [{"atS": 0, "kind": each["kind"], "object": each} for each in objects]
    lines += [{"atS": 0, "kind": kind, "listed": True} for kind in {each["kind"]: 0 for each in objects}]
    lines += [{"atS": 0, "kind": "Synced"}]
    file = folder / "cluster.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return str(file)


def written(path: Path, *documents: build.Json) -> str:
    """Write a manifest with these documents, and return the file."""
    path.write_text("\n---\n".join(map(json.dumps, documents)))
    return str(path)
