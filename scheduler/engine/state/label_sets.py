"""
Label sets, the distinct (namespace, labels) of pods, and which of them a selector selects.

Pods are counted by label set, so that a selector is evaluated once per label set and not once per pod.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from scheduler.engine.state.arrays import Mask
from scheduler.engine.state.matching import NamespaceRule, PodMatcher
from scheduler.engine.state.sparse_dicts import discard_member
from scheduler.engine.syntax.selectors import Requirement

#: Sweeps that a label set survives unused.
_UNUSED_SWEEPS: Final = 2
#: Label sets that a piece of a sweep looks at.
_SWEPT_AT_ONCE: Final = 500


@dataclass(slots=True, eq=False, weakref_slot=True)
class LabelSet:
    """
    One distinct (namespace, labels).

    `number`: from 1; reused after the label set is dropped. `n_pods`: placed pods that have it. `used_at`: how many
    sweeps had run when the label set was last asked for.
    """

    namespace: str
    labels: Mapping[str, str]
    number: int
    n_pods: int = 0
    used_at: int = 0


class LabelSets:
    """Every label set in use, and the labels of namespaces. Exactly one writer: ClusterState."""

    def __init__(self) -> None:
        self.namespace_labels: dict[str, Mapping[str, str]] = {}
        self._by_labels: dict[tuple[str, frozenset[tuple[str, str]]], LabelSet] = {}
        self._by_pair: dict[tuple[str, str], set[LabelSet]] = {}
        self._by_namespace: dict[str, set[LabelSet]] = {}
        self._by_key: dict[str, set[LabelSet]] = {}
        self._free_numbers: list[int] = []
        #: One more than the highest number: the length of arrays indexed by it.
        self.n_numbers = 1
        self._sweep = 0

    def __iter__(self) -> Iterator[LabelSet]:
        return iter(self._by_labels.values())

    def __len__(self) -> int:
        return len(self._by_labels)

    def of(self, namespace: str, labels: Mapping[str, str]) -> LabelSet:
        """Return the label set of a pod with these labels. O(labels)."""
        key = _key(namespace, labels)
        known = self._by_labels.get(key)
        if known is None:
            known = self._by_labels[key] = LabelSet(namespace, labels, self._new_number())
            for pair in labels.items():
                self._by_pair.setdefault(pair, set()).add(known)
                self._by_key.setdefault(pair[0], set()).add(known)
            self._by_namespace.setdefault(namespace, set()).add(known)
        known.used_at = self._sweep
        return known

    def get(self, namespace: str, labels: Mapping[str, str]) -> LabelSet | None:
        """Return the label set if it is known. O(labels)."""
        return self._by_labels.get(_key(namespace, labels))

    def matches(self, matcher: PodMatcher, label_set: LabelSet) -> bool:
        """Return whether the matcher selects pods of the label set."""
        namespace = label_set.namespace
        return matcher.matches(namespace, label_set.labels, self.namespace_labels.get(namespace))

    def selected(self, matcher: PodMatcher) -> Mask:
        """
        Return which label sets the matcher selects: bool array of shape (n_numbers,), by number.

        Evaluated by set operations, not label set by label set: a hostile selector has thousands of requirements and
        values, few of which occur in any label set.
        """
        mask = np.zeros(self.n_numbers, dtype=np.bool_)
        mask[[label_set.number for label_set in self._selected_by(matcher)]] = True
        return mask

    def sweeping(self) -> Iterator[None]:
        """Drop label sets without pods that were unused for two sweeps, and yield after every piece of work."""
        self._sweep += 1
        oldest = self._sweep - _UNUSED_SWEEPS
        for index, label_set in enumerate(list(self._by_labels.values()), 1):
            if index % _SWEPT_AT_ONCE == 0:
                yield
            if not label_set.n_pods and label_set.used_at < oldest:
                self._forget(label_set)

    def _selected_by(self, matcher: PodMatcher) -> set[LabelSet]:
        """Return the label sets for which `matches` is true."""
        if any(selector.is_nothing for _, selector in matcher.parts):
            return set()
        selected = self._superset(matcher)
        # Terms of one pod have much in common.
        for requirement in {each for _, selector in matcher.parts for each in selector.requirements}:
            self._keep_satisfying(selected, requirement)
        for rule in {rule for rule, _ in matcher.parts}:
            selected = self._covered(selected, rule)
        if matcher.exempt:
            selected = {label_set for label_set in selected if label_set.namespace not in matcher.exempt}
        return selected

    def _superset(self, matcher: PodMatcher) -> set[LabelSet]:
        """Return a new set of all label sets that the matcher may select, by its anchor or its namespaces."""
        anchor = matcher.anchor()
        if anchor is not None:
            key, values = anchor
            return set().union(*(self._by_pair.get((key, value), ()) for value in values))
        names = matcher.named_namespaces()
        if names is None:
            return set(self._by_labels.values())
        in_use = self._by_namespace
        # A term may name 50,000 namespaces, few of which have pods.
        shared = names.intersection(in_use) if len(in_use) < len(names) else in_use.keys() & names
        return set().union(*(in_use[name] for name in shared))

    def _keep_satisfying(self, label_sets: set[LabelSet], requirement: Requirement) -> None:
        key, operator, values = requirement
        if operator in ("In", "NotIn"):
            holding = [held for value in values if (held := self._by_pair.get((key, value)))]
        else:
            holding = [held] if (held := self._by_key.get(key)) else []
        if operator in ("NotIn", "DoesNotExist"):
            label_sets.difference_update(*holding)
        elif len(holding) == 1:
            label_sets &= holding[0]
        else:
            label_sets &= set().union(*holding)

    def _covered(self, label_sets: set[LabelSet], rule: NamespaceRule) -> set[LabelSet]:
        if rule.selector.is_empty:
            return label_sets
        if rule.selector.is_nothing and len(rule.names) == 1:
            return label_sets.intersection(*(self._by_namespace.get(name, ()) for name in rule.names))
        labels = self.namespace_labels
        covered = {
            name: rule.covers(name, labels.get(name))
            for name in {label_set.namespace for label_set in label_sets}
        }
        return (
            label_sets
            if all(covered.values())
            else {label_set for label_set in label_sets if covered[label_set.namespace]}
        )

    def _new_number(self) -> int:
        if self._free_numbers:
            return self._free_numbers.pop()
        self.n_numbers += 1
        return self.n_numbers - 1

    def _forget(self, label_set: LabelSet) -> None:
        del self._by_labels[_key(label_set.namespace, label_set.labels)]
        self._free_numbers.append(label_set.number)
        for pair in label_set.labels.items():
            discard_member(self._by_pair, pair, label_set)
            discard_member(self._by_key, pair[0], label_set)
        discard_member(self._by_namespace, label_set.namespace, label_set)


def _key(namespace: str, labels: Mapping[str, str]) -> tuple[str, frozenset[tuple[str, str]]]:
    return namespace, frozenset(labels.items())
