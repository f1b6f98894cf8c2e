"""What topology spread constraints count: pods per node, and the nodes that make domains and hold counted pods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from scheduler.framework.spread_constraints import Constraint
from scheduler.model.pods import Pod
from scheduler.model.terms import HOSTNAME_KEY
from scheduler.state.arrays import Mask
from scheduler.state.columns import LabelColumn
from scheduler.state.row_counts import PerDomain, RowCounts
from scheduler.state.snapshot import Snapshot


class Counted(NamedTuple):
    """
    A constraint, its column, and the pods that it counts per row, terminating ones left out.

    `counting`: nodes that make domains and hold counted pods, bool array of shape (n_rows,). `selects`: whether the
    incoming pod is one to be counted.
    """

    constraint: Constraint
    column: LabelColumn
    counts: RowCounts
    counting: Mask
    selects: bool

    @property
    def is_by_node(self) -> bool:
        """Whether each node is a domain; the label need not be there."""
        return self.constraint.topology_key == HOSTNAME_KEY

    def per_domain(self) -> PerDomain:
        """The counted pods of each domain. O(1) where few pods moved, else O(n_rows)."""
        return self.counts.per_domain(self.column, len(self.counting), self.counting)


def counted(
    pod: Pod, snapshot: Snapshot, constraints: Sequence[Constraint], keys: tuple[str, ...]
) -> list[Counted]:
    """
    The constraints with what they count. `keys`: labels that a node has to have to be counted on.

    True until something else than pods changes.
    """
    rule, tolerations = pod.spec.node_rule, pod.spec.tolerations
    return [
        Counted(
            one,
            snapshot.column(one.topology_key),
            RowCounts() if one.matcher is None else snapshot.selected_live(one.matcher),
            snapshot.eligible(
                keys,
                rule if one.honor_node_affinity and not rule.is_trivial else None,
                tolerations if one.honor_node_taints else None,
            ),
            one.selects(pod),
        )
        for one in constraints
    ]
