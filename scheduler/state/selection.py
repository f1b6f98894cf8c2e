"""
Which pods a selector selects, kept as counts per node row.

Every distinct (namespace, labels) is a `LabelSet`; every distinct question "which pods?" is a `PodMatcher`, held by one
`Selection`. A pod event touches only the selections that its label set is matched by. A new label set finds its
selections through buckets keyed by one (label, value) that they require; a new selection finds its label sets through
the inverse postings.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from scheduler.model.labels import Requirement
from scheduler.state.matching import NamespaceRule, PodMatcher
from scheduler.state.members import Members, Roll
from scheduler.state.row_counts import RowCounts

if TYPE_CHECKING:
    from scheduler.state.declared import DeclaredTerm
    from scheduler.state.domain_limits import DomainLimit

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V", bound=Hashable)

#: Selections whose counts are kept; at 5,000 nodes 40 KB each, 80 where both affinity and spread ask. Past this many
#: the one that was asked longest ago is counted anew when it is asked again: a tenant's pods can ask as many questions
#: as they have selectors.
MAX_COUNTED: Final = 2048


@dataclass(slots=True, eq=False, weakref_slot=True)
class LabelSet:
    """One distinct (namespace, labels), and where its pods are."""

    namespace: str
    labels: Mapping[str, str]
    #: Every selection that matches, counted or not, and the limits per domain that running pods declare with those.
    selections: Members[Selection]
    limits: Members[DomainLimit]
    #: Pods per node row, and in all.
    rows: dict[int, int] = field(default_factory=dict)
    n_pods: int = 0
    #: Those of them that are terminating.
    terminating_rows: dict[int, int] = field(default_factory=dict)
    #: Sweep at which a decision last asked for it.
    used_at: int = 0
    #: See `members`.
    number: int = -1


@dataclass(slots=True, eq=False)
class Selection:
    """The pods that one matcher selects. Either counts exist from the first decision that asks for them."""

    matcher: PodMatcher
    label_sets: Members[LabelSet]
    #: All selected pods per row, terminating ones included: what affinity counts.
    counts: RowCounts | None = None
    #: Selected pods that are not terminating: what spread counts (kubernetes#87621).
    live_counts: RowCounts | None = None
    #: Terms of running pods that select by this matcher: required anti-affinity, the same with a higher limit than
    #: one pod per domain, and all others.
    forbidding_terms: list[DeclaredTerm] = field(default_factory=list)
    limiting_terms: list[DeclaredTerm] = field(default_factory=list)
    scoring_terms: list[DeclaredTerm] = field(default_factory=list)
    used_at: int = 0
    #: See `members`.
    number: int = -1

    @property
    def is_declared(self) -> bool:
        """Whether a running pod's term is this selection's."""
        return bool(self.forbidding_terms or self.limiting_terms or self.scoring_terms)

    @property
    def n_pods(self) -> int:
        """How many pods it selects, counted or not. O(label sets) where it is not counted."""
        if self.counts is not None:
            return self.counts.total
        return sum(label_set.n_pods for label_set in self.label_sets)

    def count(self, row: int, delta: int, *, live: bool) -> None:
        """The row has so many more selected pods (or fewer), terminating ones where not `live`. O(1)."""
        if self.counts is not None:
            self.counts.add(row, delta)
        if live and self.live_counts is not None:
            self.live_counts.add(row, delta)


class Rematched(NamedTuple):
    """A selection selects the label set from now on, or not any more."""

    selection: Selection
    label_set: LabelSet
    selects: bool


class SelectionIndex:
    """All label sets and selections, each knowing the other. Exactly one writer: ClusterState."""

    def __init__(self, max_counted: int | None = MAX_COUNTED) -> None:
        """Nothing is known. `max_counted`: see `MAX_COUNTED`; None where whoever asks relies on every selection."""
        self._max_counted = max_counted
        self.namespace_labels: dict[str, Mapping[str, str]] = {}
        self._label_sets: dict[tuple[str, frozenset[tuple[str, str]]], LabelSet] = {}
        self._sets_by_pair: dict[tuple[str, str], set[LabelSet]] = {}
        self._sets_by_namespace: dict[str, set[LabelSet]] = {}
        self._sets_by_key: dict[str, set[LabelSet]] = {}
        self._selections: dict[PodMatcher, Selection] = {}
        self._by_pair: dict[tuple[str, str], dict[Selection, None]] = {}
        self._by_namespace: dict[str, dict[Selection, None]] = {}
        #: Those that require neither, under None.
        self._by_nothing: dict[None, dict[Selection, None]] = {}
        #: Selections with counts, asked longest ago first.
        self._counted: OrderedDict[Selection, None] = OrderedDict()
        self._sweep = 0
        #: Moves where a selection's counts are not kept any more, or it selects others than before.
        self.version = 0
        self._roll_of_label_sets: Roll[LabelSet] = Roll()
        self._roll_of_selections: Roll[Selection] = Roll()
        self.roll_of_limits: Roll[DomainLimit] = Roll()

    def label_set(self, namespace: str, labels: Mapping[str, str]) -> LabelSet:
        """The label set, matched with every selection. O(labels + matches) when new, else O(labels)."""
        key = (namespace, frozenset(labels.items()))
        known = self._label_sets.get(key)
        if known is not None:
            known.used_at = self._sweep
            return known
        matching, limits = Members(self._roll_of_selections), Members(self.roll_of_limits)
        new = LabelSet(namespace, labels, matching, limits, used_at=self._sweep)
        self._roll_of_label_sets.enter(new)
        self._label_sets[key] = new
        for pair in labels.items():
            self._sets_by_pair.setdefault(pair, set()).add(new)
            self._sets_by_key.setdefault(pair[0], set()).add(new)
        self._sets_by_namespace.setdefault(namespace, set()).add(new)
        for selection in self._candidates_for(new):
            if self._matches(selection, new):
                new.selections.add(selection)
                selection.label_sets.add(new)
                for term in selection.limiting_terms:
                    if term.limit is not None:
                        new.limits.add(term.limit)
        return new

    def selection(self, matcher: PodMatcher) -> Selection:
        """The selection of this matcher, knowing its label sets. O(label sets with its anchor) when new, else O(1)."""
        known = self._selections.get(matcher)
        if known is not None:
            known.used_at = self._sweep
            return known
        label_sets = Members(self._roll_of_label_sets, self._selected_by(matcher))
        new = Selection(matcher, label_sets, used_at=self._sweep)
        self._roll_of_selections.enter(new)
        self._selections[matcher] = new
        for postings, key in self._places_of(matcher):
            postings.setdefault(key, {})[new] = None
        for label_set in label_sets:
            label_set.selections.add(new)
        return new

    def counted(self, matcher: PodMatcher) -> RowCounts:
        """
        Pods per row that the matcher selects, terminating ones included.

        Counted from the first call on, for as long as the selection is among the last `MAX_COUNTED` that were asked.
        """
        selection = self._asked(matcher)
        if selection.counts is None:
            selection.counts = RowCounts(_added_up(one.rows for one in selection.label_sets))
        return selection.counts

    def counted_live(self, matcher: PodMatcher) -> RowCounts:
        """Those that are not terminating; likewise."""
        selection = self._asked(matcher)
        if selection.live_counts is None:
            every = _added_up(one.rows for one in selection.label_sets)
            terminating = _added_up(one.terminating_rows for one in selection.label_sets)
            live = {row: n for row, count in every.items() if (n := count - terminating.get(row, 0))}
            selection.live_counts = RowCounts(live)
        return selection.live_counts

    def _asked(self, matcher: PodMatcher) -> Selection:
        """The selection, the last of those that are counted."""
        selection = self.selection(matcher)
        is_full = self._max_counted is not None and len(self._counted) >= self._max_counted
        if is_full and selection not in self._counted:
            self._uncount(next(iter(self._counted)))
        self._counted[selection] = None
        self._counted.move_to_end(selection)
        return selection

    def place(self, label_set: LabelSet, row: int, *, live: bool, delta: int) -> None:
        """A pod of the label set came to the row (delta 1) or left it (delta -1). O(selections that match)."""
        _bump(label_set.rows, row, delta)
        label_set.n_pods += delta
        if not live:
            _bump(label_set.terminating_rows, row, delta)
        for selection in label_set.selections:
            selection.count(row, delta, live=live)

    def relabel(self, old: LabelSet, new: LabelSet, row: int, *, live: bool) -> bool:
        """
        A pod on the row is of the new label set instead of the old one. O(selections that match either).

        Returns: whether any selection has another count by that.
        """
        for label_set, delta in ((old, -1), (new, 1)):
            _bump(label_set.rows, row, delta)
            label_set.n_pods += delta
            if not live:
                _bump(label_set.terminating_rows, row, delta)
        parted, joined = old.selections.without(new.selections), new.selections.without(old.selections)
        for selection in parted:
            selection.count(row, -1, live=live)
        for selection in joined:
            selection.count(row, 1, live=live)
        return bool(parted or joined)

    def relabel_namespace(self, namespace: str, labels: Mapping[str, str] | None) -> list[Rematched]:
        """
        The namespace now has these labels (None: it is gone); what is selected by namespace labels follows.

        Returns: every label set and selection that came together or parted.
        Cost: O(selections); O(label sets in the namespace) for each that covers it and did not, or the other way.
        """
        self.version += 1
        known = self.namespace_labels.get(namespace)
        affected = [
            selection
            for selection in self._selections.values()
            if selection.matcher.minds_relabelling(namespace, known, labels)
        ]
        if labels is None:
            self.namespace_labels.pop(namespace, None)
        else:
            self.namespace_labels[namespace] = labels
        return [
            Rematched(selection, label_set, label_set in selection.label_sets)
            for label_set in self._sets_by_namespace.get(namespace, ())
            for selection in affected
            if self._rematch(selection, label_set)
        ]

    def sweep(self) -> None:
        """
        Label sets without pods and selections that no running pod declares go, once two sweeps found them unused.

        Keeps memory bounded under churn. O(label sets + selections).
        """
        self._sweep += 1
        oldest = self._sweep - 2
        for key, label_set in list(self._label_sets.items()):
            if not label_set.rows and label_set.used_at < oldest:
                del self._label_sets[key]
                self._forget_label_set(label_set)
        for selection in list(self._selections.values()):
            if not selection.is_declared and selection.used_at < oldest:
                self._forget_selection(selection)

    def selections(self) -> Iterable[Selection]:
        """Every selection, for the audit."""
        return self._selections.values()

    def find(self, matcher: PodMatcher) -> Selection | None:
        """The selection of this matcher, if there is one."""
        return self._selections.get(matcher)

    def label_sets(self) -> Iterable[LabelSet]:
        """Every label set, for the audit."""
        return self._label_sets.values()

    def _matches(self, selection: Selection, label_set: LabelSet) -> bool:
        return selection.matcher.matches(
            label_set.namespace, label_set.labels, self.namespace_labels.get(label_set.namespace)
        )

    def _rematch(self, selection: Selection, label_set: LabelSet) -> bool:
        """Whether that changed anything."""
        was, now = label_set in selection.label_sets, self._matches(selection, label_set)
        if was == now:
            return False
        if now:
            selection.label_sets.add(label_set)
            label_set.selections.add(selection)
        else:
            selection.label_sets.discard(label_set)
            label_set.selections.discard(selection)
        sign = 1 if now else -1
        for row, count in label_set.rows.items():
            n_terminating = label_set.terminating_rows.get(row, 0)
            if count > n_terminating:
                selection.count(row, sign * (count - n_terminating), live=True)
            if n_terminating:
                selection.count(row, sign * n_terminating, live=False)
        return True

    def _candidates_for(self, label_set: LabelSet) -> Iterable[Selection]:
        for pair in label_set.labels.items():
            yield from self._by_pair.get(pair, ())
        yield from self._by_namespace.get(label_set.namespace, ())
        yield from self._by_nothing.get(None, ())

    def _places_of(self, matcher: PodMatcher) -> Iterable[tuple[dict[Any, dict[Selection, None]], Hashable]]:
        """Where label sets look for the matcher's selection: postings and keys in them."""
        anchor = matcher.anchor()
        if anchor is not None:
            key, values = anchor
            return [(self._by_pair, (key, value)) for value in values]
        names = matcher.named_namespaces()
        if names is not None:
            return [(self._by_namespace, name) for name in names]
        return [(self._by_nothing, None)]

    def _selected_by(self, matcher: PodMatcher) -> set[LabelSet]:
        """
        The label sets that the matcher selects: what `PodMatcher.matches` says of each.

        By sets instead of one by one: a hostile selector has thousands of requirements and values, of which few concern
        any label set. O(label sets with its anchor, or in its namespaces + values + label sets that have one of them).
        """
        found = self._at_least(matcher)
        for rule, selector in matcher.parts:
            if selector.is_nothing:
                return set()
            for requirement in selector.requirements:
                self._keep_satisfying(found, requirement)
            found = self._covered(found, rule)
        if matcher.exempt:
            found = {one for one in found if one.namespace not in matcher.exempt}
        return found

    def _at_least(self, matcher: PodMatcher) -> set[LabelSet]:
        """All label sets that the matcher may select. A fresh set."""
        anchor = matcher.anchor()
        if anchor is not None:
            key, values = anchor
            return set().union(*(self._sets_by_pair.get((key, value), ()) for value in values))
        names = matcher.named_namespaces()
        if names is None:
            return set(self._label_sets.values())
        return set().union(*(self._sets_by_namespace.get(name, ()) for name in names))

    def _keep_satisfying(self, found: set[LabelSet], requirement: Requirement) -> None:
        key, operator, values = requirement
        if operator in ("In", "NotIn"):
            holding = [held for value in values if (held := self._sets_by_pair.get((key, value)))]
        else:
            holding = [held] if (held := self._sets_by_key.get(key)) else []
        if operator in ("NotIn", "DoesNotExist"):
            found.difference_update(*holding)
        elif len(holding) == 1:
            found &= holding[0]
        else:
            found &= set().union(*holding)

    def _covered(self, found: set[LabelSet], rule: NamespaceRule) -> set[LabelSet]:
        if rule.selector.is_empty:
            return found
        labels = self.namespace_labels
        covered = {name: rule.covers(name, labels.get(name)) for name in {one.namespace for one in found}}
        return found if all(covered.values()) else {one for one in found if covered[one.namespace]}

    def _uncount(self, selection: Selection) -> None:
        """Its counts go, and all of it where no running pod declares it."""
        self.version += 1
        del self._counted[selection]
        selection.counts = selection.live_counts = None
        if not selection.is_declared:
            self._forget_selection(selection)

    def _forget_selection(self, selection: Selection) -> None:
        self.version += 1
        del self._selections[selection.matcher]
        self._counted.pop(selection, None)
        for postings, key in self._places_of(selection.matcher):
            _discard(postings, key, selection)
        for label_set in selection.label_sets:
            label_set.selections.discard(selection)
        selection.label_sets.clear()
        self._roll_of_selections.leave(selection)

    def _forget_label_set(self, label_set: LabelSet) -> None:
        for selection in label_set.selections:
            selection.label_sets.discard(label_set)
        label_set.selections.clear()
        label_set.limits.clear()
        self._roll_of_label_sets.leave(label_set)
        for pair in label_set.labels.items():
            _discard(self._sets_by_pair, pair, label_set)
            _discard(self._sets_by_key, pair[0], label_set)
        _discard(self._sets_by_namespace, label_set.namespace, label_set)


def _discard(postings: dict[_K, set[_V]] | dict[_K, dict[_V, None]], key: _K, member: _V) -> None:
    members = postings[key]
    if isinstance(members, set):
        members.discard(member)
    else:
        members.pop(member, None)
    if not members:
        del postings[key]


def _bump(rows: dict[int, int], row: int, delta: int) -> None:
    count = rows.get(row, 0) + delta
    if count:
        rows[row] = count
    else:
        del rows[row]


def _added_up(parts: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """Pods per row, of all parts together."""
    rows: dict[int, int] = {}
    for part in parts:
        for row, count in part.items():
            rows[row] = rows.get(row, 0) + count
    return rows
