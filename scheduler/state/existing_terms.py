"""
Affinity terms that placed pods declare. The rules and scores of inter-pod affinity apply them to incoming pods.

kube-scheduler walks all running pods to find the terms that select an incoming pod. Here equal terms share one entry,
and an incoming pod finds the terms that may select it by its labels and its namespace.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain
from typing import NamedTuple
from weakref import WeakKeyDictionary

from scheduler.model.pods import PodSpec
from scheduler.model.terms import AffinityTerm, usable
from scheduler.state.label_sets import LabelSet, LabelSets
from scheduler.state.matching import PodMatcher, declared_rule


class TermKind(Enum):
    """The list of a pod's affinity that declares the term."""

    REQUIRED = "required affinity"
    REQUIRED_ANTI = "required anti-affinity"
    PREFERRED = "preferred affinity"
    PREFERRED_ANTI = "preferred anti-affinity"


class TermKey(NamedTuple):
    """
    The identity of a declared term: pods with an equal key share one `ExistingPodTerm`.

    `max_pods`: the most selected pods of a domain with a declaring pod. `selects_itself`: whether the term selects the
    pod that declares it; always False if `max_pods` is 1, where it makes no difference.
    """

    kind: TermKind
    matcher: PodMatcher
    topology_key: str
    weight: int = 0
    max_pods: int = 1
    selects_itself: bool = False


#: A term that names more namespaces has the anchor None: to match it with each label set costs 2 µs, to enter it under
#: 50,000 names 60 ms.
MAX_ANCHORS = 1024
#: How many terms `keeps_apart` looks at, so that one tenant's terms do not slow down every change of a node.
MAX_ASKED = 1024


@dataclass(slots=True, eq=False)
class ExistingPodTerm:
    """One distinct term, and how many pods on each row declare it."""

    key: TermKey
    pods_by_row: dict[int, int] = field(default_factory=dict)

    @property
    def is_forbidding(self) -> bool:
        """Whether it keeps every selected pod out of a domain with a declaring pod."""
        return self.key.kind is TermKind.REQUIRED_ANTI and self.key.max_pods == 1

    @property
    def is_limiting(self) -> bool:
        """Whether it is anti-affinity with maxPodsPerDomain above 1."""
        return self.key.max_pods > 1

    def add(self, row: int, delta: int) -> None:
        """Add `delta` to the number of declaring pods on the row. O(1)."""
        count = self.pods_by_row.get(row, 0) + delta
        if count:
            self.pods_by_row[row] = count
        else:
            del self.pods_by_row[row]


