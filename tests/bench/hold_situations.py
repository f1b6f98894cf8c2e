"""
The situations in which holds of the event loop are measured, and the daemon to which they happen.

The scheduler runs in this process as `run` runs it, against `fed_api`.
"""

from __future__ import annotations

import asyncio
import logging
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final, cast

from scheduler.daemon.assembly.watched_kinds import kinds_for
from scheduler.daemon.kube.client import KubeClient
from scheduler.daemon.loop.app import Options, Scheduler
from scheduler.daemon.loop.connection import Connection
from scheduler.daemon.loop.upkeep import SWEEP_PERIOD_S, freeze_old_objects
from scheduler.daemon.metrics.logs import Logger
from scheduler.daemon.metrics.metrics import Metrics
from scheduler.daemon.port.status_server import ServingOptions
from scheduler.daemon.settings.loading import default_settings
from scheduler.tools.page.cluster_page import ClusterPage
from tests.bench import templates
from tests.bench.fed_api import FedApi
from tests.bench.hold_clusters import (
    CROWD,
    DEVICES,
    LABEL_SETS,
    NAMESPACE,
    ONE_BUDGET,
    REPELLING,
    WAITING,
    HoldCluster,
    HoldSize,
    preemptor,
)
from tests.bench.loaded import SCHEDULER
from tests.bench.served import Served
from tests.bench.templates import Planned, Template
from tests.support import build
from tests.support.build import HOSTNAME, ZONE, Json
from tests.support.device_documents import DRIVER, device_class, selecting_claim
from tests.support.ports import free_port
from tests.support.waiting import until

TIMEOUT_S: Final = 1800.0
_POLL_S: Final = 0.02
#: The timeout of unschedulable pods.
_FLUSH_S: Final = 300.0
_N_PREEMPTORS: Final = 3
_N_CLAIMS: Final = 3
_HEARTBEAT_S: Final = 5.0
#: Fewer than a piece of an audit looks at, so that all pods have their turn.
_AUDITED_PODS_PER_STEP: Final = 300


class Running:
    """A scheduler in this process and its API server; `leapt_s`: how much its clock is ahead."""

    def __init__(self, cluster: HoldCluster, size: HoldSize) -> None:
        self.size = size
        self.served = Served(SCHEDULER)
        settings = default_settings()
        self.api = FedApi(kinds_for(settings), self.served)
        self.api.put("Namespace", build.namespace(NAMESPACE))
        for node in cluster.nodes(size):
            self.api.put("Node", node)
        if cluster.has_devices:
            self.api.put("DeviceClass", device_class())
        self.publish(cluster.device_slices(size))
        for budget in cluster.disruption_budgets():
            self.api.put("PodDisruptionBudget", budget)
        self.api.store(cluster.running(size), "running")
        self.api.store(cluster.waiting(size), "pending")
        self.leapt_s = 0.0
        self.url = f"http://127.0.0.1:{(port := free_port())}"
        options = Options(
            settings=settings,
            election=None,
            master=None,
            serving=ServingOptions("127.0.0.1", port),
            max_in_unschedulable_s=_FLUSH_S,
            seed=1,
            verbosity=0,
            log_format="text",
        )
        log = Logger(logging.Logger("holds", level=logging.CRITICAL))
        connection = Connection(cast("KubeClient", self.api), log)
        self.scheduler = Scheduler(
            options,
            Metrics(),
            connection,
            now_s=lambda: time.monotonic() + self.leapt_s,
            new_view=ClusterPage,
        )
        self.machine = self.scheduler._machine

    def publish(self, slices: Iterable[Json]) -> None:
        """Create or change slices of devices."""
        for each in slices:
            self.api.put("ResourceSlice", each)

    async def settled(self) -> None:
        """Wait until nothing is left to do. Raises TimeoutError."""
        n_quiet = 0
        async with asyncio.timeout(TIMEOUT_S):
            while n_quiet < 5:
                n_quiet = n_quiet + 1 if self._is_idle() else 0
                await asyncio.sleep(_POLL_S)

    def _is_idle(self) -> bool:
        machine, inbox = self.machine, self.scheduler._inbox
        is_working = machine.has_backlog or machine.has_work() or machine.n_binding or machine.is_sweeping
        is_listing = not all(
            informer._reflector.list_watch.is_settled() for informer in self.scheduler._caches.informers
        )
        is_writing = machine.preemptions.is_evicting or machine.n_unconfirmed
        return self.api.is_read() and not (len(inbox) or is_working or is_listing or is_writing)

    async def get(self, path: str) -> bytes:
        """Return the answer of an endpoint, asked for by another thread; again after 429."""

        def read() -> bytes:
            with urllib.request.urlopen(self.url + path, timeout=TIMEOUT_S) as answer:
                return bytes(answer.read())

        while True:
            try:
                return await asyncio.to_thread(read)
            except urllib.error.HTTPError as error:
                if error.code != 429:
                    raise
                await asyncio.sleep(float(error.headers["Retry-After"]))

    def assert_bound(self, pods: Iterable[Planned]) -> None:
        """Raise RuntimeError if one of the pods has no node."""
        for pod in pods:
            if not self.api.pods[pod.namespace, pod.name].node:
                raise RuntimeError(f"{pod.name} is not bound")

    async def call(self, step: Callable[[], object]) -> None:
        """Have the loop call the function as a callback of its own."""
        done = asyncio.get_running_loop().create_future()

        def run() -> None:
            step()
            done.set_result(None)

        asyncio.get_running_loop().call_soon(run)
        await done


