"""A scheduler on a cluster of the oldest version of Kubernetes; test_groups.py has one of the newest."""

from __future__ import annotations

from pathlib import Path

from tests.support import build, device_documents
from tests.support.cluster import Cluster
from tests.support.daemon import running
from tests.system.processes.conftest import embedded


async def test_pods_with_rules_and_with_claims_are_placed_on_the_first_version(tmp_path: Path) -> None:
    async with (
        embedded(tmp_path, minor=34) as cluster,
        running(Path(cluster.kubeconfig)) as daemon,
    ):
        await cluster.api.enter_namespace()
        await cluster.add_node("a", labels={build.ZONE: "z"})
        away = build.affinity(anti_required=[build.term(build.HOSTNAME, build.selector("app=p"))])
        await cluster.add_pod("p", labels={"app": "p"}, affinity=away)
        assert await cluster.node_of("p") == "a"
        await _add_devices(cluster)
        await cluster.add_pod("claims", spec=device_documents.using_claims("c"))
        assert await cluster.node_of("claims") == "a"
        # The scheduler has asked for the version.
        assert daemon.logged("Starting affinity-scheduler", 'emulated="1.34"')
        await cluster.assert_sound()


async def _add_devices(cluster: Cluster) -> None:
    resource = "apis/resource.k8s.io/v1"
    await cluster.create(f"/{resource}/deviceclasses", device_documents.device_class())
    await cluster.create(f"/{resource}/resourceslices", device_documents.device_slice("a", 1))
    claims = cluster.api.in_namespace("resourceclaims", group=resource)
    await cluster.create(claims, device_documents.resource_claim("c"))
