"""Records what watches of a cluster show to a file, reduced and bounded, until it is stopped."""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, Final

import msgspec

from scheduler.daemon.assembly.watched_kinds import resource_of
from scheduler.daemon.kube.changes import Deleted, Interrupted, Malformed, Synced, Upserted
from scheduler.daemon.kube.client import KubeClient
from scheduler.daemon.kube.reflector import Reflector
from scheduler.daemon.loop.connection import Connection, ConnectionOptions, connect
from scheduler.daemon.loop.daemon import on_termination
from scheduler.daemon.metrics.logs import Logger
from scheduler.daemon.metrics.process import ControllerMetrics
from scheduler.engine.framework.kinds import KINDS, WatchedKind
from scheduler.engine.model import nesting
from scheduler.errors import SettingsError
from scheduler.tools.explain.formats.recording_file import (
    FORBIDDEN,
    LEASES,
    DeletedObject,
    Header,
    Line,
    Mark,
    recorded_fields,
)
from scheduler.tools.explain.serving import Leases
from scheduler.version import product_version

#: How often the recorded changes are written to the file, and `on_progress` is called.
_FLUSH_PERIOD_S: Final = 1.0
#: zlib holds back less than this before a flush.
_HELD_BYTES: Final = 128 << 10
#: zlib's window for the format of gzip.
_GZIP: Final = 31

