"""
InterPodAffinity: which pods must, must not, should or should not share a topology domain with this one.

Filter, in this order, on every node:
  1. every required affinity term has, in the node's domain, a pod that matches all of the pod's terms; where no such
     pod is in any domain at all, a pod that matches its own terms may be the first;
  2. no required anti-affinity term has a matching pod in the node's domain;
  3. no pod in any of the node's domains declares a required anti-affinity term that matches this pod.
An annotation may raise the limit of an anti-affinity term from one pod per domain to N: rule 2 then counts up to N,
and rule 3 keeps out whom a pod's term would count past its N. Pods of exempt namespaces neither keep out nor are kept
out by anti-affinity. Neither exists upstream; without them every decision is upstream's.
Score: the weights of preferred terms, the pod's own and those of running pods that match it; every required affinity
of a running pod counts as a preference in reverse (hardPodAffinityWeight).

Source: plugins/interpodaffinity/{plugin,filtering,scoring}.go (kubernetes 1.36). Same results; instead of walking all
pods in every cycle, the counts per node are kept by scheduler.state and summed per domain at read time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from typing import Final
from weakref import WeakKeyDictionary, WeakSet

import numpy as np

from scheduler.framework.caching import PerSpec
from scheduler.framework.events import Action, Hint, Registration, Resource, never
from scheduler.framework.interface import Candidate, Feasible, PreFiltered, PreScored, Rescored
from scheduler.framework.normalizing import Stretched
from scheduler.framework.plugin_args import InterPodAffinityArgs
from scheduler.framework.rules import KeptRules, Rules
from scheduler.framework.verdicts import (
    SKIP,
    SKIP_FOR_NOW,
    Code,
    Refusals,
    Status,
    unresolvable,
    unschedulable,
)
from scheduler.model.nodes import Namespace, Node
from scheduler.model.pods import Pod, PodSpec
from scheduler.model.terms import AffinityTerm, PodAffinity, usable
from scheduler.state.arrays import Amounts, Mask, Scores
from scheduler.state.columns import ABSENT, LabelColumn
from scheduler.state.declared import DeclaredTerm, TermKind
from scheduler.state.matching import NamespaceRule, PodMatcher, declared_rule, incoming_rule
from scheduler.state.row_counts import RowCounts, Threshold
from scheduler.state.selection import MAX_COUNTED, LabelSet
from scheduler.state.snapshot import Snapshot
from scheduler.state.sums import InDomains, KeptSums, Selected, Sum, Weighted

NAME: Final = "InterPodAffinity"

AFFINITY_NOT_MET: Final = unresolvable("node(s) didn't match pod affinity rules")
ANTI_AFFINITY_BROKEN: Final = unschedulable("node(s) didn't match pod anti-affinity rules")
EXISTING_ANTI_AFFINITY_BROKEN: Final = unschedulable(
    "node(s) didn't satisfy existing pods anti-affinity rules"
)

#: Terms that select a pod and are added to its own: making a sum anew takes 10 µs for each.
_FEW_TERMS: Final = 2

#: Labels of a namespace, None where it is not known.
NamespaceLabels = Callable[[str], Mapping[str, str] | None]


class _Both:
    """Owner of the sum of a spec's own preferred terms and of those of running pods that select a label set."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class _Asked:
    """A spec's own terms as questions to the counts."""

    #: Why the terms cannot be read, None where they can.
    problem: str | None
    #: One matcher for all required affinity terms: a pod must match every one of them.
    required: PodMatcher | None
    required_keys: tuple[str, ...]
    #: Matcher, topology key, and selected pods that a domain may have with this one.
    anti: tuple[tuple[PodMatcher, str, int], ...]
    #: Matcher, topology key and signed weight; terms that ask the same are one, with their weights added up.
    preferred: tuple[tuple[PodMatcher, str, int], ...]


