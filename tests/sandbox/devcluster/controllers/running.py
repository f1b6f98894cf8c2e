"""Controllers, kubelet stand-in and a simple binder on a store, for the tests of this folder."""

import asyncio
import time
from contextlib import asynccontextmanager

from scheduler.sandbox.devcluster.bootstrap import add_storage, populate
from scheduler.sandbox.devcluster.controllers.loop import run_controllers
from scheduler.sandbox.devcluster.kinds import POD
from scheduler.sandbox.devcluster.storage.store import ObjectStore
from tests.support import build
from tests.support.round_robin_binder import N_NODES, bind_in_turn
from tests.support.waiting import until_written


@asynccontextmanager
async def cluster(*, storage=False):
    """Yield the store of a cluster of `N_NODES` nodes, each in a zone of its own."""
    store = ObjectStore()
    populate(store, nodes=N_NODES, zones=N_NODES)
    if storage:
        add_storage(store)
    controllers = run_controllers(store, time.monotonic)
    tasks = [asyncio.create_task(controllers), asyncio.create_task(bind_in_turn(store))]
    try:
        yield store
        assert not any(task.done() for task in tasks)
    finally:
        for task in tasks:
            task.cancel()
        before = len(store.history.listeners)
        await asyncio.gather(*tasks, return_exceptions=True)
        assert len(store.history.listeners) == before - 2, "controllers that ended still listen"


async def settled(store):
    """Return after a pod that comes now runs: the controllers have seen all that came before it."""
    store.create(POD, "default", build.pod("last"))
    await until_written(store, lambda: store.get(POD, "default", "last")["status"]["phase"] == "Running")
