"""
The required rules that running pods declare, kept so that a look at all of them costs no more than there are rules.

Pods of one label set that declare the same rule share a `Rule`, which knows the rows they are on. Who a rule selects is
one of the state's selections, counted per row there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from scheduler.framework.caching import PerSpec
from scheduler.model.pods import Pod
from scheduler.model.terms import AffinityTerm, usable
from scheduler.state.cluster import ClusterState, PlacedPod
from scheduler.state.declared import declared_matcher
from scheduler.state.matching import PodMatcher, incoming_rule
from scheduler.state.selection import LabelSet, Selection


class Side(Enum):
    """Towards which pods, or away from which."""

    AFFINITY = "affinity"
    ANTI_AFFINITY = "anti-affinity"


@dataclass(frozen=True, slots=True)
class Question:
    """
    What a spec requires of the pods around it.

    Affinity is one question for all terms together, since scheduling wants one pod that matches every term in the
    domain of every key. Anti-affinity is one question a term. Read so that nothing which scheduling let in is broken
    at once: of the two readings that kubernetes 1.36 has of a namespaceSelector, affinity takes the wider one (an
    incoming pod's), anti-affinity the narrower one (a running pod's).
    """

    side: Side
    #: Whether pods are evicted for it; else it only had to hold when the pod was scheduled.
    enforced: bool
    matcher: PodMatcher
    keys: tuple[str, ...]
    #: Selected pods that a domain may have, the declaring pod included. Only of anti-affinity.
    max_pods: int = 1


@dataclass(slots=True, eq=False, weakref_slot=True)
class Rule:
    """A question as the pods of one label set ask it."""

    question: Question
    label_set: LabelSet
    selection: Selection
    #: Pods that declare it, by row. Terminating ones are not among them: they are leaving anyway.
    uids_by_row: dict[int, dict[str, None]] = field(default_factory=dict)
    #: Moves whenever a declaring pod comes or goes.
    version: int = 0

    @property
    def selects_itself(self) -> bool:
        """Whether a pod that declares it is one of those that it selects. Relabelling a namespace can change it."""
        return self.label_set in self.selection.label_sets


class RuleIndex:
    """The rules of all placed pods. Exactly one writer: the Enforcer, after each change of the state."""

    def __init__(self, state: ClusterState, exempt_namespaces: frozenset[str] = frozenset()) -> None:
        self._state = state
        self._exempt = exempt_namespaces
        self._questions = PerSpec(self._asked)
        self._rules: dict[tuple[Question, LabelSet], Rule] = {}
        #: What was indexed of each pod, so that exactly that is taken back.
        self._indexed: dict[str, tuple[PlacedPod, LabelSet, tuple[Rule, ...]]] = {}
        self._uids_by_row: dict[int, dict[str, None]] = {}
        #: Pods that declare an enforced rule and are not terminating.
        self.n_enforced_pods = 0

    def follow(self, uid: str) -> None:
        """The index knows the pod as the state does. O(rules of the pod)."""
        placed = self._state.placed.get(uid)
        known = self._indexed.get(uid)
        if known is not None:
            before, label_set, rules = known
            # A pod that is relabelled stays the same placed one, where nothing else about it changed.
            if before is placed and placed.label_set is label_set:
                return
            self._lift(uid, before, rules)
        if placed is not None:
            self._place(uid, placed)

    def rules(self) -> Iterable[Rule]:
        """Every rule that a placed pod declares."""
        return self._rules.values()

    def on_row(self, row: int) -> Iterator[PlacedPod]:
        """The pods on a row."""
        placed = self._state.placed
        return (placed[uid] for uid in self._uids_by_row.get(row, ()))

    def keep_selections(self) -> None:
        """Selections that only rules use outlive the next sweep of the state. O(rules)."""
        for rule in self._rules.values():
            self._state.selections.selection(rule.question.matcher)

    def _place(self, uid: str, placed: PlacedPod) -> None:
        self._uids_by_row.setdefault(placed.row, {})[uid] = None
        questions = () if placed.pod.terminating else self._questions.of(placed.pod)
        rules = tuple(self._rule(question, placed.label_set) for question in questions)
        self._indexed[uid] = (placed, placed.label_set, rules)
        for rule in rules:
            rule.uids_by_row.setdefault(placed.row, {})[uid] = None
            rule.version += 1
        self.n_enforced_pods += _enforces(rules)

    def _lift(self, uid: str, placed: PlacedPod, rules: tuple[Rule, ...]) -> None:
        del self._indexed[uid]
        _discard(self._uids_by_row, placed.row, uid)
        for rule in rules:
            _discard(rule.uids_by_row, placed.row, uid)
            rule.version += 1
            if not rule.uids_by_row:
                del self._rules[rule.question, rule.label_set]
        self.n_enforced_pods -= _enforces(rules)

    def _rule(self, question: Question, label_set: LabelSet) -> Rule:
        key = (question, label_set)
        rule = self._rules.get(key)
        if rule is None:
            self._state.selections.counted(question.matcher)
            self._state.selections.counted_live(question.matcher)
            selection = self._state.selections.selection(question.matcher)
            rule = self._rules[key] = Rule(question, label_set, selection)
        return rule

    def _asked(self, pod: Pod) -> tuple[Question, ...]:
        """The questions of a spec, each once."""
        affinity = pod.spec.affinity
        near = usable(affinity.required)
        far = () if pod.namespace in self._exempt else usable(affinity.required_anti)
        questions = [self._apart(term) for term in far]
        enforced = tuple(term for term in near if term.enforced)
        if enforced:
            questions.append(_together(enforced, enforced=True))
        if len(enforced) < len(near):
            questions.append(_together(near, enforced=False))
        return tuple(dict.fromkeys(questions))

    def _apart(self, term: AffinityTerm) -> Question:
        matcher = declared_matcher(term, self._exempt)
        return Question(Side.ANTI_AFFINITY, term.enforced, matcher, (term.topology_key,), term.max_pods)


def _together(terms: tuple[AffinityTerm, ...], *, enforced: bool) -> Question:
    matcher = PodMatcher(tuple((incoming_rule(term), term.selector) for term in terms))
    keys = tuple(dict.fromkeys(term.topology_key for term in terms))
    return Question(Side.AFFINITY, enforced, matcher, keys)


def _enforces(rules: Iterable[Rule]) -> bool:
    return any(rule.question.enforced for rule in rules)


def _discard(uids_by_row: dict[int, dict[str, None]], row: int, uid: str) -> None:
    uids = uids_by_row[row]
    del uids[uid]
    if not uids:
        del uids_by_row[row]
