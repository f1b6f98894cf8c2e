"""A scheduler on clusters of other versions of Kubernetes, whose version it asks for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import build, device_documents
from tests.support.build import Json
from tests.support.cluster import NAME, Cluster
from tests.support.daemon import Daemon, running
from tests.system.processes.conftest import embedded


@pytest.mark.parametrize("minor", [34, 37])
async def test_pods_with_rules_and_with_claims_are_placed_on_the_first_and_the_last_version(
    minor: int, tmp_path: Path
) -> None:
    async with (
        embedded(tmp_path, minor=minor) as cluster,
        running(Path(cluster.kubeconfig)) as daemon,
    ):
        await cluster.api.enter_namespace()
        await cluster.add_node("a", labels={build.ZONE: "z"})
        away = build.affinity(anti_required=[build.term(build.HOSTNAME, build.selector("app=p"))])
        await cluster.add_pod("p", labels={"app": "p"}, affinity=away)
        assert await cluster.node_of("p") == "a"
        await _add_devices(cluster)
        spec: Json = {"schedulerName": NAME, **device_documents.using_claims("c")}
        await cluster.add_pod("claims", spec=spec)
        assert await cluster.node_of("claims") == "a"
        assert await _emulated(daemon) == f"1.{minor}"
        await cluster.assert_sound()


async def _add_devices(cluster: Cluster) -> None:
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
