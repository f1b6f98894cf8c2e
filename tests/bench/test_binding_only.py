"""The floor of the path: it decides nothing, and writes all that ours would write."""

from itertools import count

import pytest

from scheduler.engine.core import machine
from scheduler.engine.model.instructions import Bind
from tests.bench import binding_only
from tests.engine.core.claim_cluster import ClaimCluster
from tests.support import build
from tests.support.device_documents import device_class, resource_claim
from tests.support.driving import Driver


@pytest.fixture(autouse=True)
def decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "deciding", binding_only.next_node)
    monkeypatch.setattr(binding_only, "_TURN", count())


def test_the_nodes_are_taken_in_turn_whatever_a_pod_asks_for() -> None:
    driver = Driver()
    driver.node("a", unschedulable=True)
    driver.node("b")
    nodes = []
    for name in "pqr":
        driver.pod(name, node_selector={"no": "node"})
        (bind,) = driver.cycle()
        assert isinstance(bind, Bind)
        nodes.append(bind.node_name)
    assert nodes == ["a", "b", "a"]


def test_claims_and_extended_resources_get_a_device_of_their_own_each() -> None:
    cluster = ClaimCluster(8, ("a", "b"))
    cluster.show(device_class(extended_resource="example.com/gpu"))
    cluster.store(resource_claim("c"))
    cluster.store(resource_claim("d"))
    cluster.watch()
    pods = [cluster.using("c", name="p0"), cluster.using("d", name="p1")]
    container = build.container(requests={"example.com/gpu": "1"})
    pods += [cluster.pod(name, containers=[container]) for name in ("p2", "p3")]
    node_of = {}
    for _ in pods:
        cluster.write(cluster.reserve())
        (bind,) = cluster.watch()[-1:] or cluster.cycle()
        assert isinstance(bind, Bind)
        node_of[bind.pod.name] = bind.node_name
    taken = set()
    for claim in cluster.server.claims.values():
        (pod,) = (user["name"] for user in claim["status"]["reservedFor"])
        (result,) = claim["status"]["allocation"]["devices"]["results"]
        assert result["pool"] == node_of[pod]
        taken.add((result["pool"], result["device"]))
    assert taken == {(node, device) for node in "ab" for device in ("gpu-0", "gpu-1")}


def test_pods_that_share_a_claim_share_its_device() -> None:
    cluster = ClaimCluster(8, ("a", "b"))
    cluster.show(device_class())
    cluster.store(resource_claim("c"))
    cluster.watch()
    for name in ("p0", "p1"):
        cluster.using("c", name=name)
    (first,), (second,) = (cluster.reserve().writes for _ in range(2))
    assert first.value == second.value
    assert first.value is not None
