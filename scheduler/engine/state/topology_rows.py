"""The nodes that can reach a volume, for thousands of volumes that each have a topology of their own."""

from __future__ import annotations

from typing import Final

import numpy as np

from scheduler.engine.model.node_selector import NodeSelector
from scheduler.engine.model.terms import NodeTerm
from scheduler.engine.state.arrays import Mask, Rows
from scheduler.engine.state.node_masks import NodeMasks
from scheduler.engine.state.node_table import NodeTable

#: Rows that are kept as numbers; more are kept as a mask.
_FEW: Final = 8
#: Bytes of an entry besides its mask.
_ENTRY_BYTES: Final = 150

#: Few rows by number, or any as a mask.
Reached = tuple[int, ...] | Mask


class TopologyRows:
    """
    The rows that reach each topology, kept until nodes change.

    Only labels are compared: a rule about node names is ignored, and a term with no other rule matches every node
    (component-helpers storage/volume, CheckNodeAffinity, kubernetes 1.36).
    """

    def __init__(self, nodes: NodeTable, masks: NodeMasks) -> None:
        self._nodes = nodes
        self._masks = masks
        self._reached: dict[NodeSelector, Reached] = {}
        #: By label key: rows in the order of domains, and where each domain begins.
        self._by_domain: dict[str, tuple[Rows, Rows]] = {}
        #: Bytes of all rows.
        self.nbytes = 0

    def same_as(self, _other: TopologyRows) -> bool:
        """Return whether a new computation gives the same rows; for the audit."""
        fresh = TopologyRows(self._nodes, self._masks)
        return all(
            np.array_equal(self.mask(topology), fresh.mask(topology)) for topology in list(self._reached)
        )

    def rows(self, topology: NodeSelector | None) -> Reached:
        """Return the rows; at first O(rows), or O(1) for a term that names values of one label."""
        if topology is None:
            return self._nodes.alive
        reached = self._reached.get(topology)
        if reached is None:
            reached = self._reached[topology] = self._computed(topology)
            self.nbytes += _ENTRY_BYTES + (0 if isinstance(reached, tuple) else reached.nbytes)
        return reached

    def mask(self, topology: NodeSelector | None) -> Mask:
        """Return the rows as a mask, not to be written to."""
        reached = self.rows(topology)
        if not isinstance(reached, tuple):
            return reached
        mask = np.zeros(self._nodes.n_rows, dtype=np.bool_)
        mask[list(reached)] = True
        return mask

    def _computed(self, topology: NodeSelector) -> Reached:
        if len(topology.terms) == 1 and (rows := self._in_domains(topology.terms[0])) is not None:
            if len(rows) <= _FEW:
                return tuple(rows.tolist())
            mask = np.zeros(self._nodes.n_rows, dtype=np.bool_)
            mask[rows] = True
            return mask
        mask = np.zeros(self._nodes.n_rows, dtype=np.bool_)
        for term in topology.terms:
            if not term.is_empty and term.problem is None:
                mask |= self._matching(term)
        return mask

    def _matching(self, term: NodeTerm) -> Mask:
        mask = self._nodes.alive.copy()
        for requirement in term.expressions:
            mask &= self._masks.satisfying(requirement)
        return mask

    def _in_domains(self, term: NodeTerm) -> Rows | None:
        """Return the rows of a term that names values of one label; None for any other term."""
        if len(term.expressions) != 1 or term.problem is not None or term.expressions[0].operator != "In":
            return None
        key, values = term.expressions[0].key, term.expressions[0].values
        column = self._nodes.column(key)
        if key not in self._by_domain:
            ids = column.ids[: self._nodes.n_rows]
            order = np.argsort(ids, kind="stable")
            self._by_domain[key] = order, np.searchsorted(ids[order], np.arange(column.n_ids + 1))
        order, starts = self._by_domain[key]
        domains = {column.id_by_value[value] for value in values if value in column.id_by_value}
        parts = [order[starts[domain] : starts[domain + 1]] for domain in domains]
        return parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, dtype=np.intp), *parts])
