"""Informers: one per kind, which lists, watches, decodes objects and hands the changes to the machine as stimuli."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final

from scheduler.daemon.assembly.watched_kinds import resource_of
from scheduler.daemon.kube.changes import Change, Deleted, Interrupted, Malformed, Synced, Upserted
from scheduler.daemon.kube.client import KubeClient
from scheduler.daemon.kube.reflector import Reflector
from scheduler.daemon.metrics.logs import Logger
from scheduler.daemon.writes.inbox import Inbox
from scheduler.engine.framework.kinds import WatchedKind
from scheduler.engine.model.stimuli import Stimulus
from scheduler.errors import ApiError

#: Changes delivered before other tasks run; a relist may have any number.
_CHANGES_PER_STEP: Final = 500
#: Delay of the watch that `catch_up` tolerates before it takes changes from a list.
_MAX_WATCH_DELAY_S: Final = 0.5


class Informer:
    """Delivers the changes of one kind to the inbox. `synced` becomes True after the first list and stays so."""

    def __init__(
        self,
        kind: WatchedKind,
        client: KubeClient,
        inbox: Inbox,
        *,
        log: Logger,
        on_malformed: Callable[[str], None],
        on_interrupted: Callable[[str], None],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kind = kind
        self._client = client
        self._inbox = inbox
        self._log = log
        self._on_malformed = on_malformed
        self._on_interrupted = on_interrupted
        self._now_s = now_s
        #: Held while a batch is delivered in pieces, so that batches do not mix.
        self._delivering = asyncio.Lock()
        #: The hash of the last problem of each malformed object, which is logged once and not with every version.
        #: The key None is for objects without a readable name; such a problem never ends.
        self._problem_by_key: dict[str | None, int] = {}
        #: True once the initial list is in the inbox, or the server has said that it does not have the kind.
        self.synced = False
        #: True if the server does not have the kind. The reflector goes on asking, since that can change.
        self.is_missing = False
        #: True if a list has shown changes before the watch did: it may still be behind.
        self._was_late = False
        self._reflector = Reflector(
            client, resource_of(kind), kind.decode, is_absence=kind.is_unserved, now_s=now_s
        )

    @property
    def kind(self) -> str:
        """The kind's name."""
        return self._kind.kind

    @property
    def n_malformed(self) -> int:
        """The number of objects that are malformed now, or have a malformed annotation."""
        return len(self._problem_by_key) - (None in self._problem_by_key)

    def silent_s(self) -> float:
        """Return the seconds since the server last sent anything about the kind, which it does about once a minute."""
        return 0.0 if self.is_missing else self._now_s() - self._reflector.last_heard_s

    def reopen(self) -> None:
        """Resume the watch on a new connection."""
        self._reflector.reopen()

    async def run(self) -> None:
        """Deliver changes in order until cancelled. The reflector retries failures of the server."""
        async with aclosing(self._reflector.batches()) as batches:
            async for changes in batches:
                await self._deliver(changes)
                # The next batch may be late, and these objects gone.
                del changes

    async def catch_up(self) -> int | None:
        """
        Deliver every change made before this call, however late the watch is, and return the number of late ones.

        None if the reflector itself is listing; call again then. Takes one list if the watch is not late, else two,
        `_MAX_WATCH_DELAY_S` apart. Raises ApiError if the server returns no list.
        """
        n_repaired = await self._repair(self._reflector.compare(_MAX_WATCH_DELAY_S, page_pause_s=0.0))
        # A list of the reflector ends the comparison early.
        return n_repaired if self._reflector.list_watch.is_settled() else None

    @property
    def shown_version(self) -> str:
        """The newest version that the watch has shown; empty if lists have ever repaired what it missed."""
        return "" if self._was_late else self._reflector.list_watch.shown_version

    async def has_reached(self, version: str) -> bool:
        """Return whether every change up to this version is in the inbox."""
        if not self._reflector.list_watch.has_reached(version):
            return False
        await self._deliver([])  # a batch that is being delivered is first
        return True

    async def compare(self) -> int | None:
        """As `catch_up`, with 30 s between the two lists and pauses between pages."""
        return await self._repair(self._reflector.compare())

    async def _repair(self, pieces: AsyncGenerator[tuple[int, list[Change[object]]], None]) -> int | None:
        n_repaired: int | None = None
        try:
            async with aclosing(pieces):
                async for n_objects, changes in pieces:
                    if changes and not n_repaired and self._kind.on_relist is not None:
                        await self._inbox.put([self._kind.on_relist])
                    n_repaired = (n_repaired or 0) + n_objects
                    await self._deliver(changes)
                    self._was_late |= n_objects > 0
        finally:
            # A list of the reflector ends the comparison early, and is followed by the same.
            if n_repaired and self._kind.on_served is not None and self._reflector.list_watch.is_settled():
                self._inbox.put_now(self._kind.on_served)
        return n_repaired

    async def _deliver(self, changes: list[Change[object]]) -> None:
        async with self._delivering:
            for start in range(0, len(changes), _CHANGES_PER_STEP):
                if start:
                    await asyncio.sleep(0)
                await self._deliver_piece(changes[start : start + _CHANGES_PER_STEP])

    async def _deliver_piece(self, changes: list[Change[object]]) -> None:
        stimuli: list[Stimulus] = []
        synced = False
        for change in changes:
            match change:
                case Upserted(key=key, object=obj):
                    stimuli.append(self._kind.on_upsert(obj))
                    self._note_problem(key, self._kind.find_problem(obj))
                case Deleted(key=key, uid=uid):
                    namespace, _, name = key.rpartition("/")
                    stimuli.append(self._kind.on_delete(namespace, name, uid))
                    self._note_problem(key, None)
                case Malformed(key=key, error=error):
                    self._note_problem(key, error)
                case Synced():
                    synced, self.is_missing = True, False
                    if self._kind.on_served is not None:
                        stimuli.append(self._kind.on_served)
                case Interrupted(error=error, relists=False) if self._is_absence(error):
                    if self.synced and not self.is_missing and self._kind.on_unserved is not None:
                        stimuli.append(self._kind.on_unserved)
                    synced = True
                    self._report_missing()
                case Interrupted(relists=relists):
                    self._report_interrupted(change)
                    if relists and self._kind.on_relist is not None:
                        stimuli.append(self._kind.on_relist)
        await self._inbox.put(stimuli)
        if synced and not self.synced:
            self.synced = True
            self._inbox.nudge()

    def _is_absence(self, error: ApiError) -> bool:
        """Return whether the error of a list means that there is no object of the kind, or none that may be read."""
        if self.synced and not self.is_missing:
            return self._kind.is_unserved(error)
        return self._kind.may_lack(error)

    def _note_problem(self, key: str | None, problem: str | None) -> None:
        """Count and log a new problem of an object; None ends the old one."""
        if problem is None:
            self._problem_by_key.pop(key, None)
        elif self._problem_by_key.get(key) != hash(problem):
            self._problem_by_key[key] = hash(problem)
            self._on_malformed(self.kind)
            text = "Malformed object or annotation ignored"
            self._log.error(text, kind=self.kind, object=key or "?", err=problem)

    def _report_missing(self) -> None:
        """Log once that pods are placed as if there were no object of the kind."""
        if not self.is_missing:
            self.is_missing = True
            text = "The API server does not have this kind; none is assumed to exist"
            self._log.info(0 if self.synced else 4, text, kind=self.kind)

    def _report_interrupted(self, interrupted: Interrupted) -> None:
        self._on_interrupted(self.kind)
        pairs = {"err": str(interrupted.error), "retry_in_s": round(interrupted.retry_in_s, 3)}
        self._log.info(1, "List and watch interrupted; retrying", kind=self.kind, **pairs)