async def _preemptors(running: Running, cpu: str) -> None:
    for index in range(_N_PREEMPTORS):
        pod = preemptor(f"preemptor-{index}", cpu)
        running.api.create(pod)
        await until(lambda pod=pod: _is_bound(running, pod), timeout_s=TIMEOUT_S, what="preemption")  # type: ignore[misc]
        await running.settled()


async def _is_bound(running: Running, pod: Planned) -> bool:
    return bool(running.api.pods[pod.namespace, pod.name].node)


async def _preemption(running: Running) -> None:
    await _preemptors(running, "3")


async def _repelled(running: Running) -> None:
    await _preemptors(running, "100m")


async def _group(running: Running) -> None:
    member = templates.member("large", running.size.n_members)
    members = [Planned(member, NAMESPACE, f"member-{index}") for index in range(running.size.n_members)]
    for pod in members:
        running.api.create(pod)
    await running.settled()
    running.assert_bound(members)


async def _relist(running: Running) -> None:
    """List all pods again, of which a tenth have changed, and a hundredth have gone."""
    changed = list(islice(running.api.pods, 0, None, 10))
    for key in changed[::10]:
        del running.api.pods[key]
    running.api.miss("Pod", (key for key in changed if key in running.api.pods))
    await running.settled()


async def _node_labels(running: Running) -> None:
    for index in range(running.size.n_nodes):
        node = templates.node(index, zones=("zone-a", "zone-b", "zone-c"))
        node["metadata"]["labels"]["example.com/generation"] = str(index % 3)
        running.api.put("Node", node)
    await running.settled()


async def _woken(running: Running) -> None:
    """Create a node that every waiting pod could use, and that takes a few of them."""
    node = build.node("large", allocatable={"cpu": "64"})
    running.api.put("Node", node)
    await running.settled()


async def _flush(running: Running) -> None:
    """Let the time pass after which every waiting pod is tried again."""
    running.leapt_s += 2 * _FLUSH_S
    running.scheduler._inbox.nudge()
    await running.settled()


async def _heartbeats(running: Running) -> None:
    """Report a tenth of the nodes every second, 500 of 5,000, while a pod comes every twentieth of a second."""
    loop, n_nodes = asyncio.get_running_loop(), running.size.n_nodes
    began_s, n_reports, plain = loop.time(), 0, Template("default")
    pods = [Planned(plain, NAMESPACE, f"beside-{index}") for index in range(int(20 * _HEARTBEAT_S))]
    for index, pod in enumerate(pods):
        n_due = int((index + 1) / 20 * n_nodes / 10)
        for number in range(n_reports, n_due):
            node = templates.node(number % n_nodes, zones=("zone-a", "zone-b", "zone-c"))
            node["status"]["conditions"] = [
                {
                    "type": "Ready",
                    "status": "True",
                    "lastHeartbeatTime": f"2026-01-01T00:00:{number % 60:02}Z",
                }
            ]
            running.api.put("Node", node)
        n_reports = n_due
        running.api.create(pod)
        await asyncio.sleep(max(0.0, began_s + (index + 1) / 20 - loop.time()))
    await running.settled()
    running.assert_bound(pods)


