"""
Reads recordings, line by line: their size does not matter. Every error is one line with the file's name.

A snapshot is read as the recording that it is; the snapshots of earlier versions are one JSON object with a list for
each kind, of which lines are made.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import msgspec

from scheduler.daemon.assembly.watched_kinds import kinds_for
from scheduler.daemon.settings.resolved import Settings
from scheduler.engine.framework.kinds import KINDS, WatchedKind
from scheduler.engine.model import nesting
from scheduler.engine.model.stimuli import WatchEvent
from scheduler.engine.model.wire import MalformedObjectError
from scheduler.errors import SettingsError
from scheduler.tools.explain.formats.explanation import API_VERSION
from scheduler.tools.explain.formats.json_values import shown
from scheduler.tools.explain.formats.recording_file import FORBIDDEN, KIND, LEASES, Line, Mark
from scheduler.tools.explain.formats.terminal import print_notice, print_unlisted
from scheduler.tools.explain.serving import Leases
from scheduler.tools.explain.simulation.loaded_cluster import LoadedCluster

#: The snapshot in a file made by `bundle`, and the bytes that mark a tar file, with their place in it.
BUNDLED_SNAPSHOT: Final = "affinity-scheduler-bundle/snapshot.json"
_TAR_MAGIC: Final = b"ustar"
_TAR_MAGIC_AT: Final = 257
_GZIP_MAGIC: Final = b"\x1f\x8b"
#: An object of an API server has at most 1.5 MiB, or 3 in the requests that write it.
_LINE_LIMIT_BYTES: Final = 8 << 20
#: Of what is read as a whole: a bundle, or a snapshot of an earlier version. One of 150,000 pods has about 150 MB.
_WHOLE_LIMIT_BYTES: Final = 2 << 30
#: The kind of earlier snapshots, and their fields that are no lists of objects.
_SNAPSHOT: Final = "ClusterSnapshot"
_OTHER_SECTIONS: Final = {"leases": LEASES, "forbidden": FORBIDDEN}
_RECORDED: Final = f"a {KIND}, made by the command record"
_EITHER: Final = f"{_RECORDED}, or a snapshot of a cluster, made by snapshot or bundle"

_HEAD: Final = ("apiVersion", "kind")
_MARKS: Final = frozenset(Mark)
_LINE: Final = msgspec.json.Decoder(Line)
_OBJECT: Final = msgspec.json.Decoder(dict[str, object])


def recorded_events(file: str, settings: Settings) -> Iterator[tuple[float, WatchEvent | Mark]]:
    """
    Yield each mark, and each event of the kinds that the settings read, with its seconds.

    A recording that was not finished ends where its last whole line does, which standard error says.

    Raises SettingsError for a file that is no recording, before the first event or where it is damaged.
    """
    kinds = {kind.kind: kind for kind in kinds_for(settings)}
    with _opened(file) as stream:
        for line in _lines(file, stream.readline(_LINE_LIMIT_BYTES), stream):
            if line.kind in _MARKS:
                yield line.at_s, Mark(line.kind)
            elif (event := _event(kinds, line)) is not None:
                yield line.at_s, event


def _event(kinds: Mapping[str, WatchedKind], line: Line) -> WatchEvent | None:
    """Return the event; None for a kind that is not read, or an object that the scheduler would ignore too."""
    kind = kinds.get(line.kind)
    if kind is None:
        return None
    if line.listed:
        return kind.on_served
    if line.deleted is not None:
        gone = line.deleted
        return kind.on_delete(gone.namespace, gone.name, gone.uid)
    try:
        return kind.on_upsert(kind.decode(line.object)) if bytes(line.object) else None
    except MalformedObjectError:
        return None


def read_snapshot(file: str, cluster: LoadedCluster) -> None:
    """
    Add the objects of a snapshot, of the one in a support bundle, or of a recording's first lists to `cluster`.

    The kinds that its author was not allowed to list are named on standard error. Raises SettingsError.
    """
    kinds = {watched.kind: watched for watched in cluster.kinds}
    cluster.leases = Leases(unknown={"": "the snapshot has no Leases"})
    for line in _snapshot_lines(file):
        if line.kind == LEASES:
            with _refused(file, "leases", "who holds the Leases"):
                cluster.leases = msgspec.json.decode(line.object, type=Leases)
        elif line.kind == FORBIDDEN:
            with _refused(file, "forbidden", "an object of reasons by kind"):
                reasons = msgspec.json.decode(line.object, type=dict[str, str])
            for kind in (kind for kind in kinds if kind in reasons):
                print_unlisted(kind, reasons[kind])
        elif (watched := kinds.get(line.kind)) is not None:
            cluster.apply(watched.on_served if line.listed else cluster.decode(watched, line.object))
        elif line.kind == Mark.SYNCED:
            return


@contextmanager
def _refused(source: str, field: str, expected: str) -> Iterator[None]:
    """Turn the errors of a decoder into a SettingsError."""
    try:
        yield
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SettingsError(source, field, str(error), expected) from error


def _snapshot_lines(file: str) -> Iterator[Line]:
    """Yield the lines of a recording after its first, or those that are made of an earlier snapshot."""
    with _opened(file) as stream:
        first = stream.readline(_LINE_LIMIT_BYTES)
        if f'"{KIND}"'.encode() in first:
            yield from _lines(file, first, stream)
        else:
            yield from _earlier_lines(file, first + _rest(file, stream.read))


def _earlier_lines(file: str, body: bytes) -> Iterator[Line]:
    with _refused(file, "", f"JSON of a {_SNAPSHOT}"):
        sections = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        head: dict[str, object] = {
            field: msgspec.json.decode(sections[field]) for field in _HEAD if field in sections
        }
    _check_head(file, head, _SNAPSHOT)
    for name, kind in _OTHER_SECTIONS.items():
        if name in sections:
            yield Line(at_s=0.0, kind=kind, object=sections[name])
    for watched in KINDS.values():
        if (section := sections.get(watched.section)) is None:
            continue
        with _refused(file, "", "lists of objects"):
            objects = msgspec.json.decode(section, type=list[msgspec.Raw])
        yield from (Line(at_s=0.0, kind=watched.kind, object=raw) for raw in objects)
        yield Line(at_s=0.0, kind=watched.kind, listed=True)


def _lines(file: str, first: bytes, stream: io.BufferedIOBase) -> Iterator[Line]:
    """Yield the decoded lines after the first. Raises SettingsError, at last if none ends the first lists."""
    with _refused(file, "", _RECORDED):
        _check_head(file, nesting.read(_OBJECT.decode, first), KIND)
    is_synced, latest_s, number = False, 0.0, 1
    while text := _next_line(file, stream):
        number += 1
        if text == first:
            raise SettingsError(file, "", "more data after its end", f"one {KIND}")
        try:
            line = nesting.read(_LINE.decode, text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise SettingsError(f"{file}, line {number}", "", str(error), f"a line of a {KIND}") from error
        if line.at_s < latest_s:
            raise SettingsError(f"{file}, line {number}", "atS", f"{line.at_s:g}", f"{latest_s:g} or more")
        latest_s, is_synced = line.at_s, is_synced or line.kind == Mark.SYNCED
        yield line
    if not is_synced:
        raise SettingsError(file, "", "no such line", f"the line {Mark.SYNCED}, which ends the first lists")


def _check_head(file: str, found: Mapping[str, object], kind: str) -> None:
    for field, value in zip(_HEAD, (API_VERSION, kind), strict=True):
        if found.get(field) != value:
            raise SettingsError(file, field, shown(found.get(field)), value)


def _next_line(file: str, stream: io.BufferedIOBase) -> bytes:
    """Return the next whole line, b"" at the end, which standard error names if it is none of a recording."""
    try:
        text = stream.readline(_LINE_LIMIT_BYTES)
    except EOFError:
        print_notice(f"{file} has no end: the recording was not finished")
        return b""
    if len(text) == _LINE_LIMIT_BYTES:
        raise SettingsError(file, "", f"a line of more than {_LINE_LIMIT_BYTES} bytes", "shorter lines")
    if text and not text.endswith(b"\n"):
        print_notice(f"{file} ends within a line: the recording was not finished")
        return b""
    return text


def _rest(file: str, read: Callable[[int], bytes]) -> bytes:
    body = read(_WHOLE_LIMIT_BYTES)
    if len(body) == _WHOLE_LIMIT_BYTES:
        raise SettingsError(file, "", f"more than {_WHOLE_LIMIT_BYTES} bytes", "fewer")
    return body


@contextmanager
def _opened(file: str) -> Iterator[io.BufferedIOBase]:
    """
    Open the file, unzipped; of a bundle its snapshot. Raises SettingsError, also for what is damaged within the block.

    A gzip file without its end raises EOFError there.
    """
    with ExitStack() as stack:
        try:
            stream: io.BufferedReader | gzip.GzipFile = stack.enter_context(Path(file).open("rb"))
            if stream.peek(1).startswith(_GZIP_MAGIC):
                stream = stack.enter_context(gzip.GzipFile(fileobj=stream))
            beginning = stream.peek(_TAR_MAGIC_AT + len(_TAR_MAGIC))
            if not beginning:
                raise SettingsError(file, "", "an empty file", _EITHER)
            is_tar = beginning.startswith(_TAR_MAGIC, _TAR_MAGIC_AT)
            yield _bundled(file, stream) if is_tar else stream
        except FileNotFoundError as error:
            raise SettingsError(file, "", "no such file", _EITHER) from error
        except EOFError as error:
            raise SettingsError(file, "", "a damaged gzip file (it has no end)", f"a {KIND}") from error
        except (gzip.BadGzipFile, zlib.error) as error:
            raise SettingsError(file, "", f"a damaged gzip file ({error})", f"a {KIND}") from error
        except (OSError, ValueError) as error:
            found = getattr(error, "strerror", None) or str(error)
            raise SettingsError(file, "", found, _EITHER) from error


def _bundled(file: str, stream: io.BufferedIOBase) -> io.BufferedIOBase:
    """Return the snapshot in a tar file. Raises SettingsError."""
    import tarfile  # only here: it takes 9 ms

    expected = f"{BUNDLED_SNAPSHOT}, as the command bundle writes it"
    try:
        with tarfile.open(fileobj=stream, mode="r|") as bundle:
            for member in bundle:
                if member.name == BUNDLED_SNAPSHOT and (found := bundle.extractfile(member)) is not None:
                    return io.BytesIO(_rest(file, found.read))
    # A damaged header can lead to each of these.
    except (
        tarfile.TarError,
        zlib.error,
        OSError,
        EOFError,
        ValueError,
        OverflowError,
        RecursionError,
    ) as error:
        raise SettingsError(file, "", f"a damaged tar file ({error})", expected) from error
    without = "a support bundle without a snapshot (its MANIFEST.txt may say why)"
    raise SettingsError(file, "", without, expected)
