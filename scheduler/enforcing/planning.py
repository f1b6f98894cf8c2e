"""
Which pods go, so that every enforced rule which is due holds: nobody in vain, and those that matter least.

Affinity: the declaring pod goes, unless it has become the first of its kind by those that go before it.

Anti-affinity is decided by who may stay. From the most to the least deserving, a pod stays if it breaks no rule
together with those that stay already; the others go. So nobody goes who could come back without breaking a rule.
Of two pods that cannot both stay the one of lower priority goes. Of equal priority the pod that declares the broken
rule goes; among those that do, the one that allows the fewest others; and among those, the youngest. That is not
always the fewest, for one old pod may have three young ones go.

All plans that are made while a rule stays broken have the same order, and a pod that goes decides nothing about the
others, so each plan is the one before it without the pod that has gone. For that the planner remembers which rules
of a pod were broken: an eviction may mend them, and a pod that thereby rose above another would have it go in its
stead, beside those that had gone for the sake of that other one. (A restart in between forgets it, and so does
whoever rewrites the pod's rules.)

Pods that an eviction would not move stay whatever they break: their controller puts them back on the same node. What
they declare counts against pods of lower priority alone, and only where evicting those is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from scheduler.enforcing.detecting import Violation, counts_of, n_staying
from scheduler.enforcing.rules import RuleIndex, Side
from scheduler.model.pods import Pod, PodSpec
from scheduler.state.cluster import ClusterState, PlacedPod
from scheduler.state.selection import Selection

#: More than any domain has.
_UNLIMITED = 1 << 62


@dataclass(frozen=True, slots=True)
class Departure:
    """A pod that goes, the broken rule it goes for, and the other pod that has part in it (of anti-affinity)."""

    pod: Pod
    violation: Violation
    other: Pod | None


@dataclass(frozen=True, slots=True)
class Plan:
    """The pods that go, least deserving first, and broken rules that no eviction would mend."""

    departures: tuple[Departure, ...] = ()
    beyond_help: tuple[Violation, ...] = ()


@dataclass(slots=True, eq=False)
class _Domain:
    """Live pods of one domain that one selection selects, and how many of those that stay may do so together."""

    members: dict[str, PlacedPod]
    n_staying: int = 0
    capacity: int = _UNLIMITED
    #: Whose rule sets the capacity, and the first member to stay: what a departure is told with.
    tightest: Violation | None = None
    first: Pod | None = None


@dataclass(slots=True)
class _Part:
    """What a pod has to do with the domains that are too full: its membership, and its own broken rules there."""

    placed: PlacedPod
    member_of: list[_Domain] = field(default_factory=list)
    declares: list[tuple[_Domain, Violation]] = field(default_factory=list)

    def tightest(self) -> int:
        """The fewest pods that one of its broken rules allows."""
        return min((each.rule.question.max_pods for _, each in self.declares), default=_UNLIMITED)


class Planner:
    """
    Plans from the state as it is, and never changes it.

    Args:
        state: the cluster.
        index: the rules of its pods.
        is_movable: whether an eviction would move the pod at all.
    """

    def __init__(self, state: ClusterState, index: RuleIndex, is_movable: Callable[[Pod], bool]) -> None:
        self._state = state
        self._index = index
        self._is_movable = is_movable
        #: Of the pods that have part in a broken rule: the tightest of their own, since they first had part in one,
        #: and the spec that said so.
        self._tightest: dict[str, tuple[PodSpec, int]] = {}

    def plan(self, due: Sequence[Violation]) -> Plan:
        """
        Who goes for these broken rules, all of them enforced.

        Cost: O(broken rules + pods in their domains that they select).
        """
        lonely = [each for each in due if each.rule.question.side is Side.AFFINITY]
        crowded = [each for each in due if each.rule.question.side is Side.ANTI_AFFINITY]
        leaving, stuck = self._for_affinity(lonely)
        apart = self._for_anti_affinity(crowded, leaving={each.pod.uid for each in leaving})
        departures = sorted((*leaving, *apart.departures), key=lambda each: _merit(each.pod), reverse=True)
        return Plan(tuple(departures), (*stuck, *apart.beyond_help))

    def _for_affinity(self, due: Iterable[Violation]) -> tuple[list[Departure], list[Violation]]:
        departures: list[Departure] = []
        stuck: list[Violation] = []
        #: Rows of the pods that go, by who selects them.
        gone: dict[Selection, list[int]] = {}
        leaving = [(self._state.placed[each.uid], each) for each in due]
        selections = {each.rule.selection for _, each in leaving}
        for placed, violation in sorted(leaving, key=lambda each: _merit(each[0].pod), reverse=True):
            selection = violation.rule.selection
            if not self._is_movable(placed.pod):
                stuck.append(violation)
                continue
            if self._would_be_first(placed, violation, gone.get(selection, ())):
                continue
            departures.append(Departure(placed.pod, violation, None))
            for other in selections:
                if placed.label_set in other.label_sets:
                    gone.setdefault(other, []).append(placed.row)
        return departures, stuck

    def _would_be_first(self, placed: PlacedPod, violation: Violation, gone: Sequence[int]) -> bool:
        """Whether the pod is the first of its kind once those that its rule selects are gone from these rows."""
        rule = violation.rule
        node = self._state.nodes.nodes[placed.row]
        if not rule.selects_itself or node is None:
            return False
        has_keys = all(key in node.labels for key in rule.question.keys)
        return has_keys and n_staying(self._state, rule, counts_of(rule)[1], gone) <= 1

    def _for_anti_affinity(self, due: Iterable[Violation], leaving: set[str]) -> Plan:
        violations = [each for each in due if each.uid not in leaving]
        parts = self._parts(violations, leaving)
        self._tightest = {uid: self._remembered(uid, part) for uid, part in parts.items()}
        departures: list[Departure] = []
        stuck: list[Violation] = []
        for part in parts.values():
            if not self._is_movable(part.placed.pod):
                _stay(part)
        for _, claims, part in sorted(self._steps(parts.values()), key=lambda step: step[0]):
            if claims:
                stuck += _claimed(part)
            elif (reason := _refusal(part)) is None:
                _stay(part)
                _claimed(part)
            else:
                violation, other = reason
                declaring = self._state.placed[violation.uid].pod
                departures.append(Departure(part.placed.pod, violation, other or declaring))
        return Plan(tuple(departures), tuple(stuck))

    def _remembered(self, uid: str, part: _Part) -> tuple[PodSpec, int]:
        spec, tightest = part.placed.pod.spec, part.tightest()
        known = self._tightest.get(uid)
        return spec, min(tightest, known[1]) if known is not None and known[0] is spec else tightest

    def _steps(self, parts: Iterable[_Part]) -> Iterator[tuple[tuple[object, ...], bool, _Part]]:
        """Each pod in its turn; of those that stay anyhow, what they claim, after all pods of their priority."""
        for part in parts:
            pod = part.placed.pod
            if self._is_movable(pod):
                yield (-pod.priority, 0, -self._tightest[pod.uid][1], pod.created, pod.uid), False, part
            elif part.declares:
                yield (-pod.priority, 1, 0, pod.created, pod.uid), True, part

    def _parts(self, violations: Iterable[Violation], leaving: set[str]) -> dict[str, _Part]:
        """Every pod that has part in a broken rule."""
        parts: dict[str, _Part] = {}
        domains: dict[tuple[Selection, str, int], _Domain] = {}
        for violation in violations:
            (key,) = violation.rule.question.keys
            selection = violation.rule.selection
            domain_id = int(self._state.nodes.column(key).ids[violation.row])
            domain = domains.get((selection, key, domain_id))
            if domain is None:
                members = self._members(violation, key, domain_id, leaving)
                domain = domains[selection, key, domain_id] = _Domain(members)
                for uid, placed in members.items():
                    parts.setdefault(uid, _Part(placed)).member_of.append(domain)
            declaring = parts.setdefault(violation.uid, _Part(self._state.placed[violation.uid]))
            declaring.declares.append((domain, violation))
        return parts

    def _members(
        self, violation: Violation, key: str, domain_id: int, leaving: set[str]
    ) -> dict[str, PlacedPod]:
        nodes = self._state.nodes
        live = counts_of(violation.rule)[1].rows(nodes.n_rows)
        ids = nodes.column(key).ids[: nodes.n_rows]
        label_sets = violation.rule.selection.label_sets
        return {
            placed.pod.uid: placed
            for row in np.flatnonzero((ids == domain_id) & (live > 0)).tolist()
            for placed in self._index.on_row(row)
            if placed.label_set in label_sets and not placed.pod.terminating and placed.pod.uid not in leaving
        }


def _merit(pod: Pod) -> tuple[int, str, str]:
    """Ascending from the most deserving on: by priority, then age."""
    return -pod.priority, pod.created, pod.uid


def _limit(domain: _Domain, violation: Violation) -> int:
    """Members that may stay beside the declaring pod, itself included where it is one."""
    return violation.rule.question.max_pods - 1 + (violation.uid in domain.members)


def _refusal(part: _Part) -> tuple[Violation, Pod | None] | None:
    """The rule that would be broken if the pod stayed too; with one that stays where the rule is the pod's own."""
    uid = part.placed.pod.uid
    for domain, violation in part.declares:
        if domain.n_staying + (uid in domain.members) > _limit(domain, violation):
            return violation, domain.first
    for domain in part.member_of:
        if domain.tightest is not None and domain.n_staying + 1 > domain.capacity:
            return domain.tightest, None
    return None


def _stay(part: _Part) -> None:
    for domain in part.member_of:
        domain.n_staying += 1
        if domain.first is None:
            domain.first = part.placed.pod


def _claimed(part: _Part) -> list[Violation]:
    """The pod's rules bind those that come after it. Returns the ones that are broken by now: they bind nobody."""
    broken = []
    for domain, violation in part.declares:
        limit = _limit(domain, violation)
        if domain.n_staying > limit:
            broken.append(violation)
        elif limit < domain.capacity:
            domain.capacity, domain.tightest = limit, violation
    return broken
