"""A cluster for each module, on the embedded server and on a real one if available, and a daemon on it."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from scheduler.sandbox.devcluster.cluster import DevCluster
from tests.support import build
from tests.support.accounts import account_kubeconfig
from tests.support.api_client import Api
from tests.support.apiserver import Address
from tests.support.cluster import NAME, Cluster, kubeconfig_of
from tests.support.daemon import Daemon, plugin_config, profiles, running
from tests.support.waiting import until

#: A profile that only wants nodes with this label, and one that spreads the pods of each Service over the nodes.
PICKY, PICKED_LABEL = "picky-scheduler", "picked"
SPREADING = "spreading-scheduler"

PROFILES = profiles(
    {"schedulerName": NAME},
    {
        "schedulerName": PICKY,
        "pluginConfig": plugin_config(
            "NodeAffinity", addedAffinity=build.node_affinity(required=[build.node_term(PICKED_LABEL)])
        ),
    },
    {
        "schedulerName": SPREADING,
        "pluginConfig": plugin_config(
            "PodTopologySpread",
            defaultingType="List",
            defaultConstraints=[build.spread(build.HOSTNAME, None)],
        ),
    },
)


@asynccontextmanager
async def embedded(folder: Path, **settings: Any) -> AsyncIterator[Cluster]:
    """Yield an embedded server with an empty cluster."""
    async with DevCluster(**settings) as devcluster, Api(devcluster.url, {}) as api:
        yield Cluster(api, str(account_kubeconfig(devcluster, "scheduler", folder)), devcluster)


@asynccontextmanager
async def real(folder: Path, address: Address) -> AsyncIterator[Cluster]:
    """Yield the one real server, emptied of earlier tests."""
    context = ssl.create_default_context(cafile=str(address.ca_file))
    kubeconfig = kubeconfig_of(address, folder / "real.kubeconfig")
    async with Api(address.url, {"Authorization": f"Bearer {address.token}"}, ssl=context) as api:
        for pod in (await api.get("/api/v1/pods")).ok["items"]:
            meta = pod["metadata"]
            await api.delete(
                f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}", {"gracePeriodSeconds": 0}
            )
        for node in (await api.get("/api/v1/nodes")).ok["items"]:
            await api.delete(f"/api/v1/nodes/{node['metadata']['name']}")
        yield Cluster(api, str(kubeconfig), None)


@pytest.fixture(scope="module", params=["devcluster", pytest.param("real", marks=pytest.mark.real)])
async def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Cluster]:
    """Yield an empty cluster for all tests of the module."""
    folder = tmp_path_factory.mktemp("server")
    made = (
        embedded(folder, controllers=True)
        if request.param == "devcluster"
        else real(folder, request.getfixturevalue("real_server"))
    )
    async with made as cluster:
        yield cluster


@pytest.fixture(scope="module")
async def daemon(server: Cluster, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Daemon]:
    """Yield one daemon with three profiles for all tests of the module."""
    config = tmp_path_factory.mktemp("config") / "scheduler.yaml"
    config.write_text(PROFILES)
    async with running(Path(server.kubeconfig), "--config", str(config), "--seed", "1") as daemon:
        yield daemon


@pytest.fixture
async def cluster(server: Cluster, daemon: Daemon) -> AsyncIterator[Cluster]:
    """
    Yield the module's cluster in a new namespace; check afterwards that it is sound and the daemon has dropped its
    objects.
    """
    await server.api.enter_namespace()
    yield server
    await server.assert_sound()
    await server.clear()

    async def remembered() -> float:
        pending = await daemon.metric("scheduler_pending_pods")
        return pending + await daemon.metric("scheduler_cache_size")

    await until(remembered, lambda n: n == 0, what="an empty cache and queue")
