"""Pools that many nodes have: their nodes are asked together, and apart once they differ."""

from __future__ import annotations

from unittest import mock

from scheduler.engine.model.instructions import WriteReservation
from scheduler.engine.plugins.dynamic_resources.pool_index import PoolIndex
from tests.engine.core.claim_cluster import ClaimCluster
from tests.support.build import Json
from tests.support.device_documents import device_slice, resource_claim

_N_NODES = 20


def _rack(name: str, n_devices: int) -> Json:
    """Return a pool that the nodes of the rack reach."""
    document = device_slice(f"pool-{name}", n_devices)
    del document["spec"]["nodeName"]
    term = {"matchExpressions": [{"key": "rack", "operator": "In", "values": [name]}]}
    document["spec"]["nodeSelector"] = {"nodeSelectorTerms": [term]}
    return document


def _cluster(n_devices: int) -> ClaimCluster:
    cluster = ClaimCluster(nodes=())
    for number in range(_N_NODES):
        cluster.node(f"n{number}", labels={"rack": "rs"[number % 2]})
    for rack in "rs":
        cluster.show(_rack(rack, n_devices))
    return cluster


def _next_node(cluster: ClaimCluster, number: int) -> str:
    """Return where a pod with a claim of its own goes; empty if nowhere."""
    cluster.apply(resource_claim(f"c{number}"))
    cluster.using(f"c{number}", name=f"p{number}")
    (first, *_) = cluster.cycle()
    cluster.audit()
    if not isinstance(first, WriteReservation):
        return ""
    cluster.write(first)
    cluster.watch()
    cluster.cycles()
    return first.node_name


def test_each_device_is_given_once_and_none_is_left_over() -> None:
    cluster = _cluster(3)
    nodes = [_next_node(cluster, number) for number in range(7)]
    racks = ["rs"[int(name[1:]) % 2] for name in nodes[:-1]]
    assert sorted(racks) == ["r"] * 3 + ["s"] * 3
    assert nodes[-1] == ""


def test_a_node_that_moves_to_another_rack_has_its_devices() -> None:
    """Rack r has devices left, rack s has none; a node of s comes to r, and all other nodes of r are closed."""
    cluster = _cluster(4)
    cluster.show(_rack("s", 0))
    assert _next_node(cluster, 0)
    assert _next_node(cluster, 1)
    for number in range(0, _N_NODES, 2):
        cluster.node(f"n{number}", labels={"rack": "r"}, unschedulable=True)
    cluster.node("n3", labels={"rack": "r"})
    assert _next_node(cluster, 2) == "n3"


def test_slices_that_change_are_seen() -> None:
    cluster = _cluster(1)
    assert _next_node(cluster, 0)
    assert _next_node(cluster, 1)
    cluster.show(_rack("s", 2))
    assert int(_next_node(cluster, 2)[1:]) % 2 == 1


def test_nodes_with_equal_pools_are_asked_together() -> None:
    """The pools are looked up for a few nodes, not for each, once they are known to be the same."""
    cluster = _cluster(8)
    for number in range(2):
        assert _next_node(cluster, number)
    with mock.patch.object(PoolIndex, "pools", autospec=True, side_effect=PoolIndex.pools) as pools:
        cluster.apply(resource_claim("c"))
        cluster.using("c")
        cluster.reserve()
    assert pools.call_count < _N_NODES / 2
