"""
Finds the smallest changes that let a pod schedule.

Repairs propose changes for the nodes that need fewest. Each proposal is tried with one decision, and changes that are
not needed are removed. The numbers of nodes and trials are bounded, whatever the cluster's size. A proposal that the
decision does not confirm is not an error: repairs look at one plugin at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, product
from typing import Final

import numpy as np

from scheduler.explain.blocking_rules import BlockingRule
from scheduler.explain.explanation import (
    AddRoom,
    AllowSkew,
    Change,
    LabelNamespace,
    LabelNode,
    RemovePod,
    RemoveTaint,
    RunPod,
    Suggestion,
    TolerateTaint,
    Uncordon,
)
from scheduler.explain.inspection import Inspection
from scheduler.explain.repairs import Changes, Efforts, Repair, repair_of, satisfying
from scheduler.explain.what_if import WhatIf
from scheduler.model.terms import AffinityTerm, usable
from scheduler.syntax.selectors import Selector

_MAX_SUGGESTIONS: Final = 5
#: Nodes to propose repairs for, and the most of them that are refused alike.
_MAX_NODES: Final = 48
_MAX_ALIKE: Final = 2
#: Combinations of the plugins' alternatives per node.
_MAX_COMBINATIONS: Final = 6
#: Proposals to try.
_MAX_TRIALS: Final = 60
#: Size of a proposal up to which each change is tried without.
_MAX_PRUNED: Final = 12
#: Namespaces to propose labels for.
_MAX_NAMESPACES: Final = 8

#: Among suggestions of one size, the changes that are easiest to make come first.
_RANK: Final[dict[type[Change], int]] = {
    LabelNamespace: 0,
    Uncordon: 1,
    TolerateTaint: 2,
    RemoveTaint: 3,
    LabelNode: 4,
    RunPod: 5,
    RemovePod: 6,
    AllowSkew: 7,
    AddRoom: 8,
}


def find_suggestions(
    inspection: Inspection, what_if: WhatIf, rules: Sequence[BlockingRule]
) -> tuple[Suggestion, ...]:
    """Return up to five suggestions, each confirmed by a decision, of different kinds if possible, smallest first."""
    confirmed: list[Suggestion] = []
    n_confirmed = Counter[frozenset[type[Change]]]()
    proposals = sorted({*_for_namespaces(inspection), *_for_nodes(inspection, rules)}, key=_size)
    for changes in islice(proposals, _MAX_TRIALS):
        shape = frozenset(map(type, changes))
        known = [frozenset(suggestion.changes) for suggestion in confirmed]
        if n_confirmed[shape] >= _MAX_SUGGESTIONS or any(other <= frozenset(changes) for other in known):
            continue
        suggestion = _confirm(what_if, changes)
        if suggestion is not None and frozenset(suggestion.changes) not in known:
            confirmed.append(suggestion)
            n_confirmed[frozenset(map(type, suggestion.changes))] += 1
    return tuple(_vary(confirmed))


def _size(changes: Changes) -> tuple[int, int, str]:
    return len(changes), sum(_RANK[type(change)] for change in changes), repr(changes)


def _vary(confirmed: Iterable[Suggestion]) -> list[Suggestion]:
    """
    Return the suggestions to show, by size: the smallest of each combination of change types, then further ones.

    A suggestion is dropped if it has all change types of a smaller one and more: it is the same remedy elsewhere.
    """
    first: list[Suggestion] = []
    more: list[Suggestion] = []
    seen: list[frozenset[type[Change]]] = []
    for suggestion in sorted(confirmed, key=lambda suggestion: _size(suggestion.changes)):
        shape = frozenset(map(type, suggestion.changes))
        if any(smaller < shape for smaller in seen):
            continue
        (more if shape in seen else first).append(suggestion)
        seen.append(shape)
    return sorted((first + more)[:_MAX_SUGGESTIONS], key=lambda suggestion: _size(suggestion.changes))


def _confirm(what_if: WhatIf, changes: Changes) -> Suggestion | None:
    """Return the changes that are needed if they let the pod schedule, else None."""
    node = what_if.node_after(changes)
    if node is None:
        return None
    needed = changes
    if 1 < len(changes) <= _MAX_PRUNED:
        before: Changes = ()
        while needed != before:  # a change may be needed only because of another one that is removed later
            before = needed
            for change in before:
                fewer = tuple(other for other in needed if other != change)
                node_with_fewer = what_if.node_after(fewer) if fewer else None
                if node_with_fewer is not None:
                    needed, node = fewer, node_with_fewer
    return Suggestion(needed, node)


def _for_nodes(inspection: Inspection, rules: Sequence[BlockingRule]) -> Iterator[Changes]:
    """Yield proposals for the nodes that need the fewest changes, a few for each combination of refusals."""
    repairs = [
        repair_of(inspection, plugin, refusals.codes != 0, rules)
        for plugin, refusals in inspection.refusals
        if refusals.codes.any()
    ]
    if not repairs:
        return
    effort: Efforts = np.sum([repair.effort for repair in repairs], axis=0)
    effort[~inspection.snapshot.alive] = np.inf
    for row in _rows(inspection, effort, rules):
        yield from _for_node(row, repairs)


def _rows(inspection: Inspection, effort: Efforts, rules: Sequence[BlockingRule]) -> Iterator[int]:
    """Yield rows by effort, few that have the same reasons, taints and domains."""
    n_alike: Counter[tuple[int, ...]] = Counter()
    taint_set = inspection.snapshot.nodes.taint_set
    columns = [rule.column for rule in rules if not rule.column.is_unique]
    n_found = 0
    for row in np.argsort(effort, kind="stable").tolist():
        if n_found >= _MAX_NODES or effort[row] == np.inf:
            return
        likeness = (
            *(int(refusals.codes[row]) for _, refusals in inspection.refusals),
            int(taint_set[row]),
            *(int(column.ids[row]) for column in columns),
        )
        n_alike[likeness] += 1
        if n_alike[likeness] <= _MAX_ALIKE and effort[row] > 0:
            n_found += 1
            yield row


def _for_node(row: int, repairs: Sequence[Repair]) -> Iterator[Changes]:
    """Yield combinations of one alternative per plugin that refuses the row; none if a plugin has no alternative."""
    alternatives = [repair.alternatives(row) for repair in repairs if repair.effort[row] > 0]
    for combination in islice(product(*alternatives), _MAX_COMBINATIONS):
        changes = tuple(dict.fromkeys(change for part in combination for change in part))
        if changes:
            yield changes


def _for_namespaces(inspection: Inspection) -> Iterator[Changes]:
    """Yield labels that make an affinity term's namespaceSelector match a namespace that has the required pods."""
    for term in usable(inspection.pod.spec.affinity.required):
        if term.namespace_selector.requirements:
            yield from _for_term(inspection, term)


def _for_term(inspection: Inspection, term: AffinityTerm) -> Iterator[Changes]:
    labels_by_namespace = inspection.state.label_sets.namespace_labels
    inhabited = {
        label_set.namespace
        for label_set in inspection.state.label_sets
        if label_set.n_pods and term.selector.matches(label_set.labels)
    }
    for name in sorted(inhabited - term.namespaces)[:_MAX_NAMESPACES]:
        labels = labels_by_namespace.get(name, {})
        if not term.namespace_selector.matches(labels):
            changes = _labels_for(name, term.namespace_selector)
            yield tuple(change for change in changes if labels.get(change.key) != change.value)


def _labels_for(namespace: str, selector: Selector) -> list[LabelNamespace]:
    return [LabelNamespace(namespace, key, value) for key, value in satisfying(selector).items()]
