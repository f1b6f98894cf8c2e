"""A real API server of a test's own, whose flags are its fault."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.api_client import Api
from tests.support.apiserver import Address, RealApiServer, assets
from tests.support.cluster import Cluster, kubeconfig_of

#: Flags of a Lease that changes hands within seconds, and where the Lease is.
ELECTION = (
    *("--leader-elect-lease-duration", "4s", "--leader-elect-renew-deadline", "3s"),
    *("--leader-elect-retry-period", "500ms"),
)
LEASE_PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/affinity-scheduler"


@dataclass(frozen=True)
class Night:
    """A server, a cluster on it in a namespace of its own, and the folder of its files."""

    address: Address
    cluster: Cluster
    folder: Path
    etcd_url: str

    @property
    def kubeconfig(self) -> Path:
        """Return the kubeconfig of an administrator."""
        return Path(self.cluster.kubeconfig)

    def kubeconfig_of_scheduler(self) -> Path:
        """Return a kubeconfig of the user of kubeadm's scheduler.conf, who is subject to limits as any user."""
        path = self.folder / "scheduler.kubeconfig"
        return kubeconfig_of(self.address, path, token=self.address.scheduler_token)


@asynccontextmanager
async def night(folder: Path, *flags: str, etcd_flags: Sequence[str] = ()) -> AsyncIterator[Night]:
    """Start etcd and kube-apiserver with these flags, and stop them at the end."""
    binaries = assets()
    assert binaries is not None, "only tests marked `real` ask for it"
    server = RealApiServer(binaries, folder, *flags, etcd_flags=etcd_flags)
    address = await asyncio.to_thread(server.start)
    try:
        context = ssl.create_default_context(cafile=str(address.ca_file))
        async with Api(address.url, {"Authorization": f"Bearer {address.token}"}, ssl=context) as api:
            await api.enter_namespace()
            kubeconfig = kubeconfig_of(address, folder / "admin.kubeconfig")
            yield Night(address, Cluster(api, str(kubeconfig), None), folder, server.etcd_url)
    finally:
        await asyncio.to_thread(server.stop)