_JSON: Final = msgspec.json.Decoder(dict[str, object])
#: In the order in which they are listed.
RECORDED_KINDS: Final = tuple(KINDS.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(ConnectionOptions):
    """The flags of `record`."""

    compresses: bool
    #: The recording ends before the file is longer.
    max_bytes: int
    #: None records until SIGTERM or SIGINT.
    duration_s: float | None
    #: Called with the numbers of changes and bytes about once a second.
    on_progress: Callable[[int, int], None]


class Recording:
    """
    The lines of one file. An object that is seen again as it was is no line.

    `n_lines`, `n_bytes`: in the file. `is_full`: whether something was left out since it had no room. `has_lists`:
    whether it has the first lists, without which no command reads it.
    """

    def __init__(
        self,
        file: BinaryIO,
        node_annotations: frozenset[str] = frozenset(),
        *,
        compresses: bool,
        max_bytes: int,
        now_s: Callable[[], float],
    ) -> None:
        self._file, self._max_bytes, self._now_s = file, max_bytes, now_s
        self._packer = zlib.compressobj(wbits=_GZIP) if compresses else None
        self._node_annotations, self._began_s = node_annotations, now_s()
        #: The hash of each object's last line, to tell what is new.
        self._hashes: dict[tuple[str, str], int] = {}
        self._waiting = [msgspec.json.encode(Header()) + b"\n"]
        self.n_lines = self.n_bytes = 0
        self.is_full = self.has_lists = False

    def reduced(self, kind: WatchedKind, raw: msgspec.Raw) -> bytes:
        """Return the JSON of an object as the recording has it."""
        document = nesting.read(_JSON.decode, raw)
        return msgspec.json.encode(recorded_fields(kind.kind, document, self._node_annotations))

    def on_object(self, kind: str, key: str, body: bytes) -> None:
        """Add the object as it is now."""
        if self._hashes.get((kind, key)) != (new := hash(body)):
            self._hashes[kind, key] = new
            self.add(kind, object=msgspec.Raw(body))

    def on_list(self, kind: WatchedKind, bodies: Iterable[bytes]) -> None:
        """Write the whole first list of a kind. Raises OSError, and SettingsError if there is no room for it."""
        for body in bodies:
            self.add(kind.kind, object=msgspec.Raw(body))
        self.add(kind.kind, listed=True)
        self.flush()
        if self.is_full:
            instead = "less; the command snapshot has no limit"
            raise SettingsError("the cluster", "", f"more than {self._max_bytes} bytes", instead)

    def end_lists(self, leases: Leases, forbidden: Mapping[str, str]) -> None:
        """Add that the lists are complete, with what only a snapshot has, and the end of the file. Raises OSError."""
        self.add(LEASES, object=msgspec.Raw(msgspec.json.encode(leases)))
        if forbidden:
            self.add(FORBIDDEN, object=msgspec.Raw(msgspec.json.encode(forbidden)))
        self.on_mark(Mark.SYNCED)
        self.close()

    def on_deleted(self, kind: str, deleted: Deleted) -> None:
        """Add the end of the object."""
        self._hashes.pop((kind, deleted.key), None)
        namespace, _, name = deleted.key.rpartition("/")
        gone = DeletedObject(namespace=namespace, name=name, uid=deleted.uid)
        self.add(kind, deleted=gone)

    def on_mark(self, mark: Mark) -> None:
        """Add that the first lists are complete, or that a watch is interrupted. Raises OSError."""
        self.add(mark)
        if mark is Mark.SYNCED:
            self.flush()
            self.has_lists = not self.is_full

    def flush(self) -> None:
        """Write the lines since the last call, or as many as there is room for. Raises OSError."""
        lines, self._waiting = self._waiting, []
        for line in lines:
            if self.is_full or self.n_bytes + len(line) + _HELD_BYTES > self._max_bytes:
                self.is_full = True
                return
            self._write(line if self._packer is None else self._packer.compress(line))
            self.n_lines += 1
        if self._packer is not None:
            self._write(self._packer.flush(zlib.Z_SYNC_FLUSH))
        self._file.flush()

    def close(self) -> None:
        """Write what is left, and the end of the file. Raises OSError."""
        self.flush()
        if self._packer is not None:
            self._write(self._packer.flush())
        self._file.flush()

    def _write(self, body: bytes) -> None:
        self._file.write(body)
        self.n_bytes += len(body)

    def add(self, kind: str, **what: Any) -> None:  # noqa: ANN401 - the fields of a line
        """Add a line of now: of a mark, or with what a watch shows of a kind."""
        line = Line(at_s=round(self._now_s() - self._began_s, 4), kind=kind, **what)
        self._waiting.append(msgspec.json.encode(line) + b"\n")


async def record(
    options: Options, open_file: Callable[[], BinaryIO], environ: Mapping[str, str]
) -> Recording:
    """
    Record until the time is over, the file is full or a signal arrives. The file is opened once the server answers.

    Raises SettingsError and OSError.
    """
    metrics = ControllerMetrics(version=product_version())
    async with connect(options, environ, metrics, waits=False, kinds=KINDS.values()) as connection:
        with open_file() as file:
            recording = Recording(
                file,
                options.settings.node_annotations,
                compresses=options.compresses,
                max_bytes=options.max_bytes,
                now_s=time.monotonic,
            )
            await _record(options, recording, connection)
            recording.close()
    return recording


async def _record(options: Options, recording: Recording, connection: Connection) -> None:
    client, log = connection.client, connection.log
    stopped = asyncio.Event()
    on_termination(stopped.set)
    unsynced = set(KINDS)

    def on_synced(kind: str, *, is_served: bool) -> None:
        if kind in unsynced:
            unsynced.remove(kind)
            if is_served:
                recording.add(kind, listed=True)
            if not unsynced:
                recording.on_mark(Mark.SYNCED)
                log.info(0, "Recording changes")

    tasks = [asyncio.create_task(_follow(kind, client, recording, on_synced, log)) for kind in KINDS.values()]
    try:
        async for _ in _seconds(options.duration_s, stopped):
            recording.flush()
            options.on_progress(recording.n_lines, recording.n_bytes)
            for task in tasks:
                if task.done():
                    task.result()
            if recording.is_full:
                return
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _seconds(duration_s: float | None, stopped: asyncio.Event) -> AsyncGenerator[None, None]:
    """Yield once a second until the time is over or `stopped` is set."""
    end_s = float("inf") if duration_s is None else time.monotonic() + duration_s
    while not stopped.is_set() and (left_s := end_s - time.monotonic()) > 0:
        with suppress(TimeoutError):
            async with asyncio.timeout(min(_FLUSH_PERIOD_S, left_s)):
                await stopped.wait()
        yield


async def _follow(
    kind: WatchedKind,
    client: KubeClient,
    recording: Recording,
    on_synced: Callable[..., None],
    log: Logger,
) -> None:
    """Record the changes of one kind until cancelled. The reflector retries failures of the server."""
    reflector = Reflector(
        client,
        resource_of(kind),
        partial(recording.reduced, kind),
        is_absence=kind.is_unserved,
    )
    async with aclosing(reflector.batches()) as batches:
        async for changes in batches:
            for change in changes:
                match change:
                    case Upserted(key=key, object=body):
                        recording.on_object(kind.kind, key, body)
                    case Deleted():
                        recording.on_deleted(kind.kind, change)
                    case Synced():
                        on_synced(kind.kind, is_served=True)
                    case Interrupted(error=error) if kind.may_lack(error):
                        on_synced(kind.kind, is_served=False)
                    case Interrupted(error=error):
                        recording.on_mark(Mark.INTERRUPTED)
                        log.info(0, "Watch is interrupted", kind=kind.kind, err=str(error))
                    case Malformed(error=error):
                        log.info(0, "Not recorded", kind=kind.kind, err=str(error))
