"""Compares the informers' caches with the API server: at an election, while confirmations are late, periodically."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Final

from scheduler.daemon.loop.informers import Informer
from scheduler.daemon.metrics.logs import Logger
from scheduler.daemon.writes.inbox import Inbox
from scheduler.errors import ApiError

#: A watch is dead if for this time it was silent and a successful bind was unconfirmed: watches are late by
#: milliseconds.
_UNCONFIRMED_S: Final = 10.0
_UNCONFIRMED_CHECK_S: Final = 2.0
#: Pause before a new leader lists again.
_CATCH_UP_RETRY_S: Final = 0.1
#: How often, and with which pause, a new leader checks whether its watch has shown the last bind, before it lists.
_USUAL_DELAYS: Final = 20
_USUAL_DELAY_S: Final = 0.01
#: Time between two comparisons, plus or minus a fifth.
_COMPARISON_PERIOD_S: Final = 600.0


async def catch_up(pods: Informer, inbox: Inbox, log: Logger, handover: str = "") -> None:
    """
    Wait until the machine has handled every bind of earlier leaders, however late the watch is.

    That takes a list of all pods, unless the last leader has left a version and the watch reaches it in time.
    """
    if not (handover and await _comes_to(pods, handover)):
        await _take_list(pods, log)
    while len(inbox):  # noqa: ASYNC110 - the scheduling loop empties it
        await asyncio.sleep(0)


async def _comes_to(pods: Informer, version: str) -> bool:
    """Return whether the watch reaches this version within a usual delay."""
    for _ in range(_USUAL_DELAYS):
        if pods.synced and await pods.has_reached(version):
            return True
        await asyncio.sleep(_USUAL_DELAY_S)
    return False


async def _take_list(pods: Informer, log: Logger) -> None:
    while True:
        try:
            if pods.synced and (n_late := await pods.catch_up()) is not None:
                break
        except ApiError as error:
            log.info(1, "A new leader cannot list pods yet", err=str(error))
        await asyncio.sleep(_CATCH_UP_RETRY_S)
    if n_late:
        log.info(0, "The watch is late; objects were taken from a list", kind=pods.kind, n=n_late)


async def reopen_dead_watch(
    pods: Informer, log: Logger, *, n_unconfirmed: Callable[[], int], now_s: Callable[[], float]
) -> None:
    """Reopen the watch of pods if it is silent while binds are unconfirmed, long before `SILENT_S`, until cancelled."""
    unconfirmed_since_s: float | None = None
    while True:
        await asyncio.sleep(_UNCONFIRMED_CHECK_S)
        if not pods.synced or not n_unconfirmed():
            unconfirmed_since_s = None
        elif unconfirmed_since_s is None:
            unconfirmed_since_s = now_s()
        elif min(now_s() - unconfirmed_since_s, pods.silent_s()) > _UNCONFIRMED_S:
            log.info(0, "The watch does not confirm binds; reopening it", kind=pods.kind, n=n_unconfirmed())
            unconfirmed_since_s = None
            pods.reopen()


async def compare_caches(
    informers: Sequence[Informer], log: Logger, *, on_divergence: Callable[[str, int], None]
) -> None:
    """Periodically compare every cache with a list, and report and repair differences, until cancelled."""
    while True:
        await asyncio.sleep(_COMPARISON_PERIOD_S * random.uniform(0.8, 1.2))
        for informer in informers:
            if not informer.synced:
                continue
            try:
                n_divergent = await informer.compare()
            except ApiError as error:
                log.info(1, "The cache was not compared", kind=informer.kind, err=str(error))
                continue
            if n_divergent:
                on_divergence(informer.kind, n_divergent)
                log.error("The cache differed from the server's list", kind=informer.kind, n=n_divergent)
