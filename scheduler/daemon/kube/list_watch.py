"""
The list-watch-relist protocol of one collection as a state machine: reports in, actions out. No IO, no clock.

          due                                 end bookmark, or last page           stream ended, failed
  LISTING ------> FetchPage or OpenStream ----------------------------> WATCHING --------------------> OpenStream
     ^                                                                     |               at the last version
     '--------------------- 410, unreadable line --------------------------'

Rules:
  1. Each `on_*` returns at most one of FetchPage, OpenStream, Pause: the next step, its last action. A step ends an
     open stream. A page is processed in pieces, with a Pause of 0 s in between, in which other tasks run.
  2. The initial list is published as it arrives. A relist is published as one batch that ends with Synced.
  3. A lost stream is resumed at the last version seen. The collection is listed again only if the server has compacted
     that version, or if the server is gone: its replacement may have another history.
  4. A watch that falls silent is resumed too. Only a second silence in a row is published as Interrupted: servers do
     not guarantee bookmarks, and most missing ones are of collections without changes.
  5. Without progress, every loop runs with a growing, jittered pause.
  6. A collection that the server has no more, as `is_absence` says of the error of its list, is empty: its objects are
     published as deleted, and it is listed again and again.
  7. Of several servers behind one address, one may be behind the version that a streamed list begins with, and answers
     504: that list is read in pages, as in client-go.

Source: client-go tools/cache/reflector.go (1.36). Difference: there a lost watch relists, here it resumes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Final, Generic, assert_never

import msgspec

from scheduler.daemon.kube.changes import Change, Interrupted, Malformed, Synced, T
from scheduler.daemon.kube.pager import PageSize
from scheduler.daemon.kube.requests import Request, WatchPath, list_page, watch, watch_list
from scheduler.daemon.kube.responses import (
    ListMeta,
    WatchEvent,
    decode_bookmark,
    decode_event,
    decode_page,
    watch_error,
)
from scheduler.daemon.kube.store import Store
from scheduler.engine.model.resource_versions import is_older
from scheduler.errors import ApiError, Gone, Invalid, ServerFault, Silent, Unreachable

#: Objects of a page per step: 0.2 to 1 ms of work with pods of 3 KB.
ITEMS_PER_STEP: Final = 10
#: A watch lasts 5 to 10 minutes, at random, so that watches do not end together (reflector.go).
WATCH_TIMEOUT_MIN_S: Final = 300
#: A watch that ends sooner without any event has failed (reflector.go, "very short watch").
SHORT_WATCH_S: Final = 1.0
#: Pause after the first failure, doubled with each further failure up to the cap; half of it is jitter.
BACKOFF_S: Final = 0.5
BACKOFF_CAP_S: Final = 30.0
#: After this many 5xx in a row the collection is listed again instead of resumed: once etcd has been restored from a
#: backup, the last version may never be served again.
FAULTS_UNTIL_RELIST: Final = 5
#: In the 504 of a server whose cache is behind the version of a request (apiserver storage/errors.go, 1.36).
_BEHIND: Final = "Too large resource version"
#: Upper limit on an honoured Retry-After.
RETRY_AFTER_CAP_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class FetchPage:
    """Send the request; then call `on_page` or `on_failure`."""

    request: Request


@dataclass(frozen=True, slots=True)
class OpenStream:
    """Send the request; call `on_lines` any number of times, then `on_stream_end` or `on_failure`."""

    request: Request


@dataclass(frozen=True, slots=True)
class Pause:
    """Call `on_due` after this number of seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Publish(Generic[T]):
    """Publish these changes as one batch."""

    changes: list[Change[T]]


Step = FetchPage | OpenStream | Pause
Action = Step | Publish[T]


class _Phase(Enum):
    LISTING = "paged list"
    STREAMING = "initial events of a WatchList"
    WATCHING = "watch"


