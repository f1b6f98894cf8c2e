"""A scheduler on clusters of other versions of Kubernetes, whose version it asks for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import build, device_documents
from tests.support.build import Json
from tests.support.cluster import NAME, Cluster
from tests.support.daemon import Daemon, running
from tests.system.processes.conftest import embedded

pytestmark = pytest.mark.asyncio

_UNREAD = 'pod needs resourceClaim "c", but affinity-scheduler reads no resource.k8s.io/v1 here.'


@pytest.mark.parametrize(("minor", "has_devices"), [(33, False), (37, True)])
async def test_pods_are_placed_by_what_the_version_has(
    minor: int, tmp_path: Path, *, has_devices: bool
) -> None:
    """Pods with rules on all versions; one with a claim waits where there is no resource.k8s.io/v1, and says so."""
    async with (
        embedded(tmp_path, minor=minor) as cluster,
        running(Path(cluster.kubeconfig)) as daemon,
    ):
        await cluster.api.enter_namespace()
        await cluster.add_node("a", labels={build.ZONE: "z"})
        away = build.affinity(anti_required=[build.term(build.HOSTNAME, build.selector("app=p"))])
        await cluster.add_pod("p", labels={"app": "p"}, affinity=away)
        assert await cluster.node_of("p") == "a"
        if has_devices:
            await _add_devices(cluster)
        spec: Json = {"schedulerName": NAME, **device_documents.using_claims("c")}
        await cluster.add_pod("claims", spec=spec)
        if has_devices:
            assert await cluster.node_of("claims") == "a"
        else:
            await cluster.condition("claims", f"0/1 nodes are available: {_UNREAD}")
        assert await _emulated(daemon) == f"1.{minor}"
        await cluster.assert_sound()


async def _add_devices(cluster: Cluster) -> None:
    """Create a class, a device on the node, and the claim of one."""
    devices = "/apis/resource.k8s.io/v1"
    for path, document in (
        (f"{devices}/deviceclasses", device_documents.device_class()),
        (f"{devices}/resourceslices", device_documents.device_slice("a", 1)),
        (
            cluster.api.in_namespace("resourceclaims", group=f"apis{devices[5:]}"),
            device_documents.resource_claim("c"),
        ),
    ):
        document["metadata"].pop("namespace", None)
        await cluster.create(path, document)


async def _emulated(daemon: Daemon) -> str:
    """Return the version that the scheduler emulates, as its log says."""
    (line,) = daemon.logged("Starting affinity-scheduler")
    return line.rpartition('emulated="')[2].rstrip('"')
