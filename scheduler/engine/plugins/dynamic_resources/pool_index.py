"""
The pools of every node, kept until their slices change.

A slice with shared counters is relevant for every node, so that each node has a pool of every such slice. Without
devices of its own, such a pool matters on a node only if it is incomplete or invalid; the others are left out.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from scheduler.engine.model.devices import PoolId, ResourceSlice
from scheduler.engine.model.nodes import Node
from scheduler.engine.plugins.dynamic_resources.answers import AuditWindow, NotAllocated
from scheduler.engine.plugins.dynamic_resources.pools import (
    NodePools,
    Pool,
    PoolState,
    is_relevant,
    node_pools,
    pool_of,
)
from scheduler.engine.state.batches import Pieces, finished
from scheduler.engine.state.devices import Devices

#: Nodes whose pools are kept: more than a cluster has, since nodes that left without slices of their own stay.
_MAX_NODES: Final = 65_536
#: Pools that are looked at again in one piece, 3 to 5 µs each.
_POOLS_PER_PIECE: Final = 500
_NO_NODES: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class _Reach:
    """
    What nodes have of a pool. `nodes`: those with its devices; None if any node may have some.

    `elsewhere`: the pool as other nodes see it by its counters alone; None if they see nothing of interest.
    """

    nodes: frozenset[str] | None = _NO_NODES
    elsewhere: Pool | None = None

    def is_like(self, other: _Reach) -> bool:
        """Return whether both are made of the same slices."""
        states = [None if each.elsewhere is None else each.elsewhere.state for each in (self, other)]
        return self.nodes == other.nodes and states[0] is states[1]


_NO_REACH: Final = _Reach()


class PoolIndex:
    """The pools of nodes, up to date whenever one asks."""

    def __init__(self, devices: Devices) -> None:
        self._slices, self._changes = devices, devices.changes
        self._version = -1
        self._reach_by_pool: dict[PoolId, _Reach] = {}
        #: Pools that nodes see by counters alone, and that are incomplete or invalid.
        self._elsewhere: dict[PoolId, Pool] = {}
        #: Slices without a nodeName that have devices.
        self._shared: tuple[ResourceSlice, ...] = ()
        self._by_node: dict[str, tuple[Node, NodePools | NotAllocated]] = {}
        #: The pools of nodes, by the slices that the nodes share.
        self._by_slices: dict[tuple[ResourceSlice, ...], NodePools] = {}
        #: The pools that several nodes see alike, by their slices with devices.
        self._shared_pools: dict[tuple[ResourceSlice, ...], Pool | None] = {}
        #: Devices of all nodes since the slices changed last, for the bytes.
        self._n_own_devices = self._n_shared_devices = 0
        self._audited_pools, self._audited_nodes = AuditWindow(), AuditWindow()

    @property
    def nbytes(self) -> int:
        """Bytes of the pools of nodes: 1,000 for each, 200 for a device of its own, 8 for one that others reach."""
        return 1000 * len(self._by_node) + 200 * self._n_own_devices + 8 * self._n_shared_devices

    def same_as(self, _fresh: PoolIndex) -> bool:
        """Return whether the next few pools and nodes equal what their slices give now; for the audit."""
        self.refresh()
        pools = list(dict.fromkeys(each.pool_id for each in self._slices.slices()))
        return all(
            self._reach_by_pool.get(pool, _NO_REACH).is_like(self._reach(pool))
            for pool in self._audited_pools.of(pools)
        ) and all(self._is_current(name) for name in self._audited_nodes.of(list(self._by_node)))

    def _is_current(self, name: str) -> bool:
        node, pools = self._by_node[name]
        relevant = self._relevant(node)
        if isinstance(relevant, NotAllocated):
            return pools == relevant
        return _content(pools) == _content(node_pools(relevant, self._slices, self._elsewhere, {}))

    def refresh(self) -> None:
        """Bring the index up to date at once; see `refreshing`."""
        if self._version != self._changes.version:
            finished(self.refreshing())

    def refreshing(self) -> Pieces[None]:
        """Bring the index up to date, in pieces. O(pools that changed)."""
        version = self._changes.version
        if self._version == version:
            return
        changes = self._changes.since(self._version) if self._version >= 0 else None
        if changes is None:
            pools: Collection[PoolId] = dict.fromkeys(
                [*self._reach_by_pool, *(each.pool_id for each in self._slices.slices())]
            )
        else:
            pools = dict.fromkeys(change.pool for change in changes if change.of_slices)
        for number, pool_id in enumerate(pools, 1):
            self._renew(pool_id)
            if not number % _POOLS_PER_PIECE:
                yield
        if pools:
            self._by_slices.clear()
            self._shared_pools.clear()
            self._n_own_devices = self._n_shared_devices = 0
            shared = (each for each in self._slices.shared() if not each.shared_counters)
            self._shared = tuple(sorted(shared, key=lambda each: each.key))
        # Only now: a reader between two pieces must not take half of it for all.
        self._version = version

    def nodes_of(self, pool: PoolId) -> frozenset[str] | None:
        """Return the names of the nodes with devices of the pool; None if any node may have some."""
        self.refresh()
        return self._reach_by_pool.get(pool, _NO_REACH).nodes

    def pools(self, node: Node) -> NodePools | NotAllocated:
        """Return the pools of a node. O(1) if they are known, else O(its slices and the shared ones)."""
        known = self.known_pools(node)
        if known is not None:
            return known
        pools = self._gather(node)
        if len(self._by_node) >= _MAX_NODES:
            self._by_node.clear()
        self._by_node[node.name] = (node, pools)
        return pools

    def known_pools(self, node: Node) -> NodePools | NotAllocated | None:
        """Return the pools of a node if they are known, and unchanged since. O(1)."""
        self.refresh()
        known = self._by_node.get(node.name)
        if known is None or not (known[0].labels is node.labels or known[0].labels == node.labels):
            return None
        return known[1]

    def _gather(self, node: Node) -> NodePools | NotAllocated:
        relevant = self._relevant(node)
        if isinstance(relevant, NotAllocated):
            return relevant
        key = tuple(relevant)
        pools = self._by_slices.get(key)
        if pools is None:
            pools = self._by_slices[key] = node_pools(
                relevant, self._slices, self._elsewhere, self._shared_pools
            )
            n_own = sum(len(each.devices) for each in relevant if each.node_name)
            self._n_own_devices += n_own
            self._n_shared_devices += len(pools.devices) - n_own
        return pools

    def _relevant(self, node: Node) -> list[ResourceSlice] | NotAllocated:
        """Return the slices with devices for the node."""
        relevant: list[ResourceSlice] = list(self._slices.on_node(node.name))
        for each in self._shared:
            is_for_node = is_relevant(each, node)
            if isinstance(is_for_node, NotAllocated):
                return is_for_node
            if is_for_node:
                relevant.append(each)
        return relevant

    def _renew(self, pool_id: PoolId) -> None:
        """Look at the slices of a pool again, and forget the pools of the nodes that have or had devices of it."""
        old, new = self._reach_by_pool.pop(pool_id, _NO_REACH), self._reach(pool_id)
        if new is not _NO_REACH:
            self._reach_by_pool[pool_id] = new
        if new.elsewhere is None:
            self._elsewhere.pop(pool_id, None)
        else:
            self._elsewhere[pool_id] = new.elsewhere
        if old.nodes is None or new.nodes is None or old.elsewhere or new.elsewhere:
            self._by_node.clear()
        else:
            for name in old.nodes | new.nodes:
                self._by_node.pop(name, None)

    def _reach(self, pool_id: PoolId) -> _Reach:
        slices = self._slices.of_pool(pool_id)
        if not slices:
            return _NO_REACH
        names = {each.node_name or "" for each in slices if not each.shared_counters}
        counters = [each for each in slices if each.shared_counters]
        elsewhere = pool_of(pool_id, counters, slices) if counters else None
        if elsewhere is not None and elsewhere.state is PoolState.USABLE:
            elsewhere = None
        return _Reach(None if "" in names else frozenset(names), elsewhere)


def _content(pools: NodePools | NotAllocated) -> object:
    """Return what two looks at the same slices have in common."""
    if isinstance(pools, NotAllocated):
        return pools
    return [(each.id, each.state, each.slices, each.slices_elsewhere) for each in pools.pools]
