"""
Reads recordings, line by line: their size does not matter. Every error is one line with the file's name.

A snapshot is read as the recording that it is; the snapshots of earlier versions are one JSON object with a list for
each kind, of which lines are made.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from scheduler.daemon.assembly.watched_kinds import kinds_for
from scheduler.daemon.settings.resolved import Settings
from scheduler.engine.framework.kinds import KINDS, WatchedKind
from scheduler.engine.model import nesting
from scheduler.engine.model.stimuli import WatchEvent
from scheduler.engine.model.wire import MalformedObjectError
from scheduler.errors import SettingsError
from scheduler.tools.explain.formats.explanation import API_VERSION
from scheduler.tools.explain.formats.recording_file import FORBIDDEN, KIND, LEASES, Header, Line, Mark
from scheduler.tools.explain.formats.terminal import print_notice, print_unlisted
from scheduler.tools.explain.serving import Leases
from scheduler.tools.explain.simulation.loaded_cluster import LoadedCluster

#: The snapshot in a file made by `bundle`, and the bytes that mark a tar file, with their place in it.
BUNDLED_SNAPSHOT: Final = "affinity-scheduler-bundle/snapshot.json"
_TAR_MAGIC: Final = b"ustar"
_TAR_MAGIC_AT: Final = 257
_GZIP_MAGIC: Final = b"\x1f\x8b"
_GZIP: Final = 31
_CHUNK_BYTES: Final = 1 << 16
#: An object of an API server has at most 1.5 MiB, or 3 in the requests that write it.
_LINE_LIMIT_BYTES: Final = 8 << 20
#: Of what is read as a whole: a bundle, or a snapshot of an earlier version. One of 150,000 pods has about 150 MB.
_WHOLE_LIMIT_BYTES: Final = 2 << 30
#: The kind of earlier snapshots, and their fields that are no lists of objects.
_SNAPSHOT: Final = "ClusterSnapshot"
_OTHER_SECTIONS: Final = {"leases": LEASES, "forbidden": FORBIDDEN}

_MARKS: Final = frozenset(Mark)
_LINE: Final = msgspec.json.Decoder(Line)
_OBJECT: Final = msgspec.json.Decoder(dict[str, object])


class _Head(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""


class _CutError(Exception):
    """A compressed file has no end."""


def recorded_events(file: str, settings: Settings) -> Iterator[tuple[float, WatchEvent | Mark]]:
    """
    Yield each mark, and each event of the kinds that the settings read, with its seconds.

    A recording that was not finished ends where its last whole line does, which standard error says.

    Raises SettingsError for a file that is no recording, before the first event or where it is damaged.
    """
    texts = _texts(file, _content(file))
    _check_header(file, next(texts, b""))
    kinds = {kind.kind: kind for kind in kinds_for(settings)}
    for line in _lines(file, texts):
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
            cluster.leases = _decoded(file, line, Leases, "who holds the Leases")
        elif line.kind == FORBIDDEN:
            reasons = _decoded(file, line, dict[str, str], "an object of reasons by kind")
            for kind in (kind for kind in kinds if kind in reasons):
                print_unlisted(kind, reasons[kind])
        elif (watched := kinds.get(line.kind)) is not None:
            cluster.apply(watched.on_served if line.listed else cluster.decode(watched, line.object))
        elif line.kind == Mark.SYNCED:
            return


T = TypeVar("T")


def _decoded(file: str, line: Line, as_type: type[T], expected: str) -> T:
    try:
        return msgspec.json.decode(line.object, type=as_type)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SettingsError(file, line.kind.lower(), str(error), expected) from error


def _snapshot_lines(file: str) -> Iterator[Line]:
    """Yield the lines of a recording after its first, or those that are made of an earlier snapshot."""
    content = _content(file)
    first = next(content, b"")
    if f'"{KIND}"'.encode() not in first.partition(b"\n")[0]:
        yield from _earlier_lines(file, _whole(file, chain([first], content)))
        return
    texts = _texts(file, chain([first], content))
    _check_header(file, next(texts))
    yield from _lines(file, texts)


def _earlier_lines(file: str, body: bytes) -> Iterator[Line]:
    try:
        head = msgspec.json.decode(body, type=_Head)
        sections = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SettingsError(file, "", str(error), f"JSON of a {_SNAPSHOT}") from error
    for field, found, expected in (
        ("apiVersion", head.api_version, API_VERSION),
        ("kind", head.kind, _SNAPSHOT),
    ):
        if found != expected:
            raise SettingsError(file, field, repr(found[:80]) if found else "nothing", expected)
    for name, kind in _OTHER_SECTIONS.items():
        if name in sections:
            yield Line(at_s=0.0, kind=kind, object=sections[name])
    for watched in KINDS.values():
        if (section := sections.get(watched.section)) is None:
            continue
        try:
            objects = msgspec.json.decode(section, type=list[msgspec.Raw])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise SettingsError(file, "", str(error), "lists of objects") from error
        yield from (Line(at_s=0.0, kind=watched.kind, object=raw) for raw in objects)
        yield Line(at_s=0.0, kind=watched.kind, listed=True)


def _lines(file: str, texts: Iterator[bytes]) -> Iterator[Line]:
    """Yield the decoded lines from the second on. Raises SettingsError, at last if none ends the first lists."""
    is_synced, latest_s = False, 0.0
    for number, text in enumerate(texts, start=2):
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


def _check_header(file: str, text: bytes) -> None:
    try:
        found = nesting.read(_OBJECT.decode, text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SettingsError(file, "", str(error), f"a {KIND}, made by the command record") from error
    expected = Header()
    for field, value in (("apiVersion", expected.api_version), ("kind", expected.kind)):
        if found.get(field) != value:
            raise SettingsError(file, field, repr(found.get(field))[:80], value)


def _texts(file: str, content: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the lines. Raises SettingsError if one is too long."""
    rest = b""
    try:
        for chunk in content:
            *whole, rest = (rest + chunk).split(b"\n")
            yield from whole
            if len(rest) > _LINE_LIMIT_BYTES:
                expected = "shorter lines"
                raise SettingsError(file, "", f"a line of more than {_LINE_LIMIT_BYTES} bytes", expected)
    except _CutError:
        print_notice(f"{file} has no end: the recording was not finished")
    if rest:
        print_notice(f"{file} ends within a line: the recording was not finished")


