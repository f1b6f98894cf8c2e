"""The command shadow beside the real kube-scheduler: the same decisions, but for ties and races."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.api_client import Api
from tests.support.apiserver import Address
from tests.support.cluster import kubeconfig_text
from tests.support.ports import free_port
from tests.support.waiting import until
from tests.tools.shadow.shadowed_cluster import Life, create_classes

pytestmark = [pytest.mark.real, pytest.mark.slow]

KUBE_SCHEDULER = Path(os.environ.get("KUBEBUILDER_ASSETS", "")) / "kube-scheduler"
OTHER = "shadowed"
#: Pods in each life, and lives unless `--lives` tells otherwise.
N_PODS = 40
N_LIVES = 2
#: Fewer changes can be taken for races than by default; a slow machine has more of them.
STRICT = ("--race-window", "100ms")


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


def kube_scheduler(kubeconfig: Path, folder: Path, version: str) -> list[str]:
    """Return the command of a kube-scheduler that scores all nodes and emulates a version."""
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
        f"--emulated-version=kube={version}",
    ]


def controllers(kubeconfig: Path, folder: Path) -> list[str]:
    """Return the command of a kube-controller-manager that binds claims to volumes, and does nothing else."""
    return [
        str(KUBE_SCHEDULER.with_name("kube-controller-manager")),
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--controllers=persistentvolume-binder-controller",
        "--bind-address=127.0.0.1",
        f"--secure-port={free_port()}",
        f"--cert-dir={folder}",
        "--leader-elect=false",
    ]


@pytest.mark.skipif(not KUBE_SCHEDULER.is_file(), reason="no kube-scheduler beside the API server's binaries")
@pytest.mark.timeout(0)
@pytest.mark.parametrize("version", ["1.34", "1.35", "1.36"])
async def test_kube_scheduler_decides_as_we_would(
    real_server: Address, tmp_path: Path, pytestconfig: pytest.Config, version: str
) -> None:
    """
    Random pods of all shapes, one after another: every difference is a tie or a race, whatever version both emulate.

    `pytest tests/tools/shadow/test_loop.py --lives 25 -o faulthandler_timeout=0` is 1,000 pods of each version in ten
    minutes each, with races told strictly; its folder has the report.
    """
    lives = pytestconfig.option.lives
    kubeconfig = tmp_path / "kubeconfig"
    ca_file = str(real_server.ca_file)
    kubeconfig.write_text(kubeconfig_text(real_server.url, token=real_server.token, ca_file=ca_file))
    shadow = [sys.executable, "-m", "scheduler", "shadow", "--of", OTHER, "-o", "json"]
    shadow += ["--kubeconfig", str(kubeconfig), f"--emulated-version=kube={version}"]
    window = STRICT if lives else ()
    # Before 1.35 (NominatedNodeNameForExpectation) nothing shows on which node a pod waits until its volumes are bound,
    # so that the other scheduler counts pods there which no watch has shown: only volumes that need no wait compare.
    with_waits = version >= "1.35"
    log, recording = tmp_path / "shadow.log", tmp_path / "recording.gz"
    record = [
        sys.executable,
        "-m",
        "scheduler",
        "record",
        "--kubeconfig",
        str(kubeconfig),
        "-o",
        str(recording),
    ]
    headers = {"Authorization": f"Bearer {real_server.token}"}
    async with (
        Api(real_server.url, headers, ssl=ssl.create_default_context(cafile=ca_file)) as api,
        process(*controllers(kubeconfig, tmp_path), log=tmp_path / "controllers.log"),
        process(*kube_scheduler(kubeconfig, tmp_path, version), log=tmp_path / "kube-scheduler.log"),
        process(*record, log=tmp_path / "record.log") as recorder,
        process(*shadow, "--percentage-of-nodes-to-score", "100", *window, log=log) as watching,
    ):

        async def compares() -> bool:
            return "Comparing decisions" in log.read_text()

        await create_classes(api)
        await until(compares, what="the shadow's first list")
        for number in range(lives or N_LIVES):
            life = Life(api, number, OTHER, with_waits=with_waits)
            await life.begin()
            await life.play(N_PODS)
            await life.end()
        for each in (watching, recorder):
            each.send_signal(signal.SIGINT)
        out, _ = await watching.communicate()
        await recorder.wait()
    (tmp_path / "report.json").write_bytes(out)
    report = json.loads(out)
    assert report["bound"] > N_PODS / 5
    assert report["pending"] > 0
    replay = f"shadow --of {OTHER} --recording {recording} --emulated-version kube={version}"
    replay += " --percentage-of-nodes-to-score 100 --race-window 2s"
    assert [each for each in report["differences"] if each["cause"] != "race"] == [], (
        f"to replay it: {replay}"
    )
    compared, alike = report["bound"] + report["pending"], report["alike"] + report["sameReasons"]
    assert compared == alike + report["causes"].get("race", 0)
