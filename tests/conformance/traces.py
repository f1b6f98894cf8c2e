"""
Reads recorded decisions: gzipped or plain JSON lines, told apart by the file's first bytes.

A line is a `Trace` (the changes of one cluster and decisions in it) or an `Admission` (one pod sent for creation).
"""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

_GZIP_MAGIC = b"\x1f\x8b"

#: An API object or a recorded answer as JSON; its values are of any JSON type.
Json = dict[str, Any]


class BadInputError(Exception):
    """A file that does not have recorded decisions; the text is one line for the user."""


class Apply(msgspec.Struct, frozen=True, tag_field="op", tag="apply"):
    """Create an object, or replace the object of the same kind, namespace and name."""

    object: Json


class Delete(msgspec.Struct, frozen=True, tag_field="op", tag="delete"):
    """Remove an object."""

    kind: str
    name: str
    namespace: str | None = None


class Evaluate(msgspec.Struct, frozen=True, tag_field="op", tag="evaluate"):
    """Ask for a decision on a pod, without changing the cluster."""

    object: Json


class Schedule(msgspec.Struct, frozen=True, tag_field="op", tag="schedule"):
    """Decide on a pod and place it. `driver`: "failed" if devices fail. `hold`: whether it stops after Reserve."""

    object: Json
    driver: str = ""
    hold: bool = False


class Bind(msgspec.Struct, frozen=True, tag_field="op", tag="bind"):
    """Go on with a held pod."""

    name: str
    namespace: str


class Unreserve(msgspec.Struct, frozen=True, tag_field="op", tag="unreserve"):
    """Give a held pod up."""

    name: str
    namespace: str


class DeviceLife(msgspec.Struct, frozen=True):
    """
    The life of a cluster with devices, in which pods are placed one after the other.

    `expected` has one entry for each `Schedule`, `Bind` and `Unreserve`, in order. `quirk`: whether an allocator
    without two known defects of upstream decides otherwise somewhere.
    """

    name: str
    category: str
    ops: list[Apply | Delete | Schedule | Bind | Unreserve]
    expected: list[Json]
    quirk: bool = False


class Trace(msgspec.Struct, frozen=True):
    """The changes and decisions of one cluster; `expected` has one entry for each `Evaluate`, in order."""

    name: str
    ops: list[Apply | Delete | Evaluate]
    expected: list[Json]
    config: Json | None = None


class Admission(msgspec.Struct, frozen=True):
    """A pod sent for creation, and the object that was stored or the refusal."""

    name: str
    pod: Json
    stored: Json | None = None
    refused: Json | None = None


class _Metadata(msgspec.Struct):
    """The identity of an object."""

    name: str


class _Object(msgspec.Struct):
    """The fields that every object of a trace has."""

    kind: str
    metadata: _Metadata


class _Entry(msgspec.Struct):
    """A recorded decision: fields that are not here are not compared."""

    error: str | None = None
    message: str | None = None
    prefilter: dict[str, Json] | None = None
    prefilter_nodes: list[str] | None = msgspec.field(name="prefilterNodes", default=None)
    filter: dict[str, dict[str, Json]] | None = None
    feasible: list[str] | None = None
    score: dict[str, dict[str, int]] | None = None
    total: dict[str, int] | None = None


class _Shape(msgspec.Struct):
    """The fields that tell the two kinds of line apart."""

    ops: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    category: str | msgspec.UnsetType = msgspec.UNSET


Record = Trace | DeviceLife | Admission


def read(path: Path) -> Iterator[Record]:
    """
    Yield every record of a file.

    Raises: BadInputError if the file cannot be read, or a line is neither a trace, a life nor an admission.
    """
    for number, line in _lines(path):
        kind: type[Record] = Admission
        try:
            shape = msgspec.json.decode(line, type=_Shape)
            if shape.ops is not msgspec.UNSET:
                kind = Trace if shape.category is msgspec.UNSET else DeviceLife
            record = msgspec.json.decode(line, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadInputError(
                f"{path}: line {number}: found {error}, expected a trace or an admission"
            ) from error
        yield _checked(record, f"{path}: line {number}")


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with path.open("rb") as opened:
            packed = opened.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
        with gzip.open(path, "rb") if packed else path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield number, line
    except (OSError, EOFError, zlib.error) as error:
        cause = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise BadInputError(f"{path}: found {cause}, expected JSON lines, plain or gzipped") from error


def _checked(record: Record, place: str) -> Record:
    match record:
        case Trace():
            asked = sum(isinstance(op, Evaluate) for op in record.ops)
            if asked != len(record.expected):
                found = f"{len(record.expected)} entries for {asked} evaluates"
                raise BadInputError(f"{place}: expected: found {found}, expected as many")
            _check_shapes(record, place)
        case DeviceLife():
            asked = sum(isinstance(op, Schedule | Bind | Unreserve) for op in record.ops)
            if asked != len(record.expected):
                found = f"{len(record.expected)} entries for {asked} steps"
                raise BadInputError(f"{place}: expected: found {found}, expected as many")
        case Admission():
            if (record.stored is None) == (record.refused is None):
                raise BadInputError(f"{place}: found neither or both of stored and refused, expected one")
    return record


def _check_shapes(trace: Trace, place: str) -> None:
    objects = [op.object for op in trace.ops if not isinstance(op, Delete)]
    shapes: tuple[tuple[str, list[Json], type], ...] = (
        ("ops", objects, _Object),
        ("expected", trace.expected, _Entry),
    )
    for field, values, shape in shapes:
        try:
            msgspec.convert(values, list[shape])  # type: ignore[valid-type]  # the element type is a value here
        except msgspec.ValidationError as error:
            raise BadInputError(f"{place}: {field}: found {error}") from error
