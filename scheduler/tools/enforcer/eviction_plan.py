"""
Plans which pods to evict so that every enforced rule that is due holds again.

Affinity: the declaring pod is evicted, unless earlier evictions make it the first of its kind.

Anti-affinity: pods are visited in order of seniority. A pod stays if all rules hold between it and the pods that
already stay; otherwise it is evicted. So no pod is evicted that could return without breaking a rule. Of two pods that
cannot both stay, the one of lower priority is evicted. At equal priority it is the pod that declares the broken rule,
then the one whose rule allows fewest others, then the youngest. This does not minimise the number of evictions: one old
pod may cost three young ones.

While a rule stays broken, each plan is the plan before it without the evicted pod. To keep the order, the planner
remembers the tightest broken rule of each pod. Otherwise an eviction could mend a pod's rule and raise the pod above
another one, which would then be evicted too. A restart or a change of the pod's rules drops that memory.

Immovable pods always stay, since their controller puts them back on the same node. Their own rules evict only pods of
lower priority, and only if that is enough to mend the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from scheduler.engine.model.pods import Pod, PodSpec
from scheduler.engine.state.cluster import ClusterState, PlacedPod
from scheduler.engine.state.matching import PodMatcher
from scheduler.tools.enforcer.violations import Violation, n_staying, selects, staying_in_domain

#: More than any domain has.
_UNLIMITED = 1 << 62


@dataclass(frozen=True, slots=True)
class PlannedEviction:
    """A pod to evict, the broken rule, and for anti-affinity the other pod that breaks it."""

    pod: Pod
    violation: Violation
    other: Pod | None


@dataclass(frozen=True, slots=True)
class EvictionPlan:
    """The pods to evict, least senior first, and the broken rules that no eviction would mend."""

    evictions: tuple[PlannedEviction, ...] = ()
    unfixable: tuple[Violation, ...] = ()


@dataclass(slots=True, eq=False)
class _Domain:
    """The pods of one domain that a selection selects, and how many of them stay and may stay."""

    members: dict[str, PlacedPod]
    n_staying: int = 0
    capacity: int = _UNLIMITED
    #: The violation whose rule sets the capacity.
    tightest: Violation | None = None
    #: The first member that stays, to name in reports.
    first: Pod | None = None


@dataclass(slots=True)
class _Participant:
    """A pod that breaks rules or is selected by broken ones: its domains, and its own broken rules there."""

    placed: PlacedPod
    member_of: list[_Domain] = field(default_factory=list)
    declares: list[tuple[_Domain, Violation]] = field(default_factory=list)


class EvictionPlanner:
    """Plans evictions of pods that `is_movable` allows. Never changes the state."""

    def __init__(self, state: ClusterState, is_movable: Callable[[Pod], bool]) -> None:
        self._state = state
        self._is_movable = is_movable
        #: The pod spec and the tightest broken rule of each participant, since it became one.
        self._tightest: dict[str, tuple[PodSpec, int]] = {}

    def plan(self, due: Sequence[Violation]) -> EvictionPlan:
        """Return the plan for these violations of enforced rules. O(violations + selected pods in their domains)."""
        affinity = [each for each in due if each.is_affinity]
        anti_affinity = [each for each in due if not each.is_affinity]
        first = self._for_affinity(affinity)
        second = self._for_anti_affinity(anti_affinity, leaving={each.pod.uid for each in first.evictions})
        evictions = sorted(
            (*first.evictions, *second.evictions), key=lambda each: _seniority(each.pod), reverse=True
        )
        return EvictionPlan(tuple(evictions), (*first.unfixable, *second.unfixable))

    def _for_affinity(self, due: Iterable[Violation]) -> EvictionPlan:
        evictions: list[PlannedEviction] = []
        unfixable: list[Violation] = []
        #: Rows of the pods to evict, by each matcher that selects them.
        gone: dict[PodMatcher, list[int]] = {}
        declaring = [(self._state.placed[each.pod.uid], each) for each in due]
        rules = {each.rule.matcher: each.rule for _, each in declaring}
        for placed, violation in sorted(declaring, key=lambda each: _seniority(each[0].pod), reverse=True):
            matcher = violation.rule.matcher
            if not self._is_movable(placed.pod):
                unfixable.append(violation)
                continue
            if self._would_be_first(placed, violation, gone.get(matcher, ())):
                continue
            evictions.append(PlannedEviction(placed.pod, violation, None))
            for other, rule in rules.items():
                if selects(self._state, rule, placed.label_set):
                    gone.setdefault(other, []).append(placed.row)
        return EvictionPlan(tuple(evictions), tuple(unfixable))

    def _would_be_first(self, placed: PlacedPod, violation: Violation, gone: Sequence[int]) -> bool:
        """Return whether the pod is the first of its kind once one selected pod per row in `gone` is evicted."""
        rule = violation.rule
        node = self._state.nodes.nodes[placed.row]
        if node is None or not selects(self._state, rule, placed.label_set):
            return False
        has_keys = all(key in node.labels for key in rule.keys)
        return has_keys and n_staying(self._state, rule, gone) <= 1

    def _for_anti_affinity(self, due: Iterable[Violation], leaving: set[str]) -> EvictionPlan:
        violations = [each for each in due if each.pod.uid not in leaving]
        participants = self._participants(violations, leaving)
        self._tightest = {uid: self._tightest_so_far(uid, each) for uid, each in participants.items()}
        evictions: list[PlannedEviction] = []
        unfixable: list[Violation] = []
        for participant in participants.values():
            if not self._is_movable(participant.placed.pod):
                _let_stay(participant)
        for participant in sorted(participants.values(), key=self._turn):
            if not self._is_movable(participant.placed.pod):
                unfixable += _apply_own_rules(participant)
            elif (broken := _rule_against(participant)) is None:
                _let_stay(participant)
                _apply_own_rules(participant)
            else:
                violation, other = broken
                evictions.append(PlannedEviction(participant.placed.pod, violation, other or violation.pod))
        return EvictionPlan(tuple(evictions), tuple(unfixable))

    def _tightest_so_far(self, uid: str, participant: _Participant) -> tuple[PodSpec, int]:
        spec = participant.placed.pod.spec
        tightest = min((each.most for _, each in participant.declares), default=_UNLIMITED)
        known = self._tightest.get(uid)
        return spec, min(tightest, known[1]) if known is not None and known[0] is spec else tightest

    def _turn(self, participant: _Participant) -> tuple[int, bool, int, str, str]:
        """Return the sort key of visits. Rules of immovable pods apply after all other pods of their priority."""
        pod = participant.placed.pod
        is_movable = self._is_movable(pod)
        tightest = -self._tightest[pod.uid][1] if is_movable else 0
        return -pod.priority, not is_movable, tightest, pod.created, pod.uid

    def _participants(self, violations: Iterable[Violation], leaving: set[str]) -> dict[str, _Participant]:
        """Return every pod that declares one of the broken rules or is selected by one in its domain, by UID."""
        participants: dict[str, _Participant] = {}
        domains: dict[tuple[PodMatcher, str, int], _Domain] = {}
        for violation in violations:
            key, matcher = violation.rule.topology_key, violation.rule.matcher
            domain_id = int(self._state.nodes.column(key).ids[violation.row])
            domain = domains.get((matcher, key, domain_id))
            if domain is None:
                staying = staying_in_domain(self._state, violation)
                members = {placed.pod.uid: placed for placed in staying if placed.pod.uid not in leaving}
                domain = domains[matcher, key, domain_id] = _Domain(members)
                for uid, placed in members.items():
                    participants.setdefault(uid, _Participant(placed)).member_of.append(domain)
            uid = violation.pod.uid
            declaring = participants.setdefault(uid, _Participant(self._state.placed[uid]))
            declaring.declares.append((domain, violation))
        return participants


def _seniority(pod: Pod) -> tuple[int, str, str]:
    """Return the sort key of seniority, most senior first: by priority, then by age."""
    return -pod.priority, pod.created, pod.uid


def _max_staying(domain: _Domain, violation: Violation) -> int:
    """Return the most members that may stay for the rule to hold; the declaring pod counts if it is a member."""
    return violation.most - 1 + (violation.pod.uid in domain.members)


def _rule_against(participant: _Participant) -> tuple[Violation, Pod | None] | None:
    """Return a rule that would not hold if the pod stayed, and a staying member if the rule is the pod's own."""
    uid = participant.placed.pod.uid
    for domain, violation in participant.declares:
        if domain.n_staying + (uid in domain.members) > _max_staying(domain, violation):
            return violation, domain.first
    for domain in participant.member_of:
        if domain.tightest is not None and domain.n_staying + 1 > domain.capacity:
            return domain.tightest, None
    return None


def _let_stay(participant: _Participant) -> None:
    for domain in participant.member_of:
        domain.n_staying += 1
        if domain.first is None:
            domain.first = participant.placed.pod


def _apply_own_rules(participant: _Participant) -> list[Violation]:
    """Limit the pod's domains by its own rules. Return the rules that are broken already; they limit nothing."""
    broken = []
    for domain, violation in participant.declares:
        limit = _max_staying(domain, violation)
        if domain.n_staying > limit:
            broken.append(violation)
        elif limit < domain.capacity:
            domain.capacity, domain.tightest = limit, violation
    return broken
