"""The commands, called in this process, and embedded clusters for them."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias
from unittest import mock

import pytest

from scheduler.cli.main import main
from scheduler.daemon.kube.requests import micro_time
from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.kinds import LEASE

#: Takes arguments; returns exit code, standard output and standard error.
Called: TypeAlias = Callable[..., Awaitable[tuple[int, str, str]]]


@pytest.fixture
def called(capsys: pytest.CaptureFixture[str]) -> Called:
    """Return a function that runs a command in a thread with its own event loop."""

    async def call(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        try:
            code = await asyncio.to_thread(main, list(arguments))
        except SystemExit as ended:
            code = int(str(ended.code))
        out, err = capsys.readouterr()
        return code, out, err

    return call


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
