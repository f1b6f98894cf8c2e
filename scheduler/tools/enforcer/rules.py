"""The running pods that declare required affinity rules, indexed so that a check need not look at all pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterator
from typing import NamedTuple

from scheduler.engine.model.pods import MemoBySpec, Pod, PodSpec
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.label_sets import LabelSet
from scheduler.engine.state.sparse_dicts import discard_entry
from scheduler.tools.explain.declared_rules import (
    DeclaredRule,
    affinity_rule,
    anti_affinity_rule,
    relaxed_rules_of,
)

_Rules = tuple[DeclaredRule, ...]


class Alike(NamedTuple):
    """Pods of equal spec and labels, the rules that they declare, and those that they have relaxed."""

    rules: _Rules
    relaxed: _Rules
    label_set: LabelSet
    uids: Collection[str]


class RuleIndex:
    """Pods with rules, without terminating ones. Its one writer, the Enforcer, updates it after each change."""

    def __init__(self, state: ClusterState, exempt_namespaces: frozenset[str] = frozenset()) -> None:
        self._state = state
        self._exempt_namespaces = exempt_namespaces
        #: By whether annotations of the pod's namespace may be about others.
        self._rules = {may_cross: MemoBySpec(self._rules_of) for may_cross in (False, True)}
        #: UIDs by what the pods have in common, and that by UID.
        self._alike: dict[tuple[PodSpec, LabelSet], dict[str, None]] = {}
        self._key_of: dict[str, tuple[PodSpec, LabelSet]] = {}
        #: What `violations` last read of each rule that held then: it looks again once that differs.
        self.holding: dict[DeclaredRule, Hashable] = {}

    def sync_pod(self, uid: str) -> None:
        """Update the index after a change of the pod in the state. O(1)."""
        if (known := self._key_of.pop(uid, None)) is not None:
            discard_entry(self._alike, known, uid)
        placed = self._state.placed.get(uid)
        if placed is None or placed.pod.terminating:
            return
        spec = placed.pod.spec
        if spec.affinity.required or spec.affinity.required_anti or spec.relaxed_anti:
            key = self._key_of[uid] = (spec, placed.label_set)
            self._alike.setdefault(key, {})[uid] = None

    def alike(self) -> Iterator[Alike]:
        """Yield all pods, those of equal spec and labels at once. 1 µs each time."""
        for (spec, label_set), uids in self._alike.items():
            pod = self._state.placed[next(iter(uids))].pod
            rules, relaxed = self._rules[self._state.terms.may_cross(spec.namespace)].of(pod)
            yield Alike(rules, relaxed, label_set, uids)

    def n_enforced(self) -> Counter[str]:
        """Return the number of pods with an enforced rule, by namespace. O(specs and labels that pods share)."""
        n_pods: Counter[str] = Counter()
        for alike in self.alike():
            if any(rule.enforced for rule in alike.rules):
                n_pods[alike.label_set.namespace] += len(alike.uids)
        return n_pods

    def _rules_of(self, pod: Pod) -> tuple[_Rules, _Rules]:
        """Return the rules that count, each once, and the relaxed ones. Enforced affinity is a rule of its own."""
        spec, counting = pod.spec, self._state.terms.counting
        is_exempt = spec.namespace in self._exempt_namespaces
        apart = () if is_exempt else counting(spec.affinity.required_anti, spec.namespace)
        rules = [anti_affinity_rule(term, self._exempt_namespaces) for term in apart]
        required = counting(spec.affinity.required, spec.namespace)
        enforced = tuple(term for term in required if term.enforced)
        rules += [affinity_rule(terms) for terms in (enforced, required) if terms]
        relaxed = relaxed_rules_of(pod, self._exempt_namespaces)
        return tuple(dict.fromkeys(rules)), tuple(dict.fromkeys(relaxed))
