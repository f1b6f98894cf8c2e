"""
Affinity terms that placed pods declare. The rules and scores of inter-pod affinity apply them to incoming pods.

kube-scheduler walks all running pods to find the terms that select an incoming pod. Here equal terms share one entry,
and an incoming pod finds the terms that may select it by its labels and its namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from scheduler.engine.model.pods import PodSpec
from scheduler.engine.model.terms import AffinityTerm, DomainLimit, TermList, usable
from scheduler.engine.state.columns import LabelColumn, PerDomain
from scheduler.engine.state.label_sets import LabelSet, LabelSets
from scheduler.engine.state.matching import NamespaceRule, PodMatcher, declared_rule
from scheduler.engine.state.rule_guard import not_for_rules, refuse_rule
from scheduler.engine.state.sparse_dicts import add_count, discard_entry
from scheduler.engine.state.term_table import TermTable


class TermKind(Enum):
    """The list of a pod's affinity that declares the term."""

    REQUIRED = "required affinity"
    REQUIRED_ANTI = "required anti-affinity"
    PREFERRED = "preferred affinity"
    PREFERRED_ANTI = "preferred anti-affinity"


class TermKey(NamedTuple):
    """
    The identity of a declared term: pods with an equal key share one `ExistingPodTerm`.

    `max_pods`: see `AffinityTerm`; in a domain with a declaring pod. `selects_itself`: whether the term selects the
    pod that declares it; always False if `max_pods` is 1, where it makes no difference. `yields`, `by_annotation`: as
    those of `AffinityTerm`; only for required anti-affinity.
    """

    kind: TermKind
    matcher: PodMatcher
    topology_key: str
    weight: int = 0
    max_pods: DomainLimit = 1
    selects_itself: bool = False
    yields: bool = False
    by_annotation: bool = False


#: A term that names more namespaces has the anchor None: to match it with each label set costs 2 µs, to enter it under
#: 50,000 names 60 ms.
MAX_ANCHORS = 1024
#: How many terms `keeps_apart` looks at, so that one tenant's terms do not slow down every change of a node.
MAX_ASKED = 1024
#: The index is rebuilt, 10 µs for each term, if few terms are left: this many, of this many times as many.
_FEW_LEFT: Final = 500
_SHRINKS_AT: Final = 8
_NOWHERE: Final[dict[int, int]] = {}


@dataclass(slots=True, eq=False)
class ExistingPodTerm:
    """One distinct term, and how many pods on each row declare it."""

    key: TermKey
    #: Its id in the `TermTable`, which limiting terms are not in.
    number: int = -1
    #: Not to be written to, since terms share it: most are declared by a single pod.
    pods_by_row: dict[int, int] = field(default_factory=lambda: _NOWHERE)

    @property
    def is_forbidding(self) -> bool:
        """Whether it keeps every selected pod out of a domain with a declaring pod."""
        return self.key.kind is TermKind.REQUIRED_ANTI and self.key.max_pods == 1

    @property
    def is_limiting(self) -> bool:
        """Whether it is anti-affinity with maxPodsPerDomain above 1, or with a share."""
        return self.key.max_pods != 1


_ByAnchor = dict[Hashable, dict[ExistingPodTerm, None]]
_NOBODY: Final = PodMatcher(())