def _content(file: str) -> Iterator[bytes]:
    """Yield the bytes of the file in chunks, unzipped; of a bundle those of its snapshot. Raises SettingsError."""
    chunks = _unzipped(file, _chunks(file))
    first = next(chunks, b"")
    if not first.startswith(_TAR_MAGIC, _TAR_MAGIC_AT):
        yield first
        yield from chunks
        return
    yield _bundled(_whole(file, chain([first], chunks)), file)


def _whole(file: str, chunks: Iterator[bytes]) -> bytes:
    body = bytearray()
    try:
        for chunk in chunks:
            body += chunk
            if len(body) > _WHOLE_LIMIT_BYTES:
                raise SettingsError(file, "", f"more than {_WHOLE_LIMIT_BYTES} bytes", "fewer")
    except _CutError as error:
        expected = f"JSON of a {_SNAPSHOT}"
        raise SettingsError(file, "", "a damaged gzip file (it has no end)", expected) from error
    return bytes(body)


def _bundled(body: bytes, source: str) -> bytes:
    """Return the snapshot in a tar file. Raises SettingsError."""
    import tarfile  # only here: it takes 9 ms

    expected = f"{BUNDLED_SNAPSHOT}, as the command bundle writes it"
    try:
        with tarfile.open(fileobj=io.BytesIO(body), mode="r:") as bundle:
            member = bundle.extractfile(BUNDLED_SNAPSHOT)
            if member is None:
                raise SettingsError(source, "", "no file of that name", expected)
            return member.read()
    except KeyError as error:
        found = "a support bundle without a snapshot (its MANIFEST.txt may say why)"
        raise SettingsError(source, "", found, expected) from error
    # A damaged header can lead to each of these.
    except (tarfile.TarError, OSError, EOFError, ValueError, OverflowError, RecursionError) as error:
        raise SettingsError(source, "", f"a damaged tar file ({error})", expected) from error


def _unzipped(file: str, chunks: Iterator[bytes]) -> Iterator[bytes]:
    first = next(chunks, b"")
    if not first.startswith(_GZIP_MAGIC):
        yield first
        yield from chunks
        return
    unpacker = zlib.decompressobj(wbits=_GZIP)
    try:
        packed = first
        while packed:
            yield unpacker.decompress(packed, _CHUNK_BYTES * 16)
            packed = unpacker.unconsumed_tail or unpacker.unused_data or next(chunks, b"")
            if packed and unpacker.eof:
                raise SettingsError(file, "", "more data after its end", f"one {KIND}")
    except zlib.error as error:
        raise SettingsError(file, "", f"a damaged gzip file ({error})", f"a {KIND}") from error
    if not unpacker.eof:
        raise _CutError


def _chunks(file: str) -> Iterator[bytes]:
    try:
        with Path(file).open("rb") as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                yield chunk
    except FileNotFoundError as error:
        raise SettingsError(file, "", "no such file", "a file made by the command record") from error
    except (OSError, ValueError) as error:
        expected = "a file made by the command record"
        raise SettingsError(file, "", getattr(error, "strerror", None) or str(error), expected) from error
