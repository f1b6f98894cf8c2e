"""
Watches: a stream of changes as newline-delimited JSON, from a resource version on.

Source: apiserver pkg/storage/cacher and pkg/endpoints/handlers/watch.go (kubernetes 1.36).
"""

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec
from aiohttp import web

from scheduler.sandbox.devcluster import status
from scheduler.sandbox.devcluster.http.faults import Effect, Fault, Faults
from scheduler.sandbox.devcluster.http.negotiation import AnswerForm
from scheduler.sandbox.devcluster.kinds import JsonObject, Kind
from scheduler.sandbox.devcluster.printing import table
from scheduler.sandbox.devcluster.status import StatusError
from scheduler.sandbox.devcluster.storage.history import Follower, ObjectChange, Revision
from scheduler.sandbox.devcluster.storage.lists import ListOptions
from scheduler.sandbox.devcluster.storage.store import ObjectStore

#: Seconds between bookmarks, and from the last one to the stream's end, as in upstream's cacher.
BOOKMARK_INTERVAL_S: Final = 60.0
_BOOKMARK_BEFORE_END_S: Final = 2.0
#: A watch without timeoutSeconds lasts between this and twice this (--min-request-timeout).
_MIN_WATCH_S: Final = 1800
#: Limit on lines that are written at once.
_BATCH: Final = 500

_HEADERS: Final = {"Content-Type": "application/json", "Cache-Control": "no-cache, private"}
_INITIAL_EVENTS_END: Final = {"k8s.io/initial-events-end": "true"}


class StreamEnded(Exception):  # noqa: N818 - an outcome that unwinds the stream, not an error
    """A fault ended the stream; the response ends as it stands."""


@dataclass(frozen=True, slots=True)
class WatchScope:
    """The objects of a watch: a kind in one namespace (None: in all), in the form that the client wants."""

    kind: Kind
    namespace: str | None
    path: str
    options: ListOptions
    form: AnswerForm


class _EventLines:
    """Changes of a scope as the lines of its stream."""

    def __init__(self, store: ObjectStore, scope: WatchScope) -> None:
        self._store = store
        self._scope = scope
        self._headers_due = True

    def initial(self, revisions: list[Revision]) -> Iterator[bytes]:
        """Return an ADDED line for every object that the scope selects."""
        matches = self._scope.options.matches
        return (self._line("ADDED", one) for one in revisions if matches is None or matches(one.obj))

    def of(self, change: ObjectChange) -> bytes | None:
        """Return the line of a change; None if it happened outside the scope."""
        scope = self._scope
        revision, previous = change.revision, change.previous
        if scope.namespace is not None and revision.obj["metadata"].get("namespace") != scope.namespace:
            return None
        matches = scope.options.matches
        if matches is None:
            return self._line(change.type, revision)
        is_in = change.type != "DELETED" and matches(revision.obj)
        was_in = previous is not None and matches(previous.obj)
        if is_in:
            return self._line("MODIFIED" if was_in else "ADDED", revision)
        if not was_in:
            return None
        if change.type == "DELETED":
            return self._line("DELETED", revision)
        return self._line("DELETED", _reversioned(previous, revision.resource_version))

    def bookmark(self, resource_version: int, annotations: dict[str, str] | None = None) -> bytes:
        """Return a bookmark with the current resource version."""
        metadata: JsonObject = {"resourceVersion": str(resource_version), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        kind = self._scope.kind
        obj: JsonObject = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}
        return self._shaped("BOOKMARK", obj)

    def _line(self, change_type: str, revision: Revision) -> bytes:
        scope = self._scope
        if not scope.form.is_table:
            document = revision.document(scope.kind)
            return b'{"type":"%s","object":%s}\n' % (change_type.encode(), document)
        return self._shaped(change_type, revision.as_kind(scope.kind))

    def _shaped(self, change_type: str, obj: JsonObject) -> bytes:
        form = self._scope.form
        if form.is_table:
            obj = table(
                self._scope.kind,
                [obj],
                self._store.now_s(),
                metadata={"resourceVersion": obj["metadata"]["resourceVersion"]},
                whole=form.whole_objects,
                headers=self._headers_due,
            )
            self._headers_due = False
        return msgspec.json.encode({"type": change_type, "object": obj}) + b"\n"


def _reversioned(revision: Revision | None, resource_version: int) -> Revision:
    """Return an earlier state with a later version, as watches send an object that leaves the selection."""
    if revision is None:
        raise AssertionError("an object that left a selection has been in it")
    metadata = {**revision.obj["metadata"], "resourceVersion": str(resource_version)}
    return Revision({**revision.obj, "metadata": metadata}, resource_version)


def _error_line(error: StatusError) -> bytes:
    return msgspec.json.encode({"type": "ERROR", "object": error.to_object()}) + b"\n"


