"""Reads recordings, line by line: their size does not matter. Every error is one line with the file's name."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from scheduler.daemon.assembly.watched_kinds import kinds_for
from scheduler.daemon.settings.resolved import Settings
from scheduler.engine.framework.kinds import WatchedKind
from scheduler.engine.model import nesting
from scheduler.engine.model.stimuli import WatchEvent
from scheduler.engine.model.wire import MalformedObjectError
from scheduler.errors import SettingsError
from scheduler.tools.explain.formats.recording_file import KIND, Header, Line, Mark
from scheduler.tools.explain.formats.terminal import print_notice

_GZIP_MAGIC: Final = b"\x1f\x8b"
_GZIP: Final = 31
_CHUNK_BYTES: Final = 1 << 16
#: An object of an API server has at most 1.5 MiB, or 3 in the requests that write it.
_LINE_LIMIT_BYTES: Final = 8 << 20

_MARKS: Final = frozenset(Mark)
_LINE: Final = msgspec.json.Decoder(Line)
_OBJECT: Final = msgspec.json.Decoder(dict[str, object])


def recorded_events(file: str, settings: Settings) -> Iterator[tuple[float, WatchEvent | Mark]]:
    """
    Yield each mark, and each event of the kinds that the settings read, with its seconds.

    A recording that was not finished ends where its last whole line does, which standard error says.

    Raises SettingsError for a file that is no recording, before the first event or where it is damaged.
    """
    lines = _lines(file)
    _check_header(file, next(lines, b""))
    kinds = {kind.kind: kind for kind in kinds_for(settings)}
    is_synced, latest_s = False, 0.0
    for number, text in enumerate(lines, start=2):
        try:
            line = nesting.read(_LINE.decode, text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise SettingsError(f"{file}, line {number}", "", str(error), f"a line of a {KIND}") from error
        if line.at_s < latest_s:
            raise SettingsError(f"{file}, line {number}", "atS", f"{line.at_s:g}", f"{latest_s:g} or more")
        latest_s = line.at_s
        if line.kind in _MARKS:
            is_synced = is_synced or line.kind == Mark.SYNCED
            yield line.at_s, Mark(line.kind)
        elif (event := _event(kinds, line)) is not None:
            yield line.at_s, event
    if not is_synced:
        raise SettingsError(file, "", "no such line", f"the line {Mark.SYNCED}, which ends the first lists")


def _event(kinds: Mapping[str, WatchedKind], line: Line) -> WatchEvent | None:
    """Return the event; None for a kind that is not read, or an object that the scheduler would ignore too."""
    kind = kinds.get(line.kind)
    if kind is None:
        return None
    if line.deleted is not None:
        gone = line.deleted
        return kind.on_delete(gone.namespace, gone.name, gone.uid)
    try:
        return kind.on_upsert(kind.decode(line.object)) if bytes(line.object) else None
    except MalformedObjectError:
        return None


def _check_header(file: str, text: bytes) -> None:
    try:
        found = nesting.read(_OBJECT.decode, text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SettingsError(file, "", str(error), f"a {KIND}, made by the command record") from error
    expected = Header()
    for field, value in (("apiVersion", expected.api_version), ("kind", expected.kind)):
        if found.get(field) != value:
            raise SettingsError(file, field, repr(found.get(field))[:80], value)


def _lines(file: str) -> Iterator[bytes]:
    """Yield the file's lines. Raises SettingsError if it cannot be read or a line is too long."""
    rest = b""
    for chunk in _unzipped(file, _chunks(file)):
        *whole, rest = (rest + chunk).split(b"\n")
        yield from whole
        if len(rest) > _LINE_LIMIT_BYTES:
            raise SettingsError(file, "", f"a line of more than {_LINE_LIMIT_BYTES} bytes", "shorter lines")
    if rest:
        print_notice(f"{file} ends within a line: the recording was not finished")


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
        print_notice(f"{file} has no end: the recording was not finished")


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
