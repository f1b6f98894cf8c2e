"""In a simulated cluster the claims of evicted pods are released."""

from __future__ import annotations

from scheduler.engine.model.pods import Pod
from tests.engine.core.claim_cluster import ClaimCluster
from tests.support import build
from tests.support.device_documents import resource_claim, using_claims
from tests.support.driving import NAME


def _created(cluster: ClaimCluster, name: str, claim: str, **spec: object) -> Pod:
    made = build.pod(name, spec={"schedulerName": NAME, **using_claims(claim), **spec})
    pod = cluster.decoded(made)
    cluster.create(pod)
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
