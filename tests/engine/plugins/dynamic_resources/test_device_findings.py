"""What explanations say of devices, against the allocator: a device without an obstacle is one that it gives."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings

from scheduler.engine.model.allocations import Allocation
from scheduler.engine.model.device_requests import DeviceRequest, ResourceClaim
from scheduler.engine.model.devices import DeviceClass, DeviceKind
from scheduler.engine.plugins.dynamic_resources.allocator import Allocator
from scheduler.engine.plugins.dynamic_resources.answers import Answer, NotAllocated
from scheduler.engine.plugins.dynamic_resources.device_findings import DeviceInspection
from scheduler.engine.plugins.dynamic_resources.selection import SelectorResults
from tests.engine.plugins.dynamic_resources.clusters import decoded, indexed, node_of, published
from tests.engine.plugins.dynamic_resources.device_clusters import CLUSTERS, NODES, Cluster
from tests.engine.plugins.dynamic_resources.test_allocator import claim as decoded_claim
from tests.engine.plugins.dynamic_resources.test_allocator import expensive, request, slices

NODE_LABELS = {"node-0": {"zone": "z"}, "node-1": {}}


def of_one_device(claim: ResourceClaim) -> list[ResourceClaim]:
    """Return a claim of one device, without constraints, for each request and alternative that counts devices."""
    queries = [
        query
        for request in claim.requests
        for query in (request.exactly, *request.first_available)
        if query is not None and query.mode == "ExactCount"
    ]
    return [
        replace(claim, requests=(DeviceRequest("r", replace(query, name="r", count=1)),), constraints=())
        for query in queries
    ]


def test_devices_for_which_nothing_may_be_evaluated_any_more_are_told() -> None:
    """An evaluation takes most of a budget: one budget is there at first, and two more may be begun."""
    pool = slices("a.example.com", [{"name": f"d{each}"} for each in range(9)])
    devices = published(pool, [DeviceClass("any", "", "", (), (), "", "")])
    inspection = DeviceInspection(indexed(pool), devices, SelectorResults(), n_budgets=2)
    found = inspection.look(node_of("node-0", {}), [decoded_claim([request("r", 9, expensive())])])
    ((_, ((finding,),)),) = found.requests
    whys = [obstacle.why for _, obstacle in finding.refused]
    assert len(finding.free) == 3
    assert whys == ["not looked at: the limit of evaluations was reached"] * 6


@settings(max_examples=50, deadline=None)
@given(CLUSTERS)
def test_the_first_free_device_is_the_one_that_is_allocated(cluster: Cluster) -> None:
    """Beside devices that earlier claims hold. There is none if and only if the allocator finds none."""
    slices, classes, claims = cluster
    known = [decoded(DeviceKind.SLICE, each) for each in slices]
    index, decoded_classes = indexed(known), [decoded(DeviceKind.CLASS, each) for each in classes]
    stored: list[Allocation] = []
    for claim in [decoded(DeviceKind.CLAIM, each) for each in claims]:
        devices, results = published(known, decoded_classes, stored), SelectorResults()
        allocator = Allocator(index, devices.allocated, devices.classes, results, seed="s")
        for name in NODES:
            node = node_of(name, NODE_LABELS[name])
            for single in of_one_device(claim):
                allocator.renew()
                answer = allocator.allocate(node, [single])
                if isinstance(answer, NotAllocated) and answer.answer is Answer.ERROR:
                    continue
                findings = DeviceInspection(index, devices, results).look(node, [single])
                ((_, ((finding,),)),) = findings.requests
                assert finding.n_missing == (not finding.free)
                if isinstance(answer, NotAllocated):
                    assert not finding.free
                else:
                    (result,) = answer[0].devices.results
                    assert finding.free[0].id == (result.driver, result.pool, result.device)
        allocator.renew()
        allocated = allocator.allocate(node_of(NODES[0], NODE_LABELS[NODES[0]]), [claim])
        stored += () if isinstance(allocated, NotAllocated) else allocated