class Watch:
    """One open watch, and the answer to its request."""

    def __init__(
        self,
        store: ObjectStore,
        faults: Faults,
        scope: WatchScope,
        *,
        request: web.BaseRequest,
        bookmark_interval_s: float,
    ) -> None:
        self._store = store
        self._faults = faults
        self._scope = scope
        self._request = request
        self._response = web.StreamResponse(headers=_HEADERS)
        self._lines = _EventLines(store, scope)
        self._bookmark_interval_s = bookmark_interval_s
        self._sent = 0
        self._fault: Fault | None = None

    async def serve(self) -> web.StreamResponse:
        """Stream until the time is up, the next changes are forgotten, or a fault or the client ends it."""
        try:
            initial, since = self._start()
            reader = self._store.history.reader(self._scope.kind, since)
        except StatusError as error:
            await self._response.prepare(self._request)
            await self._response.write(_error_line(error))
            return self._response
        self._faults.streams[reader.wake] = None
        try:
            with reader:
                await self._response.prepare(self._request)
                await self._send(initial)
                await self._follow(reader, since)
        except StreamEnded:
            return self._response
        finally:
            self._faults.streams.pop(reader.wake, None)
        return self._response

    def _start(self) -> tuple[list[bytes], int]:
        """Return the first lines, and the version after which changes follow."""
        options = self._scope.options
        requested = options.resource_version or 0
        wants_state = options.initial_events if options.initial_events is not None else requested == 0
        if not wants_state:
            return [], requested or self._store.resource_version
        snapshot = self._store.history.snapshot(self._scope.kind, self._scope.namespace)
        lines = list(self._lines.initial(snapshot.revisions))
        # Upstream treats a watch from "" or 0 like one with sendInitialEvents.
        if options.bookmarks:
            lines.append(self._lines.bookmark(snapshot.resource_version, _INITIAL_EVENTS_END))
        return lines, snapshot.resource_version

    async def _send(self, lines: list[bytes]) -> None:
        """Write the lines, as far as faults let them pass. Raises: StreamEnded."""
        for start in range(0, len(lines), _BATCH):
            batch = lines[start : start + _BATCH]
            for index, line in enumerate(batch):
                if (fault := self._due_fault()) is not None:
                    await self._response.write(b"".join(batch[:index]))
                    await self._disturb(fault, line)
                self._sent += 1
            await self._response.write(b"".join(batch))

    def _due_fault(self) -> Fault | None:
        """Take the fault that acts before the next line, if there is one."""
        fault = self._fault or self._faults.for_stream(self._scope.kind.qualified, self._scope.path)
        is_due = fault is not None and self._sent >= fault.after_events
        self._fault = None if is_due else fault
        return fault if is_due else None

    async def _disturb(self, fault: Fault, line: bytes) -> None:
        """Let a fault act on the stream. Raises: StreamEnded unless the stream goes on."""
        match fault.action:
            case Effect.STALL_STREAM:
                await asyncio.sleep(fault.delay_s)
                return
            case Effect.REPEAT_EVENT:
                await self._response.write(line)
                return
            case Effect.EXPIRE_STREAM:
                why = f"too old resource version: 1 ({self._store.resource_version})"
                await self._response.write(_error_line(status.expired(why)))
            case Effect.CUT_STREAM:
                await self._response.write(line[: len(line) // 2])
                if self._request.transport is not None:
                    self._request.transport.close()
        raise StreamEnded

    async def _follow(self, reader: Follower, since: int) -> None:
        """Write changes and bookmarks until the time is up, or the reader is too late."""
        loop = asyncio.get_running_loop()
        options = self._scope.options
        lasts_s = options.timeout_s if options.timeout_s else random.uniform(_MIN_WATCH_S, 2 * _MIN_WATCH_S)
        ends_at = loop.time() + lasts_s
        last_bookmark_at = ends_at - min(_BOOKMARK_BEFORE_END_S, lasts_s / 2)
        bookmark_at = min(loop.time() + self._bookmark_interval_s, last_bookmark_at)
        sent_version = since
        while (now := loop.time()) < ends_at:
            due_at = min(bookmark_at, ends_at) if options.bookmarks else ends_at
            if await reader.ready(max(due_at - now, 0.0)):
                try:
                    changes = reader.take()
                except StatusError as error:
                    await self._response.write(_error_line(error))
                    return
                if changes:
                    sent_version = changes[-1].revision.resource_version
                lines = [line for line in map(self._lines.of, changes) if line is not None]
                # A fault that was set while the stream idles acts at once.
                if not lines and (fault := self._due_fault()) is not None:
                    await self._disturb(fault, self._lines.bookmark(self._store.resource_version))
                await self._send(lines)
            if options.bookmarks and loop.time() >= bookmark_at:
                if not reader.has_backlog:
                    sent_version = self._store.resource_version
                await self._response.write(self._lines.bookmark(sent_version))
                follows_at = loop.time() + self._bookmark_interval_s
                bookmark_at = last_bookmark_at if loop.time() < last_bookmark_at < follows_at else follows_at
