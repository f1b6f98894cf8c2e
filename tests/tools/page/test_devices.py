"""The page's view of devices: by pool, free, tainted, and by the pods that have them."""

from __future__ import annotations

import pytest

from scheduler.engine.model.devices import PoolId
from scheduler.engine.state.batches import finished
from scheduler.tools.page.devices import DeviceOverview, DevicePool, device_overview_pieces, device_pool
from tests.engine.core.claim_cluster import ClaimCluster
from tests.support.device_documents import DRIVER, device_slice, resource_claim


@pytest.fixture
def cluster() -> ClaimCluster:
    """Return two devices on node a, of which pod p has one, and one tainted device on node b."""
    cluster = ClaimCluster(2, ("a",))
    cluster.store(resource_claim("c"))
    cluster.watch()
    pod = cluster.using("c")
    cluster.write(cluster.reserve())
    cluster.watch()
    cluster.cycle()
    cluster.confirm(pod, "a")
    cluster.show(device_slice("b", 1, taints=[{"key": "k", "effect": "NoSchedule"}]))
    return cluster


def overview(cluster: ClaimCluster, search: str = "") -> DeviceOverview:
    return finished(device_overview_pieces(cluster.state, search))


def pool_of(cluster: ClaimCluster, name: str) -> DevicePool:
    found = device_pool(cluster.state, PoolId(DRIVER, name))
    assert found is not None
    return found


def test_pools_are_listed_by_node_with_what_is_free(cluster: ClaimCluster) -> None:
    found = overview(cluster)
    assert [(one.node, one.pool, one.n_devices, one.n_free, one.n_tainted) for one in found.pools] == [
        ("a", "a", 2, 1, 0),
        ("b", "b", 1, 1, 1),
    ]
    assert [(one.driver, one.n_free, one.n_allocated) for one in found.drivers] == [(DRIVER, 2, 1)]
    assert found.is_served


@pytest.mark.parametrize(("search", "names"), [("b", ["b"]), (DRIVER, ["a", "b"]), ("x-", [])])
def test_a_search_finds_pools_by_node_name_or_driver(
    cluster: ClaimCluster, search: str, names: list[str]
) -> None:
    found = overview(cluster, search)
    assert [one.pool for one in found.pools] == names
    assert found.n_matching == len(names)


def test_a_device_names_its_pods_and_its_taints(cluster: ClaimCluster) -> None:
    first, second = pool_of(cluster, "a").devices
    (holder,) = first.holders
    assert (first.name, first.is_free, holder.claim) == ("gpu-0", False, "c")
    assert [(pod.key, pod.node) for pod in holder.pods.shown] == [("default/p", "a")]
    assert (second.is_free, second.holders) == (True, ())
    (tainted,) = pool_of(cluster, "b").devices
    assert tainted.taints == ("k:NoSchedule",)


def test_a_newer_generation_replaces_the_older_and_is_incomplete_until_it_is_whole(
    cluster: ClaimCluster,
) -> None:
    document = device_slice("a", 3)
    document["metadata"] = {"name": "slice-a-new", "uid": "slice-a-new"}
    document["spec"]["pool"] = {"name": "a", "generation": 2, "resourceSliceCount": 2}
    cluster.show(document)
    (summary, _) = overview(cluster).pools
    assert (summary.n_devices, summary.n_slices_missing) == (3, 1)
