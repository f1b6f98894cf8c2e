"""
The required affinity rules of running pods, indexed so that a check of all costs O(rules).

Pods with the same labels that declare the same rule share one `Rule`. The pods that a rule selects are one of the
state's selections, which the state counts per node row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import NamedTuple
from weakref import WeakValueDictionary

from scheduler.engine.framework.memo import MemoBySpec
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.terms import AffinityTerm, DomainLimit, usable
from scheduler.engine.state.cluster import ClusterState, PlacedPod
from scheduler.engine.state.existing_terms import declared_matcher
from scheduler.engine.state.label_sets import LabelSet, LabelSets
from scheduler.engine.state.matching import PodMatcher, incoming_rule


class Side(Enum):
    """Whether a rule is affinity or anti-affinity."""

    AFFINITY = "affinity"
    ANTI_AFFINITY = "anti-affinity"


@dataclass(frozen=True, slots=True)
class RuleSpec:
    """
    A required rule as a pod's spec states it.

    All affinity terms together are one rule, since scheduling needs one pod that matches them all. Each anti-affinity
    term is a separate rule. Kubernetes 1.36 reads a namespaceSelector in two ways. Affinity uses the wider one, of an
    incoming pod, and anti-affinity the narrower one, of a running pod, so that no placement breaks a rule at once.
    """

    side: Side
    #: Whether pods are evicted for it. Otherwise it only had to hold when the pod was scheduled.
    enforced: bool
    matcher: PodMatcher
    keys: tuple[str, ...]
    #: Anti-affinity only: as `AffinityTerm`.
    max_pods: DomainLimit = 1
    #: Anti-affinity only: as `AffinityTerm`.
    yields: bool = False
    by_annotation: bool = False


@dataclass(slots=True, eq=False, weakref_slot=True)
class RelaxedPods:
    """The pods that have relaxed one anti-affinity rule, and their rows: the rule yields to them."""

    row_by_uid: dict[str, int] = field(default_factory=dict)
    #: Changes whenever such a pod comes or goes.
    version: int = 0


@dataclass(slots=True, eq=False, weakref_slot=True)
class Rule:
    """A rule, and the pods with one set of labels that declare it."""

    spec: RuleSpec
    label_set: LabelSet
    label_sets: LabelSets
    #: Shared by all rules of an equal spec.
    relaxed: RelaxedPods
    #: UIDs of the declaring pods by row, without terminating pods.
    uids_by_row: dict[int, dict[str, None]] = field(default_factory=dict)
    #: Changes whenever a declaring pod comes or goes.
    version: int = 0

    @property
    def selects_itself(self) -> bool:
        """Whether the rule selects the pods that declare it. A namespace's labels can change that."""
        return self.selects(self.label_set)

    def selects(self, label_set: LabelSet) -> bool:
        """Return whether the rule selects the pods with these labels."""
        return self.label_sets.matches(self.spec.matcher, label_set)


class _Indexed(NamedTuple):
    """The entries of the index that one pod adds."""

    placed: PlacedPod
    label_set: LabelSet
    terminating: bool
    rules: tuple[Rule, ...]
    relaxed: tuple[RelaxedPods, ...]


