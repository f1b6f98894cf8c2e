"""The decision annotation of a running scheduler, and `kubectl affinity explain`."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path

import pytest

from scheduler.engine.model.annotations import DECISION_ANNOTATION
from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.kinds import POD
from tests.cli.conftest import embedded
from tests.support import build
from tests.support.accounts import account_kubeconfig
from tests.support.daemon import running
from tests.support.waiting import until

PLUGIN = f"#!{sys.executable}\nfrom scheduler.cli.main import main\nraise SystemExit(main())\n"


async def test_bound_pods_have_no_decision_annotation_if_it_is_off(tmp_path: Path) -> None:
    pod = build.pod("p", spec={"schedulerName": "affinity-scheduler"})
    async with DevCluster(nodes=3) as cluster:
        kubeconfig = account_kubeconfig(cluster, "scheduler", tmp_path)
        async with running(kubeconfig, "--decision-annotations", "false"):
            cluster.store.create(POD, "default", pod)

            async def is_bound() -> bool:
                return bool(cluster.store.revision(POD, "default", "p").obj["spec"].get("nodeName"))

            await until(is_bound, what="the pod to be bound")
        stored = cluster.store.revision(POD, "default", "p").obj
    assert DECISION_ANNOTATION not in (stored["metadata"].get("annotations") or {})


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on PATH")
async def test_kubectl_affinity_explain_works(tmp_path: Path) -> None:
    plugin = tmp_path / "kubectl-affinity"
    plugin.write_text(PLUGIN)
    plugin.chmod(0o755)
    pod = build.pod("p", node_selector={"disk": "ssd"})
    async with embedded(tmp_path, nodes=3) as cluster:
        cluster.store.create(POD, "default", pod)
        process = await asyncio.create_subprocess_exec(
            *("kubectl", "affinity", "explain", "p"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={
                **os.environ,
                "PATH": f"{tmp_path}:{os.environ['PATH']}",
                "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
            },
        )
        async with asyncio.timeout(30):
            out, err = await process.communicate()
    assert (process.returncode, err.decode()) == (1, "")
    assert "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector." in out.decode()
    assert "node node-0001 has the label disk=ssd" in out.decode()