class InterPodAffinity:
    """Required and preferred (anti-)affinity between pods, both ways."""

    name = NAME

    def __init__(self, args: InterPodAffinityArgs, namespace_labels: NamespaceLabels) -> None:
        self._args = args
        self._namespace_labels = namespace_labels
        self._exempt = frozenset(args.exempt_namespaces)
        self._asked = PerSpec(partial(_asked, exempt=self._exempt))
        #: Sums over the terms of running pods that select a label set: those that forbid, and those that score.
        self._forbidding: KeptSums[LabelSet] = KeptSums()
        self._scoring: KeptSums[LabelSet] = KeptSums()
        #: Sums over the pods that a spec's own preferred terms select; they hold counts that nobody else may hold.
        self._preferring: KeptSums[_Asked] = KeptSums(MAX_COUNTED)
        self._both: KeptSums[_Both] = KeptSums(MAX_COUNTED)
        self._owners: WeakKeyDictionary[_Asked, WeakKeyDictionary[LabelSet, _Both]] = WeakKeyDictionary()
        #: Specs that a limit above one pod per domain kept off some node: any pod that leaves may let them in.
        self._kept_out_by_limits: WeakSet[PodSpec] = WeakSet()

    def registrations(self) -> Sequence[Registration]:
        """
        Pods and nodes that come, go or change what the rules read of them; namespaces.

        Upstream misses some of what can help (a node that goes, the last pod of a group, a namespace's labels, and
        more at each hint) and lets the pod wait for the 5-minute flush; here it is woken. What is decided is the same.
        """
        return (
            Registration(
                Resource.NAMESPACE,
                Action.ADD | Action.UPDATE | Action.DELETE,
                self._hint_after_namespace_change,
                never,
            ),
            Registration(
                Resource.POD,
                Action.ADD | Action.UPDATE | Action.DELETE,
                self._hint_after_pod_change,
                self._reads_labels_after_pod_change,
            ),
            Registration(
                Resource.NODE,
                Action.ADD | Action.UPDATE_NODE_LABEL | Action.DELETE,
                _hint_after_node_change,
                never,
            ),
        )

    def prefilter(self, candidate: Candidate, snapshot: Snapshot) -> PreFiltered:
        """Nothing to do where neither the pod nor a running pod's anti-affinity towards it asks for anything."""
        spec = candidate.pod.spec
        if spec.annotation_problem is not None:
            return unresolvable(spec.annotation_problem)
        asked = self._asked.of(candidate.pod)
        if asked.problem is not None:
            return unresolvable(f"parsing pod: {asked.problem}")
        against = self._forbidding_terms(candidate, snapshot)
        if not against and asked.required is None and not asked.anti:
            return SKIP
        limits = candidate.label_set.limits
        sums = partial(self._forbidding.of, candidate.label_set, snapshot.column, against, snapshot.n_rows)
        shunning = _Shunning(against, sums, snapshot, are_terms=not limits) if against else None
        if any(limit.marks for limit in limits):
            self._kept_out_by_limits.add(candidate.pod.spec)
        node_filter = _AffinityFilter(candidate, snapshot, asked, shunning)
        return node_filter if node_filter.asks_anything else SKIP_FOR_NOW

    def prescore(self, candidate: Candidate, snapshot: Snapshot, feasible: Feasible) -> PreScored:
        """Nothing to do where no preference of the pod or towards it reaches any node."""
        asked = self._asked.of(candidate.pod)
        if asked.problem is not None:
            return Status(Code.ERROR, (f"failed to parse pod: {asked.problem}",))
        if self._args.ignore_preferred_terms_of_existing_pods and not asked.preferred:
            return SKIP
        own: list[Weighted] = [
            (Selected(key, snapshot.selected(matcher)), weight) for matcher, key, weight in asked.preferred
        ]
        towards = list(self._scoring_terms(candidate, snapshot))
        if not own and not towards:
            return SKIP
        sums = partial(self._sums, asked, candidate.label_set, snapshot, own, towards)
        scorer = _AffinityScorer(sums, feasible, snapshot)
        return scorer if scorer.reaches_any else SKIP_FOR_NOW

    def _sums(
        self,
        asked: _Asked,
        label_set: LabelSet,
        snapshot: Snapshot,
        own: Sequence[Weighted],
        towards: Sequence[Weighted],
    ) -> list[Sum]:
        """
        All terms in one sum, where few select the pod and pods with these labels come in numbers.

        Else one for the spec and one for the label set: where each pod has a spec or labels of its own, the other is
        the same for all of them.
        """
        column_of, n_rows = snapshot.column, snapshot.n_rows
        if own and 0 < len(towards) <= _FEW_TERMS and label_set.n_pods > 1:
            return [self._both.of(self._owner(asked, label_set), column_of, [*own, *towards], n_rows)]
        sums = [self._preferring.of(asked, column_of, own, n_rows)] if own else []
        return [*sums, self._scoring.of(label_set, column_of, towards, n_rows)] if towards else sums

    def _owner(self, asked: _Asked, label_set: LabelSet) -> _Both:
        owners = self._owners.get(asked)
        if owners is None:
            owners = self._owners[asked] = WeakKeyDictionary()
        owner = owners.get(label_set)
        if owner is None:
            owner = owners[label_set] = _Both()
        return owner

    def _forbidding_terms(self, candidate: Candidate, snapshot: Snapshot) -> list[Weighted]:
        """Anti-affinity of running pods towards this one, limits of theirs among it; each counts once."""
        if candidate.pod.namespace in self._exempt:
            return []
        against: list[Weighted] = [(term, 1) for term in snapshot.forbidding_terms(candidate.label_set)]
        if candidate.label_set.limits:
            against += [(limit, 1) for limit in candidate.label_set.limits]
        return against

    def _scoring_terms(self, candidate: Candidate, snapshot: Snapshot) -> Iterator[tuple[DeclaredTerm, int]]:
        """Terms of running pods that select the pod, with signed weights."""
        hard_weight = self._args.hard_pod_affinity_weight
        for term in snapshot.scoring_terms(candidate.label_set):
            match term.kind:
                case TermKind.REQUIRED if hard_weight > 0:
                    yield term, hard_weight
                case TermKind.PREFERRED:
                    yield term, term.weight
                case TermKind.PREFERRED_ANTI:
                    yield term, -term.weight
                case _:
                    pass

    def _hint_after_pod_change(self, pod: Pod, old: Pod | None, new: Pod | None) -> Hint:
        """
        Source: plugin.go, isSchedulableAfterPodChange (kubernetes 1.36).

        Upstream reads no namespace labels here, wants a pod to match all anti-affinity terms where one is enough, and
        forgets that the last pod of a group leaves its place to any other.
        """
        changed = new if new is not None else old
        if changed is None:
            return Hint.QUEUE
        if changed.uid == pod.uid:
            return _queue_if(old is None or new is None or _asks_differently(old, new))
        if not changed.node_name and not changed.nominated_node_name:
            return Hint.SKIP
        if old is not None and new is not None and not _asks_differently(old, new):
            return Hint.SKIP
        if old is not None and pod.spec in self._kept_out_by_limits:
            return Hint.QUEUE
        near, far = usable(pod.spec.affinity.required), usable(pod.spec.affinity.required_anti)
        drew, draws = self._draws(near, old), self._draws(near, new)
        if (draws and not drew) or (drew and not draws and self._draws(near, pod)):
            return Hint.QUEUE
        if any(self._asks_for(term, old) and not self._asks_for(term, new) for term in far):
            return Hint.QUEUE
        return _queue_if(self._shuns(old, pod) and not self._shuns(new, pod))

    def _reads_labels_after_pod_change(self, pod: Pod, old: Pod | None, _new: Pod | None) -> bool:
        """What was there may have shunned the pod by its labels, or been the group that it is of itself."""
        if old is None:
            return False
        return bool(usable(old.spec.affinity.required_anti)) or self._draws(
            usable(pod.spec.affinity.required), old
        )

    def _draws(self, near: Sequence[AffinityTerm], other: Pod | None) -> bool:
        """Whether the other pod is one to be near to."""
        return bool(near) and all(self._asks_for(term, other) for term in near)

    def _asks_for(self, term: AffinityTerm, other: Pod | None) -> bool:
        """Whether an incoming pod's term selects the other."""
        return other is not None and self._selects(incoming_rule(term), term, other)

    def _shuns(self, running: Pod | None, pod: Pod) -> bool:
        """Whether a required anti-affinity term of the running pod selects `pod`."""
        declared = () if running is None else usable(running.spec.affinity.required_anti)
        return any(self._selects(declared_rule(term), term, pod) for term in declared)

    def _selects(self, rule: NamespaceRule, term: AffinityTerm, pod: Pod) -> bool:
        covered = rule.covers(pod.namespace, self._namespace_labels(pod.namespace))
        return covered and term.selector.matches(pod.labels)

    def _hint_after_namespace_change(self, pod: Pod, _old: Namespace | None, new: Namespace | None) -> Hint:
        """Helps a pod whose own terms select namespaces by labels, and one whose own namespace running pods select."""
        affinity = pod.spec.affinity
        by_labels = any(
            term.namespace_selector.requirements
            for term in (*usable(affinity.required), *usable(affinity.required_anti))
        )
        may_help = by_labels or new is None or new.name == pod.namespace
        return _queue_if(may_help or pod.spec in self._kept_out_by_limits)


