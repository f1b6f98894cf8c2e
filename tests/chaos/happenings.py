"""
What can happen in a run, one thing at a time: what users and kubelets do, and what goes wrong.

A run is its setting and a list of these with their moments; `literal` writes one as it stands in a test.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields
from enum import Enum
from typing import Any, TypeAlias

import msgspec

from scheduler.devcluster.faults import Fault


@dataclass(frozen=True, slots=True)
class AddPod:
    """A pod like `shape` (of `shapes.SHAPES`) is created; `key` is namespace/name."""

    key: str
    shape: str
    scheduler: str
    gated: bool = False


@dataclass(frozen=True, slots=True)
class AddNode:
    """A node is created."""

    key: str
    cpu: str
    zone: str | None = None
    disk: str | None = None


@dataclass(frozen=True, slots=True)
class AddNamespace:
    """A namespace is created."""

    key: str
    team: str


@dataclass(frozen=True, slots=True)
class Change:
    """A merge patch of a Pod, Node or Namespace, or of its subresource."""

    kind: str
    key: str
    change: dict[str, Any]
    subresource: str | None = None


@dataclass(frozen=True, slots=True)
class Remove:
    """A Pod, Node or Namespace is deleted."""

    kind: str
    key: str
    grace_s: int = 0


@dataclass(frozen=True, slots=True)
class BindByStranger:
    """A scheduler that looks at nothing binds a pod."""

    key: str
    node: str


@dataclass(frozen=True, slots=True)
class Freeze:
    """Nothing arrives any more on either side of an instance's connections, and all of it `for_s` later."""

    instance: str
    for_s: float


@dataclass(frozen=True, slots=True)
class Cut:
    """Every connection of an instance breaks; none can be made for `for_s`."""

    instance: str
    for_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Leap:
    """So much time passes at once for an instance; less where it waits for a Lease that another holds."""

    instance: str
    by_s: float


@dataclass(frozen=True, slots=True)
class WallClock:
    """The wall clock of an instance is off by so much."""

    instance: str
    by_s: float


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL where the instance is at `point` (of `instance.KILL_POINTS`) for the next time but `after`."""

    instance: str
    point: str
    after: int = 0
    returns_after_s: float = 1.0


@dataclass(frozen=True, slots=True)
class Terminate:
    """SIGTERM."""

    instance: str
    returns_after_s: float = 1.0


WorldEvent: TypeAlias = AddPod | AddNode | AddNamespace | Change | Remove | BindByStranger
Misfortune: TypeAlias = Fault | Freeze | Cut | Leap | WallClock | Kill | Terminate
Happening: TypeAlias = WorldEvent | Misfortune
#: Moments are seconds since the run began; those at 0 are the cluster that it begins with.
Script: TypeAlias = Sequence[tuple[float, Happening]]


def literal(thing: object) -> str:
    """The expression that makes the thing, without what is so by default."""
    return f"{type(thing).__name__}({', '.join(_arguments(thing))})"


def _arguments(thing: object) -> list[str]:
    if isinstance(thing, msgspec.Struct):
        return [
            f"{field.name}={_value(value)}"
            for field in msgspec.structs.fields(thing)
            if (value := getattr(thing, field.name)) != field.default
        ]
    arguments: list[str] = []
    skipped = False
    for field in fields(thing):  # type: ignore[arg-type]  # every other happening is a dataclass
        value = getattr(thing, field.name)
        if field.default is not MISSING and value == field.default:
            skipped = True
        else:
            arguments.append(f"{field.name}={_value(value)}" if skipped else _value(value))
    return arguments


def _value(value: object) -> str:
    return str(value) if isinstance(value, Enum) else repr(value)
