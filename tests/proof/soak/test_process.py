"""Informers, writers, metrics and clients are as large after many clusters as after few."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections import Counter
from pathlib import Path

import pytest

from scheduler.daemon.kube.client import KubeClient
from scheduler.daemon.kube.credentials import load_credentials
from scheduler.daemon.loop.app import Options, Scheduler
from scheduler.daemon.loop.connection import Connection
from scheduler.daemon.metrics.logs import Logger
from scheduler.daemon.metrics.metrics import Metrics
from scheduler.daemon.port.status_server import ServingOptions
from scheduler.daemon.settings.loading import default_settings
from scheduler.engine.state.batches import finished
from scheduler.tools.page.cluster_page import ClusterPage
from tests.proof.soak.__main__ import Figures, live_round
from tests.proof.soak.probing import module_level, sizes
from tests.support.daemon import sum_of_samples
from tests.support.waiting import until
from tests.system.processes.conftest import embedded

_FIRST, _MORE = 2, 3

#: Bounded caches. Those of the machine are full in `test_memory`, and events have a test of their own in
#: `tests.daemon.loop`.
_BOUNDED = (
    "EventSeries._open",
    "MemoBySpec._memo",
    "DerivedValues._entries",
    # The last few changes.
    "ChangeLog._changes",
    # Up to 4,096 entries that cancelled out, beside those of running pods.
    "TermTable._entries",
    # One per row of a node.
    "ExistingTerms._alone_on",
    # The last 500 attempts, for the page.
    "DecisionFeed._entries",
    # As many connections as there were concurrent requests.
    "DirectTransport._idle",
    "DirectTransport._open_connections",
    "_Connection._open_connections",
    # The last failed attempts, for /debug/explain.
    "FailedAttempts._failed_by_uid",
    # One per label value and event.
    "Histogram.series",
    "Histogram._starts",
    "HistogramSeries.n_by_bucket",
    "PodQueue.incoming",
    # Namespaces with a cycle in the last ten seconds.
    "NamespaceShares._unused_at_s",
)


class _Scraped:
    """The metrics of a scheduler in this process."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    async def metric(self, name: str, **labels: str) -> float:
        return sum_of_samples(self._metrics.render().decode(), name, **labels)


@pytest.mark.slow
@pytest.mark.asyncio
async def test_rounds_over_http_grow_only_bounded_caches(tmp_path: Path) -> None:
    metrics = Metrics()
    options = Options(
        settings=default_settings(),
        election=None,
        master=None,
        serving=ServingOptions("127.0.0.1", 0),
        max_in_unschedulable_s=300.0,
        seed=1,
        verbosity=0,
        log_format="text",
    )
    async with embedded(tmp_path) as cluster:
        credentials = await load_credentials(kubeconfig=cluster.kubeconfig, master=None, environ={})
        async with KubeClient(credentials, on_request=metrics.on_request) as client:
            log = Logger(logging.Logger("soak", level=logging.CRITICAL))
            scheduler = Scheduler(options, metrics, Connection(client, log), new_view=ClusterPage)
            running = asyncio.create_task(scheduler.run())

            async def is_synced() -> bool:
                return scheduler._caches.is_synced()

            await until(is_synced, what="the first lists")
            figures, scraped = Figures(), _Scraped(metrics)
            held: list[Counter[str]] = []
            for number in range(_FIRST + _MORE):
                await live_round(cluster, scraped, figures, number)
                for _ in range(4):
                    finished(scheduler._state.sweeping())
                if number in (_FIRST - 1, _FIRST + _MORE - 1):
                    await scheduler._writers.recorder.drain(10.0)
                    # A comparison in progress holds its remaining suspects.
                    scheduler._audit._round = iter(())
                    scheduler._audit._of_state._round = iter(())
                    gc.collect()
                    found = sizes(scheduler, client)
                    found.update(module_level())
                    held.append(found)
            scheduler.stop()
            assert await running == 0
    before, after = held
    assert {name.partition(".")[0] for name in _BOUNDED} <= {path.partition(".")[0] for path in after}
    grown = {path: (before[path], n) for path, n in after.items() if n > before[path]}
    assert {path: n for path, n in grown.items() if not path.startswith(_BOUNDED)} == {}
    assert figures.n_bound > 50