def _added(sums: Sequence[Amounts | None]) -> Amounts | None:
    """Their sum per node, None where none of them reaches any."""
    reaching = [amounts for amounts in sums if amounts is not None]
    return reduce(add, reaching) if reaching else None


def _asked(pod: Pod, exempt: frozenset[str]) -> _Asked:
    affinity = pod.spec.affinity
    anti = () if pod.namespace in exempt else usable(affinity.required_anti)
    required = usable(affinity.required)
    return _Asked(
        problem=affinity.problem(),
        required=PodMatcher(tuple((incoming_rule(t), t.selector) for t in required)) if required else None,
        required_keys=tuple(dict.fromkeys(t.topology_key for t in required)),
        anti=tuple((_matcher(t, exempt), t.topology_key, t.max_pods) for t in anti),
        preferred=tuple((matcher, key, weight) for (matcher, key), weight in _preferred(affinity).items()),
    )


def _preferred(affinity: PodAffinity) -> Counter[tuple[PodMatcher, str]]:
    """Signed weight by matcher and topology key, 0 where weights cancel out."""
    weights: Counter[tuple[PodMatcher, str]] = Counter()
    for sign, terms in ((1, usable(affinity.preferred)), (-1, usable(affinity.preferred_anti))):
        for term in terms:
            weights[_matcher(term), term.topology_key] += sign * term.weight
    return weights