class RuleIndex:
    """The rules of all placed pods. Its one writer, the Enforcer, updates it after each change of the state."""

    def __init__(self, state: ClusterState, exempt_namespaces: frozenset[str] = frozenset()) -> None:
        self._state = state
        self._exempt_namespaces = exempt_namespaces
        #: By whether the pod's namespace may cross by annotation.
        self._specs_by_pod_spec = {
            may_cross: MemoBySpec(partial(self._specs_of, may_cross=may_cross)) for may_cross in (False, True)
        }
        #: Pods with terms that count only if their namespace may cross, by namespace.
        self._crossing: dict[str, set[str]] = {}
        self._rules: dict[tuple[RuleSpec, LabelSet], Rule] = {}
        #: As long as a rule or a pod refers to it.
        self._relaxed: WeakValueDictionary[RuleSpec, RelaxedPods] = WeakValueDictionary()
        #: What `_add` indexed for each pod, for `_remove`.
        self._indexed: dict[str, _Indexed] = {}
        #: Pods with an enforced rule that are not terminating, by namespace.
        self.n_enforced_by_namespace: Counter[str] = Counter()

    @property
    def n_enforced_pods(self) -> int:
        """Pods with an enforced rule that are not terminating."""
        return self.n_enforced_by_namespace.total()

    def sync_pod(self, uid: str) -> None:
        """Update the index after a change of the pod in the state. O(rules of the pod)."""
        placed = self._state.placed.get(uid)
        known = self._indexed.get(uid)
        if known is not None:
            # New labels and a termination change the same PlacedPod.
            if (
                known.placed is placed
                and known.label_set is placed.label_set
                and known.terminating == placed.pod.terminating
            ):
                return
            self._remove(uid, known)
        if placed is not None:
            self._add(uid, placed)

    def sync_namespace(self, name: str) -> None:
        """Update the index after a change of the namespace's labels. O(its pods that need them)."""
        for uid in list(self._crossing.get(name, ())):
            known = self._indexed[uid]
            self._remove(uid, known)
            self._add(uid, known.placed)

    def rules(self) -> Iterable[Rule]:
        """Return the rules of all placed pods."""
        return self._rules.values()

    def _add(self, uid: str, placed: PlacedPod) -> None:
        pod = placed.pod
        specs_by_pod_spec = self._specs_by_pod_spec[self._state.terms.may_cross(pod.namespace)]
        specs = () if pod.terminating else specs_by_pod_spec.of(pod)
        if pod.spec.affinity.crosses_by_annotation():
            self._crossing.setdefault(pod.namespace, set()).add(uid)
        rules = tuple(self._rule(spec, placed.label_set) for spec in specs)
        relaxed_specs = () if pod.terminating else map(self._anti_affinity_spec, pod.spec.relaxed_anti)
        relaxed = tuple(map(self._shared, relaxed_specs))
        self._indexed[uid] = _Indexed(placed, placed.label_set, pod.terminating, rules, relaxed)
        for pods in relaxed:
            pods.row_by_uid[uid] = placed.row
            pods.version += 1
        for rule in rules:
            rule.uids_by_row.setdefault(placed.row, {})[uid] = None
            rule.version += 1
        if _enforces(rules):
            self.n_enforced_by_namespace[pod.namespace] += 1

    def _remove(self, uid: str, known: _Indexed) -> None:
        placed, rules = known.placed, known.rules
        del self._indexed[uid]
        for pods in known.relaxed:
            pods.row_by_uid.pop(uid, None)
            pods.version += 1
        if (crossing := self._crossing.get(placed.pod.namespace)) is not None:
            crossing.discard(uid)
            if not crossing:
                del self._crossing[placed.pod.namespace]
        for rule in rules:
            _discard(rule.uids_by_row, placed.row, uid)
            rule.version += 1
            if not rule.uids_by_row:
                del self._rules[rule.spec, rule.label_set]
        if _enforces(rules):
            self.n_enforced_by_namespace -= Counter((placed.pod.namespace,))

    def _rule(self, spec: RuleSpec, label_set: LabelSet) -> Rule:
        key = (spec, label_set)
        rule = self._rules.get(key)
        if rule is None:
            relaxed = self._shared(spec)
            rule = self._rules[key] = Rule(spec, label_set, self._state.label_sets, relaxed)
        return rule

    def _shared(self, spec: RuleSpec) -> RelaxedPods:
        relaxed = self._relaxed.get(spec)
        if relaxed is None:
            relaxed = self._relaxed[spec] = RelaxedPods()
        return relaxed

    def _specs_of(self, pod: Pod, *, may_cross: bool) -> tuple[RuleSpec, ...]:
        """Return the rules of the pod's spec that count, each once."""
        affinity = pod.spec.affinity
        required, required_anti = (
            tuple(term for term in usable(terms) if may_cross or not term.crosses_by_annotation)
            for terms in (affinity.required, affinity.required_anti)
        )
        if pod.namespace in self._exempt_namespaces:
            required_anti = ()
        specs = [self._anti_affinity_spec(term) for term in required_anti]
        enforced = tuple(term for term in required if term.enforced)
        if enforced:
            specs.append(_affinity_spec(enforced, enforced=True))
        if len(enforced) < len(required):
            specs.append(_affinity_spec(required, enforced=False))
        return tuple(dict.fromkeys(specs))

    def _anti_affinity_spec(self, term: AffinityTerm) -> RuleSpec:
        matcher = declared_matcher(term, self._exempt_namespaces)
        return RuleSpec(
            Side.ANTI_AFFINITY,
            term.enforced,
            matcher,
            (term.topology_key,),
            term.max_pods,
            term.yields,
            term.by_annotation,
        )


def _affinity_spec(terms: tuple[AffinityTerm, ...], *, enforced: bool) -> RuleSpec:
    matcher = PodMatcher(tuple((incoming_rule(term), term.selector) for term in terms))
    keys = tuple(dict.fromkeys(term.topology_key for term in terms))
    return RuleSpec(Side.AFFINITY, enforced, matcher, keys)


def _enforces(rules: Iterable[Rule]) -> bool:
    return any(rule.spec.enforced for rule in rules)


def _discard(uids_by_row: dict[int, dict[str, None]], row: int, uid: str) -> None:
    uids = uids_by_row[row]
    del uids[uid]
    if not uids:
        del uids_by_row[row]
