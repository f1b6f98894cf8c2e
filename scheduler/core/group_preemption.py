"""
The pods that have to leave so that a whole group has places: found on a trial state, which is as before afterwards.

    lift       all pods of lower priority leave, in a large cluster those of the nodes where that costs least
    search     the group is placed as ever; if it has no places now, nobody is evicted
    return     pods of nodes that no member takes come back at once, the others one by one, the most important first and
               before them the ones whose eviction breaks a budget; a pod stays if the group still has places, which may
               be other ones

So nobody is evicted unless the whole group then fits, and no pod of which the group could spare the room. The work is
bounded: beyond `_MOST_DECISIONS`, a pod comes back only if every member keeps its node.

Source of the method: kubernetes 1.36, framework/preemption, podGroupEvaluator (KEP-5710). Differences: groups with
affinity or a topology constraint may preempt too; the group's priority is that of its lowest member.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from scheduler.core.group_members import shared_key
from scheduler.core.group_search import Outcome, search
from scheduler.core.group_trial import GroupTrial, Place
from scheduler.framework.post_filter import GroupPreemptor
from scheduler.model.pods import Pod
from scheduler.model.requests import filter_request
from scheduler.state.arrays import Amounts, Mask, Rows
from scheduler.state.cluster import ClusterState, PlacedPod
from scheduler.state.pod_columns import COUNTED, PodsByRow
from scheduler.state.snapshot import Snapshot

#: Most pods that leave on trial. 20 µs each.
_MOST_LIFTED: Final = 1_000
#: Decisions of all searches of one attempt, about 0.4 s at 5,000 nodes.
_MOST_DECISIONS: Final = 3_000
#: Domains of a large cluster that are tried, where all members share one.
_MOST_DOMAINS: Final = 4


@dataclass(frozen=True, slots=True)
class Question:
    """The arguments of `core.group_search.search` but for the trial."""

    members: Sequence[Pod]
    n_needed: int
    topology_key: str
    rows: Mask


@dataclass(frozen=True, slots=True)
class GroupRoom:
    """
    Where the members go once the victims have left.

    `nodes`: by the UID of a member. `victims`: the least important first. `n_violations`: how many of them break
    a budget.
    """

    nodes: Mapping[str, str]
    victims: tuple[Pod, ...]
    n_violations: int


def make_room(
    question: Question,
    below_priority: int,
    state: ClusterState,
    preemptor: GroupPreemptor,
    new_trial: Callable[[], GroupTrial],
) -> GroupRoom | None:
    """
    Return the room for the group without pods of lower priorities, None if there is none even then.

    Cost: a search, and one more for each pod that may have to leave, within the bounds above.
    """
    attempt = _Attempt(question, state, preemptor, new_trial)
    for rows in _clearings(question, below_priority, Snapshot(state)):
        try:
            attempt.lift(rows, below_priority)
            room = attempt.room()
        finally:
            attempt.put_all_back()
        if room is not None:
            return room
    return None


class _Attempt:
    def __init__(
        self,
        question: Question,
        state: ClusterState,
        preemptor: GroupPreemptor,
        new_trial: Callable[[], GroupTrial],
    ) -> None:
        self._question, self._state = question, state
        self._preemptor, self._new_trial = preemptor, new_trial
        self._snapshot = Snapshot(state)
        group = question.members[0].group
        self._key = None if group is None else group.key
        self._lifted: dict[str, PlacedPod] = {}
        self._n_decisions = 0

    # Pods that leave and come back.

    def lift(self, rows: Mask, below_priority: int) -> None:
        """Let the pods of lower priorities leave these rows."""
        having = rows & self._snapshot.has_lower(below_priority)
        for row in np.flatnonzero(having).tolist():
            for placed in list(self._snapshot.placed_on(row)):
                is_sibling = placed.pod.group is not None and placed.pod.group.key == self._key
                if placed.pod.priority < below_priority and not is_sibling:
                    self._lift(placed)

    def put_all_back(self) -> None:
        """Let every pod come back that has not."""
        for placed in list(self._lifted.values()):
            self._put_back(placed)

    def _lift(self, placed: PlacedPod) -> None:
        uid = placed.pod.uid
        self._lifted[uid] = placed
        group = self._state.groups.key_of(placed.pod)
        was_whole = group is not None and self._state.groups.is_whole(group)
        if placed.assumed:
            self._state.forget(uid)
        else:
            self._state.remove_pod(uid)
        if group is not None and was_whole:
            self._state.groups.note_whole(group)

    def _put_back(self, placed: PlacedPod) -> None:
        del self._lifted[placed.pod.uid]
        if placed.assumed:
            self._state.assume(placed.pod, placed.pod.node_name)
        else:
            self._state.upsert_pod(placed.pod)

    # The search.

    def room(self) -> GroupRoom | None:
        """Return the room if the group has places without the lifted pods; some of these are back afterwards."""
        if not self._lifted or (nodes := self._places()) is None:
            return None
        nodes = self._without_elsewhere(nodes)
        order, n_violating = self._preemptor.order_of_return(list(self._lifted.values()), self._snapshot)
        n_before = len(self._lifted) + 1
        # A pod may be spared once others are back: the one that a member's affinity needs.
        while len(self._lifted) < n_before:
            n_before = len(self._lifted)
            late: list[PlacedPod] = []
            for placed in [one for one in order if one.pod.uid in self._lifted]:
                if self._n_decisions + len(self._question.members) > _MOST_DECISIONS:
                    late.append(placed)
                    continue
                self._put_back(placed)
                if (found := self._places()) is None:
                    self._lift(placed)
                else:
                    nodes = found
        if late:
            if (found := self._in_place(late)) is None:
                return None
            nodes = found
        n_violations = sum(placed.pod.uid in self._lifted for placed in order[:n_violating])
        victims = tuple(one.pod for one in reversed(order) if one.pod.uid in self._lifted)
        return GroupRoom(nodes, victims, n_violations) if victims else None

    def _without_elsewhere(self, nodes: dict[str, str]) -> dict[str, str]:
        """Let the pods come back that are on nodes without a member, if the group then has places."""
        taken = set(nodes.values())
        elsewhere = [one for one in self._lifted.values() if one.pod.node_name not in taken]
        if not elsewhere:
            return nodes
        for placed in elsewhere:
            self._put_back(placed)
        if (found := self._places()) is not None:
            return found
        for placed in elsewhere:
            self._lift(placed)
        return nodes

    def _places(self) -> dict[str, str] | None:
        """Return the nodes of the members without the lifted pods, None if the group has none."""
        outcome, trial = self._search()
        nodes = {place.pod.uid: place.node_name for place in trial.places}
        trial.take_all_back()
        return nodes if outcome.is_placed else None

    def _search(self) -> tuple[Outcome, GroupTrial]:
        trial, asked = self._new_trial(), self._question
        outcome = search(asked.members, asked.n_needed, asked.topology_key, asked.rows, trial)
        self._n_decisions += outcome.n_decisions
        return outcome, trial

    def _in_place(self, late: Iterable[PlacedPod]) -> dict[str, str] | None:
        """Let the pods come back beside which every member keeps its node; return the nodes, None if there are none."""
        outcome, trial = self._search()
        if not outcome.is_placed:
            return None
        by_node: dict[str, list[Place]] = {}
        for place in trial.places:
            by_node.setdefault(place.node_name, []).append(place)
        is_local = all(_matters_on_its_node_only(pod) for pod in self._question.members)
        for placed in late:
            beside = by_node.get(placed.pod.node_name, ())
            if not is_local or placed.terms or placed.pod.spec.claim_volumes:
                continue
            self._put_back(placed)
            if not all(trial.still_takes(place) for place in beside):
                self._lift(placed)
        holds = all(trial.still_takes(place) for place in trial.places)
        nodes = {place.pod.uid: place.node_name for place in trial.places}
        trial.take_all_back()
        return nodes if holds else None


def _matters_on_its_node_only(pod: Pod) -> bool:
    """Return whether a pod of lower priority can keep the member out of its own node alone."""
    spec = pod.spec
    return not (spec.affinity.required_anti or spec.spread or spec.claim_volumes or spec.disks)


# Which pods leave.


def _clearings(question: Question, below_priority: int, snapshot: Snapshot) -> Iterator[Mask]:
    """Yield sets of rows that may make room if their pods of lower priority leave, at most `_MOST_LIFTED` of them."""
    rows = question.rows & snapshot.alive
    lower = snapshot.lower_pods(below_priority, rows)
    if not len(lower.rows):
        return
    if len(lower.rows) <= _MOST_LIFTED:
        yield rows
        return
    top = np.full(snapshot.n_rows, np.iinfo(np.int64).min)
    np.maximum.at(top, lower.rows, lower.priorities)
    n_lower = np.bincount(lower.rows, minlength=snapshot.n_rows)
    key = question.topology_key or shared_key(question.members, snapshot)
    copies = _copies(question, rows, key, lower, snapshot)
    # The rows where evicting does least harm first.
    order = np.lexsort((n_lower, top))
    order = order[copies[order] > 0]
    found: list[tuple[tuple[int, int], Rows]] = []
    for of_domain in _by_domain(order, key, snapshot):
        n_copies = np.cumsum(copies[of_domain])
        if not len(n_copies) or n_copies[-1] < question.n_needed:
            continue
        # Twice as many as are needed, since more than room may keep members out.
        n_rows = 1 + int(np.searchsorted(n_copies, 2 * len(question.members)))
        chosen = of_domain[:n_rows]
        chosen = chosen[np.cumsum(n_lower[chosen]) <= _MOST_LIFTED]
        if len(chosen):
            found.append(((int(top[chosen].max()), int(n_lower[chosen].sum())), chosen))
    for _, chosen in sorted(found, key=lambda one: one[0])[:_MOST_DOMAINS]:
        mask = np.zeros(snapshot.n_rows, dtype=np.bool_)
        mask[chosen] = True
        yield mask


def _by_domain(order: Rows, key: str, snapshot: Snapshot) -> Iterator[Rows]:
    """Yield the rows of each domain of the key, in their order; all of them without a key."""
    if not key:
        yield order
        return
    ids = snapshot.column(key).ids[order]
    for number in np.unique(ids).tolist():
        yield order[ids == number]


def _copies(question: Question, rows: Mask, key: str, lower: PodsByRow, snapshot: Snapshot) -> Amounts:
    """Return how many copies of the member of the largest requests each row would take: an upper bound."""
    nodes, largest = snapshot.nodes, max(question.members, key=lambda pod: sum(filter_request(pod).values()))
    spec = largest.spec
    eligible = rows & snapshot.eligible((key,) if key else (), spec.required_node_affinity, spec.tolerations)
    most: Amounts = np.where(eligible, len(question.members), 0).astype(np.int64)
    every = np.arange(snapshot.n_rows)
    for name, amount in filter_request(largest).items():
        allocatable = nodes.allocatable(name)
        if not amount:
            continue
        if allocatable is None:
            return np.zeros_like(most)
        room: Amounts = allocatable[: snapshot.n_rows].astype(np.int64)
        if name in COUNTED:
            room = np.array(np.broadcast_to(nodes.left(name, every), snapshot.n_rows))
            np.add.at(room, lower.rows, lower.taken[1 + COUNTED.index(name)])
        np.minimum(most, np.maximum(room, 0) // amount, out=most)
    return most
