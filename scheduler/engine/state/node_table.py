"""Nodes as columns: one row per node, one array per property. Rows of removed nodes are reused."""

from __future__ import annotations

from collections.abc import Callable, KeysView, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import numpy as np

from scheduler.engine.model.nodes import Node
from scheduler.engine.model.pods import HostPort
from scheduler.engine.model.requests import CPU, EPHEMERAL_STORAGE, MEMORY, PODS
from scheduler.engine.model.terms import Taint
from scheduler.engine.state.arrays import Amount, Amounts, Column, Counts, Mask, RowIndex, Rows, amount_at
from scheduler.engine.state.change_log import ChangeLog, RowChange
from scheduler.engine.state.columns import LabelColumn
from scheduler.engine.state.id_sets import Interned
from scheduler.engine.state.rule_guard import not_for_rules, refuse_rule
from scheduler.engine.state.sparse_dicts import add_count
from scheduler.errors import InvariantViolation

_FIRST_CAPACITY: Final = 64

#: Resources that always have a column: cpu, memory, ephemeral-storage and pods.
_N_PLAIN: Final = 4

#: The id of an empty list of taints.
_NO_TAINTS: Final = 0


@dataclass(frozen=True, slots=True)
class Usage:
    """The resources that a pod takes from its node, in scheduler units: cpu in milli, all others in whole units."""

    #: Amounts by resource name, without zero amounts.
    requested: Mapping[str, int]
    #: cpu (milli) and memory (bytes), with upstream's defaults where nothing is requested; for scoring.
    non_zero: tuple[int, int]
    host_ports: tuple[HostPort, ...]


@dataclass(slots=True)
class ImageState:
    """The rows of the nodes that hold an image. The size is as the first node reported it."""

    size_bytes: int
    rows: set[int] = field(default_factory=set)


