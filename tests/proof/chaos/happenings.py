"""
The happenings of a run: actions of users and kubelets, and faults.

A run is its setting and a list of happenings with their moments; `literal` writes one as Python code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, TypeAlias

import msgspec

from scheduler.sandbox.devcluster.http.faults import Fault


@dataclass(frozen=True, slots=True)
class AddPod:
    """
    Create a pod of `shape` (in `shapes.SHAPES`); `key` is namespace/name.

    `group`: the name of the group that it is a member of, empty for none; `min_count`: how many the group needs.
    """

    key: str
    shape: str
    scheduler: str
    gated: bool = False
    group: str = ""
    min_count: int = 0


@dataclass(frozen=True, slots=True)
class AddNode:
    """Create a node."""

    key: str
    cpu: str
    zone: str | None = None
    disk: str | None = None


@dataclass(frozen=True, slots=True)
class AddNamespace:
    """Create a namespace."""

    key: str
    team: str


@dataclass(frozen=True, slots=True)
class AddPriorityClass:
    """Create a PriorityClass."""

    key: str
    value: int
    policy: str = "PreemptLowerPriority"


@dataclass(frozen=True, slots=True)
class AddBudget:
    """Create the PodDisruptionBudget of an app, after which it is named; `key` is namespace/app."""

    key: str
    allowed: int


@dataclass(frozen=True, slots=True)
class Create:
    """Create any other object, as a user writes it."""

    kind: str
    obj: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Change:
    """Patch an object, or its subresource, by a merge patch."""

    kind: str
    key: str
    change: dict[str, Any]
    subresource: str | None = None


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete an object; a pod with a grace period is terminating first."""

    kind: str
    key: str
    grace_s: int = 0


@dataclass(frozen=True, slots=True)
class BindByStranger:
    """Bind a pod by another scheduler, which checks nothing."""

    key: str
    node: str


@dataclass(frozen=True, slots=True)
class Freeze:
    """Hold all data on an instance's connections back for `for_s`."""

    instance: str
    for_s: float


@dataclass(frozen=True, slots=True)
class Cut:
    """Break every connection of an instance, and refuse new ones for `for_s`."""

    instance: str
    for_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Leap:
    """Let time leap for an instance; by less if it waits for a Lease that another instance holds."""

    instance: str
    by_s: float


@dataclass(frozen=True, slots=True)
class WallClock:
    """Shift the wall clock of an instance."""

    instance: str
    by_s: float


@dataclass(frozen=True, slots=True)
class Kill:
    """Kill an instance by SIGKILL when it passes `point` after `after` more passes; at once without a point."""

    instance: str
    point: str
    after: int = 0
    returns_after_s: float = 1.0


@dataclass(frozen=True, slots=True)
class Terminate:
    """Stop an instance by SIGTERM."""

    instance: str
    returns_after_s: float = 1.0


WorldEvent: TypeAlias = (
    AddPod | AddNode | AddNamespace | AddPriorityClass | AddBudget | Create | Change | Remove | BindByStranger
)
Misfortune: TypeAlias = Fault | Freeze | Cut | Leap | WallClock | Kill | Terminate
Happening: TypeAlias = WorldEvent | Misfortune
#: Moments are seconds since the start of the run; happenings at 0 make the initial cluster.
Script: TypeAlias = Sequence[tuple[float, Happening]]


def literal(thing: object) -> str:
    """Return the Python expression of the value, without arguments that equal their defaults."""
    # Every other happening is a dataclass.
    named: Any = msgspec.structs.fields(thing) if isinstance(thing, msgspec.Struct) else fields(thing)  # type: ignore[arg-type]
    arguments = [
        f"{each.name}={value if isinstance(value, Enum) else repr(value)}"
        for each in named
        if (value := getattr(thing, each.name)) != each.default
    ]
    return f"{type(thing).__name__}({', '.join(arguments)})"
