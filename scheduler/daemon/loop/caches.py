"""The caches of a process: an informer for each kind that it reads, and whether what they listed first is handled."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

from scheduler.daemon.loop.connection import Connection
from scheduler.daemon.loop.informers import Informer
from scheduler.daemon.loop.upkeep import freeze_periodically
from scheduler.daemon.metrics.process import ControllerMetrics
from scheduler.daemon.writes.inbox import Inbox
from scheduler.engine.framework.kinds import WatchedKind

#: A cache is stale if its watch has received nothing for this time. Bookmarks come once a minute.
_SILENT_S: Final = 240.0


class Caches:
    """
    The informers, whose stimuli pass through `inbox`.

    `on_interrupted` is called with the kind of each watch that is interrupted, which is counted in any case.
    """

    def __init__(
        self,
        kinds: Iterable[WatchedKind],
        connection: Connection,
        metrics: ControllerMetrics,
        *,
        on_interrupted: Callable[[str], None] = lambda _: None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        def note_interrupted(kind: str) -> None:
            metrics.watch_restarts.add(kind)
            on_interrupted(kind)

        self._log = connection.log
        self.inbox = Inbox()
        self.informers = [
            Informer(
                kind,
                connection.client,
                self.inbox,
                log=connection.log,
                on_malformed=metrics.malformed_objects.add,
                on_interrupted=note_interrupted,
                now_s=now_s,
            )
            for kind in kinds
        ]
        metrics.register_malformed(lambda: {each.kind: each.n_malformed for each in self.informers})
        #: True once `is_synced` has returned True.
        self.was_synced = False

    def is_synced(self) -> bool:
        """Return True once every initial list has been handled, and from then on."""
        if not self.was_synced and all(each.synced for each in self.informers) and not len(self.inbox):
            self.was_synced = True
            # The objects of the first lists live as long as the process. No collection before: it would stop the loop
            # for 0.2 s at 5,000 nodes and find little.
            gc.freeze()
            missing = [informer.kind for informer in self.informers if informer.is_missing]
            if missing:
                self._log.info(
                    3, "Kinds that the API server does not have; none is assumed to exist", kinds=missing
                )
        return self.was_synced

    def is_fresh(self) -> bool:
        """Return True unless a watch has been silent for long."""
        return all(informer.silent_s() < _SILENT_S for informer in self.informers)

    def start(
        self,
        start: Callable[[str, Coroutine[Any, Any, None]], None],
        run: Callable[[Informer], Coroutine[Any, Any, None]] = Informer.run,
    ) -> None:
        """Start a task for each informer, and the task that exempts their objects from garbage collection."""
        start("garbage collection", freeze_periodically())
        for informer in self.informers:
            start(f"informer {informer.kind}", run(informer))
