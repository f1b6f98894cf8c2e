"""Faults of the API server: no pod is lost, none is bound twice, no node is over-committed."""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator

import pytest

from scheduler.daemon.assembly.watched_kinds import kinds_for
from scheduler.daemon.settings.loading import default_settings
from scheduler.engine.framework.kinds import Asker
from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.http.faults import Effect, Fault
from scheduler.sandbox.devcluster.kinds import POD, Kind
from scheduler.sandbox.devcluster.storage.history import ObjectChange
from tests.support.cluster import Cluster
from tests.support.custom_kinds import (
    COSCHEDULING,
    KUBERNETES,
    KUEUE,
    definition,
    flavor_definition,
    topology_definition,
)
from tests.support.daemon import Daemon
from tests.support.waiting import until
from tests.system.processes.conftest import embedded

BINDINGS = "/binding$"


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """Yield an embedded cluster with all kinds of groups, and a short history, so that old versions expire."""
    folder = tmp_path_factory.mktemp("server")
    groups = (definition(KUBERNETES), definition(COSCHEDULING), topology_definition(), flavor_definition())
    async with embedded(folder, controllers=True, history_capacity=100, bookmark_interval_s=0.5) as cluster:
        for kind in groups:
            await cluster.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", kind)
        yield cluster


@pytest.fixture
def devcluster(cluster: Cluster) -> DevCluster:
    assert cluster.devcluster is not None
    return cluster.devcluster


@pytest.fixture(autouse=True)
def _bound_once(devcluster: DevCluster) -> Iterator[None]:
    """Remove the faults after each test, and check that no pod ever got two nodes."""
    nodes: defaultdict[str, set[str]] = defaultdict(set)

    def note(kind: Kind, change: ObjectChange) -> None:
        pod = change.revision.obj
        if kind is POD and pod["spec"].get("nodeName"):
            nodes[pod["metadata"]["uid"]].add(pod["spec"]["nodeName"])

    end = devcluster.store.history.follow((), note)
    yield
    end()
    devcluster.faults.clear()
    assert all(len(names) == 1 for names in nodes.values())


async def burst(cluster: Cluster, n_pods: int, prefix: str = "p") -> None:
    await asyncio.gather(*(cluster.add_pod(f"{prefix}{number}", cpu="1") for number in range(n_pods)))


async def test_410_as_a_status_leads_to_a_list(cluster: Cluster, devcluster: DevCluster) -> None:
    """At once instead of inside the stream, of every kind that is watched, by a server that streams no lists."""
    await cluster.add_node("a")
    kinds = [each for each in kinds_for(default_settings()) if each.asked_by is not Asker.POD_GROUPS]
    groups = [f"/apis/{each}/podgroups" for each in (KUBERNETES, COSCHEDULING)]
    groups += [f"/apis/{KUEUE}/v1beta2/{plural}" for plural in ("topologies", "resourceflavors")]
    paths = [f"{path}$" for path in (*(each.path for each in kinds), *groups)]
    devcluster.faults.add(
        *(
            Fault(action=Effect.RESPOND, path=path, verb="watch", code=code)
            for path in paths
            for code in (410, 400)
        ),
        *(Fault(action=Effect.END_STREAM, path=path) for path in paths),
    )

    async def all_happened() -> bool:
        return not devcluster.faults.pending()

    await until(all_happened, what="the end of every watch")
    await burst(cluster, 5)
    await cluster.all_bound(5)


async def test_binds_in_doubt_without_the_right_to_read_pods_delay_no_other(
    cluster: Cluster, devcluster: DevCluster, daemon: Daemon
) -> None:
    """More of them than may be in flight, some bound and some not: all pods are bound, and the log has the reason."""
    await cluster.add_node("a", allocatable={"cpu": "200", "pods": "200"})
    before = await daemon.metric("affinity_scheduler_unreadable_binds_total")
    devcluster.faults.add(
        Fault(action=Effect.LOSE_ANSWER, path=BINDINGS, times=70),
        Fault(action=Effect.DROP, path=BINDINGS, times=10),
        Fault(action=Effect.RESPOND, verb="get", kind="pods", code=403, times=1_000),
    )
    await burst(cluster, 100)
    await cluster.all_bound(100)
    assert await daemon.metric("affinity_scheduler_unreadable_binds_total") - before == 80
    assert daemon.logged("No right to read a pod whose bind was not answered", "a fault was asked for")


async def test_the_server_goes_away_and_comes_back(
    cluster: Cluster, devcluster: DevCluster, daemon: Daemon
) -> None:
    """The port is closed until every watch has failed more than once; then scheduling continues without a restart."""
    await cluster.add_node("a", allocatable={"cpu": "10"})
    await burst(cluster, 5, "before")
    await cluster.all_bound(5)
    before = len(daemon.logged("List and watch interrupted", "ConnectionRefused"))
    await devcluster.stop()

    async def failures() -> int:
        return len(daemon.logged("List and watch interrupted", "ConnectionRefused")) - before

    await until(failures, lambda n: n >= 12, what="repeated failures")
    await devcluster.start()
    await burst(cluster, 5, "after")
    await cluster.all_bound(10)


async def test_apis_that_are_turned_off_while_it_runs_stop_nothing_else(
    cluster: Cluster, devcluster: DevCluster, daemon: Daemon
) -> None:
    """Their kinds are not served, which is said once each and is no fault of a watch; until they are served again."""
    optional = [
        each for each in kinds_for(default_settings()) if each.path.startswith("/apis/resource.k8s.io/")
    ]
    assert len(optional) > 1
    off = [Fault(action=Effect.RESPOND, path=f"{each.path}$", code=404, times=-1) for each in optional]
    devcluster.faults.add(*off, *(Fault(action=Effect.END_STREAM, path=f"{each.path}$") for each in optional))

    async def n_told() -> int:
        return len(daemon.logged("does not have this kind"))

    await until(n_told, lambda n: n == len(optional), what="a line for each kind")
    await cluster.add_node("a", allocatable={"cpu": "10"})
    await burst(cluster, 5, "without")
    await cluster.all_bound(5)
    assert await daemon.is_ready()
    _, shown = await daemon.get("/api/v1/now")
    caches = {each["kind"]: each for each in json.loads(shown)["caches"]}
    assert {name for name, each in caches.items() if not each["isServed"]} >= {each.kind for each in optional}
    devcluster.faults.clear()

    async def is_served_again() -> bool:
        _, shown = await daemon.get("/api/v1/now")
        served = {each["kind"] for each in json.loads(shown)["caches"] if each["isServed"]}
        return served >= {each.kind for each in optional}

    await until(is_served_again, what="the kinds")
    await burst(cluster, 5, "with")
    await cluster.all_bound(10)
    assert await n_told() == len(optional)
