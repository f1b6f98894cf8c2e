"""
What the allocator reads of the cluster, and what it answers.

Source: dynamic-resource-allocation/structured/schedulerapi (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple, Protocol, TypeVar

from scheduler.engine.model.devices import Device, DeviceClass, DeviceId, PoolId, ResourceSlice


class SliceView(Protocol):
    """The slices of the cluster."""

    def slices(self) -> Collection[ResourceSlice]:
        """Return all slices."""

    def on_node(self, name: str) -> Collection[ResourceSlice]:
        """Return the slices with this nodeName and without shared counters."""

    def shared(self) -> Collection[ResourceSlice]:
        """Return the other slices: those without a nodeName, and those with shared counters."""

    def of_pool(self, pool: PoolId) -> Collection[ResourceSlice]:
        """Return all slices of the pool, of any generation and node."""


class AllocatedView(Protocol):
    """The devices that are allocated, those of pending allocations included."""

    @property
    def dedicated(self) -> Set[DeviceId]:
        """The devices that are allocated as a whole; an allocation with admin access does not count."""

    @property
    def shared(self) -> Collection[DeviceId]:
        """The devices of which an allocation with a share ID has a part."""

    @property
    def consumed(self) -> Mapping[DeviceId, Mapping[str, int]]:
        """How much of the capacities of shared devices is consumed, in billionths; only where it is recorded."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """The allocated devices, and the classes by name."""

    allocated: AllocatedView
    classes: Mapping[str, DeviceClass]


class TargetNode(NamedTuple):
    """The node for which devices are allocated."""

    name: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A device of a usable pool."""

    device: Device
    slice: ResourceSlice
    id: DeviceId


class RefusalKind(Enum):
    """Why a node cannot serve the claims."""

    #: No devices for all claims.
    NO_DEVICES = auto()
    #: No devices for all claims, and a pool of the node is invalid.
    INVALID_POOLS = auto()
    #: The search ended at its limit.
    LIMIT = auto()
    #: The limit was reached before the search on this node, or before all its selectors were evaluated: ask again.
    POSTPONED = auto()
    #: An error, which ends the pod's cycle.
    ERROR = auto()


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a node cannot serve the claims, in upstream's words; the limit of the search in ours."""

    kind: RefusalKind
    text: str


@dataclass(frozen=True, slots=True)
class SearchError:
    """
    An error that ends the search on the node, in upstream's words.

    Attributes:
        is_limit: whether it is the limit of what a pod may evaluate, in our words.
    """

    text: str
    is_limit: bool = False


_T = TypeVar("_T")

#: Values that an audit compares at once, 20 to 50 µs each.
_AUDITED_AT_ONCE: Final = 64


class AuditWindow:
    """A window that moves over the values."""

    def __init__(self) -> None:
        self._next = 0

    def of(self, values: Sequence[_T]) -> Sequence[_T]:
        """Return the next few of the values."""
        start = self._next if self._next < len(values) else 0
        self._next = start + _AUDITED_AT_ONCE
        return values[start : self._next]
