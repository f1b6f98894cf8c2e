"""
The list-watch-relist protocol of one collection as a state machine: events in, actions out. No IO, no clock.

           Due                       end bookmark, or last page           stream ended, failed
  LISTING ------> Ask page / Follow ----------------------------> WATCHING --------------------> Follow again
     ^                                                               |                  from the last version
     '------------------------ 410, unreadable line -----------------'

Rules:
  1. `handle` answers with at most one of Ask, Follow, Pause: the next step, which ends an open stream. A page is taken
     in a piece at a time, with a Pause of no time in between, in which others may have their turn.
  2. The initial list is told as it arrives; a relist is told in one batch with its Synced, never by halves.
  3. A lost stream is taken up from the last version seen. A relist costs only one that the server forgot, and one
     whose server is gone: the one that answers next may have another history, in which that version means nothing.
  4. A watch that falls silent is taken up too, and told as an interruption only if it brings nothing then either: no
     server promises a bookmark, and most that are missing are of collections in which nothing happens.
  5. No loop without progress runs without a growing, jittered pause.

Source: client-go tools/cache/reflector.go (1.36): same protocol; there a lost watch relists, here it resumes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Final, Generic, TypeAlias, assert_never

import msgspec

from scheduler.errors import ApiError, Gone, Invalid, ServerFault, Silent, Unreachable
from scheduler.kube.changes import Change, Interrupted, Malformed, Synced, T
from scheduler.kube.known import Known
from scheduler.kube.paging import PageSize
from scheduler.kube.requests import Request, Resource, list_page, watch, watch_list
from scheduler.kube.responses import (
    ListMeta,
    WatchEvent,
    decode_bookmark,
    decode_event,
    decode_page,
    error_in_stream,
)

#: Objects of a page that are taken in at once: 0.2 to 1 ms of work with pods of 3 KB.
ITEMS_AT_ONCE: Final = 10
#: The server ends a watch after 5 to 10 minutes, spread so that all do not return at once (reflector.go).
WATCH_TIMEOUT_MIN_S: Final = 300
#: A watch that ends sooner, without a single event, counts as failed (reflector.go, "very short watch").
SHORT_WATCH_S: Final = 1.0
#: Pause after the first failure, doubled with each further one up to the cap; half of it is jitter.
BACKOFF_S: Final = 0.5
BACKOFF_CAP_S: Final = 30.0
#: A watch that the server refuses so often in a row with 5xx is not resumed but begun anew from a list: after etcd was
#: restored from a backup, a version of before may never be served again.
FAULTS_UNTIL_RELIST: Final = 5
#: Longest Retry-After that is honoured.
RETRY_AFTER_CAP_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Due:
    """Time for the next step: at the start, and when a Pause is over, also one of no time."""


@dataclass(frozen=True, slots=True)
class PageArrived:
    """The body that an Ask was answered with."""

    body: bytes


@dataclass(frozen=True, slots=True)
class LinesArrived:
    """Whole lines of the open stream, in order."""

    lines: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """The server ended the stream in good order, `lived_s` after it began."""

    lived_s: float


@dataclass(frozen=True, slots=True)
class Failed:
    """An Ask or a Follow failed; for a stream, whatever lines it brought were handed over before."""

    error: ApiError


Event: TypeAlias = Due | PageArrived | LinesArrived | StreamEnded | Failed


@dataclass(frozen=True, slots=True)
class Ask:
    """Send and answer with PageArrived or Failed."""

    request: Request


@dataclass(frozen=True, slots=True)
class Follow:
    """Send and answer with LinesArrived any number of times, then StreamEnded or Failed."""

    request: Request


@dataclass(frozen=True, slots=True)
class Pause:
    """Answer with Due after so long."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Publish(Generic[T]):
    """Tell these changes as one batch."""

    changes: list[Change[T]]


Action = Ask | Follow | Pause | Publish[T]


class _Phase(Enum):
    LISTING = "paged list"
    STREAMING = "initial events of a WatchList"
    WATCHING = "watch"


