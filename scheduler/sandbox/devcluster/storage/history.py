"""
Versioned memory: the newest revision of every object, a bounded past, and readers that follow it.

One order of resource versions covers all kinds. Every revision is encoded to JSON once, when first asked for;
lists and watches then copy bytes. Readers keep a position in the past instead of a queue of their own, so a
slow reader costs nothing and finds out that it is too late, as one of etcd's watchers does.
"""

import asyncio
import bisect
import logging
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal, NamedTuple

import msgspec

from scheduler.sandbox.devcluster.kinds import JsonObject, Kind
from scheduler.sandbox.devcluster.status import expired

ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]

_LOG: Final = logging.getLogger(__name__)
_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder()


def copied(obj: JsonObject) -> JsonObject:
    """Return a deep copy of a JSON object, several times faster than copy.deepcopy."""
    duplicate: JsonObject = _DECODER.decode(_ENCODER.encode(obj))
    return duplicate


#: Fields that Go prints as null if they have no value.
_NULLABLE: Final = frozenset({"lastProbeTime", "eventTime"})


def without_nulls(obj: JsonObject) -> JsonObject:
    """Return the object without nulls, which in Go equal absent fields, and without empty metadata maps."""
    if b"null" in _ENCODER.encode(obj):
        obj = {key: _pruned(value) for key, value in obj.items() if value is not None}
    metadata = obj.get("metadata")
    if isinstance(metadata, dict):
        for name in ("labels", "annotations", "finalizers", "ownerReferences"):
            if name in metadata and not metadata[name]:
                del metadata[name]
    return obj


def _pruned(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, dict):
        return {k: _pruned(v) for k, v in value.items() if v is not None or k in _NULLABLE}
    if isinstance(value, list):
        return [_pruned(one) for one in value]
    return value


#: events.k8s.io/v1 field -> core/v1 field. `series` differs inside: lastObservedTime and count are the same.
_RENAMED: Final = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_RENAMED_BACK: Final = {core: modern for modern, core in _RENAMED.items()}


def as_core(event: JsonObject) -> JsonObject:
    """Return an events.k8s.io/v1 Event with the field names of core/v1."""
    renamed = {_RENAMED.get(key, key): value for key, value in event.items()}
    return renamed | {"apiVersion": "v1", "kind": "Event"}


def as_events_v1(event: JsonObject) -> JsonObject:
    """Return a core/v1 Event with the field names of events.k8s.io/v1."""
    renamed = {_RENAMED_BACK.get(key, key): value for key, value in event.items()}
    return renamed | {"apiVersion": "events.k8s.io/v1", "kind": "Event"}


class Revision:
    """One version of one object, never changed, with apiVersion and kind of its storage version."""

    __slots__ = ("_bodies", "key", "obj", "resource_version")

    def __init__(self, obj: JsonObject, resource_version: int) -> None:
        metadata = obj["metadata"]
        self.obj = obj
        self.resource_version = resource_version
        #: What orders a list: etcd's key, so a namespace sorts with the slash that follows it.
        self.key = f"{metadata.get('namespace', '')}/{metadata['name']}"
        self._bodies: dict[str, bytes] = {}

    def as_kind(self, kind: Kind) -> JsonObject:
        """Return the object in the API version of `kind`."""
        return as_events_v1(self.obj) if kind.group == "events.k8s.io" else self.obj

    def item(self, kind: Kind) -> bytes:
        """Return the JSON of the object without apiVersion and kind, as lists carry it. Encoded once per version."""
        body = self._bodies.get(kind.group)
        if body is None:
            document = self.as_kind(kind)
            body = _ENCODER.encode({k: v for k, v in document.items() if k not in ("apiVersion", "kind")})
            self._bodies[kind.group] = body
        return body

    def document(self, kind: Kind) -> bytes:
        """Return the JSON of the whole object."""
        head = f'{{"kind":"{kind.kind}","apiVersion":"{kind.api_version}",'.encode()
        return head + self.item(kind)[1:]


class ObjectChange(NamedTuple):
    """A change of an object: `revision` is the state after it (for DELETED the last state, with a new version)."""

    type: ChangeType
    revision: Revision
    previous: Revision | None


Listener = Callable[[Kind, ObjectChange], None]


class _KindHistory:
    """The objects of one storage, in key order, and their past changes."""

    def __init__(self, capacity: int) -> None:
        self.newest: dict[str, Revision] = {}
        self.keys: list[str] = []
        #: Changes since `forgotten`, oldest first; never more than twice `capacity`.
        self.past: list[ObjectChange] = []
        #: The resource version of the newest dropped change; readers behind it are too late.
        self.forgotten = 0
        self.capacity = capacity
        self.readers: dict[Follower, None] = {}

    def append(self, change: ObjectChange) -> None:
        self.past.append(change)
        if (surplus := len(self.past) - self.capacity) > self.capacity:
            self.forgotten = self.past[surplus - 1].revision.resource_version
            del self.past[:surplus]
        for reader in self.readers:
            reader.wake()


