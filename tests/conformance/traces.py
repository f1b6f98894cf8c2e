"""Reads recorded decisions: gzipped JSON lines, each the life of one cluster."""

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

#: An API object or a recorded answer as JSON; its values are of any JSON type.
Json = dict[str, Any]


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


def read(path: Path) -> Iterator[Trace]:
    """Yield every trace of a file."""
    with gzip.open(path) as lines:
        for line in lines:
            yield msgspec.json.decode(line, type=Trace)


def read_lives(path: Path) -> list[DeviceLife]:
    """Return every life of a file of clusters with devices."""
    with gzip.open(path) as lines:
        return [msgspec.json.decode(line, type=DeviceLife) for line in lines]
