"""
The pools of devices that a node reaches, in the order in which they are tried.

Source: structured/internal/incubating/pools_incubating.go, GatherPools (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import chain

from scheduler.engine.model.devices import Device, DeviceId, PoolId, ResourceSlice
from scheduler.engine.model.node_selector import NodeSelector, go_text
from scheduler.engine.model.nodes import Node
from scheduler.engine.plugins.dynamic_resources.answers import NotAllocated
from scheduler.engine.state.devices import Devices
from scheduler.engine.syntax.words import counted


@dataclass(frozen=True, slots=True, eq=False)
class PoolDevice:
    """A device of a usable pool."""

    device: Device
    slice: ResourceSlice
    id: DeviceId

    @property
    def has_several_terms(self) -> bool:
        """Whether no single selector may describe its nodes, which is an error once it is taken."""
        of_device = self.slice.per_device_node_selection
        selector = self.device.node_selector if of_device else self.slice.node_selector
        return selector is not None and len(selector.terms) > 1


class PoolState(Enum):
    """Whether the devices of a pool can be allocated."""

    USABLE = auto()
    #: Its driver is replacing slices.
    INCOMPLETE = auto()
    #: Its slices contradict each other.
    INVALID = auto()


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """
    A pool as a node sees it. Without devices unless it is usable.

    Attributes:
        slices: those with devices that the node may reach, by name.
        slices_elsewhere: the others of the generation; their devices consume counters.
        counters: declared amounts in billionths, by set and counter.
        problem: why its devices cannot be allocated, behind its name; empty if they can.
        devices: in the order in which they are tried.
        has_binding_conditions: whether a device has some: such pools are tried last.
        selects_per_device: whether a slice selects nodes per device, so that nodes with these slices may differ.
    """

    id: PoolId
    state: PoolState
    slices: tuple[ResourceSlice, ...] = ()
    slices_elsewhere: tuple[ResourceSlice, ...] = ()
    counters: Mapping[tuple[str, str], int] | None = None
    problem: str = ""
    devices: tuple[PoolDevice, ...] = ()
    has_binding_conditions: bool = False
    selects_per_device: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class NodePools:
    """The pools of a node, and the devices of the usable ones, in the order in which they are tried."""

    pools: tuple[Pool, ...]
    devices: tuple[PoolDevice, ...]

    def pool_of(self, device: PoolDevice) -> Pool:
        """Return the pool of a device. O(pools)."""
        pool_id = device.slice.pool_id
        return next(pool for pool in self.pools if pool.id == pool_id)

    @property
    def selects_per_device(self) -> bool:
        """Whether nodes with these slices may differ."""
        return any(pool.selects_per_device for pool in self.pools)

    @property
    def has_invalid(self) -> bool:
        """Whether a pool is invalid."""
        return any(pool.state is PoolState.INVALID for pool in self.pools)


def node_pools(
    relevant: Iterable[ResourceSlice],
    slices: Devices,
    elsewhere: Mapping[PoolId, Pool],
    shared: dict[tuple[ResourceSlice, ...], Pool | None],
) -> NodePools:
    """Return the pools of a node. `relevant`: the slices with devices for it; `slices`: all."""
    # `elsewhere`: the pools that every node sees by their counters, where they are incomplete or invalid. `shared`: the
    # pools that several nodes see alike, by their slices with devices; new ones are added.
    by_pool: dict[PoolId, list[ResourceSlice]] = {}
    for each in relevant:
        by_pool.setdefault(each.pool_id, []).append(each)
    pools = [pool for pool_id, pool in elsewhere.items() if pool_id not in by_pool]
    for pool_id, with_devices in by_pool.items():
        key = tuple(with_devices)
        if key in shared:
            pool = shared[key]
        else:
            all_slices = slices.of_pool(pool_id)
            counters = [each for each in all_slices if each.shared_counters]
            pool = pool_of(pool_id, [*with_devices, *counters], all_slices)
            if not all(each.node_name for each in with_devices):
                shared[key] = pool
        if pool is not None:
            pools.append(pool)
    pools.sort(key=lambda each: (each.has_binding_conditions, each.id.driver.encode(), each.id.pool.encode()))
    return NodePools(tuple(pools), tuple(chain.from_iterable(pool.devices for pool in pools)))


def reaches(
    node: Node, name: str | None, selector: NodeSelector | None, *, all_nodes: bool
) -> bool | NotAllocated:
    """Return whether the node is the one of a slice or device; the first field that is set decides."""
    if name:
        return node.name == name
    if all_nodes:
        return True
    if selector is None:
        return False
    if selector.problem is not None:
        return NotAllocated(f"failed to parse node selector {go_text(selector)}: {selector.problem}")
    return selector.matches(node.name, node.labels)


def device_reaches(node: Node, device: Device) -> bool | NotAllocated:
    """Return whether the node is the one of a device, in a slice that selects nodes per device."""
    return reaches(node, device.node_name, device.node_selector, all_nodes=device.all_nodes)


def is_relevant(each: ResourceSlice, node: Node) -> bool | NotAllocated:
    """Return whether a slice is for a node. O(devices) if it selects nodes per device."""
    if each.shared_counters:
        return True
    failure = "gather pool information: failed to perform node selection for"
    if each.node_name or each.all_nodes or each.node_selector is not None:
        match = reaches(node, each.node_name, each.node_selector, all_nodes=each.all_nodes)
        return (
            NotAllocated(f"{failure} slice {each.key}: {match.text}")
            if isinstance(match, NotAllocated)
            else match
        )
    if each.per_device_node_selection:
        for device in each.devices:
            match = device_reaches(node, device)
            if isinstance(match, NotAllocated):
                # Upstream prints the whole device.
                return NotAllocated(f"{failure} device {device.name} in slice {each.key}: {match.text}")
            if match:
                return True
    return False


def pool_of(
    pool_id: PoolId, relevant: Collection[ResourceSlice], all_slices: Collection[ResourceSlice]
) -> Pool | None:
    """Return the pool by the slices that a node sees; None if a generation that it does not see yet is replacing it."""
    # As upstream, a pool whose old slices are all relevant is complete even if a newer generation exists elsewhere.
    generation = max(each.generation for each in relevant)
    kept = sorted((each for each in relevant if each.generation == generation), key=_name)
    elsewhere: list[ResourceSlice] = []
    if len(kept) != kept[0].slice_count:
        if any(each.generation > generation for each in all_slices):
            return None
        current = sorted((each for each in all_slices if each.generation == generation), key=_name)
        if len(current) != kept[0].slice_count:
            n_all = counted(kept[0].slice_count, "slice")
            problem = f"is incomplete: {len(current)} of {n_all} of generation {generation}"
            return Pool(pool_id, PoolState.INCOMPLETE, problem=problem)
        names = {each.key for each in kept}
        elsewhere = [each for each in current if each.key not in names]
    return _validated(pool_id, kept, elsewhere)


def _validated(pool_id: PoolId, kept: list[ResourceSlice], elsewhere: list[ResourceSlice]) -> Pool:
    device_slices = tuple(each for each in kept if not each.shared_counters)
    if problem := _contradiction(kept, device_slices, elsewhere):
        return Pool(pool_id, PoolState.INVALID, problem=f"is invalid: {problem}")
    return Pool(
        pool_id,
        PoolState.USABLE,
        device_slices,
        tuple(elsewhere),
        {
            (of_set.name, counter): amount
            for each in kept
            for of_set in each.shared_counters
            for counter, amount in of_set.counters.items()
        },
        devices=tuple(
            PoolDevice(device, each, each.device_id(device)) for each, device in _devices(device_slices)
        ),
        has_binding_conditions=any(
            device.binding_conditions is not None for _, device in _devices(device_slices)
        ),
        selects_per_device=any(each.per_device_node_selection for each in device_slices),
    )


def _contradiction(
    kept: Sequence[ResourceSlice], device_slices: Iterable[ResourceSlice], elsewhere: Sequence[ResourceSlice]
) -> str:
    """Return the field in which the slices contradict each other; empty if there is none."""
    names: set[str] = set()
    for each, device in _devices(device_slices):
        if device.name in names:
            return f"duplicate device name {device.name} in slice {each.key}"
        names.add(device.name)
    declared: dict[str, Mapping[str, int]] = {}
    for each in kept:
        for of_set in each.shared_counters:
            if of_set.name in declared:
                return f"duplicate counter set name {of_set.name} in slice {each.key}"
            declared[of_set.name] = of_set.counters
    for each, device in _devices([*kept, *elsewhere]):
        of_device = f"of device {device.name} in slice {each.key}"
        for consumed in device.consumes_counters:
            known = declared.get(consumed.name)
            if known is None:
                return f"counter set {consumed.name} {of_device} not found"
            for counter in consumed.counters:
                if counter not in known:
                    return f"counter {counter} {of_device} not found in counter set {consumed.name}"
    return ""


def _devices(slices: Iterable[ResourceSlice]) -> Iterable[tuple[ResourceSlice, Device]]:
    return ((each, device) for each in slices for device in each.devices)


def _name(each: ResourceSlice) -> bytes:
    return each.key.encode()