async def _explanation(running: Running) -> None:
    """Explain a pod that no node has room for, and one that several rules keep off every node."""
    near, apart = build.selector("app=app-1"), build.selector("tier in tier-0,tier-1,tier-2,tier-3,tier-4")
    affinity = build.affinity(
        required=[build.term(ZONE, near)],
        anti_required=[build.term(HOSTNAME, apart), build.term(ZONE, build.selector("app=app-2"))],
    )
    spread = (build.spread(ZONE, near, max_skew=1), build.spread(HOSTNAME, apart, max_skew=1))
    ruled = Template("ruled", {"app": "app-1"}, affinity, spread)
    for pod in (
        Planned(templates.large(), NAMESPACE, "explained-large"),
        Planned(ruled, NAMESPACE, "explained-ruled"),
    ):
        running.api.create(pod)
        await running.settled()
        answer = await running.get(f"/debug/explain?namespace={NAMESPACE}&pod={pod.name}")
        if b'"PendingExplanation"' not in answer:
            raise RuntimeError(f"no explanation of {pod.name}: {answer[:80]!r}")


async def _claims(running: Running) -> None:
    """Try pods whose claims select among all devices by expressions of their own, which no device satisfies."""
    for number in range(_N_CLAIMS):
        _claim(running, number)
        await running.settled()


async def _new_slices(running: Running) -> None:
    """Publish the devices of a tenth of the nodes anew while such a pod waits, then of all."""
    _claim(running, _N_CLAIMS)
    await running.settled()
    running.publish(DEVICES.device_slices(running.size, generation=2)[::10])
    await running.settled()
    running.publish(DEVICES.device_slices(running.size, generation=3))
    await running.settled()


def _claim(running: Running, number: int) -> None:
    name = f"claims-{number}"
    expression = f'device.attributes["{DRIVER}"].index < -{number + 1}'
    running.api.put("ResourceClaim", selecting_claim(name, expression, NAMESPACE))
    running.api.create(Planned(Template(name, resource_claims=(name,)), NAMESPACE, name))


async def _sweep(running: Running) -> None:
    for _ in range(2):
        running.leapt_s += SWEEP_PERIOD_S
        running.scheduler._inbox.nudge()
        await running.settled()
    await running.call(freeze_old_objects)


async def _audit(running: Running) -> None:
    """Recount piece by piece, without the half second between two pieces."""
    for _ in range(50 + running.size.n_running // _AUDITED_PODS_PER_STEP):
        await running.call(running.scheduler._audit.step)


async def _recheck(running: Running) -> None:
    """Compare the caches with the server's lists."""
    for informer in running.scheduler._caches.informers:
        if informer.kind == "Pod" and await informer.compare():
            raise RuntimeError("the cache of pods differs from the server")


async def _scrape(running: Running) -> None:
    await running.get("/metrics")
    await running.get("/api/v1/rules")


@dataclass(frozen=True)
class Situation:
    """What happens in which cluster."""

    name: str
    cluster: HoldCluster
    happens: Callable[[Running], Awaitable[None]]


#: In this order in each cluster.
SITUATIONS: Final = (
    Situation("preemption-repelled", REPELLING, _repelled),
    Situation("preemption-one-budget", ONE_BUDGET, _preemption),
    Situation("preemption-label-sets", LABEL_SETS, _preemption),
    Situation("explanation", CROWD, _explanation),
    Situation("heartbeats", CROWD, _heartbeats),
    Situation("group", CROWD, _group),
    Situation("scrape", CROWD, _scrape),
    Situation("audit", CROWD, _audit),
    Situation("sweep", CROWD, _sweep),
    Situation("recheck", CROWD, _recheck),
    Situation("relist", CROWD, _relist),
    Situation("node-labels", CROWD, _node_labels),
    Situation("claims", DEVICES, _claims),
    Situation("slices", DEVICES, _new_slices),
    Situation("woken", WAITING, _woken),
    Situation("flush", WAITING, _flush),
)

SITUATION_BY_NAME: Final = {situation.name: situation for situation in SITUATIONS}