class ExistingTerms:
    """All terms that at least one placed pod declares. Exactly one writer: ClusterState."""

    def __init__(
        self,
        label_sets: LabelSets,
        exempt_namespaces: frozenset[str],
        annotating: NamespaceRule,
        *,
        is_read: bool,
    ) -> None:
        """`annotating`: the namespaces whose annotations may be about other namespaces. `is_read`: keep any terms."""
        self._is_read = is_read
        self._label_sets = label_sets
        self._annotating = annotating
        self._exempt_namespaces = exempt_namespaces
        self._terms: dict[TermKey, ExistingPodTerm] = {}
        #: By row: one pod there and none elsewhere.
        self._alone_on: dict[int, dict[int, int]] = {}
        #: Terms by anchor, which a label set must have to be selected: a (key, value) label, else a namespace, else
        #: None for terms that require neither. Those with maxPodsPerDomain above 1 are kept apart.
        self._by_anchor: _ByAnchor = {}
        self._limiting_by_anchor: _ByAnchor = {}
        self._table = TermTable()
        #: A term without a selector for each effect in the table: its kind, weight, and `by_annotation`.
        self._effects: dict[tuple[TermKind, int, bool], int] = {}
        self._effect_terms: list[ExistingPodTerm] = []
        #: Terms with maxPodsPerDomain above 1.
        self.n_limiting = 0
        #: Required anti-affinity by annotation, which autoscalers do not see.
        self.n_by_annotation = 0
        #: The terms that pods of a spec declare, unless they depend on the pod's labels too.
        self._by_spec: WeakKeyDictionary[PodSpec, tuple[ExistingPodTerm, ...]] = WeakKeyDictionary()

    def __iter__(self) -> Iterator[ExistingPodTerm]:
        return iter(self._terms.values())

    def may_cross(self, namespace: str) -> bool:
        """Return whether annotations of the namespace's pods may be about other namespaces."""
        return self._annotating.covers(namespace, self._label_sets.namespace_labels.get(namespace))

    def counting(self, terms: TermList, namespace: str) -> tuple[AffinityTerm, ...]:
        """Return the terms of a list that count, declared in this namespace; none if the list does not parse."""
        its = usable(terms)
        if not any(term.crosses_by_annotation for term in its) or self.may_cross(namespace):
            return its
        return tuple(term for term in its if not term.crosses_by_annotation)

    def get(self, key: TermKey) -> ExistingPodTerm | None:
        """Return the term of the key, None if no placed pod declares it."""
        return self._terms.get(key)

    def add(self, label_set: LabelSet, spec: PodSpec, row: int) -> tuple[ExistingPodTerm, ...]:
        """Count a pod that came to the row. Return the terms that it declares, for `remove`. O(terms of the spec)."""
        declared = self._by_spec.get(spec)
        if declared != ():
            refuse_rule("add")
        if declared is None or not all(term.pods_by_row for term in declared):
            declared = tuple(self._term(key) for key in self.keys(label_set, spec))
            if not has_limits(spec):
                self._by_spec[spec] = declared
        for term in declared:
            term.pods_by_row = self._counted(term.pods_by_row, row, 1)
        self._declare(declared, row, 1)
        return declared

    @not_for_rules
    def forget_spec(self, spec: PodSpec) -> None:
        """Forget which terms pods of the spec declare, since labels of its namespace changed."""
        self._by_spec.pop(spec, None)

    def remove(self, declared: Sequence[ExistingPodTerm], row: int) -> None:
        """Subtract a pod that declared these terms and left the row."""
        if declared:
            refuse_rule("remove")
        self._declare(declared, row, -1)
        for term in declared:
            term.pods_by_row = self._counted(term.pods_by_row, row, -1)
            if not term.pods_by_row and self._terms.pop(term.key, None) is not None:
                self._drop(term)

    @not_for_rules
    def sweep(self) -> None:
        """Rebuild the index if few terms are left of many, to free their memory."""
        n_terms = len(self._terms)
        if n_terms > _FEW_LEFT or self._table.n_ids <= _SHRINKS_AT * _FEW_LEFT:
            return
        self._table, terms = TermTable(), self._terms
        self._terms, self._by_anchor, self._limiting_by_anchor = {}, {}, {}
        for key, term in terms.items():
            self._terms[key] = term
            self._enter(term)
            for row, n_pods in term.pods_by_row.items():
                self._declare((term,), row, n_pods)

    @not_for_rules
    def selecting(self, label_set: LabelSet) -> Iterator[ExistingPodTerm]:
        """Yield the terms that select pods of the label set. O(terms that may)."""
        return (
            term
            for limiting in (False, True)
            for term in self.may_select(label_set, limiting=limiting)
            if self._label_sets.matches(term.key.matcher, label_set)
        )

    def keeps_apart(self, label_set: LabelSet, keys: Collection[str]) -> bool:
        """
        Return whether a required anti-affinity term by one of these topology keys selects pods of the label set.

        True if more than `MAX_ASKED` terms may select them, so that the cost is bounded.
        """
        for n_asked, term in enumerate(
            chain.from_iterable(self.may_select(label_set, limiting=limiting) for limiting in (False, True))
        ):
            if n_asked == MAX_ASKED:
                return True
            key = term.key
            is_named = key.kind is TermKind.REQUIRED_ANTI and key.topology_key in keys
            if is_named and self._label_sets.matches(key.matcher, label_set):
                return True
        return False

    def may_select(self, label_set: LabelSet, *, limiting: bool) -> Iterator[ExistingPodTerm]:
        """Yield the terms, limiting or all others, that require one of the labels, name the namespace, or neither."""
        by_anchor = self._limiting_by_anchor if limiting else self._by_anchor
        return chain.from_iterable(by_anchor.get(anchor, ()) for anchor in _anchors_of(label_set))

    def n_may_select(self, label_set: LabelSet) -> int:
        """Return the number of terms that `may_select` yields, limiting ones left out. O(labels)."""
        return sum(len(self._by_anchor.get(anchor, ())) for anchor in _anchors_of(label_set))

    def alike(self, label_set: LabelSet) -> LabelSet:
        """Return the label set without labels that no term reads: the same terms select it, limiting ones left out."""
        return self._label_sets.of(label_set.namespace, self._table.read(label_set.labels))

    def sums(
        self,
        label_set: LabelSet,
        weight_of: Callable[[ExistingPodTerm], int],
        columns_of: Callable[[Collection[str]], Mapping[str, LabelColumn]],
        n_rows: int,
    ) -> dict[str, PerDomain]:
        """
        Return the weighted sums of the terms that select the label set, by topology key; limiting ones are left out.

        `weight_of` reads a term's kind, weight and `by_annotation`. `columns_of` and cost: see `TermTable.sums`.
        """
        is_exempt = label_set.namespace in self._exempt_namespaces
        weights = [
            0 if is_exempt and term.key.kind is TermKind.REQUIRED_ANTI else weight_of(term)
            for term in self._effect_terms
        ]
        if not any(weights):
            return {}
        labels = self._label_sets.namespace_labels.get(label_set.namespace)
        return self._table.sums(label_set, labels, np.array(weights, dtype=np.int64), columns_of, n_rows)

    def keys(self, label_set: LabelSet, spec: PodSpec) -> Iterator[TermKey]:
        """Yield the key of each term that the pod declares; a list of terms that does not parse declares none."""
        if not self._is_read:
            return
        affinity, namespace = spec.affinity, spec.namespace
        for term in self.counting(affinity.required, namespace):
            yield TermKey(TermKind.REQUIRED, declared_matcher(term), term.topology_key)
        # Pods of exempt namespaces neither declare required anti-affinity nor are selected by it.
        if namespace not in self._exempt_namespaces:
            # A term that stands twice is declared once: what counts is how many pods declare it.
            for term in dict.fromkeys(self.counting(affinity.required_anti, namespace)):
                key = self._anti_key(term)
                selects_itself = term.is_limiting and self._label_sets.matches(key.matcher, label_set)
                yield key._replace(selects_itself=selects_itself) if selects_itself else key
        for term in self.counting(affinity.preferred, namespace):
            yield TermKey(TermKind.PREFERRED, declared_matcher(term), term.topology_key, term.weight)
        for term in self.counting(affinity.preferred_anti, namespace):
            # Shares only steer pods that come: by a share, a running pod prefers nothing.
            if not term.is_limiting:
                yield TermKey(TermKind.PREFERRED_ANTI, declared_matcher(term), term.topology_key, term.weight)

    def gives_way(self, key: TermKey, spec: PodSpec) -> bool:
        """Return whether the declared term does not count against pods of the spec. O(its relaxed terms)."""
        if key.by_annotation and spec.ignores_annotations:
            return True
        plain = key._replace(selects_itself=False)
        return key.yields and any(self._anti_key(term) == plain for term in spec.relaxed_anti)

    def yielding_to(self, spec: PodSpec) -> Iterator[ExistingPodTerm]:
        """Yield the anti-affinity terms of placed pods that give way to pods of the spec. O(its relaxed terms)."""
        for term in spec.relaxed_anti:
            key = self._anti_key(term)
            for known_key in (key, key._replace(selects_itself=True)):
                if (existing := self._terms.get(known_key)) is not None:
                    yield existing

    def _counted(self, pods_by_row: dict[int, int], row: int, delta: int) -> dict[int, int]:
        """Return the counts with `delta` more at the row: a copy, or if they have several rows the same object."""
        counts = pods_by_row if len(pods_by_row) > 1 else {**pods_by_row}
        if not add_count(counts, row, delta) and not counts:
            return _NOWHERE
        is_alone = len(counts) == 1 and 1 in counts.values()
        return self._alone_on.setdefault(next(iter(counts)), counts) if is_alone else counts

    def _anti_key(self, term: AffinityTerm) -> TermKey:
        return TermKey(
            TermKind.REQUIRED_ANTI,
            declared_matcher(term, self._exempt_namespaces),
            term.topology_key,
            max_pods=term.max_pods,
            yields=term.yields,
            by_annotation=term.by_annotation,
        )

    def _term(self, key: TermKey) -> ExistingPodTerm:
        term = self._terms.get(key)
        if term is None:
            term = self._terms[key] = ExistingPodTerm(key)
            self.n_limiting += term.is_limiting
            self.n_by_annotation += key.by_annotation
            self._enter(term)
        return term

    def _enter(self, term: ExistingPodTerm) -> None:
        """Enter the term into the table and under its anchors."""
        key = term.key
        if not term.is_limiting:
            ((rule, selector),) = key.matcher.parts
            term.number = self._table.add(rule, selector, key.topology_key, self._effect(key))
        by_anchor = self._limiting_by_anchor if term.is_limiting else self._by_anchor
        for anchor in _anchors(key.matcher):
            by_anchor.setdefault(anchor, {})[term] = None

    def _drop(self, term: ExistingPodTerm) -> None:
        self.n_limiting -= term.is_limiting
        self.n_by_annotation -= term.key.by_annotation
        if not term.is_limiting:
            self._table.remove(term.number)
        by_anchor = self._limiting_by_anchor if term.is_limiting else self._by_anchor
        for anchor in _anchors(term.key.matcher):
            discard_entry(by_anchor, anchor, term)

    def _effect(self, key: TermKey) -> int:
        what = (key.kind, key.weight, key.by_annotation)
        effect = self._effects.setdefault(what, len(self._effect_terms))
        if effect == len(self._effect_terms):
            alike = TermKey(key.kind, _NOBODY, "", key.weight, by_annotation=key.by_annotation)
            self._effect_terms.append(ExistingPodTerm(alike))
        return effect

    def _declare(self, declared: Sequence[ExistingPodTerm], row: int, delta: int) -> None:
        numbers = [term.number for term in declared if not term.is_limiting]
        if numbers:
            self._table.declare(np.array(numbers, dtype=np.intp), row, delta)


def _anchors_of(label_set: LabelSet) -> tuple[Hashable, ...]:
    return (*label_set.labels.items(), label_set.namespace, None)


def has_limits(spec: PodSpec) -> bool:
    """Return whether a term of the spec has maxPodsPerDomain above 1. Its key then depends on the pod's labels too."""
    return any(term.is_limiting for term in usable(spec.affinity.required_anti))


def declared_matcher(term: AffinityTerm, exempt: frozenset[str] = frozenset()) -> PodMatcher:
    """Return the matcher of the pods that a running pod's term selects."""
    return PodMatcher(((declared_rule(term), term.selector),), exempt)


def _anchors(matcher: PodMatcher) -> Iterable[Hashable]:
    """Return anchors (labels, namespaces, or None); every selected label set has at least one of them."""
    anchor = matcher.anchor()
    if anchor is not None:
        key, values = anchor
        return [(key, value) for value in values]
    names = matcher.named_namespaces()
    return [None] if names is None or len(names) > MAX_ANCHORS else list(names)