class NodeTable:
    """
    All nodes. Exactly one writer: that of the ClusterState.

    A row without a live node is dead: it is free, or a ghost that holds pods whose node is unknown or was removed.
    Ghosts have no labels and no capacity, so that their pods count nowhere.
    """

    def __init__(self, log: ChangeLog) -> None:
        self._log = log
        #: Row by node name, ghosts included.
        self._row_by_name: dict[str, int] = {}
        self.row_by_name: Mapping[str, int] = MappingProxyType(self._row_by_name)
        #: Node by row, None where the row is dead.
        self.nodes: list[Node | None] = []
        self._name_by_row: list[str] = []
        self._free: list[int] = []
        self._capacity = _FIRST_CAPACITY
        #: Live nodes.
        self.n_live = 0
        #: Changes whenever the images of a node do.
        self.images_version = 0
        self._alive = Column(np.zeros(_FIRST_CAPACITY, dtype=np.bool_))
        self._unschedulable = Column(np.zeros(_FIRST_CAPACITY, dtype=np.bool_))
        self._taint_set = Column(np.zeros(_FIRST_CAPACITY, dtype=np.intp))
        self._pod_count = Column(np.zeros(_FIRST_CAPACITY, dtype=np.int32))
        self._non_zero = Column(np.zeros((2, _FIRST_CAPACITY), dtype=np.int64))
        self._allocatable = Column(np.zeros((_N_PLAIN, _FIRST_CAPACITY), dtype=np.int64))
        self._requested = Column(np.zeros((_N_PLAIN, _FIRST_CAPACITY), dtype=np.int64))
        #: Column by resource that a node has or had before the last sweep; the first `_N_PLAIN` always exist.
        self._resource_id: dict[str, int] = {CPU: 0, MEMORY: 1, EPHEMERAL_STORAGE: 2, PODS: 3}
        #: Requests for resources without a column, by row: pods may name resources that no node has.
        self._requested_unavailable: dict[str, dict[int, int]] = {}
        self._taint_ids: Interned[tuple[Taint, ...]] = Interned(first=_NO_TAINTS + 1)
        #: Columns of label keys that a live node has, made on first use.
        self._columns: dict[str, LabelColumn] = {}
        #: The one column of all other keys: pods may name topology keys that no node has.
        self._empty_column = LabelColumn("", _FIRST_CAPACITY)
        #: Live nodes per label key.
        self._n_by_label: dict[str, int] = {}
        self._images: dict[str, ImageState] = {}
        #: By image name, its size in bytes and the rows of the nodes that hold it.
        self.images: Mapping[str, ImageState] = MappingProxyType(self._images)
        self._ports: dict[tuple[str, int], dict[int, dict[str, int]]] = {}
        #: Host ports in use: (protocol, port) -> row -> address -> number of pods.
        self.ports: Mapping[tuple[str, int], Mapping[int, Mapping[str, int]]] = MappingProxyType(self._ports)

    @property
    def n_rows(self) -> int:
        """Length of every per-node array; some of the rows may be dead."""
        return len(self.nodes)

    def live(self, row: int) -> Node:
        """Return the node of a live row."""
        node = self.nodes[row]
        if node is None:
            raise InvariantViolation(f"row {row} has no live node")
        return node

    @property
    def alive(self) -> Mask:
        """Rows that hold a live node."""
        return self._alive.seen[: self.n_rows]

    @property
    def unschedulable(self) -> Mask:
        """Rows whose node is cordoned (spec.unschedulable)."""
        return self._unschedulable.seen[: self.n_rows]

    @property
    def taint_set(self) -> Rows:
        """Per row the id of its node's list of taints; equal lists share an id."""
        return self._taint_set.seen[: self.n_rows]

    def per_taints(self, compute: Callable[[tuple[Taint, ...]], int]) -> Amounts:
        """Return for each row what `compute` returns for its node's taints; it is called once for equal lists."""
        by_id = np.zeros(self._taint_ids.n_ids, dtype=np.int64)
        by_id[_NO_TAINTS] = compute(())
        for taints, number in self._taint_ids.ids.items():
            by_id[number] = compute(taints)
        return by_id[self.taint_set]

    @property
    def pod_count(self) -> Counts:
        """Pods per row, assumed ones included."""
        return self._pod_count.seen[: self.n_rows]

    @property
    def non_zero(self) -> Amounts:
        """int64 array of shape (2, n_rows): cpu (milli) and memory (bytes) requested; a default if none is."""
        return self._non_zero.seen[:, : self.n_rows]

    def allocatable(self, resource: str) -> Amounts | None:
        """Return the allocatable amount per row, None if no node has the resource."""
        index = self._resource_id.get(resource)
        return None if index is None else self._allocatable.seen[index, : self.n_rows]

    def requested(self, resource: str) -> Amounts | None:
        """Return the amount per row that placed pods request, None if no node has the resource."""
        index = self._resource_id.get(resource)
        return None if index is None else self._requested.seen[index, : self.n_rows]

    def resource_names(self) -> list[str]:
        """Return the resources that have a column."""
        return list(self._resource_id)

    def pods_left(self, rows: RowIndex) -> Amount:
        """Return how many more pods fit by number."""
        allocatable = self._allocatable.own[self._resource_id[PODS]]
        return amount_at(allocatable, rows) - amount_at(self._pod_count.own, rows)

    def left(self, resource: str, rows: RowIndex) -> Amount:
        """Return allocatable minus requested; 0 if no node has the resource."""
        use = self.use(resource, rows)
        return 0 if use is None else use[1] - use[0]

    def use(
        self, resource: str, rows: RowIndex, *, with_defaults: bool = False
    ) -> tuple[Amount, Amount] | None:
        """Return (requested, allocatable) of the resource; None if no node has it. `with_defaults`: as `non_zero`."""
        index = self._resource_id.get(resource)
        if index is None:
            return None
        # `_non_zero` has the first two resources, cpu and memory.
        column = self._non_zero if with_defaults and index < len(self._non_zero.own) else self._requested
        if isinstance(rows, int):
            return column.own.item(index, rows), self._allocatable.own.item(index, rows)
        return column.seen[index, rows], self._allocatable.seen[index, rows]

    def requested_at(self, resource: str, row: int) -> int:
        """Return what pods on the row request of the resource, whether a node has it or not."""
        amounts = self.requested(resource)
        return (
            self._requested_unavailable.get(resource, {}).get(row, 0)
            if amounts is None
            else int(amounts[row])
        )

    def column(self, key: str) -> LabelColumn:
        """Return the node label as a column; all keys that no node has share one. The first call is O(n_rows)."""
        column = self._columns.get(key)
        if column is None:
            if key not in self._n_by_label:
                return self._empty_column
            values = [None if node is None else node.labels.get(key) for node in self.nodes]
            column = self._columns[key] = LabelColumn.of(key, values, self._capacity)
        return column

    @property
    def labels(self) -> KeysView[str]:
        """The keys of all labels of live nodes."""
        return self._n_by_label.keys()

    def name_of(self, row: int) -> str:
        """Return the name of the row's node, also if the row is a ghost."""
        return self._name_by_row[row]

    @not_for_rules
    def upsert(self, node: Node) -> None:
        """Add or update the node; pods seen on it earlier count from now on. O(columns + labels + resources)."""
        row = self.row_for(node.name)
        old = self.nodes[row]
        self.nodes[row] = node
        if old is None:
            self._alive.own[row] = True
            self.n_live += 1
        if old is None or old.labels != node.labels:
            self._relabel(row, old.labels if old else {}, node.labels)
        if old is None or (old.taints, old.unschedulable) != (node.taints, node.unschedulable):
            self._set_taints(row, node.taints)
            self._unschedulable.own[row] = node.unschedulable
            self._log.restart(row)
        if old is not None and old.annotations != node.annotations:
            self._log.restart(row)
        if old is None or old.allocatable != node.allocatable:
            self._log.append(RowChange(row))
            self._allocatable.own[:, row] = 0
            for resource, amount in node.allocatable.items():
                index = self._resource(resource)  # first: it may replace the array
                self._allocatable.own[index, row] = amount
        if old is None or old.images != node.images:
            self._set_images(row, old, node)

    @not_for_rules
    def remove(self, name: str) -> None:
        """Remove the node. Its row stays as a ghost while pods are on it, which count nowhere until it returns."""
        row = self.row_by_name.get(name)
        if row is None or self.nodes[row] is None:
            return
        old = self.nodes[row]
        self._set_images(row, old, None)
        self.nodes[row] = None
        self._alive.own[row] = False
        self._unschedulable.own[row] = False
        self._set_taints(row, ())
        self._allocatable.own[:, row] = 0
        self.n_live -= 1
        self._relabel(row, old.labels if old else {}, {})
        self._free_if_unused(row)

    def row_for(self, name: str) -> int:
        """Return the row of the node; a new ghost row if the node is not known."""
        refuse_rule("row_for")
        row = self.row_by_name.get(name)
        if row is not None:
            return row
        if self._free:
            row = self._free.pop()
            self._name_by_row[row] = name
        else:
            row = len(self.nodes)
            self.nodes.append(None)
            self._name_by_row.append(name)
            if row >= self._capacity:
                self._grow(2 * self._capacity)
        self._row_by_name[name] = row
        self._log.restart(row)
        return row

    def count_usage(self, row: int, usage: Usage, delta: int) -> None:
        """
        Add the usage of a pod that came to the row (delta 1), or subtract it (-1) after the pod left.

        Pods are counted per port. Upstream's cache has a set: of two pods that hold the same
        port (possible only if a scheduler was bypassed), the first to go frees the port until the cache is rebuilt. We
        decide as upstream does after the rebuild.
        """
        refuse_rule("count_usage")
        self._pod_count.own[row] += delta
        self._non_zero.own[0, row] += delta * usage.non_zero[0]
        self._non_zero.own[1, row] += delta * usage.non_zero[1]
        for resource, amount in usage.requested.items():
            self._request(resource, row, delta * amount)
        for port in usage.host_ports:
            rows = self._ports.setdefault((port.protocol, port.port), {})
            held = rows.setdefault(row, {})
            add_count(held, port.ip, delta)
            if not held:
                del rows[row]
            if not rows:
                del self._ports[port.protocol, port.port]
        if delta < 0:
            self._free_if_unused(row)

    def _free_if_unused(self, row: int) -> None:
        """Free the row if it has neither a node nor pods."""
        if self.nodes[row] is None and self._pod_count.own[row] == 0:
            del self._row_by_name[self._name_by_row[row]]
            self._free.append(row)

    def _relabel(self, row: int, old: Mapping[str, str], new: Mapping[str, str]) -> None:
        """Update columns and label counts. O(labels + columns)."""
        self._log.restart(row)
        for key in new.keys() - old.keys():
            add_count(self._n_by_label, key, 1)
        for key, column in self._columns.items():
            column.set(row, new.get(key))
        for key in old.keys() - new.keys():
            if not add_count(self._n_by_label, key, -1):
                self._columns.pop(key, None)

    def _set_taints(self, row: int, taints: tuple[Taint, ...]) -> None:
        old = self._taint_set.own.item(row)
        self._taint_set.own[row] = self._taint_ids.add(taints)[0] if taints else _NO_TAINTS
        if old != _NO_TAINTS:
            self._taint_ids.remove(old)

    @not_for_rules
    def sweep(self) -> None:
        """Drop the columns of resources that no node has. O(resources * rows)."""
        in_use = set(np.flatnonzero(self._allocatable.own.any(axis=1)).tolist())
        names = [name for name, index in self._resource_id.items() if index < _N_PLAIN or index in in_use]
        if len(names) == len(self._resource_id):
            return
        for name in self._resource_id.keys() - names:
            amounts = self._requested.own[self._resource_id[name]]
            if rows := {row: amounts.item(row) for row in np.flatnonzero(amounts).tolist()}:
                self._requested_unavailable[name] = rows
        indices = [self._resource_id[name] for name in names]
        self._allocatable = Column(self._allocatable.own[indices])
        self._requested = Column(self._requested.own[indices])
        self._resource_id = {name: index for index, name in enumerate(names)}

    def _resource(self, name: str) -> int:
        resource_id = self._resource_id.get(name)
        if resource_id is None:
            resource_id = len(self._resource_id)
            self._resource_id[name] = resource_id
            blank = np.zeros((1, self._capacity), dtype=np.int64)
            self._allocatable = Column(np.concatenate((self._allocatable.own, blank)))
            self._requested = Column(np.concatenate((self._requested.own, blank)))
            for row, amount in self._requested_unavailable.pop(name, {}).items():
                self._requested.own[resource_id, row] = amount
        return resource_id

    def _request(self, name: str, row: int, amount: int) -> None:
        """Add the amount to the requested amount."""
        index = self._resource_id.get(name)
        if index is None:
            rows = self._requested_unavailable.setdefault(name, {})
            add_count(rows, row, amount)
            if not rows:
                del self._requested_unavailable[name]
        else:
            self._requested.own[index, row] += amount

    def _set_images(self, row: int, old: Node | None, new: Node | None) -> None:
        self.images_version += 1
        self._log.append(RowChange(row))
        before = {name for image in old.images for name in image.names} if old else set()
        after: dict[str, int] = {}
        for image in new.images if new else ():
            for name in image.names:
                after.setdefault(name, image.size_bytes)
        for name in before - after.keys():
            state = self._images[name]
            state.rows.discard(row)
            if not state.rows:
                del self._images[name]
        for name, size_bytes in after.items():
            self._images.setdefault(name, ImageState(size_bytes)).rows.add(row)

    def _grow(self, capacity: int) -> None:
        self._capacity = capacity
        for plain in (self._alive, self._unschedulable, self._taint_set, self._pod_count, self._non_zero):
            plain.grow(capacity)
        self._allocatable.grow(capacity)
        self._requested.grow(capacity)
        for column in (*self._columns.values(), self._empty_column):
            column.grow(capacity)
