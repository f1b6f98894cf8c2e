"""
Folds repeated Events into series, as client-go's events recorder does. No IO; the time is an argument.

The first of a kind creates an Event, the second patches a series of two onto it, further ones are counted in memory.
Every 30 min open series are patched again, so that they outlive their TTL; every 6 min those idle for 6 min are
patched a last time and forgotten, and singletons of that age are forgotten.

Source: client-go tools/events/event_broadcaster.go (1.36). Difference: the table is bounded, oldest forgotten first.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from scheduler.kube.requests import Request, create_event, micro_time, patch_event

#: Seconds between refreshes of open series, and until an idle one is finished (event_broadcaster.go).
REFRESH_S: Final = 1800.0
FINISH_S: Final = 360.0
#: Kinds of event remembered: about 1 KB each.
CAPACITY: Final = 10_000

#: Limits of the API (pkg/apis/core/validation/events.go), in bytes.
NOTE_LIMIT: Final = 1024
FIELD_LIMIT: Final = 128

_ELLIPSIS: Final = b" ..."
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


class ObjectReference(msgspec.Struct, frozen=True, rename="camel"):
    """What an event is about. All of it is sent: an empty text means to the server what a missing one does."""

    kind: str
    namespace: str
    name: str
    uid: str
    api_version: str = "v1"
    resource_version: str = ""


class EventKey(msgspec.Struct, frozen=True):
    """Events alike in all of this are one series. The note is not part of it: a series keeps its first note."""

    type: str
    action: str
    reason: str
    reporting_controller: str
    reporting_instance: str
    regarding: ObjectReference
    related: ObjectReference | None = None


class _EventMeta(msgspec.Struct, frozen=True):
    name: str
    namespace: str


class _Series(msgspec.Struct, rename="camel"):
    count: int
    last_observed_time: str


class _Event(msgspec.Struct, rename="camel", omit_defaults=True):
    api_version: str
    kind: str
    metadata: _EventMeta
    event_time: str
    reporting_controller: str
    reporting_instance: str
    action: str
    reason: str
    regarding: ObjectReference
    note: str
    type: str
    related: ObjectReference | None = None
    series: _Series | None = None


class _SeriesPatch(msgspec.Struct):
    series: _Series


@dataclass(frozen=True, slots=True)
class EventWrite:
    """A request to send; if it is a patch and the Event is gone (404), send `on_missing` instead."""

    key: EventKey
    request: Request
    on_missing: Request | None = None


@dataclass(slots=True)
class _Open:
    """An event of the table. `count` is 1 until the second occurrence."""

    name: str
    namespace: str
    note: str
    first_s: float
    last_s: float
    count: int = 1


class EventSeries:
    """What was seen of each kind of event. Times are seconds since the epoch."""

    def __init__(self, *, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        #: Oldest kind first.
        self._open: dict[EventKey, _Open] = {}
        #: Names hold a time in nanoseconds; two events of one moment need two.
        self._last_name_ns = 0

    def __len__(self) -> int:
        return len(self._open)

    def observe(self, key: EventKey, note: str, now_s: float) -> EventWrite | None:
        """What to send for this occurrence: a creation, the first patch, or nothing. Cost: O(1)."""
        known = self._open.get(key)
        if known is None:
            if len(self._open) >= self._capacity:
                del self._open[next(iter(self._open))]
            opened = self._opened(key, note, now_s)
            self._open[key] = opened
            return EventWrite(key, _creation(key, opened))
        known.count += 1
        known.last_s = now_s
        return _series_write(key, known) if known.count == 2 else None

    def refresh(self) -> Iterator[EventWrite]:
        """A patch of every open series, to be sent every `REFRESH_S`. Each is made when it is asked for: 20 µs."""
        return (_series_write(key, known) for key, known in list(self._open.items()) if known.count > 1)

    def finish_idle(self, now_s: float) -> Iterator[EventWrite | None]:
        """
        Forget what was idle for `FINISH_S`; the last patches of the series among it. Every `FINISH_S`.

        One is forgotten at each step, 20 µs; it is None where there is nothing to send.
        """
        for key, known in list(self._open.items()):
            if known.last_s < now_s - FINISH_S and self._open.get(key) is known:
                del self._open[key]
                yield _series_write(key, known) if known.count > 1 else None

    def _opened(self, key: EventKey, note: str, now_s: float) -> _Open:
        self._last_name_ns = max(int(now_s * 1e9), self._last_name_ns + 1)
        return _Open(
            name=_event_name(key.regarding, self._last_name_ns),
            namespace=key.regarding.namespace or "default",
            note=bounded_text(note, NOTE_LIMIT),
            first_s=now_s,
            last_s=now_s,
        )


def bounded_text(text: str, limit_bytes: int) -> str:
    """The text, or as much as fits with ` ...` behind it. Source: schedule_one.go, truncateMessage (1.36)."""
    data = text.encode()
    if len(data) <= limit_bytes:
        return text
    return (data[: limit_bytes - len(_ELLIPSIS)] + _ELLIPSIS).decode(errors="ignore")


def _event_name(regarding: ObjectReference, stamp_ns: int) -> str:
    """`<object>.<hex nanoseconds>`, or a UUID if that is no DNS subdomain (event_recorder.go, makeEvent)."""
    name = f"{regarding.name}.{stamp_ns:x}"
    if len(name) <= 253 and _SUBDOMAIN.fullmatch(name):
        return name
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{regarding.uid}/{name}"))


def _creation(key: EventKey, known: _Open) -> Request:
    event = _Event(
        api_version="events.k8s.io/v1",
        kind="Event",
        metadata=_EventMeta(known.name, known.namespace),
        event_time=micro_time(known.first_s),
        reporting_controller=key.reporting_controller,
        reporting_instance=key.reporting_instance.encode()[:FIELD_LIMIT].decode(errors="ignore"),
        action=key.action,
        reason=key.reason,
        regarding=key.regarding,
        note=known.note,
        type=key.type,
        related=key.related,
        series=_series(known) if known.count > 1 else None,
    )
    return create_event(known.namespace, msgspec.json.encode(event))


def _series_write(key: EventKey, known: _Open) -> EventWrite:
    body = msgspec.json.encode(_SeriesPatch(_series(known)))
    return EventWrite(key, patch_event(known.namespace, known.name, body), _creation(key, known))


def _series(known: _Open) -> _Series:
    return _Series(known.count, micro_time(known.last_s))
