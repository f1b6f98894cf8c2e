"""A node under trial says what it says once the claims of the pods that left are released."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from scheduler.engine.framework.interface import NodeFilter, PluginContext, PodContext, PreFilterExtensions
from scheduler.engine.model.allocations import Consumer
from scheduler.engine.model.device_requests import ResourceClaim
from scheduler.engine.model.devices import DeviceKind
from scheduler.engine.model.pods import Pod
from scheduler.engine.plugins.dynamic_resources.allocator import Allocator
from scheduler.engine.plugins.dynamic_resources.answers import NotAllocated
from scheduler.engine.plugins.dynamic_resources.filtering import DynamicResourcesArgs
from scheduler.engine.plugins.dynamic_resources.plugin import DynamicResources
from scheduler.engine.plugins.dynamic_resources.pool_index import PoolIndex
from scheduler.engine.plugins.dynamic_resources.selection import SelectorResults
from tests.conformance.product import LiveCluster
from tests.engine.plugins.dynamic_resources.clusters import node_of
from tests.engine.plugins.dynamic_resources.device_clusters import DRIVERS, NODES, Cluster
from tests.support import build

Json = dict[str, Any]
_LABELS = {"zone": "z"}
_PODS = ("p0", "p1", "p2")


def _built(cluster: Cluster) -> LiveCluster:
    """Return the nodes, slices and classes, and the claims without allocations."""
    slices, classes, claims = cluster
    live = LiveCluster()
    live.state.devices.serve(*DeviceKind)
    for kind, objects in (("DeviceClass", classes), ("ResourceSlice", slices), ("ResourceClaim", claims)):
        for raw in objects:
            meta = {"uid": raw["metadata"]["name"], "resourceVersion": "1", **raw["metadata"]}
            live.apply({**raw, "kind": kind, "metadata": meta})
    for name in NODES:
        live.apply({**build.node(name, labels=_LABELS), "kind": "Node"})
    return live


def _claim(live: LiveCluster, name: str) -> ResourceClaim:
    claim = live.state.devices.claim(f"default/{name}")
    assert claim is not None
    return claim


def _allocated(live: LiveCluster, node: str, name: str) -> ResourceClaim | str:
    """Return the claim with devices of the node, or why it gets none."""
    devices = live.state.devices
    index = PoolIndex(devices)
    index.refresh()
    claim = _claim(live, name)
    answer = Allocator(index, devices.allocated, devices.classes, SelectorResults(), seed="s").allocate(
        node_of(node, _LABELS), [claim]
    )
    return answer.text if isinstance(answer, NotAllocated) else replace(claim, allocation=answer[0])


def _placed(live: LiveCluster, name: str, node: str) -> Pod:
    pod = live.pod(build.pod(name, node=node))
    live.state.upsert_pod(pod)
    return pod


def _trial(live: LiveCluster, node: str) -> PreFilterExtensions:
    """Return the trial of a node for a pod that has the first claim."""
    entry = {"name": "c", "resourceClaimName": "c0"}
    pod, view = live.pod(build.pod("asked", spec={"resourceClaims": [entry]})), live.view()
    node_filter = DynamicResources(DynamicResourcesArgs(), PluginContext()).prefilter(
        PodContext(pod, view.label_set(pod)), view
    )
    assert isinstance(node_filter, NodeFilter)
    assert node_filter.trial is not None
    trial = node_filter.trial(view.nodes.row_by_name[node])
    assert isinstance(trial, PreFilterExtensions)
    return trial


class _Drawn(Random):
    """Draws nodes of few devices, and claims that hold most of them."""

    def cluster(self) -> Cluster:
        slices = [self.pool(node) for node in (*NODES, "fabric")]
        n_claims = self.choice((4, 5, 6))
        classes = [{"metadata": {"name": "any"}, "spec": {}}]
        return slices, classes, [self.claim(f"c{number}") for number in range(n_claims)]

    def pool(self, name: str) -> Json:
        devices = [self.device(f"d{number}") for number in range(self.choice((1, 2, 2, 3)))]
        where: Json = {"allNodes": True} if name == "fabric" else {"nodeName": name}
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVERS[0], "pool": pool, "devices": devices, **where}
        return {"metadata": {"name": name}, "spec": spec}

    def device(self, name: str) -> Json:
        device: Json = {"name": name, "attributes": {"numa": {"int": self.randrange(2)}}}
        if self.random() < 0.3:
            device |= {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "4Gi"}}}
        return device

    def claim(self, name: str) -> Json:
        query: Json = {
            "deviceClassName": "any",
            "allocationMode": "ExactCount",
            "count": self.choice((1, 1, 2)),
        }
        if self.random() < 0.3:
            query["capacity"] = {"requests": {"memory": self.choice(("1Gi", "2Gi"))}}
        spec: Json = {"requests": [{"name": "r", "exactly": query}]}
        if self.random() < 0.3:
            spec["constraints"] = [{"matchAttribute": f"{DRIVERS[0]}/numa"}]
        return {"metadata": {"namespace": "default", "name": name, "uid": name}, "spec": {"devices": spec}}


def _changes(seed: int) -> int:
    """Compare one drawn life; return how often a pod that left or returned changed what a node says."""
    draw = _Drawn(seed)
    cluster = draw.cluster()
    live, bare = _built(cluster), _built(cluster)
    pods = {name: _placed(live, name, draw.choice(NODES)) for name in _PODS}
    held: list[ResourceClaim] = []
    for raw in cluster[2][1:]:
        claim = _allocated(live, draw.choice(NODES), raw["metadata"]["name"])
        if not isinstance(claim, str):
            users = draw.sample(_PODS, draw.choice((0, 1, 1, 1, 2)))
            consumers = tuple(Consumer(resource="pods", name=name, uid=pods[name].uid) for name in users)
            held.append(replace(claim, reserved_for=consumers))
            live.state.devices.upsert(held[-1])
    trials = {name: _trial(live, name) for name in NODES}
    left: set[str] = set()
    answers: list[list[str]] = []
    for name in ("", *draw.choices(_PODS, k=6)):
        if name:
            for trial in trials.values():
                trial.count(pods[name], 1 if name in left else -1)
            left ^= {name}
        gone = {pods[each].uid for each in left}
        for claim in held:
            is_released = bool(claim.reserved_for) and all(each.uid in gone for each in claim.reserved_for)
            bare.state.devices.upsert(replace(claim, allocation=None) if is_released else claim)
        expected = [_allocated(bare, node, "c0") for node in trials]
        refusals = [trial.refusal() for trial in trials.values()]
        answers.append(["" if refusal is None else refusal.message for refusal in refusals])
        assert answers[-1] == [each if isinstance(each, str) else "" for each in expected], seed
    return sum(before != after for before, after in pairwise(answers))


def test_a_trial_equals_a_cluster_whose_claims_are_released() -> None:
    """After each pod that leaves or returns, on both nodes."""
    assert sum(map(_changes, range(100))) > 50


@pytest.mark.parametrize(
    ("offered", "refusal"),
    [("1", ""), (None, "cannot allocate all claims")],
    ids=["by the node itself", "by the only device"],
)
def test_a_nominated_pod_comes_first_where_a_device_serves_its_extended_resource(
    offered: str | None, refusal: str
) -> None:
    resource, device = "example.com/gpu", {"name": "d"}
    pool = {"name": NODES[0], "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVERS[0], "pool": pool, "nodeName": NODES[0], "devices": [device]}
    classes = [{"metadata": {"name": "any"}, "spec": {"extendedResourceName": resource}}]
    live = _built(([{"metadata": {"name": "s"}, "spec": spec}], classes, [_wanted("c0")]))
    room = {"pods": "10"} if offered is None else {"pods": "10", resource: offered}
    live.apply({**build.node(NODES[0], labels=_LABELS, allocatable=room), "kind": "Node"})
    trial = _trial(live, NODES[0])
    assert trial.refusal() is None
    trial.count(live.pod(build.pod("first", containers=[build.container(requests={resource: "1"})])), 1)
    refused = trial.refusal()
    assert ("" if refused is None else refused.message) == refusal


def _wanted(name: str) -> Json:
    """Return a claim of one device."""
    query = {"deviceClassName": "any", "allocationMode": "ExactCount", "count": 1}
    spec = {"requests": [{"name": "r", "exactly": query}]}
    return {"metadata": {"namespace": "default", "name": name, "uid": name}, "spec": {"devices": spec}}
