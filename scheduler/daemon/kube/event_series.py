"""
Folds repeated Events into series, as client-go's events recorder does. No IO; the time is an argument.

The first Event of a series is created. The second turns it into a series by a patch; further ones are counted in
memory. Every 30 min open series are patched again, so that they outlive their TTL. Every 6 min, series that were idle
for 6 min are patched a last time and forgotten, and single Events of that age are forgotten.

Source: client-go tools/events/event_broadcaster.go (1.36). Differences: the table is bounded, oldest forgotten first;
the resourceVersion of the object does not tell series apart, so that a pod whose status changes between two equal
failures has one series, not a series and a single Event.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from scheduler.daemon.kube.requests import Request, create_event, micro_time, patch_event
from scheduler.engine.syntax.names import subdomain_faults

#: Seconds between refreshes of open series, and until an idle series is finished (event_broadcaster.go).
REFRESH_S: Final = 1800.0
FINISH_S: Final = 360.0
#: Events in the table, about 1 KB each.
CAPACITY: Final = 10_000

#: Limits of the API (pkg/apis/core/validation/events.go), in bytes.
NOTE_LIMIT: Final = 1024
FIELD_LIMIT: Final = 128

_ELLIPSIS: Final = b" ..."


class ObjectReference(msgspec.Struct, frozen=True, rename="camel"):
    """The object that an Event is about. Empty fields are sent: to the server they mean the same as missing ones."""

    kind: str
    namespace: str
    name: str
    uid: str
    api_version: str = "v1"
    resource_version: str = ""


class EventKey(msgspec.Struct, frozen=True):
    """Events equal in all of this but the object's version form one series, which keeps the first note and version."""

    type: str
    action: str
    reason: str
    reporting_controller: str
    reporting_instance: str
    regarding: ObjectReference
    related: ObjectReference | None = None


@dataclass(frozen=True, slots=True)
class EventWrite:
    """A request to send. If it is a patch and the Event is gone (404), send `on_missing` instead."""

    key: EventKey
    request: Request
    on_missing: Request | None = None


@dataclass(slots=True)
class _OpenSeries:
    """An Event in the table. `count` is 1 until its second occurrence."""

    key: EventKey
    name: str
    namespace: str
    note: str
    first_s: float
    last_s: float
    #: The monotonic time of the last one.
    seen_s: float
    count: int = 1


class EventSeries:
    """The Events recorded so far. They show `epoch_s`, in seconds since 1970; `now_s` is a monotonic time."""

    def __init__(self, *, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        #: Oldest first.
        self._open: dict[EventKey, _OpenSeries] = {}
        #: The time in the last Event's name. Names must differ even if two Events are created at the same nanosecond.
        self._last_name_ns = 0

    def __len__(self) -> int:
        return len(self._open)

    def observe(self, key: EventKey, note: str, epoch_s: float, now_s: float) -> EventWrite | None:
        """Count one occurrence and return the creation, the first patch, or None if there is nothing to send."""
        unversioned = _unversioned(key)
        series = self._open.get(unversioned)
        if series is None:
            if len(self._open) >= self._capacity:
                del self._open[next(iter(self._open))]
            new = self._new_series(key, note, epoch_s, now_s)
            self._open[unversioned] = new
            return EventWrite(key, _creation_request(new))
        series.count += 1
        series.last_s, series.seen_s = epoch_s, now_s
        return _patch_write(series) if series.count == 2 else None

    def refresh(self) -> Iterator[EventWrite]:
        """Yield a patch for every open series. Send them every `REFRESH_S`."""
        return (_patch_write(series) for series in list(self._open.values()) if series.count > 1)

    def finish_idle(self, now_s: float) -> Iterator[EventWrite | None]:
        """
        Yield the last patch of each series that was idle for `FINISH_S`, and forget it. Call every `FINISH_S`.

        Each step forgets one Event; it yields None if that is no series and there is nothing to send.
        """
        for key, series in list(self._open.items()):
            if series.seen_s < now_s - FINISH_S and self._open.get(key) is series:
                del self._open[key]
                yield _patch_write(series) if series.count > 1 else None

    def _new_series(self, key: EventKey, note: str, epoch_s: float, now_s: float) -> _OpenSeries:
        self._last_name_ns = max(int(epoch_s * 1e9), self._last_name_ns + 1)
        return _OpenSeries(
            key=key,
            name=_event_name(key.regarding, self._last_name_ns),
            namespace=key.regarding.namespace or "default",
            note=bounded_text(note, NOTE_LIMIT),
            first_s=epoch_s,
            last_s=epoch_s,
            seen_s=now_s,
        )


def bounded_text(text: str, limit_bytes: int) -> str:
    """
    Return the text; if it exceeds `limit_bytes`, shortened to that with ` ...` at its end.

    Source: schedule_one.go, truncateMessage (1.36).
    """
    data = text.encode()
    if len(data) <= limit_bytes:
        return text
    return (data[: limit_bytes - len(_ELLIPSIS)] + _ELLIPSIS).decode(errors="ignore")


def _event_name(regarding: ObjectReference, stamp_ns: int) -> str:
    """Return `<object>.<hex nanoseconds>`, or a UUID if that is no DNS subdomain (event_recorder.go, makeEvent)."""
    name = f"{regarding.name}.{stamp_ns:x}"
    if not subdomain_faults(name):
        return name
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{regarding.uid}/{name}"))


def _unversioned(key: EventKey) -> EventKey:
    regarding = msgspec.structs.replace(key.regarding, resource_version="")
    return msgspec.structs.replace(key, regarding=regarding)


def _creation_request(series: _OpenSeries) -> Request:
    key = series.key
    event: dict[str, object] = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": series.name, "namespace": series.namespace},
        "eventTime": micro_time(series.first_s),
        "reportingController": key.reporting_controller,
        "reportingInstance": key.reporting_instance.encode()[:FIELD_LIMIT].decode(errors="ignore"),
        "action": key.action,
        "reason": key.reason,
        "regarding": key.regarding,
        "note": series.note,
        "type": key.type,
    }
    if key.related is not None:
        event["related"] = key.related
    if series.count > 1:
        event |= _series_body(series)
    return create_event(series.namespace, event)


def _patch_write(series: _OpenSeries) -> EventWrite:
    patch = patch_event(series.namespace, series.name, _series_body(series))
    return EventWrite(series.key, patch, _creation_request(series))


def _series_body(series: _OpenSeries) -> dict[str, object]:
    return {"series": {"count": series.count, "lastObservedTime": micro_time(series.last_s)}}