class ListWatch(Generic[T]):
    """
    Keeps one collection in sync. Nothing that a server sends makes it raise.

    `decode`: see `Store`. `jitter` returns a number in [0, 1). The initial state is streamed until a server refuses to.
    `is_absence`: whether the error of a list says that the server does not have the collection.
    """

    def __init__(
        self,
        resource: WatchPath,
        decode: Callable[[msgspec.Raw], T],
        *,
        jitter: Callable[[], float],
        is_absence: Callable[[ApiError], bool] = lambda _: False,
    ) -> None:
        self._resource = resource
        self._is_absence = is_absence
        self.store: Store[T] = Store(decode)
        self._jitter = jitter
        self._streams_lists = True
        #: Changes not yet published; held back while a relist runs.
        self._changes: list[Change[T]] = []
        self._was_synced = False
        self._phase = _Phase.LISTING
        self._continue_token = ""
        #: The page in progress: its remaining objects and its metadata.
        self._page: tuple[Iterator[msgspec.Raw], ListMeta] | None = None
        self._page_size = PageSize()
        #: All changes up to this version are in `store`.
        self._resource_version = ""
        #: The newest version of a list or of an event. A bookmark does not count: other watches get theirs later.
        self.shown_version = ""
        #: True if the open stream has brought a line.
        self._stream_had_lines = False
        #: Failures since the last success, and relists since the last watch event: exponents of the pause.
        self._failures = 0
        self._relists = 0
        self._start_list()

    def is_settled(self) -> bool:
        """Return True if no list is under way and every change has been published."""
        return self._phase is _Phase.WATCHING and not self._changes

    def has_reached(self, version: str) -> bool:
        """Return True if all changes up to this version have been published; versions are numbers."""
        current = self._resource_version
        return self.is_settled() and (version == current or is_older(version, current))

    def on_due(self) -> list[Action[T]]:
        """Take the next step: at the start, and when a Pause is over."""
        return [self._next_step()] if self._page is None else self._take_items(*self._page)

    def _start_list(self) -> None:
        self._phase = _Phase.STREAMING if self._streams_lists else _Phase.LISTING
        self._continue_token = ""
        self.store.start_list()

    def _next_step(self) -> FetchPage | OpenStream:
        self._stream_had_lines = False
        timeout_s = WATCH_TIMEOUT_MIN_S + int(self._jitter() * WATCH_TIMEOUT_MIN_S)
        match self._phase:
            case _Phase.LISTING:
                limit = self._page_size.limit
                return FetchPage(list_page(self._resource, continue_token=self._continue_token, limit=limit))
            case _Phase.STREAMING:
                return OpenStream(watch_list(self._resource, timeout_s=timeout_s))
            case _Phase.WATCHING:
                version = self._resource_version
                return OpenStream(watch(self._resource, resource_version=version, timeout_s=timeout_s))
        assert_never(self._phase)

    def on_page(self, body: bytes) -> list[Action[T]]:
        """Process the response body of a FetchPage."""
        try:
            page = decode_page(body)
        except ServerFault as error:
            return self.on_failure(error)
        self._failures = 0
        self._page_size.grow(len(body))
        return self._take_items(iter(page.items or ()), page.metadata)

    def _take_items(self, items: Iterator[msgspec.Raw], metadata: ListMeta) -> list[Action[T]]:
        """Process the next piece of the page."""
        piece = list(islice(items, ITEMS_PER_STEP))
        for raw in piece:
            self.store.upsert(raw, self._changes, is_listed=True)
        if len(piece) == ITEMS_PER_STEP:
            self._page = (items, metadata)
            return [*self._publish(), Pause(0.0)]
        self._page = None
        self._continue_token = metadata.continue_token
        if not self._continue_token:
            self._finish_list(metadata.resource_version)
        return [*self._publish(), self._next_step()]

    def _finish_list(self, resource_version: str) -> None:
        self.store.finish_list(self._changes)
        self._changes.append(Synced(resource_version))
        self._resource_version = self.shown_version = resource_version
        self._was_synced = True
        self._failures = 0
        self._phase = _Phase.WATCHING

    def on_lines(self, lines: Sequence[bytes]) -> list[Action[T]]:
        """Process complete lines of the open stream, in order."""
        self._stream_had_lines = True
        for line in lines:
            try:
                event = decode_event(line)
                error = self._on_watch_event(event)
            except (msgspec.DecodeError, UnicodeDecodeError) as unreadable:
                # The version of the unreadable event is unknown, so the watch cannot resume after it.
                broken = ServerFault(200, "BadAnswer", f"unreadable line in a watch: {unreadable}")
                return [*self._publish(), *self._relist(broken)]
            if error is not None:
                return [*self._publish(), *self.on_failure(error)]
        return self._publish()

    def _on_watch_event(self, event: WatchEvent) -> ApiError | None:
        version = ""
        if event.type in {"ADDED", "MODIFIED"}:
            is_listed = self._phase is not _Phase.WATCHING
            version = self.store.upsert(event.object, self._changes, is_listed=is_listed)
        elif event.type == "DELETED":
            version = self.store.delete(event.object, self._changes)
        elif event.type == "BOOKMARK":
            bookmark = decode_bookmark(event.object)
            version = bookmark.metadata.resource_version
            if self._phase is _Phase.STREAMING and bookmark.ends_initial_events:
                self._finish_list(version)
                return None  # the counters below are only reset by a watch event
        elif event.type == "ERROR":
            return watch_error(event.object)
        else:
            self._changes.append(Malformed(None, f"watch event of unknown type {event.type[:32]!r}"))
        if version and self._phase is _Phase.WATCHING:
            self._resource_version = version
            if event.type != "BOOKMARK":
                self.shown_version = version
            self._failures = self._relists = 0
        return None

    def on_stream_end(self, lived_s: float) -> list[Action[T]]:
        """Go on after a stream that the server ended normally, `lived_s` after it was opened."""
        problem = ""
        if self._phase is not _Phase.WATCHING:
            problem = "the initial events ended before their bookmark"
        elif not self._stream_had_lines and lived_s < SHORT_WATCH_S:
            problem = "the watch ended as soon as it began"
        if problem:
            return self.on_failure(Unreachable(0, "StreamEnded", problem))
        self._failures = 0
        return [self._next_step()]

    def on_failure(self, error: ApiError) -> list[Action[T]]:
        """Go on after a FetchPage or OpenStream that failed; the lines before the failure went to `on_lines`."""
        if self._phase is _Phase.LISTING and self._page_size.shrink(error):
            return [self._next_step()]
        if isinstance(error, Invalid) and self._phase is _Phase.STREAMING:
            self._streams_lists = False
            self._start_list()
            return [self._next_step()]
        if isinstance(error, Gone) or (self._phase is _Phase.WATCHING and self._must_relist(error)):
            return self._relist(error)
        if isinstance(error, Silent) and self._phase is _Phase.WATCHING and self._stream_had_lines:
            return [self._next_step()]
        self._failures += 1
        if self._phase is not _Phase.WATCHING and self._is_absence(error):
            return self._publish_absence(error, self._pause_s(self._failures, error))
        if self._phase is _Phase.STREAMING:
            self.store.start_list()
            if _BEHIND in error.message:
                self._phase = _Phase.LISTING
        return self._publish_interrupted(error, self._pause_s(self._failures, error))

    def _must_relist(self, error: ApiError) -> bool:
        match error:
            case ServerFault():
                return self._failures + 1 >= FAULTS_UNTIL_RELIST
            case Unreachable(reason=reason):
                return reason == "ConnectionRefused"
        return isinstance(error, Invalid) or self._is_absence(error)

    def _relist(self, error: ApiError) -> list[Action[T]]:
        self._start_list()
        self._relists += 1
        return self._publish_interrupted(error, self._pause_s(self._relists - 1, error), relists=True)

    def _publish_interrupted(
        self, error: ApiError, pause_s: float, *, relists: bool = False
    ) -> list[Action[T]]:
        step: Action[T] = Pause(pause_s) if pause_s > 0 else self._next_step()
        return [Publish([Interrupted(error, pause_s, relists)]), step]

    def _publish_absence(self, error: ApiError, pause_s: float) -> list[Action[T]]:
        self._start_list()
        self.store.finish_list(self._changes)
        gone, self._changes = self._changes, []
        return [Publish([*gone, Interrupted(error, pause_s)]), Pause(pause_s)]

    def _pause_s(self, failures: int, error: ApiError) -> float:
        pause_s = 0.0
        if failures > 0:
            # 2.0**1100 raises OverflowError.
            doubled_s = min(BACKOFF_S * 2.0 ** min(failures - 1, 16), BACKOFF_CAP_S)
            pause_s = doubled_s * (0.5 + 0.5 * self._jitter())
        if error.retry_after_s is not None:
            requested_s = min(error.retry_after_s, RETRY_AFTER_CAP_S)
            pause_s = max(pause_s, requested_s * (1.0 + 0.1 * self._jitter()))
        return pause_s

    def _publish(self) -> list[Action[T]]:
        """Return the pending changes as one batch; during a relist nothing, since they wait for its end."""
        if not self._changes or (self._was_synced and self._phase is not _Phase.WATCHING):
            return []
        batch, self._changes = self._changes, []
        return [Publish(batch)]
