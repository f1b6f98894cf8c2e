"""Liveness fails if the scheduler's loop is stuck, readiness if its caches receive nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

from scheduler.daemon.kube.client import KubeClient
from scheduler.daemon.kube.credentials import load_credentials
from scheduler.daemon.loop.app import Options, Scheduler
from scheduler.daemon.loop.connection import Connection
from scheduler.daemon.metrics.logs import Logger
from scheduler.daemon.metrics.metrics import Metrics
from scheduler.daemon.port.status_server import ServingOptions
from scheduler.daemon.settings.loading import default_settings
from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.kinds import POD
from tests.proof.chaos.proxy import Wire
from tests.proof.chaos.virtual import run_virtually
from tests.support import build
from tests.support.ports import free_port
from tests.support.waiting import until


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[Scheduler, DevCluster, Wire, str]]:
    """Run a scheduler with full caches; return it with its connection and its URL."""
    port = free_port()
    async with DevCluster(nodes=2) as cluster:
        wire = Wire(cluster.port)
        await wire.start()
        credentials = await load_credentials(
            kubeconfig=None, master=f"http://127.0.0.1:{wire.port}", environ={"HOME": "/nonexistent"}
        )
        options = Options(
            settings=default_settings(),
            election=None,
            master=None,
            serving=ServingOptions("127.0.0.1", port, insecure_http=True),
            max_in_unschedulable_s=300.0,
            seed=1,
            verbosity=0,
            log_format="text",
        )
        now_s = asyncio.get_running_loop().time
        async with KubeClient(credentials, now_s=now_s) as client:
            log = Logger(logging.Logger("wedged", level=logging.CRITICAL))
            scheduler = Scheduler(options, Metrics(), Connection(client, log), now_s=now_s)
            running = asyncio.create_task(scheduler.run())
            url = f"http://127.0.0.1:{port}"
            # Name resolution runs in threads, for which the virtual clock does not wait.
            await until(lambda: says(f"{url}/readyz"), lambda status: status == 200, timeout_s=300.0)
            yield scheduler, cluster, wire, url
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        await wire.stop()


async def says(url: str) -> int:
    """Return the status of an endpoint; 0 if nothing listens."""
    try:
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return answer.status
    except aiohttp.ClientConnectionError:
        return 0


def test_liveness_falls_when_the_loop_is_stuck_although_http_answers() -> None:
    """The loop waits for ever while a pod is in the inbox."""

    async def play() -> None:
        async with serving() as (scheduler, cluster, _wire, url):
            assert await says(f"{url}/livez") == 200

            async def never(timeout_s: float | None) -> None:
                del timeout_s
                await asyncio.Event().wait()

            scheduler._inbox.wait = never  # type: ignore[method-assign]  # what a bug in there would do
            for name in ("first", "second"):
                pod = build.pod(name, spec={"schedulerName": "affinity-scheduler"})
                del pod["metadata"]["uid"], pod["status"]
                cluster.store.create(POD, "default", pod)
                await asyncio.sleep(5.0)
            await asyncio.sleep(100.0)
            assert await says(f"{url}/livez") == 200
            await asyncio.sleep(100.0)
            assert await says(f"{url}/livez") == 500
            assert await says(f"{url}/healthz") == 500

    run_virtually(play())


def test_readiness_falls_when_a_cache_hears_nothing_and_liveness_does_not() -> None:
    """A restart would not repair the server."""

    async def play() -> None:
        async with serving() as (_scheduler, _cluster, wire, url):
            assert await says(f"{url}/readyz") == 200
            wire.freeze()
            await asyncio.sleep(100.0)
            assert await says(f"{url}/readyz") == 200
            await asyncio.sleep(200.0)
            assert await says(f"{url}/readyz") == 500
            assert await says(f"{url}/livez") == 200
            wire.thaw()
            await asyncio.sleep(130.0)
            assert await says(f"{url}/readyz") == 200

    run_virtually(play())
