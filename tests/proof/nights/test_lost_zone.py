"""A zone is lost: its kubelets fall silent, or its nodes are deleted. kube-controller-manager does what follows."""

import asyncio
from collections import Counter
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.bench.schedulers import controlling
from tests.bench.servers import beside_servers
from tests.proof.nights.servers import Night, night
from tests.support import build
from tests.support.build import Json
from tests.support.cluster import NAME
from tests.support.daemon import running
from tests.support.waiting import until

_CONTROLLER_MANAGER = beside_servers("kube-controller-manager")

pytestmark = [
    pytest.mark.real,
    pytest.mark.slow,
    pytest.mark.asyncio,
    pytest.mark.skipif(
        _CONTROLLER_MANAGER is None, reason="no kube-controller-manager beside the API server's binaries"
    ),
]

_ZONES = ("a", "b", "c")
_N_PODS = 9
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_UNREACHABLE = "node.kubernetes.io/unreachable"


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class _Kubelets:
    """The kubelets of nodes, of which only the heartbeats count here."""

    def __init__(self, of: Night) -> None:
        self._of = of
        self.living: set[str] = set()

    async def add(self, name: str, zone: str) -> None:
        """Add a node that is ready."""
        await self._of.cluster.add_node(name, labels={build.ZONE: zone}, allocatable={"pods": "20"})
        moment = _now()[:19] + "Z"
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        ready |= {"lastHeartbeatTime": moment, "lastTransitionTime": moment}
        status = {"status": {"conditions": [ready]}}
        (await self._of.cluster.api.patch(f"/api/v1/nodes/{name}/status", status)).ok  # noqa: B018
        lease = {"metadata": {"name": name}, "spec": {"holderIdentity": name, "renewTime": _now()}}
        (await self._of.cluster.api.post(_LEASES, lease)).ok  # noqa: B018
        self.living.add(name)

    async def beat(self) -> None:
        """Renew the Leases of the living every half second, until cancelled."""
        while True:
            for name in sorted(self.living):
                await self._of.cluster.api.patch(f"{_LEASES}/{name}", {"spec": {"renewTime": _now()}})
            await asyncio.sleep(0.5)


def _replica_set() -> Json:
    """Return nine pods, spread over the zones whose nodes they tolerate, that leave a silent node after a second."""
    labels = {"app": "web"}
    spread = {**build.spread(build.ZONE, build.selector("app=web")), "nodeTaintsPolicy": "Honor"}
    leave = {**build.toleration(_UNREACHABLE, effect="NoExecute"), "tolerationSeconds": 1}
    spec = {
        "schedulerName": NAME,
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "c", "image": "i"}],
        "topologySpreadConstraints": [spread],
        "tolerations": [leave],
    }
    template = {"metadata": {"labels": labels}, "spec": spec}
    return {
        "metadata": {"name": "web"},
        "spec": {"replicas": _N_PODS, "selector": {"matchLabels": labels}, "template": template},
    }


def _controllers(of: Night) -> AbstractContextManager[None]:
    """Run the controllers of nodes and ReplicaSets, which lose patience within seconds."""
    assert _CONTROLLER_MANAGER is not None
    return controlling(
        _CONTROLLER_MANAGER,
        "node-lifecycle-controller,taint-eviction-controller,replicaset-controller",
        of.kubeconfig,
        "--node-monitor-period=1s",
        "--node-monitor-grace-period=5s",
        "--node-eviction-rate=100",
        "--secondary-node-eviction-rate=100",
    )


async def test_pods_of_a_lost_zone_go_to_the_others(tmp_path: Path) -> None:
    """First the kubelets of zone a fall silent; then the nodes of zone b are deleted, and their pods with them."""
    async with night(tmp_path) as server:
        with _controllers(server):
            cluster, kubelets = server.cluster, _Kubelets(server)
            for zone in _ZONES:
                for number in range(2):
                    await kubelets.add(f"{zone}{number}", zone)
            beating = asyncio.create_task(kubelets.beat())

            async def by_zone() -> Counter[str]:
                return Counter(pod["spec"].get("nodeName", "?")[0] for pod in await cluster.pods())

            async with running(server.kubeconfig) as daemon:
                path = cluster.api.in_namespace("replicasets", group="apis/apps/v1")
                (await cluster.api.post(path, _replica_set())).ok  # noqa: B018
                await until(
                    by_zone, lambda zones: zones == {"a": 3, "b": 3, "c": 3}, what="three pods a zone"
                )

                kubelets.living -= {"a0", "a1"}
                await until(by_zone, lambda zones: zones.total() == _N_PODS and set(zones) == {"b", "c"})
                assert max((await by_zone()).values()) == 5
                assert (await daemon.get("/readyz"))[0] == 200

                kubelets.living -= {"b0", "b1"}
                for name in ("b0", "b1"):
                    (await cluster.api.delete(f"/api/v1/nodes/{name}")).ok  # noqa: B018
                for pod in await cluster.pods():
                    if pod["spec"].get("nodeName", "?")[0] == "b":
                        await cluster.delete_pod(pod["metadata"]["name"])
                await until(by_zone, lambda zones: zones == {"c": _N_PODS}, what="all pods in zone c")
                assert await daemon.metric("scheduler_cache_size", type="nodes") == 4
                assert await daemon.metric("scheduler_schedule_attempts_total", result="error") == 0
            beating.cancel()
            with suppress(asyncio.CancelledError):
                await beating
