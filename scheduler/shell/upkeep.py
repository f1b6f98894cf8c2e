"""What a running scheduler does to stay right, beside its work: doubts its caches and counts, and collects garbage."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Callable, Sequence
from typing import Final

from scheduler.errors import ApiError, InvariantViolation
from scheduler.observe.logs import Logger
from scheduler.shell.inbox import Inbox
from scheduler.shell.informers import Informer
from scheduler.state.audit import Audit

#: A watch that owes the news of an answered bind and says nothing at all for so long is dead; watches are late by
#: milliseconds.
_OWED_S: Final = 10.0
_OWED_LOOK_S: Final = 2.0
#: Pause before a new leader asks again for what it may have missed.
_CATCH_UP_RETRY_S: Final = 0.1
#: How often caches are compared with a list, give or take a fifth.
_AUDIT_PERIOD_S: Final = 600.0
#: Pause between pieces of the recount, 2 ms each: of 150,000 pods and a thousand selections all is seen in an hour.
_RECOUNT_PERIOD_S: Final = 0.5
#: How often the event loop's lateness is measured: cheap, and twice within Prometheus' shortest usual interval.
_LAG_PERIOD_S: Final = 5.0
#: Net allocations between collections of the young, and such collections between those of what survived one.
_YOUNG: Final = (1_000, 2)
_NEVER: Final = 1_000_000_000
#: Stimuli between two collections of the young: up to twenty objects each, 0.5 to 1 µs an object.
_STIMULI: Final = 100
_COLLECT_PERIOD_S: Final = 60.0
#: So many collections of the middle generation since the last time leave 3,000 objects each at most: 4 ms in all.
_FEW: Final = 4
#: Differences that are told.
_MAX_TOLD: Final = 10


async def catch_up(pods: Informer, inbox: Inbox, log: Logger) -> None:
    """Every bind that an earlier leader wrote is known to the machine, however late the watch is."""
    while True:
        try:
            if pods.synced and (n_late := await pods.catch_up()) is not None:
                break
        except ApiError as error:
            log.info(1, "A new leader cannot list pods yet", err=str(error))
        await asyncio.sleep(_CATCH_UP_RETRY_S)
    if n_late:
        log.info(0, "The watch is late; taken from a list", kind=pods.kind, n=n_late)
    while len(inbox):  # noqa: ASYNC110 - the reader is at it, and takes turns with this
        await asyncio.sleep(0)


async def demand(
    pods: Informer, log: Logger, *, n_owed: Callable[[], int], now_s: Callable[[], float]
) -> None:
    """
    Opens the watch of pods anew where it is silent although it owes something; until cancelled.

    Long before `kube.client.SILENT_S`, and just when a dead watch does harm: while pods are placed.
    """
    owing_since_s: float | None = None
    while True:
        await asyncio.sleep(_OWED_LOOK_S)
        if not pods.synced or not n_owed():
            owing_since_s = None
        elif owing_since_s is None:
            owing_since_s = now_s()
        elif min(now_s() - owing_since_s, pods.silent_s()) > _OWED_S:
            log.info(0, "The watch does not show what was bound; opened anew", kind=pods.kind, n=n_owed())
            owing_since_s = None
            pods.reopen()


async def audit(
    informers: Sequence[Informer], log: Logger, *, on_divergence: Callable[[str, int], None]
) -> None:
    """Compares every cache with a list now and then, tells what no watch had brought, and mends it; until cancelled."""
    while True:
        await asyncio.sleep(_AUDIT_PERIOD_S * random.uniform(0.8, 1.2))
        for informer in informers:
            if not informer.synced:
                continue
            try:
                n_divergent = await informer.audit()
            except ApiError as error:
                log.info(1, "The cache was not compared", kind=informer.kind, err=str(error))
                continue
            if n_divergent:
                on_divergence(informer.kind, n_divergent)
                log.error("The cache was not what the server lists", kind=informer.kind, n=n_divergent)


async def recount(pieces: Audit, log: Logger, *, is_busy: Callable[[], bool]) -> None:
    """
    Compares counts with a recount while nothing else is to do, a piece at a time, until cancelled.

    Raises:
        InvariantViolation: they differ, which is a bug; the restart that follows reads everything anew.
    """
    while True:
        await asyncio.sleep(_RECOUNT_PERIOD_S)
        if is_busy():
            continue
        if found := pieces.step():
            for text in found[:_MAX_TOLD]:
                log.error("Counts differ from a recount", difference=text)
            raise InvariantViolation(f"{len(found)} counts differ from a recount", tuple(found[:_MAX_TOLD]))


async def watch_lag(on_lag: Callable[[float], None], now_s: Callable[[], float]) -> None:
    """Tells every now and then by how many seconds the event loop is late; until cancelled."""
    while True:
        due_s = now_s() + _LAG_PERIOD_S
        await asyncio.sleep(_LAG_PERIOD_S)
        on_lag(max(0.0, now_s() - due_s))


def spare_old_objects() -> None:
    """
    From now on the garbage collector looks at nothing by itself that has survived it twice.

    A full collection holds everything up for 0.27 s where 150,000 pods run, and finds nothing: what lives for long here
    is freed when nobody refers to it any more.
    """
    gc.set_threshold(*_YOUNG, _NEVER)


class Young:
    """
    Collects what is young by how much has happened; the interpreter does by how many more objects there are.

    Where every new pod takes an old one's place there never are more: 100,000 young ones gather while 20,000 waiting
    pods are tried again, and whoever makes the next object pays 70 ms for all of them.
    """

    def __init__(self) -> None:
        self._n_stimuli = 0
        self._n_collections = 0

    def handled(self, n_stimuli: int = 1) -> None:
        """
        So many stimuli were handled, or pods moved.

        Cost: 0.5 to 3 ms every `_STIMULI`-th time, for what would be looked at later.
        """
        self._n_stimuli += n_stimuli
        if self._n_stimuli >= _STIMULI:
            self._n_stimuli = 0
            self._n_collections += 1
            gc.collect(int(self._n_collections % _YOUNG[1] == 0))


async def collect() -> None:
    """Once a minute what has become old is collected or, where there is much of it, left alone; until cancelled."""
    while True:
        await asyncio.sleep(_COLLECT_PERIOD_S)
        retire()


def retire() -> None:
    """What exists is out of the collector's way; looked through before, unless that took more than a few ms."""
    if gc.get_count()[2] <= _FEW:
        gc.collect()
    gc.freeze()