def _matcher(term: AffinityTerm, exempt: frozenset[str] = frozenset()) -> PodMatcher:
    return PodMatcher(((incoming_rule(term), term.selector),), exempt)


class _Shunning:
    """The anti-affinity of running pods towards one label set, limits of theirs among it where not `are_terms`."""

    def __init__(
        self, against: Sequence[Weighted], sums: Callable[[], Sum], snapshot: Snapshot, *, are_terms: bool
    ) -> None:
        self._sums = sums
        self._n_rows = snapshot.n_rows
        #: Of the only term; None where there are several, or limits.
        self._only: tuple[RowCounts, Threshold] | None = None
        if are_terms and len(against) == 1:
            ((term, _),) = against
            column = snapshot.column(term.topology_key)
            self._only = (term.counts, Threshold(term.counts, column, 1, self._n_rows))

    def undisputed(self) -> Mask | None:
        """Nodes in whose domains no pod's anti-affinity keeps this one out; None where that is so of all of them."""
        if self._only is not None:
            counts, threshold = self._only
            if counts.few(self._n_rows) is None:
                near = threshold.reached()
                return near.below if near.n else None
        summed = self._sums().amounts
        return None if summed is None else np.less_equal(summed, 0)


class _AffinityFilter:
    """The three rules for one pod, over all nodes."""

    def __init__(
        self,
        candidate: Candidate,
        snapshot: Snapshot,
        asked: _Asked,
        shunning: _Shunning | None,
    ) -> None:
        self._candidate = candidate
        self._snapshot = snapshot
        self._n_rows = snapshot.n_rows
        self._required = asked.required
        #: Whom the terms select, with the column of the topology key: no other until something else than pods changes.
        self._near: list[tuple[Threshold, LabelColumn]] = []
        if asked.required is not None:
            counts = snapshot.selected(asked.required)
            columns = [snapshot.column(key) for key in asked.required_keys]
            self._near = [(Threshold(counts, column, 1, self._n_rows), column) for column in columns]
        self._far = [
            Threshold(snapshot.selected(matcher), snapshot.column(key), max_pods, self._n_rows)
            for matcher, key, max_pods in asked.anti
        ]
        self._shunning = shunning
        rules = self._rules()
        #: Whether there is a rule that any node could break.
        self.asks_anything = bool(rules)
        self._kept = KeptRules(rules, self._n_rows)

    def fits(self) -> Mask:
        """Nodes that break none of the three rules; not to be written to."""
        return self._kept.fits()

    def again(self, rows: Sequence[int]) -> Mask:
        """See `PodFilter`. O(1) where no domain of several nodes is closed or opened by the pods that moved."""
        return self._kept.again(self._rules(), rows)

    def refusals(self) -> Refusals:
        """The first rule that each node breaks."""
        return self._kept.refusals()

    def _rules(self) -> Rules:
        """In the order of the three; a rule of several keys or terms is several."""
        rules = [] if self._required is None else self._affinity_met(self._required)
        for threshold in self._far:
            rules.append((threshold.reached().below, ANTI_AFFINITY_BROKEN))
        undisputed = None if self._shunning is None else self._shunning.undisputed()
        if undisputed is not None:
            rules.append((undisputed, EXISTING_ANTI_AFFINITY_BROKEN))
        return rules

    def _affinity_met(self, required: PodMatcher) -> list[tuple[Mask, Status]]:
        rules, n_met = [], 0
        for threshold, _ in self._near:
            met = threshold.reached()
            n_met += met.n
            rules.append((met.mask, AFFINITY_NOT_MET))
        if n_met or not self._matches_itself(required):
            return rules
        # First pod of a group: no pod matches in any domain of any key, and this one would.
        return [(column.ids[: self._n_rows] != ABSENT, AFFINITY_NOT_MET) for _, column in self._near]

    def _matches_itself(self, required: PodMatcher) -> bool:
        pod = self._candidate.pod
        return required.matches(pod.namespace, pod.labels, self._snapshot.namespace_labels(pod.namespace))


