"""
Watches: a stream of changes as newline-delimited JSON, from a resource version on.

Source: apiserver pkg/storage/cacher and pkg/endpoints/handlers/watch.go (kubernetes 1.36).
"""

import asyncio
import random
from collections.abc import Sequence
from typing import Final

import msgspec
from aiohttp import web

from scheduler.sandbox.devcluster import status
from scheduler.sandbox.devcluster.http.faults import Effect, Fault, Faults
from scheduler.sandbox.devcluster.http.negotiation import answer_form, object_in_form
from scheduler.sandbox.devcluster.http.routes import Target
from scheduler.sandbox.devcluster.kinds import JsonObject
from scheduler.sandbox.devcluster.status import StatusError
from scheduler.sandbox.devcluster.storage.history import Follower, ObjectChange, Revision
from scheduler.sandbox.devcluster.storage.lists import parse_options
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


def _reversioned(revision: Revision, resource_version: int) -> Revision:
    """Return an earlier state with a later version, as watches send an object that leaves the selection."""
    metadata = {**revision.obj["metadata"], "resourceVersion": str(resource_version)}
    return Revision({**revision.obj, "metadata": metadata}, resource_version)


def _line(event_type: str, obj: JsonObject) -> bytes:
    return msgspec.json.encode({"type": event_type, "object": obj}) + b"\n"


class Watch:
    """One open watch of a kind in one namespace, or in all, and the answer to its request."""

    def __init__(
        self,
        store: ObjectStore,
        faults: Faults,
        target: Target,
        request: web.BaseRequest,
        bookmark_interval_s: float,
    ) -> None:
        """Read the options of the request. Raises: StatusError 400, 406."""
        self._store, self._faults, self._request = store, faults, request
        self._kind, self._namespace = target.kind, target.namespace
        self._options = parse_options(target.kind, request.query)
        self._form = answer_form(request.headers.get("Accept", ""), request.query.get("includeObject", ""))
        self._bookmark_interval_s = bookmark_interval_s
        self._response = web.StreamResponse(headers=_HEADERS)
        self._headers_due = True
        self._sent = 0
        self._fault: Fault | None = None

    async def serve(self) -> web.StreamResponse:
        """Stream until the time is up, the next changes are forgotten, or a fault or the client ends it."""
        initial, since = self._start()
        reader = self._store.history.reader(self._kind, since)
        self._faults.streams[reader.wake] = None
        try:
            with reader:
                await self._response.prepare(self._request)
                await self._send(initial)
                await self._follow(reader, since)
        except (StreamEnded, ConnectionResetError):
            return self._response
        finally:
            self._faults.streams.pop(reader.wake, None)
        return self._response

    def _start(self) -> tuple[list[bytes], int]:
        """Return the first lines, and the version after which changes follow."""
        options = self._options
        requested = options.resource_version or 0
        wants_state = options.initial_events if options.initial_events is not None else requested == 0
        if not wants_state:
            return [], requested or self._store.resource_version
        matches, version = options.matches, self._store.resource_version
        revisions = self._store.history.snapshot(self._kind, self._namespace)
        selected = (one for one in revisions if matches is None or matches(one.obj))
        lines = [self._told("ADDED", one) for one in selected]
        # Upstream treats a watch from "" or 0 like one with sendInitialEvents.
        if options.bookmarks:
            lines.append(self._bookmark(version, _INITIAL_EVENTS_END))
        return lines, version

    def _of(self, change: ObjectChange) -> bytes | None:
        """Return the line of a change; None if it happened outside of the selection."""
        revision, previous, matches = change.revision, change.previous, self._options.matches
        if self._namespace is not None and revision.obj["metadata"].get("namespace") != self._namespace:
            return None
        if matches is None:
            return self._told(change.type, revision)
        is_in = change.type != "DELETED" and matches(revision.obj)
        if previous is None or not matches(previous.obj):
            return self._told("ADDED", revision) if is_in else None
        if is_in or change.type == "DELETED":
            return self._told(change.type, revision)
        return self._told("DELETED", _reversioned(previous, revision.resource_version))

    def _bookmark(self, resource_version: int, annotations: dict[str, str] | None = None) -> bytes:
        """Return a bookmark with the current resource version."""
        metadata: JsonObject = {"resourceVersion": str(resource_version), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        return self._shaped("BOOKMARK", {"metadata": metadata})

    def _told(self, event_type: str, revision: Revision) -> bytes:
        if self._form.is_table:
            return self._shaped(event_type, revision.as_kind(self._kind))
        return b'{"type":"%s","object":%s}\n' % (event_type.encode(), revision.document(self._kind))

    def _shaped(self, event_type: str, obj: JsonObject) -> bytes:
        shaped = object_in_form(self._kind, obj, self._form, self._store.now_s())
        if self._form.is_table and not self._headers_due:
            shaped["columnDefinitions"] = []
        self._headers_due = False
        return _line(event_type, shaped)

    async def _send(self, lines: Sequence[bytes]) -> None:
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
        fault = self._fault or self._faults.for_stream(self._kind.qualified, self._request.path)
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
                await self._response.write(_line("ERROR", status.expired(why).to_object()))
            case Effect.CUT_STREAM:
                await self._response.write(line[: len(line) // 2])
                if self._request.transport is not None:
                    self._request.transport.close()
        raise StreamEnded

    async def _follow(self, reader: Follower, since: int) -> None:
        """Write changes and bookmarks until the time is up, or the reader is too late."""
        loop, options = asyncio.get_running_loop(), self._options
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
                    await self._response.write(_line("ERROR", error.to_object()))
                    return
                if changes:
                    sent_version = changes[-1].revision.resource_version
                lines = [line for line in map(self._of, changes) if line is not None]
                # A fault that was set while the stream idles acts at once.
                if not lines and (fault := self._due_fault()) is not None:
                    await self._disturb(fault, self._bookmark(self._store.resource_version))
                await self._send(lines)
            if options.bookmarks and loop.time() >= bookmark_at:
                if not reader.has_backlog:
                    sent_version = self._store.resource_version
                await self._response.write(self._bookmark(sent_version))
                follows_at = loop.time() + self._bookmark_interval_s
                bookmark_at = last_bookmark_at if loop.time() < last_bookmark_at < follows_at else follows_at
