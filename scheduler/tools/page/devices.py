"""Devices by node and pool: how many are free, which are tainted, and the pods that have the others."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import starmap
from operator import attrgetter
from typing import Final

from scheduler.engine.model.devices import DeviceId, PoolId, ResourceSlice
from scheduler.engine.model.wording import taint_text
from scheduler.engine.state.batches import Pieces, batches
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.devices import Devices
from scheduler.engine.state.node_masks import HARD_EFFECTS
from scheduler.tools.explain.formats.explanation import Document, JsonStruct, PodRef, Pods

#: Pools in an answer, devices of a pool, and pods by name of a device.
MAX_POOLS: Final = 500
_MAX_DEVICES: Final = 2_000
_MAX_PODS: Final = 20
#: Devices that are counted per piece of work.
_PER_PIECE: Final = 250


class DriverSummary(JsonStruct, frozen=True):
    """The devices of one driver, as the metric `affinity_scheduler_devices` counts them."""

    driver: str
    n_free: int
    n_allocated: int


class PoolSummary(JsonStruct, frozen=True, kw_only=True):
    """
    One pool in its newest generation. `node`: of all its devices, '' if several nodes reach some.

    `n_free`: devices that no claim has, tainted ones included. `n_tainted`: devices that no pod gets without a
    toleration. `n_slices_missing`: slices that its driver has not published yet; until then it is not used.
    """

    driver: str
    pool: str
    node: str
    n_devices: int
    n_free: int
    n_tainted: int
    n_slices_missing: int


class DeviceOverview(Document, frozen=True, kw_only=True):
    """All drivers, and the pools whose node, driver or name has the text that is searched for, by node and name."""

    kind: str = "DeviceOverview"
    is_served: bool
    drivers: tuple[DriverSummary, ...]
    n_matching: int
    pools: tuple[PoolSummary, ...]


class Holder(JsonStruct, frozen=True, kw_only=True):
    """A claim that has a device, and the pods that it is reserved for."""

    namespace: str
    claim: str
    pods: Pods


class DeviceUse(JsonStruct, frozen=True, kw_only=True):
    """One device, and the claims that have it."""

    name: str
    is_free: bool
    taints: tuple[str, ...]
    holders: tuple[Holder, ...]


class DevicePool(Document, frozen=True, kw_only=True):
    """The devices of one pool, slice by slice in the order of the slices' names."""

    kind: str = "DevicePool"
    summary: PoolSummary
    devices: tuple[DeviceUse, ...]
    n_more: int


def device_overview_pieces(state: ClusterState, search: str) -> Pieces[DeviceOverview]:
    """Return the overview, in steps that yield. O(pools + devices that are counted)."""
    devices = state.devices
    matching: list[tuple[str, PoolId]] = []
    for few in batches(devices.pools()):
        for pool in few:
            node = _node_of(_newest(devices, pool))
            if any(search in text for text in (node, *pool)):
                matching.append((node, pool))
        yield
    matching.sort()
    summaries: list[PoolSummary] = []
    n_looked_at = 0
    for _, pool in matching[:MAX_POOLS]:
        # A pool may be gone by now.
        if (slices := _newest(devices, pool)) is not None:
            summaries.append(_summary(devices, pool, slices))
            n_looked_at += summaries[-1].n_devices + 1
        if n_looked_at >= _PER_PIECE:
            n_looked_at = 0
            yield
    return DeviceOverview(
        is_served=devices.is_served,
        drivers=tuple(starmap(DriverSummary, devices.n_by_driver())),
        n_matching=len(matching),
        pools=tuple(summaries),
    )


def device_pool(state: ClusterState, pool: PoolId) -> DevicePool | None:
    """Return the devices of the pool, None if there is none."""
    slices = _newest(state.devices, pool)
    if slices is None:
        return None
    found = [(each, device) for each in slices for device in each.devices]
    uses: list[DeviceUse] = []
    for each, device in found[:_MAX_DEVICES]:
        device_id = each.device_id(device)
        uses.append(
            DeviceUse(
                name=device.name,
                is_free=not state.devices.allocated.has(device_id),
                taints=tuple(taint_text(taint.key, taint.value, taint.effect) for taint in device.taints),
                holders=tuple(_holders(state, device_id)),
            )
        )
    summary = _summary(state.devices, pool, slices)
    return DevicePool(summary=summary, devices=tuple(uses), n_more=len(found) - len(uses))


def _holders(state: ClusterState, device: DeviceId) -> Iterator[Holder]:
    for key in state.devices.allocated.claims_of(device):
        claim = state.devices.claim(key)
        if claim is None:
            continue
        pods = [each for each in claim.reserved_for if each.resource == "pods"]
        shown: list[PodRef] = []
        for each in pods[:_MAX_PODS]:
            placed = state.placed.get(each.uid)
            node = "" if placed is None else state.nodes.name_of(placed.row)
            shown.append(PodRef(claim.namespace, each.name, node))
        yield Holder(namespace=claim.namespace, claim=claim.name, pods=Pods(len(pods), tuple(shown)))


def _newest(devices: Devices, pool: PoolId) -> list[ResourceSlice] | None:
    """Return the slices of the pool's newest generation by name, None if there is none."""
    slices = devices.of_pool(pool)
    if not slices:
        return None
    generation = max(each.generation for each in slices)
    return sorted((each for each in slices if each.generation == generation), key=attrgetter("key"))


def _node_of(slices: list[ResourceSlice] | None) -> str:
    nodes = {each.node_name for each in slices or () if each.devices}
    return next(iter(nodes)) or "" if len(nodes) == 1 else ""


def _summary(devices: Devices, pool: PoolId, slices: list[ResourceSlice]) -> PoolSummary:
    n_devices = n_free = n_tainted = 0
    for each in slices:
        n_devices += len(each.devices)
        for device in each.devices:
            n_free += not devices.allocated.has(each.device_id(device))
            n_tainted += any(taint.effect in HARD_EFFECTS for taint in device.taints)
    return PoolSummary(
        driver=pool.driver,
        pool=pool.pool,
        node=_node_of(slices),
        n_devices=n_devices,
        n_free=n_free,
        n_tainted=n_tainted,
        n_slices_missing=max(0, slices[0].slice_count - len(slices)),
    )
