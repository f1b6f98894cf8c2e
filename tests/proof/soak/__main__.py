"""
`make soak`: churn over HTTP against a scheduler process whose memory is measured.

Exits with 1 if it keeps growing or reaches the limit of the manifest.

    python -m tests.proof.soak [--seconds N]

Every round creates namespaces, nodes, labels, selectors and topology keys of its own and deletes them again. Bounded
caches fill first (the largest keeps events for six minutes). In the last quarter the number of live objects (`live`)
must not grow; a run whose last quarter begins before the caches are full is not judged. RSS is printed as well, but
grows for longer: see `live`.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from scheduler.engine.syntax.quantity import counted, parse_quantity
from tests.bench.measuring import resident_bytes
from tests.proof.soak.churn import pods_of_round
from tests.support import build
from tests.support.build import Json
from tests.support.cluster import NAME, Cluster
from tests.support.daemon import Daemon, running
from tests.support.manifest_files import BASE, container, one, resources
from tests.support.waiting import until
from tests.system.processes.conftest import embedded

#: Random growth of a healthy process, of a million objects.
_SLACK = 40_000
#: By then the bounded caches are full.
_FULL_AFTER_S = 420.0
_NODES, _PODS = 4, 3
_TELL_S = 30.0


class Scraped(Protocol):
    """The metrics of a scheduler process."""

    async def metric(self, name: str, **labels: str) -> float:
        """Return the sum of all samples of this name with these labels."""
        ...


@dataclass
class Figures:
    """RSS and live objects of the scheduler after each round, and its counts."""

    rss_bytes: list[int] = field(default_factory=list)
    n_live: list[int] = field(default_factory=list)
    n_pods: int = 0
    n_bound: int = 0
    started_s: float = field(default_factory=time.monotonic)

    def tell(self) -> None:
        megabytes = self.rss_bytes[-1] / 1e6
        print(
            f"{time.monotonic() - self.started_s:6.0f} s  {len(self.rss_bytes):5} rounds  "
            f"{self.n_pods:6} pods  {self.n_bound:6} bound  "
            f"{self.n_live[-1]:7} objects  RSS {megabytes:.1f} MB",
            flush=True,
        )

    def growth_at_end(self) -> int:
        """Return the growth in the last quarter: its minimum, which follows a sweep, minus the third quarter's."""
        n = max(1, len(self.n_live) // 4)
        return min(self.n_live[-n:]) - min(self.n_live[-2 * n : -n] or self.n_live)

    def quarters(self) -> list[int]:
        """Return the median RSS of each quarter of the run."""
        n = max(1, len(self.rss_bytes) // 4)
        return [int(statistics.median(self.rss_bytes[i * n : (i + 1) * n])) for i in range(4)]


def main() -> int:
    parser = argparse.ArgumentParser(prog="make soak")
    parser.add_argument("--seconds", type=float, default=600.0, help="how long (default %(default)s)")
    args = parser.parse_args()
    figures = asyncio.run(_soak(args.seconds))
    quarters = figures.quarters()
    figures.tell()
    print("RSS by quarter: " + ", ".join(f"{one / 1e6:.1f} MB" for one in quarters))
    n_won = figures.growth_at_end()
    print(f"in the last quarter: {n_won:+} objects")
    most = max(figures.rss_bytes)
    limit = container(one(resources(BASE), "Deployment"))["resources"]["limits"]["memory"]
    if most >= counted("memory", parse_quantity(limit)):
        print(f"RSS of {most / 1e6:.0f} MB reaches the {limit} of the manifest")
        return 1
    if args.seconds * 3 / 4 < _FULL_AFTER_S:
        print(f"not judged: that takes {_FULL_AFTER_S * 4 / 3:.0f} s")
        return 0
    return 1 if n_won > _SLACK else 0


async def _soak(seconds: float) -> Figures:
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "live"
        async with (
            embedded(Path(folder)) as cluster,
            running(Path(cluster.kubeconfig), module=("tests.proof.soak.live", str(told))) as daemon,
        ):
            await cluster.api.enter_namespace()
            figures = Figures()
            told_s = time.monotonic()
            while time.monotonic() - figures.started_s < seconds:
                await live_round(cluster, daemon, figures, len(figures.rss_bytes))
                figures.rss_bytes.append(resident_bytes(daemon.process.pid))
                figures.n_live.append(await _n_live(daemon, told))
                if time.monotonic() - told_s >= _TELL_S:
                    told_s = time.monotonic()
                    figures.tell()
            return figures


async def live_round(cluster: Cluster, daemon: Scraped, figures: Figures, number: int) -> None:
    """Create a cluster's objects, schedule its pods, change them, and delete everything."""
    namespace = f"ns-{number}"
    labels = {"team": f"t{number}", f"only-{number}": "yes"}
    await cluster.api.post("/api/v1/namespaces", build.namespace(namespace, labels=labels))
    for index in range(_NODES):
        await cluster.add_node(
            f"node-{number}-{index}",
            labels={build.ZONE: f"zone-{number}", f"rack.example/{number}": f"r{index}"},
            allocatable={f"example.com/device-{number}": "4"},
            taints=[f"taint-{number}=v:PreferNoSchedule"],
        )
    paths = []
    for index, document in enumerate(pods_of_round(number) * _PODS):
        settings: Json = {**document, "namespace": namespace}
        spec: Json = {"schedulerName": NAME}
        if gates := settings.pop("gates", None):
            spec["schedulingGates"] = [{"name": gate} for gate in gates]
        if settings.pop("node", None):
            settings["node"] = f"node-{number}-0"
        pod = build.pod(f"p-{index}", **settings, spec=spec)
        del pod["metadata"]["uid"], pod["status"]
        for each in pod["spec"]["containers"]:
            if asked := each.get("resources"):
                asked["limits"] = {name: n for name, n in asked["requests"].items() if "/" in name}
        path = f"/api/v1/namespaces/{namespace}/pods"
        (await cluster.api.post(path, pod)).ok  # noqa: B018 - asserts success
        paths.append(f"{path}/p-{index}")
    figures.n_pods += len(paths)
    figures.n_bound += await _settled(daemon)
    for number_of_pod, path in enumerate(paths):
        if number_of_pod % 3 == 0:
            change = {"metadata": {"labels": {f"late-{number}": f"v{number_of_pod}"}}}
            await cluster.api.patch(path, change)
        await cluster.api.delete(path, {"gracePeriodSeconds": 0})
    for index in range(_NODES):
        await cluster.api.delete(f"/api/v1/nodes/node-{number}-{index}")
    await cluster.api.delete(f"/api/v1/namespaces/{namespace}")
    await until(lambda: daemon.metric("scheduler_cache_size"), lambda n: n == 0, what="an empty cache")


async def _settled(daemon: Scraped) -> int:
    """Return the number of cached pods once no pod is left to schedule."""
    await until(lambda: daemon.metric("scheduler_pending_pods", queue="active"), lambda n: n == 0)
    return int(await daemon.metric("scheduler_cache_size", type="pods"))


async def _n_live(daemon: Daemon, told: Path) -> int:
    """Return the number of live objects that the daemon writes to the file."""
    told.unlink(missing_ok=True)
    daemon.process.send_signal(signal.SIGUSR1)

    async def there() -> bool:
        return told.exists()

    await until(there, what="an answer to SIGUSR1")
    return int(told.read_text())


if __name__ == "__main__":
    sys.exit(main())