class Watching(Generic[T]):
    """
    Keeps up with one collection.

    Args:
        resource: what to list and watch.
        decode: see `Known`.
        chance: draws from [0, 1) for jitter.
        watch_list: whether to try streaming the initial state; given up for good once a server refuses it.
    """

    def __init__(
        self,
        resource: Resource,
        decode: Callable[[msgspec.Raw], T],
        *,
        chance: Callable[[], float],
        watch_list: bool = True,
    ) -> None:
        self._resource = resource
        self.known: Known[T] = Known(decode)
        self._chance = chance
        self._streams_lists = watch_list
        #: What is to be told; held back while a relist runs.
        self._changes: list[Change[T]] = []
        self._ever_synced = False
        self._phase = _Phase.LISTING
        self._continue_token = ""
        #: The page that is being taken in: what is left of it, and its metadata.
        self._page: tuple[Iterator[msgspec.Raw], ListMeta] | None = None
        self._page_size = PageSize()
        self._resource_version = ""
        #: Whether the open stream brought anything.
        self._heard = False
        #: Failures since the last good answer, relists since the watch last moved: exponents of the pause.
        self._failures = 0
        self._relists = 0
        self._start_listing()

    def is_settled(self) -> bool:
        """Whether everything known has been told: no list is under way, and nothing is held back for its end."""
        return self._phase is _Phase.WATCHING and not self._changes

    def handle(self, event: Event) -> list[Action[T]]:
        """What to do now. Never raises for anything a server may send."""
        match event:
            case Due():
                return [self._next_step()] if self._page is None else self._taken_in(*self._page)
            case PageArrived(body=body):
                return self._arrived(body)
            case LinesArrived(lines=lines):
                return self._lines(lines)
            case StreamEnded(lived_s=lived_s):
                return self._ended(lived_s)
            case Failed(error=error):
                return self._failed(error)
        assert_never(event)

    def _start_listing(self) -> None:
        self._phase = _Phase.STREAMING if self._streams_lists else _Phase.LISTING
        self._continue_token = ""
        self.known.start_listing()

    def _next_step(self) -> Ask | Follow:
        self._heard = False
        timeout_s = WATCH_TIMEOUT_MIN_S + int(self._chance() * WATCH_TIMEOUT_MIN_S)
        match self._phase:
            case _Phase.LISTING:
                limit = self._page_size.limit
                return Ask(list_page(self._resource, continue_token=self._continue_token, limit=limit))
            case _Phase.STREAMING:
                return Follow(watch_list(self._resource, timeout_s=timeout_s))
            case _Phase.WATCHING:
                version = self._resource_version
                return Follow(watch(self._resource, resource_version=version, timeout_s=timeout_s))
        assert_never(self._phase)

    def _arrived(self, body: bytes) -> list[Action[T]]:
        try:
            page = decode_page(body)
        except ServerFault as error:
            return self._failed(error)
        self._failures = 0
        self._page_size.fitted(len(body))
        return self._taken_in(iter(page.items or ()), page.metadata)

    def _taken_in(self, items: Iterator[msgspec.Raw], metadata: ListMeta) -> list[Action[T]]:
        """The next piece of a page is."""
        piece = list(islice(items, ITEMS_AT_ONCE))
        for raw in piece:
            self.known.listed(raw, self._changes)
        if len(piece) == ITEMS_AT_ONCE:
            self._page = (items, metadata)
            return [*self._told(), Pause(0.0)]
        self._page = None
        self._continue_token = metadata.continue_token
        if not self._continue_token:
            self._finish_listing(metadata.resource_version)
        return [*self._told(), self._next_step()]

    def _finish_listing(self, resource_version: str) -> None:
        self.known.finish_listing(self._changes)
        self._changes.append(Synced(resource_version))
        self._resource_version = resource_version
        self._ever_synced = True
        self._failures = 0
        self._phase = _Phase.WATCHING

    def _lines(self, lines: Sequence[bytes]) -> list[Action[T]]:
        self._heard = True
        for line in lines:
            try:
                event = decode_event(line)
                error = self._event(event)
            except (msgspec.DecodeError, UnicodeDecodeError) as unreadable:
                # The lost event's version is unknown, so nothing but a list can tell what it said.
                broken = ServerFault(200, "BadAnswer", f"unreadable line in a watch: {unreadable}")
                return [*self._told(), *self._relist(broken)]
            if error is not None:
                return [*self._told(), *self._failed(error)]
        return self._told()

    def _event(self, event: WatchEvent) -> ApiError | None:
        version = ""
        if event.type in {"ADDED", "MODIFIED"}:
            tell = self.known.seen if self._phase is _Phase.WATCHING else self.known.listed
            version = tell(event.object, self._changes)
        elif event.type == "DELETED":
            version = self.known.gone(event.object, self._changes)
        elif event.type == "BOOKMARK":
            bookmark = decode_bookmark(event.object)
            version = bookmark.metadata.resource_version
            if self._phase is _Phase.STREAMING and bookmark.ends_initial_events:
                self._finish_listing(version)
                return None  # a list that completed is no proof that its watch will move
        elif event.type == "ERROR":
            return error_in_stream(event.object)
        else:
            self._changes.append(Malformed(None, f"watch event of unknown type {event.type[:32]!r}"))
        if version and self._phase is _Phase.WATCHING:
            self._resource_version = version
            self._failures = self._relists = 0
        return None

    def _ended(self, lived_s: float) -> list[Action[T]]:
        if self._phase is not _Phase.WATCHING:
            return self._failed(
                Unreachable(0, "StreamEnded", "the initial events ended before their bookmark")
            )
        if not self._heard and lived_s < SHORT_WATCH_S:
            return self._failed(Unreachable(0, "StreamEnded", "the watch ended as soon as it began"))
        self._failures = 0
        return [self._next_step()]

    def _failed(self, error: ApiError) -> list[Action[T]]:
        if self._phase is _Phase.LISTING and self._page_size.shrinks(error):
            return [self._next_step()]
        if isinstance(error, Invalid) and self._phase is _Phase.STREAMING:
            self._streams_lists = False
            self._start_listing()
            return [self._next_step()]
        if isinstance(error, Gone) or (self._phase is _Phase.WATCHING and self._never_resumes(error)):
            return self._relist(error)
        if isinstance(error, Silent) and self._phase is _Phase.WATCHING and self._heard:
            return [self._next_step()]
        if self._phase is _Phase.STREAMING:
            self.known.start_listing()
        self._failures += 1
        return self._interrupted(error, self._pause_s(self._failures, error))

    def _never_resumes(self, error: ApiError) -> bool:
        match error:
            case ServerFault():
                return self._failures + 1 >= FAULTS_UNTIL_RELIST
            case Unreachable(reason=reason):
                return reason == "ConnectionRefused"
        return isinstance(error, Invalid)

    def _relist(self, error: ApiError) -> list[Action[T]]:
        self._start_listing()
        self._relists += 1
        return self._interrupted(error, self._pause_s(self._relists - 1, error))

    def _interrupted(self, error: ApiError, pause_s: float) -> list[Action[T]]:
        step: Action[T] = Pause(pause_s) if pause_s > 0 else self._next_step()
        return [Publish([Interrupted(error, pause_s)]), step]

    def _pause_s(self, failures: int, error: ApiError) -> float:
        pause_s = 0.0
        if failures > 0:
            # The exponent is bounded: 2**1100 is no float.
            doubled_s = min(BACKOFF_S * 2.0 ** min(failures - 1, 16), BACKOFF_CAP_S)
            pause_s = doubled_s * (0.5 + 0.5 * self._chance())
        if error.retry_after_s is not None:
            asked_s = min(error.retry_after_s, RETRY_AFTER_CAP_S)
            pause_s = max(pause_s, asked_s * (1.0 + 0.1 * self._chance()))
        return pause_s

    def _told(self) -> list[Action[T]]:
        """The waiting changes as a batch, unless a relist is under way: then they wait for its end."""
        if not self._changes or (self._ever_synced and self._phase is not _Phase.WATCHING):
            return []
        batch, self._changes = self._changes, []
        return [Publish(batch)]
