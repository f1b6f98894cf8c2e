"""
The Filter of PodTopologySpread: a node is refused if its domain would lead the emptiest domain by more than maxSkew.

Only nodes that have all the keys, and that the inclusion policies let in, make domains and hold counted pods; only
pods of the same namespace that are not terminating are counted.

Source: plugins/podtopologyspread/filtering.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from scheduler.framework.status import Status, unresolvable, unschedulable
from scheduler.model.pods import Pod
from scheduler.plugins.pod_topology_spread.constraints import Constraint
from scheduler.plugins.pod_topology_spread.counting import CountedPods, counted_pods, topology_keys
from scheduler.state.arrays import Mask
from scheduler.state.snapshot import Snapshot

SKEWED: Final = unschedulable("node(s) didn't match pod topology spread constraints")
NO_LABEL: Final = unresolvable(f"{SKEWED.reasons[0]} (missing required label)")


def skew_rules(
    pod: Pod, snapshot: Snapshot, constraints: Sequence[Constraint]
) -> Iterator[tuple[Mask, Status]]:
    """Yield the rules of each constraint in their order: the label is there, and the skew is kept."""
    for counted in counted_pods(pod, snapshot, constraints, topology_keys(constraints)):
        if counted.column.n_labelled < snapshot.n_nodes:
            yield snapshot.eligible((counted.constraint.topology_key,)), NO_LABEL
        yield within_skew(counted, selects_itself=counted.constraint.selects(pod)), SKEWED


def within_skew(counted: CountedPods, *, selects_itself: bool) -> Mask:
    """
    Return the rows whose domain would lead the emptiest one by at most maxSkew: bool array of shape (n_rows,).

    A node that is not eligible is judged by its domain's count from eligible nodes, 0 if it has none.
    Cost: 50 µs at 5,000 rows.
    """
    per_domain = counted.per_domain()
    fewest = counted.fewest(per_domain, counted.domains())
    return ~per_domain.at_least(counted.constraint.max_skew + fewest - int(selects_itself) + 1)
