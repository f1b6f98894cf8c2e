"""Claims in a simulated world: what is written adds to what was written before, and evicted pods release theirs."""

from __future__ import annotations

import json
from typing import Any

from scheduler.engine.framework.kinds import kinds
from scheduler.engine.model.devices import DeviceKind
from scheduler.engine.model.pod_groups import GROUP, MIN_COUNT
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import DevicesServed, ObjectSeen, PodSeen
from scheduler.tools.explain.simulation.world import World
from tests.engine.core.claim_cluster import ClaimCluster
from tests.support import build
from tests.support.device_documents import device_class, device_slice, resource_claim, using_claims
from tests.support.driving import NAME
from tests.support.json_cluster import Cluster, decoded, zoned
from tests.tools.explain.simulation.test_world import world_of

_DECODE = {row.kind: row.decode for row in kinds()}


def _world(n_devices: int, *claims: str) -> World:
    """Return a world with one node, its devices, and claims."""
    world = world_of(Cluster(zoned("a1", allocatable={"cpu": "9", "pods": "9"})))
    for document in (device_class(), device_slice("a1", n_devices), *map(resource_claim, claims)):
        document["metadata"]["resourceVersion"] = "1"
        world.handle(ObjectSeen(_DECODE[document["kind"]](json.dumps(document).encode())))
    for kind in DeviceKind:
        world.handle(DevicesServed(kind))
    return world


def test_a_claim_whose_devices_no_node_of_the_pod_reaches_is_allocated_anew() -> None:
    """PostFilter gives its allocation up, as no pod uses it; the next cycle finds devices on the other node."""
    world = world_of(Cluster(zoned("a1 b1", allocatable={"cpu": "9", "pods": "9"})))
    device = {"request": "r", "driver": "gpu.example.com", "pool": "a1", "device": "gpu-0"}
    only = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a1"]}]}
    allocation = {"devices": {"results": [device]}, "nodeSelector": {"nodeSelectorTerms": [only]}}
    claim = resource_claim("c", allocation=allocation)
    for document in (device_class(), device_slice("a1", 1), device_slice("b1", 1), claim):
        document["metadata"]["resourceVersion"] = "1"
        world.handle(ObjectSeen(_DECODE[document["kind"]](json.dumps(document).encode())))
    for kind in DeviceKind:
        world.handle(DevicesServed(kind))
    pod = _using("c", "p", node_selector={build.ZONE: "b"})
    world.process(PodSeen(pod))
    world.run()
    assert world.node_of(pod.uid) == "b1"


def _using(claim: str, name: str, **more: Any) -> Pod:
    return decoded(build.pod(name, spec={"schedulerName": NAME, **using_claims(claim)}, **more))


def test_members_of_a_group_that_share_a_claim_are_all_in_it() -> None:
    """Each is decided before the claim is written for any."""
    world = _world(1, "shared")
    labels = {GROUP: "g", MIN_COUNT: "2"}
    pods = [_using("shared", name, labels=labels) for name in ("p1", "p2")]
    for pod in pods:
        world.process(PodSeen(pod))
    world.run()
    assert [world.node_of(pod.uid) for pod in pods] == ["a1", "a1"]
    shared = world.state.devices.claim("default/shared")
    assert shared is not None
    assert sorted(each.name for each in shared.reserved_for) == ["p1", "p2"]


def _created(cluster: ClaimCluster, name: str, claim: str, **spec: object) -> Pod:
    made = build.pod(name, spec={"schedulerName": NAME, **using_claims(claim), **spec})
    pod = cluster.decoded(made)
    cluster.process(PodSeen(pod))
    cluster.run(60)
    return pod


def test_a_pod_gets_the_device_of_an_evicted_one() -> None:
    cluster = ClaimCluster(1, ("a",))
    for name in "cd":
        cluster.show(resource_claim(name))
    low = _created(cluster, "low", "c")
    high = _created(cluster, "high", "d", priority=9)
    assert cluster.node_of(high.uid) == "a"
    assert [each.victim.name for each in cluster.evictions] == ["low"]
    claim = cluster.state.devices.claim("default/c")
    assert claim is not None
    assert (claim.allocation, claim.reserved_for) == (None, ())
    assert cluster.node_of(low.uid) == ""
    cluster.audit()


def test_a_pod_gets_the_device_of_one_that_waits_for_it() -> None:
    """Nobody is evicted: the other is put back, and its claim is deallocated."""
    cluster = ClaimCluster(0, ("a",))
    for document in (device_slice("a", 1, bindingConditions=["ready"]), *map(resource_claim, "cd")):
        cluster.show(document)
    low = _created(cluster, "low", "c")
    high = _created(cluster, "high", "d", priority=9)
    assert (cluster.node_of(low.uid), cluster.node_of(high.uid), cluster.evictions) == ("", "a", [])
    claim = cluster.state.devices.claim("default/c")
    assert claim is not None
    assert (claim.allocation, claim.reserved_for) == (None, ())