class ExistingTerms:
    """All terms that at least one placed pod declares. Exactly one writer: ClusterState."""

    def __init__(self, label_sets: LabelSets, exempt_namespaces: frozenset[str] = frozenset()) -> None:
        self._label_sets = label_sets
        self._exempt_namespaces = exempt_namespaces
        self._terms: dict[TermKey, ExistingPodTerm] = {}
        #: Terms by anchor, which a label set must have to be selected: a (key, value) label, else a namespace, else
        #: None for terms that require neither.
        self._by_anchor: dict[Hashable, dict[ExistingPodTerm, None]] = {}
        #: Terms with maxPodsPerDomain above 1.
        self.n_limiting = 0
        #: The terms that pods of a spec declare, unless they depend on the pod's labels too.
        self._by_spec: WeakKeyDictionary[PodSpec, tuple[ExistingPodTerm, ...]] = WeakKeyDictionary()

    def __iter__(self) -> Iterator[ExistingPodTerm]:
        return iter(self._terms.values())

    def get(self, key: TermKey) -> ExistingPodTerm | None:
        """Return the term of the key, None if no placed pod declares it."""
        return self._terms.get(key)

    def add(self, label_set: LabelSet, spec: PodSpec, row: int) -> tuple[ExistingPodTerm, ...]:
        """Count a pod that came to the row. Return the terms that it declares, for `remove`. O(terms of the spec)."""
        declared = self._by_spec.get(spec)
        if declared is None or not all(term.pods_by_row for term in declared):
            declared = tuple(self._term(key) for key in self.keys(label_set, spec))
            if not has_limits(spec):
                self._by_spec[spec] = declared
        for term in declared:
            term.add(row, 1)
        return declared

    def remove(self, declared: Iterable[ExistingPodTerm], row: int) -> None:
        """Subtract a pod that declared these terms and left the row."""
        for term in declared:
            term.add(row, -1)
            if not term.pods_by_row and self._terms.pop(term.key, None) is not None:
                self.n_limiting -= term.is_limiting
                for anchor in _anchors(term.key.matcher):
                    terms = self._by_anchor[anchor]
                    del terms[term]
                    if not terms:
                        del self._by_anchor[anchor]

    def selecting(self, label_set: LabelSet) -> Iterator[ExistingPodTerm]:
        """Yield the terms that select pods of the label set. O(terms that may), 2 µs each."""
        return (
            term
            for term in self.may_select(label_set)
            if self._label_sets.matches(term.key.matcher, label_set)
        )

    def keeps_apart(self, label_set: LabelSet, keys: Collection[str]) -> bool:
        """
        Return whether a required anti-affinity term by one of these topology keys selects pods of the label set.

        True if more than `MAX_ASKED` terms may select them, so that the cost is at most 2 ms.
        """
        for n_asked, term in enumerate(self.may_select(label_set)):
            if n_asked == MAX_ASKED:
                return True
            key = term.key
            is_named = key.kind is TermKind.REQUIRED_ANTI and key.topology_key in keys
            if is_named and self._label_sets.matches(key.matcher, label_set):
                return True
        return False

    def may_select(self, label_set: LabelSet) -> Iterator[ExistingPodTerm]:
        """Yield the terms that require one of the labels, name the namespace, or require neither."""
        anchors: tuple[Hashable, ...] = (*label_set.labels.items(), label_set.namespace, None)
        return chain.from_iterable(self._by_anchor.get(anchor, ()) for anchor in anchors)

    def keys(self, label_set: LabelSet, spec: PodSpec) -> Iterator[TermKey]:
        """Yield the key of each term that the pod declares; a list of terms that does not parse declares none."""
        affinity = spec.affinity
        for term in usable(affinity.required):
            yield TermKey(TermKind.REQUIRED, declared_matcher(term), term.topology_key)
        # Pods of exempt namespaces neither declare required anti-affinity nor are selected by it.
        if spec.namespace not in self._exempt_namespaces:
            for term in usable(affinity.required_anti):
                matcher = declared_matcher(term, self._exempt_namespaces)
                selects_itself = term.max_pods > 1 and self._label_sets.matches(matcher, label_set)
                yield TermKey(
                    TermKind.REQUIRED_ANTI, matcher, term.topology_key, 0, term.max_pods, selects_itself
                )
        for term in usable(affinity.preferred):
            yield TermKey(TermKind.PREFERRED, declared_matcher(term), term.topology_key, term.weight)
        for term in usable(affinity.preferred_anti):
            yield TermKey(TermKind.PREFERRED_ANTI, declared_matcher(term), term.topology_key, term.weight)

    def _term(self, key: TermKey) -> ExistingPodTerm:
        term = self._terms.get(key)
        if term is None:
            term = self._terms[key] = ExistingPodTerm(key)
            self.n_limiting += term.is_limiting
            for anchor in _anchors(key.matcher):
                self._by_anchor.setdefault(anchor, {})[term] = None
        return term


def has_limits(spec: PodSpec) -> bool:
    """Return whether a term of the spec has maxPodsPerDomain above 1. Its key then depends on the pod's labels too."""
    return any(term.max_pods > 1 for term in usable(spec.affinity.required_anti))


def declared_matcher(term: AffinityTerm, exempt: frozenset[str] = frozenset()) -> PodMatcher:
    """Return the matcher of the pods that a running pod's term selects."""
    return PodMatcher(((declared_rule(term), term.selector),), exempt)


def _anchors(matcher: PodMatcher) -> Iterable[Hashable]:
    """Return anchors, at least one of which every selected label set has: labels, namespaces, or None."""
    anchor = matcher.anchor()
    if anchor is not None:
        key, values = anchor
        return [(key, value) for value in values]
    names = matcher.named_namespaces()
    return [None] if names is None or len(names) > MAX_ANCHORS else list(names)