class Follower:
    """
    A follower of one storage's changes, from a resource version on.

    Usable by one task, as a context manager.
    """

    def __init__(self, kind_history: _KindHistory, since: int) -> None:
        self._of_kind = kind_history
        self._since = since
        self._fresh = asyncio.Event()
        if self.has_backlog:
            self._fresh.set()
        kind_history.readers[self] = None

    def __enter__(self) -> "Follower":
        return self

    def __exit__(self, *_: object) -> None:
        self._of_kind.readers.pop(self, None)

    def wake(self) -> None:
        """Wake the reader: there may be changes to take."""
        self._fresh.set()

    def take(self, limit: int = 1000) -> list[ObjectChange]:
        """Take the changes that were not taken yet, at most `limit`. Raises: StatusError 410 if some are forgotten."""
        past, forgotten = self._of_kind.past, self._of_kind.forgotten
        if self._since < forgotten:
            raise expired(f"too old resource version: {self._since} ({forgotten})")
        start = bisect.bisect_right(past, self._since, key=lambda one: one.revision.resource_version)
        changes = past[start : start + limit]
        if changes:
            self._since = changes[-1].revision.resource_version
        if start + limit >= len(past):
            self._fresh.clear()
        return changes

    @property
    def has_backlog(self) -> bool:
        """Return True if there are changes to take, or forgotten ones."""
        past = self._of_kind.past
        is_late = self._since < self._of_kind.forgotten
        return is_late or (bool(past) and past[-1].revision.resource_version > self._since)

    async def ready(self, timeout_s: float) -> bool:
        """Wait until there may be changes to take; return False if `timeout_s` passed first."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._fresh.wait()
        except TimeoutError:
            return False
        return True


class History:
    """
    Every object's newest revision and the bounded past, in one order of resource versions.

    Only `storage.store` and the modules below it write here; they decide which writes are allowed.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._by_storage: dict[str, _KindHistory] = {}
        #: The resource version of the newest write of any kind. Starts above 0, which means "any" in requests.
        self.resource_version = 1
        #: Called after every write, in order; must not write themselves.
        self.listeners: list[Listener] = []

    def follow(self, kinds: Iterable[Kind], listener: Listener) -> Callable[[], None]:
        """
        Tell `listener` of every object of `kinds`, as added, and of every change of any kind from now on.

        An object that is too malformed for it is logged. Return what ends this.
        """

        def guarded(kind: Kind, change: ObjectChange) -> None:
            try:
                listener(kind, change)
            except (AttributeError, KeyError, TypeError) as malformed:
                # This runs within a write, which must not fail because of it.
                _LOG.warning("%s %s is malformed: %r", kind.kind, change.revision.key, malformed)

        for kind in kinds:
            for revision in self.snapshot(kind):
                guarded(kind, ObjectChange("ADDED", revision, None))
        self.listeners.append(guarded)
        return lambda: self.listeners.remove(guarded)

    def _of_kind(self, kind: Kind) -> _KindHistory:
        kind_history = self._by_storage.get(kind.storage)
        if kind_history is None:
            kind_history = self._by_storage[kind.storage] = _KindHistory(self._capacity)
        return kind_history

    def find(self, kind: Kind, namespace: str, name: str) -> Revision | None:
        """Return the newest revision of an object, or None."""
        return self._of_kind(kind).newest.get(f"{namespace}/{name}")

    def put(self, kind: Kind, obj: JsonObject) -> Revision:
        """Store the object as a new revision, with a new metadata.resourceVersion."""
        revision = self._stamped(obj)
        kind_history = self._of_kind(kind)
        previous = kind_history.newest.get(revision.key)
        if previous is None:
            bisect.insort(kind_history.keys, revision.key)
        kind_history.newest[revision.key] = revision
        self._publish(kind, ObjectChange("MODIFIED" if previous else "ADDED", revision, previous))
        return revision

    def remove(self, kind: Kind, obj: JsonObject) -> Revision:
        """Remove the object; its last state, as given, becomes the revision that watches see."""
        revision = self._stamped(obj)
        kind_history = self._of_kind(kind)
        previous = kind_history.newest.pop(revision.key)
        del kind_history.keys[bisect.bisect_left(kind_history.keys, revision.key)]
        self._publish(kind, ObjectChange("DELETED", revision, previous))
        return revision

    def _stamped(self, obj: JsonObject) -> Revision:
        self.resource_version += 1
        metadata = {**obj["metadata"], "resourceVersion": str(self.resource_version)}
        return Revision({**obj, "metadata": metadata}, self.resource_version)

    def _publish(self, kind: Kind, change: ObjectChange) -> None:
        self._of_kind(kind).append(change)
        for listener in self.listeners:
            listener(kind, change)

    def snapshot(self, kind: Kind, namespace: str | None = None) -> list[Revision]:
        """Return the newest revisions, of one namespace or of all, in key order. Cost: O(objects returned)."""
        of_kind = self._of_kind(kind)
        first, last = 0, len(of_kind.keys)
        if namespace is not None:
            # "0" is the character after "/", so the range holds exactly the keys of the namespace.
            first, last = (bisect.bisect_left(of_kind.keys, f"{namespace}{end}") for end in "/0")
        return [of_kind.newest[key] for key in of_kind.keys[first:last]]

    def reader(self, kind: Kind, since: int) -> Follower:
        """Return a reader of the changes of `kind` after resource version `since`."""
        return Follower(self._of_kind(kind), since)
