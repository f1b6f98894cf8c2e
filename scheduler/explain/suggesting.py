"""
The smallest changes that let a pod schedule: proposed per node, tried, pruned to what is needed, the smallest told.

Cost is bounded whatever the cluster's size: so many nodes are looked at, so many proposals are tried, and a trial is
one decision. A proposal that the decision does not confirm is dropped in silence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, product
from typing import Final

import numpy as np

from scheduler.explain.answers import (
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
from scheduler.explain.looking import Case
from scheduler.explain.repairs import Changes, Efforts, Repair, repair_of, satisfying
from scheduler.explain.rules import Finding
from scheduler.explain.trying import Trials
from scheduler.model.labels import Selector
from scheduler.model.terms import AffinityTerm, usable

#: Suggestions told.
_MOST: Final = 5
#: Nodes whose repair is worked out, and how many of those that are refused alike.
_NODES: Final = 48
_ALIKE: Final = 2
#: Combinations of alternatives per node.
_COMBINATIONS: Final = 6
#: Proposals tried, and trials to find out which changes of one can be left out.
_TRIALS: Final = 60
_PRUNED: Final = 12
#: Namespaces whose labels are considered.
_NAMESPACES: Final = 8

#: Of suggestions of one size those come first that are easiest to carry out.
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


def suggested(case: Case, trials: Trials, findings: Sequence[Finding]) -> tuple[Suggestion, ...]:
    """At most five, of different kinds as far as there are any, smallest first; each was tried."""
    confirmed: list[Suggestion] = []
    tried = Counter[frozenset[type[Change]]]()
    proposals = sorted({*_for_namespaces(case), *_for_nodes(case, findings)}, key=_size)
    for changes in islice(proposals, _TRIALS):
        shape = frozenset(map(type, changes))
        known = [frozenset(suggestion.changes) for suggestion in confirmed]
        if tried[shape] >= _MOST or any(other <= frozenset(changes) for other in known):
            continue
        suggestion = _confirmed(trials, changes)
        if suggestion is not None and frozenset(suggestion.changes) not in known:
            confirmed.append(suggestion)
            tried[frozenset(map(type, suggestion.changes))] += 1
    return tuple(_varied(confirmed))


def _size(changes: Changes) -> tuple[int, int, str]:
    return len(changes), sum(_RANK[type(change)] for change in changes), repr(changes)


def _varied(confirmed: Iterable[Suggestion]) -> list[Suggestion]:
    """
    The smallest of each kind first, then more of the same; in the end by size.

    What takes the kinds of change of a smaller one, and others on top, is left out: it is the same remedy elsewhere.
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
    return sorted((first + more)[:_MOST], key=lambda suggestion: _size(suggestion.changes))


def _confirmed(trials: Trials, changes: Changes) -> Suggestion | None:
    """The changes, without those that can be left out, if they let the pod schedule."""
    node = trials.node_after(changes)
    if node is None:
        return None
    kept = changes
    if 1 < len(changes) <= _PRUNED:
        before: Changes = ()
        while kept != before:  # what another change made necessary can be left out once that one is
            before = kept
            for change in before:
                fewer = tuple(other for other in kept if other != change)
                elsewhere = trials.node_after(fewer) if fewer else None
                if elsewhere is not None:
                    kept, node = fewer, elsewhere
    return Suggestion(kept, node)


def _for_nodes(case: Case, findings: Sequence[Finding]) -> Iterator[Changes]:
    """Proposals for the nodes that take least, some of every kind of refusal."""
    repairs = [
        repair_of(case, plugin, refusals.codes != 0, findings)
        for plugin, refusals in case.refusals
        if refusals.codes.any()
    ]
    if not repairs:
        return
    effort: Efforts = np.sum([repair.effort for repair in repairs], axis=0)
    effort[~case.snapshot.alive] = np.inf
    for row in _rows(case, effort, findings):
        yield from _for_node(row, repairs)


def _rows(case: Case, effort: Efforts, findings: Sequence[Finding]) -> Iterator[int]:
    """Rows by effort, few of each kind: refused for other reasons, by other taints, or in other domains."""
    found: Counter[tuple[int, ...]] = Counter()
    taint_set = case.snapshot.nodes.taint_set
    columns = [finding.column for finding in findings if not finding.column.is_unique]
    n_found = 0
    for row in np.argsort(effort, kind="stable").tolist():
        if n_found >= _NODES or effort[row] == np.inf:
            return
        kind = (
            *(int(refusals.codes[row]) for _, refusals in case.refusals),
            int(taint_set[row]),
            *(int(column.ids[row]) for column in columns),
        )
        found[kind] += 1
        if found[kind] <= _ALIKE and effort[row] > 0:
            n_found += 1
            yield row


def _for_node(row: int, repairs: Sequence[Repair]) -> Iterator[Changes]:
    """Every combination of one alternative of each plugin that refuses the row; none if one has none."""
    alternatives = [repair.alternatives(row) for repair in repairs if repair.effort[row] > 0]
    for combination in islice(product(*alternatives), _COMBINATIONS):
        changes = tuple(dict.fromkeys(change for part in combination for change in part))
        if changes:
            yield changes


def _for_namespaces(case: Case) -> Iterator[Changes]:
    """Labels that would bring a namespace, whose pods are asked for, under a term's namespaceSelector."""
    for term in usable(case.pod.spec.affinity.required):
        if term.namespace_selector.requirements:
            yield from _for_term(case, term)


def _for_term(case: Case, term: AffinityTerm) -> Iterator[Changes]:
    known = case.state.selections.namespace_labels
    inhabited = {
        label_set.namespace
        for label_set in case.state.selections.label_sets()
        if label_set.rows and term.selector.matches(label_set.labels)
    }
    for name in sorted(inhabited - term.namespaces)[:_NAMESPACES]:
        labels = known.get(name, {})
        if not term.namespace_selector.matches(labels):
            changes = _labels_for(name, term.namespace_selector)
            yield tuple(change for change in changes if labels.get(change.key) != change.value)


def _labels_for(namespace: str, selector: Selector) -> list[LabelNamespace]:
    return [LabelNamespace(namespace, key, value) for key, value in satisfying(selector).items()]
