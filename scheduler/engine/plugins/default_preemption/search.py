"""
The search for the node where evicting pods makes room for the pod and does the least harm.

Source: framework/preemption/preemption.go, DryRunPreemption and findCandidates (kubernetes 1.36).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from scheduler.engine.framework.interface import Rng
from scheduler.engine.framework.node_trial import RoomOnly
from scheduler.engine.framework.post_filter import UnfitPod
from scheduler.engine.framework.status import Status
from scheduler.engine.model.wire import Int32, Wire
from scheduler.engine.plugins.default_preemption.candidates import NO_VICTIMS, Candidate, Harm, candidate_at
from scheduler.engine.plugins.default_preemption.dry_runs import dry_runs
from scheduler.engine.plugins.default_preemption.protection import Protections, protections
from scheduler.engine.state.arrays import Rows
from scheduler.engine.state.batches import Pieces
from scheduler.engine.state.cluster_view import ClusterView


class DefaultPreemptionArgs(Wire, frozen=True):
    """How many candidates to look for: a share of the nodes where victims may help, but at least a number."""

    min_candidate_nodes_percentage: Int32 = 10
    min_candidate_nodes_absolute: Int32 = 100

    def n_wanted(self, n_nodes: int) -> int:
        """Return how many candidates are enough, among so many nodes."""
        share = n_nodes * self.min_candidate_nodes_percentage // 100
        return min(n_nodes, max(share, self.min_candidate_nodes_absolute))


#: The fewest nodes that are asked at once, unless they have many pods: a few cost as much as one.
_AT_ONCE: Final = 200
#: The pods of nodes that are asked at once, 0.4 µs each.
_PODS_AT_ONCE: Final = 6000


class Found(NamedTuple):
    """A row where the pod fits once its victims leave."""

    harm: Harm
    row: int


@dataclass(slots=True)
class Search:
    """
    The search for one pod: the candidates, those without violations first; and the reasons of the other nodes.

    `room`: the rows where only room keeps the pod out: many are asked at once. None if all are asked one by one.
    """

    unfit: UnfitPod
    view: ClusterView
    room: tuple[RoomOnly, Protections] | None = None
    candidates: list[Found] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    n_asked: int = 0
    errors: list[str] = field(default_factory=list)

    def note(self, status: Status, n_nodes: int) -> None:
        """Count nodes on which preemption does not help."""
        self.n_asked += n_nodes
        for reason in status.reasons if n_nodes else ():
            self.reasons[reason] += n_nodes
        if n_nodes and not status.code.rejects:
            self.errors.append(status.message)

    def in_turn(self, rows: Rows, n_first: int) -> Iterator[Found | None]:
        """Yield the candidates among the rows in this order, None after each piece; note why other rows are none."""
        n_most = max(1, _PODS_AT_ONCE * len(rows) // max(1, int(self.view.nodes.pod_count[rows].sum())))
        begin, n_at_once, n_next = 0, n_first, _AT_ONCE
        while begin < len(rows):
            some = rows[begin : begin + min(n_at_once, n_most)]
            begin += len(some)
            # Often few candidates are missing after the first nodes. If the next are not enough, most nodes are asked.
            n_at_once, n_next = n_next, 2 * n_next
            yield from self._one_by_one(some) if self.room is None else self._at_once(some, *self.room)
            yield None

    def _at_once(self, rows: Rows, room: RoomOnly, protected: Protections) -> Iterator[Found | None]:
        answers = dry_runs(rows, self.unfit, room, protected, self.view)
        is_refused = ~(answers.is_undecided | answers.is_candidate)
        self.n_asked += int(np.count_nonzero(is_refused))
        self.reasons += answers.reasons(room)
        is_undecided, numbers, harms = answers.is_undecided.tolist(), rows.tolist(), answers.harms
        for index in np.flatnonzero(~is_refused).tolist():
            if is_undecided[index]:
                yield from self._one_by_one(rows[index : index + 1])
            else:
                yield Found(harms[index], numbers[index])

    def _one_by_one(self, rows: Rows) -> Iterator[Found | None]:
        for row in rows.tolist():
            answer = candidate_at(row, self.unfit, self.view)
            if isinstance(answer, Candidate):
                yield Found(answer.harm, row)
            else:
                self.note(answer, 1)
            yield None


def find_candidates(
    unfit: UnfitPod, view: ClusterView, args: DefaultPreemptionArgs, rng: Rng
) -> Pieces[Search]:
    """
    Return the candidates among the nodes whose refusal the removal of pods may lift; yield after pieces of a few ms.

    The search begins at a random node. It ends once there are as many candidates as the arguments ask for, one of them
    without violations.
    """
    rows = np.flatnonzero(unfit.fit_error.unschedulable_rows(view.alive))
    search = Search(unfit, view)
    if not len(rows):
        return search
    wanted = args.n_wanted(len(rows))
    offset = rng.randrange(len(rows))
    has_lower = view.has_lower(unfit.evicts_below)[rows]
    search.note(NO_VICTIMS, int(np.count_nonzero(~has_lower)))
    ordered = np.roll(rows, -offset)[np.roll(has_lower, -offset)]
    clean: list[Found] = []
    violating: list[Found] = []
    # Not all filters have seen a pod that a PreFilter refused.
    room = unfit.trials.room_only if unfit.fit_error.prefilter is None else None
    search.room = None if room is None else (room, (yield from protections(view)))
    for found in search.in_turn(ordered, max(wanted, _AT_ONCE)):
        if found is None:
            yield
            continue
        (violating if found.harm[0] else clean).append(found)
        if clean and len(clean) + len(violating) >= wanted:
            break
    search.candidates = clean[:wanted] + violating[:wanted]
    return search
