"""
`make soak`: churn over HTTP against a scheduler process, whose memory is measured; exits 1 where it goes on growing.

    python -m tests.soak [--seconds N]

Every round has namespaces, nodes, labels, selectors and topology keys of its own, and takes them all away again. Caches
that are bounded fill at first (the largest holds events for six minutes); in the last quarter no memory may be won.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tests import build
from tests.build import Json
from tests.integration.cluster import NAME, Cluster
from tests.integration.conftest import embedded
from tests.integration.daemon import running
from tests.integration.waiting import until
from tests.soak.churn import pods_of_round

#: What a healthy process may win or lose by chance.
_SLACK_BYTES = 2 << 20
_NODES, _PODS = 4, 3
_TELL_S = 30.0


class Scraped(Protocol):
    """A scheduler whose metrics can be asked for."""

    async def metric(self, name: str, **labels: str) -> float:
        """The sum of all samples of this name that have these labels."""
        ...


@dataclass
class Figures:
    """RSS of the scheduler after each round, and what it had done."""

    rss_bytes: list[int] = field(default_factory=list)
    n_pods: int = 0
    n_bound: int = 0
    started_s: float = field(default_factory=time.monotonic)

    def tell(self) -> None:
        megabytes = self.rss_bytes[-1] / 1e6
        print(
            f"{time.monotonic() - self.started_s:6.0f} s  {len(self.rss_bytes):5} rounds  "
            f"{self.n_pods:6} pods  {self.n_bound:6} bound  RSS {megabytes:.1f} MB",
            flush=True,
        )

    def won_at_last(self) -> int:
        """What the last quarter added, from its first tenth to its last."""
        last = self.rss_bytes[-max(1, len(self.rss_bytes) // 4) :]
        n = max(1, len(last) // 10)
        return int(statistics.median(last[-n:]) - statistics.median(last[:n]))

    def quarters(self) -> list[int]:
        """The median RSS of each quarter of the run."""
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
    won_bytes = figures.won_at_last()
    print(f"in the last quarter: {won_bytes / 1e6:+.1f} MB")
    return 1 if won_bytes > _SLACK_BYTES else 0


async def _soak(seconds: float) -> Figures:
    with tempfile.TemporaryDirectory() as folder:
        async with embedded(Path(folder)) as cluster, running(Path(cluster.kubeconfig)) as daemon:
            await cluster.api.enter_namespace()
            figures = Figures()
            told_s = time.monotonic()
            while time.monotonic() - figures.started_s < seconds:
                await live_round(cluster, daemon, figures, len(figures.rss_bytes))
                figures.rss_bytes.append(_rss_bytes(daemon.process.pid))
                if time.monotonic() - told_s >= _TELL_S:
                    told_s = time.monotonic()
                    figures.tell()
            return figures


async def live_round(cluster: Cluster, daemon: Scraped, figures: Figures, number: int) -> None:
    """A cluster comes, is scheduled, changes, and goes."""
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
        for container in pod["spec"]["containers"]:
            if resources := container.get("resources"):
                resources["limits"] = {name: n for name, n in resources["requests"].items() if "/" in name}
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
    """Pods in the cache once nothing is left to try."""
    await until(lambda: daemon.metric("scheduler_pending_pods", queue="active"), lambda n: n == 0)
    return int(await daemon.metric("scheduler_cache_size", type="pods"))


def _rss_bytes(pid: int) -> int:
    """Resident memory, as Linux tells it."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("a process without VmRSS")


if __name__ == "__main__":
    sys.exit(main())
