"""API servers as separate processes: the embedded cluster, or a real one from KUBEBUILDER_ASSETS."""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from scheduler.sandbox.devcluster.cluster import DevCluster
from tests.bench.measuring import cpu_s
from tests.support.apiserver import RealApiServer, assets
from tests.support.cluster import kubeconfig_text
from tests.support.custom_kinds import KUBERNETES

_WITH_CONTROLLERS: Final = "--controllers"

#: Gates of a kube-scheduler and an API server of 1.36 with groups, and that server's flags.
GROUP_GATES: Final = (
    "--feature-gates=GenericWorkload=true,GangScheduling=true,TopologyAwareWorkloadScheduling=true"
)
GROUP_FLAGS: Final = (GROUP_GATES, f"--runtime-config={KUBERNETES}=true")

ServerName = Literal["devcluster", "kube-apiserver"]


@dataclass(frozen=True, slots=True)
class Server:
    """A running server; `pids` are all its processes, `folder` holds its files."""

    name: ServerName
    url: str
    token: str
    ca_file: Path | None
    pids: tuple[int, ...]
    folder: Path

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers that authenticate a request."""
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    @property
    def tls(self) -> ssl.SSLContext | bool:
        """Return the TLS settings of a client."""
        return ssl.create_default_context(cafile=str(self.ca_file)) if self.ca_file else True

    def cpu_s(self) -> float:
        """Return the user and system seconds that its processes have used."""
        return sum(map(cpu_s, self.pids))

    def kubeconfig(self) -> Path:
        """Write a kubeconfig of this server to its folder."""
        path = self.folder / "kubeconfig"
        path.write_text(
            kubeconfig_text(self.url, token=self.token, ca_file=str(self.ca_file) if self.ca_file else "")
        )
        return path


def available() -> list[ServerName]:
    """Return the servers that can be started here."""
    return ["devcluster", "kube-apiserver"] if assets() else ["devcluster"]


def beside_servers(name: str) -> Path | None:
    """Return the binary of this name beside the real server's, None if there is none."""
    folder = assets()
    return folder / name if folder is not None and (folder / name).is_file() else None


@contextmanager
def started(
    name: ServerName, *, has_controllers: bool = False, flags: Sequence[str] = ()
) -> Iterator[Server]:
    """
    Run an empty server for the block, and delete its files afterwards.

    With `has_controllers` the embedded cluster has its controllers; a real one needs `schedulers.controlling`.
    `flags`: of a real API server.
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as made:
        folder = Path(made)
        own = [_WITH_CONTROLLERS] if has_controllers else []
        with _real(folder, flags) if name == "kube-apiserver" else _devcluster(folder, *own) as server:
            yield server


@contextmanager
def _real(folder: Path, flags: Sequence[str]) -> Iterator[Server]:
    binaries = assets()
    if binaries is None:
        raise RuntimeError("KUBEBUILDER_ASSETS names no folder with etcd and kube-apiserver")
    server = RealApiServer(binaries, folder, *flags)
    address = server.start()
    try:
        pids = tuple(process.pid for process in server._processes)
        yield Server("kube-apiserver", address.url, address.token, address.ca_file, pids, folder)
    finally:
        server.stop()


@contextmanager
def _devcluster(folder: Path, *flags: str) -> Iterator[Server]:
    command = [sys.executable, "-m", "tests.bench.servers", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            found = json.loads(process.stdout.readline())
            yield Server("devcluster", found["url"], found["token"], None, (process.pid,), folder)
        finally:
            process.terminate()


async def _serve(*, controllers: bool) -> None:
    """Run the embedded cluster; without controllers, only the scheduler changes pods."""
    # Requests leave no cycles. A collection costs 20 µs per pod: 3 to 7 ms at a time for young objects, and
    # 0.3 s, as long as 1,000 binds, for all objects of 5,000 nodes.
    gc.disable()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    cluster = DevCluster(token="", controllers=controllers)
    async with cluster:
        print(json.dumps({"url": cluster.url, "token": cluster.token}), flush=True)
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(_serve(controllers=_WITH_CONTROLLERS in sys.argv))