class _AffinityScorer:
    """Weighted sums per node, then scaled so that the worst feasible node has 0 and the best 100."""

    def __init__(self, sums: Callable[[], Sequence[Sum]], feasible: Feasible, snapshot: Snapshot) -> None:
        self._sums_anew = sums
        self._sums = sums()
        raw = _added([one.amounts for one in self._sums])
        self.reaches_any = raw is not None
        self._raw = np.zeros(snapshot.n_rows, dtype=np.int64) if raw is None else raw
        self._stretched = Stretched(feasible)

    def raw(self) -> Amounts:
        """int64 array of shape (n_rows,), may be negative; not to be written to."""
        return self._raw

    def normalized(self, raw: Amounts) -> Scores:
        """Source: scoring.go, NormalizeScore (kubernetes 1.36)."""
        return self._stretched.of(raw)

    def again(self, rows: Sequence[int]) -> Rescored:
        """See `NodeScorer`. O(rows) where each node is a domain, and the lowest and the highest sum are as before."""
        n_rows = len(self._raw)
        raw: Amounts | InDomains | None
        if len(self._sums) == 1:
            raw = self._sums[0].again(n_rows)
            if isinstance(raw, InDomains):
                return self._stretched.in_domains(raw), rows
        else:
            # One sum may do for all terms now that there are more of these pods.
            self._sums = self._sums_anew()
            raw = _added([one.amounts for one in self._sums])
        return self._stretched.again(np.zeros(n_rows, dtype=np.int64) if raw is None else raw, rows)


def _asks_differently(old: Pod, new: Pod) -> bool:
    """Whether an update changed what the rules read: labels, and the affinity that annotations add."""
    return old.labels != new.labels or (
        old.spec is not new.spec
        and (old.spec.affinity, old.spec.annotation_problem)
        != (new.spec.affinity, new.spec.annotation_problem)
    )


def _hint_after_node_change(pod: Pod, old: Node | None, new: Node | None) -> Hint:
    """
    Source: plugin.go, isSchedulableAfterNodeChange (kubernetes 1.36).

    Upstream asks the pod's own terms alone. A node that goes or leaves a domain takes its pods along, and with them
    what they declare against this pod; their topology keys are not known here, so that any label counts.
    """
    if new is None:
        return Hint.QUEUE
    keys = {term.topology_key for term in usable(pod.spec.affinity.required)}
    if old is None:
        return _queue_if(not keys or not keys.isdisjoint(new.labels))
    if any(new.labels.get(key) != value for key, value in old.labels.items()):
        return Hint.QUEUE
    return _queue_if(any(key in new.labels and key not in old.labels for key in keys))


def _queue_if(helps: bool) -> Hint:  # noqa: FBT001  (reads as a sentence at each call)
    return Hint.QUEUE if helps else Hint.SKIP
