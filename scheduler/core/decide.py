"""
One decision: a pod, the state, a profile; out comes a node, or why there is none.

    PreFilter -> Filter (a mask over all nodes) -> PreScore -> Score (integers over all nodes) -> weighted sum -> argmax

Nothing is written: the same arguments give the same answer. Source: schedule_one.go, schedulingAlgorithm (kubernetes
1.36). Difference: all nodes are filtered and scored unless percentageOfNodesToScore asks for fewer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from scheduler.framework.diagnosis import FitError, PluginRefusals, add_reasons
from scheduler.framework.interface import LEAST, Candidate, Feasible, Narrowed, NodeFilter, NodeScorer
from scheduler.framework.normalizing import MAX_NODE_SCORE
from scheduler.framework.observer import Observer
from scheduler.framework.profile import Profile
from scheduler.framework.verdicts import SKIP, Code, Refusals, Status, unresolvable
from scheduler.model.pods import Pod
from scheduler.state.arrays import Mask, Rows, Scores
from scheduler.state.snapshot import Snapshot

NO_NODES: Final = "no nodes available to schedule pods"

#: Fewest nodes that sampling may look for, as upstream's minFeasibleNodesToFind.
_FEWEST_FEASIBLE: Final = 100


class Chance(Protocol):
    """Where ties are drawn from; seeded outside."""

    def randrange(self, stop: int, /) -> int:
        """A number from 0 to stop - 1."""
        ...


class _Refused(NamedTuple):
    """A filter, the nodes before and after it (bool arrays of shape (n_rows,)), and how many it refused."""

    node_filter: NodeFilter
    before: Mask
    after: Mask
    n: int


@dataclass(frozen=True, slots=True)
class Standings:
    """
    How the nodes stood in one decision: the cycle's own arrays, so to be read before the next stimulus only.

    `chosen`: a row. `leaders`: the feasible rows of the highest total, in ascending order. `totals`: array of shape
    (n_rows,), valid on feasible rows, as are `scores`: plugin, weight, and its unweighted scores; none where one node
    alone was feasible. `refused`: the filters that refused nodes, in order.
    """

    chosen: int
    leaders: Rows
    feasible: Feasible
    totals: Scores
    scores: Sequence[tuple[str, int, Scores]]
    refused: Sequence[_Refused]

    def rejected(self) -> Counter[str]:
        """How many nodes were refused for each reason by the filter that refused them first. O(n_rows) per filter."""
        counts: Counter[str] = Counter()
        for one in self.refused:
            add_reasons(counts, one.node_filter.refusals(), one.before ^ one.after, one.n)
        return counts

    def leading(self, n_most: int) -> list[tuple[int, int]]:
        """
        (row, total) of the chosen node, then of the others from the highest total down.

        O(n_most), or O(n_most * n_rows) where fewer nodes share the highest total. Totals are written meanwhile, and
        are what they were afterwards.
        """
        totals = self.totals
        n_most = min(n_most, self.feasible.n)
        rows = [self.chosen]
        if len(self.leaders) > 1:
            rows += [row for row in self.leaders[:n_most].tolist() if row != self.chosen][: n_most - 1]
        ranked = [(row, totals.item(row)) for row in rows]
        if len(ranked) < n_most:
            # Whoever is ranked steps aside for the next: a copy of all totals would cost as much as finding it.
            passed = LEAST[totals.dtype]
            for row in rows:
                totals[row] = passed
            while len(ranked) < n_most:
                row = self.feasible.best(totals)
                ranked.append((row, totals.item(row)))
                totals[row] = passed
            for row, total in ranked:
                totals[row] = total
        return ranked


@dataclass(frozen=True, slots=True)
class Placement:
    """The node that was chosen, and among how many."""

    node_name: str
    n_evaluated: int
    n_feasible: int
    standings: Standings = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class NoFit:
    """No node fits; the pod waits for an event."""

    error: FitError


@dataclass(frozen=True, slots=True)
class Failed:
    """The cycle could not be carried through; the pod is tried again after a backoff. `unschedulable` without nodes."""

    message: str
    unschedulable: bool = False


Decision = Placement | NoFit | Failed


@dataclass(slots=True)
class _Filtered:
    """The outcome of PreFilter: filters to run, and the nodes that they are run on."""

    filters: list[tuple[str, NodeFilter]] = field(default_factory=list)
    narrowing: dict[str, frozenset[str]] = field(default_factory=dict)
    #: Each filter that took nodes from those before it, in order.
    refused: list[_Refused] = field(default_factory=list)


def decide(pod: Pod, snapshot: Snapshot, profile: Profile, chance: Chance, observer: Observer) -> Decision:
    """The best node for the pod, ties drawn by `chance`. O(n_rows) per plugin that has work to do."""
    decision = _decided(pod, snapshot, observer.begin(profile), chance, observer)
    observer.end()
    return decision


def _decided(pod: Pod, snapshot: Snapshot, profile: Profile, chance: Chance, observer: Observer) -> Decision:
    if snapshot.n_nodes == 0:
        return Failed(NO_NODES, unschedulable=True)
    candidate = Candidate(pod, snapshot.label_set(pod))
    filtered = _prefilter(candidate, snapshot, profile, observer)
    if not isinstance(filtered, _Filtered):
        return filtered
    observer.enter("Filter")
    nodes = _candidate_nodes(snapshot, filtered)
    mask = _run_filters(nodes, filtered, observer)
    mask = _sampled(_nominated_first(pod, snapshot, mask), profile, chance)
    observer.leave("Filter", Code.SUCCESS)
    feasible = Feasible(mask)
    if feasible.n == 0:
        return NoFit(_diagnosed(snapshot, filtered, nodes))
    scored = _scored(candidate, snapshot, profile, feasible, observer)
    if isinstance(scored, Failed):
        return scored
    totals, scores = scored
    (leaders,) = ((totals == totals.item(feasible.best(totals))) & mask).nonzero()
    chosen = leaders.item(0 if len(leaders) == 1 else chance.randrange(len(leaders)))
    standings = Standings(chosen, leaders, feasible, totals, scores, filtered.refused)
    return Placement(snapshot.nodes.name_of(chosen), snapshot.n_nodes, feasible.n, standings)


def _prefilter(
    candidate: Candidate, snapshot: Snapshot, profile: Profile, observer: Observer
) -> _Filtered | NoFit | Failed:
    """
    Every plugin's look at the pod, in order.

    UnschedulableAndUnresolvable stops at once; Unschedulable is remembered and fails after all have run.
    """
    observer.enter("PreFilter")
    filtered = _Filtered()
    refused: list[tuple[str, Status]] = []
    for plugin in profile.filters:
        result = plugin.prefilter(candidate, snapshot)
        if result is SKIP:
            continue
        observer.evaluated(plugin.name, "PreFilter")
        if isinstance(result, Status):
            if not result.code.rejects:
                observer.leave("PreFilter", Code.ERROR)
                return Failed(f'running PreFilter plugin "{plugin.name}": {result.message}')
            refused.append((plugin.name, result))
            if result.code is Code.UNRESOLVABLE:
                break
        elif isinstance(result, Narrowed):
            filtered.narrowing[plugin.name] = result.node_names
            filtered.filters.append((plugin.name, result.node_filter))
        else:
            filtered.filters.append((plugin.name, result))
    return _after_prefilter(snapshot, filtered, refused, observer)


def _after_prefilter(
    snapshot: Snapshot, filtered: _Filtered, refused: Sequence[tuple[str, Status]], observer: Observer
) -> _Filtered | NoFit:
    if not refused and filtered.narrowing and not frozenset.intersection(*filtered.narrowing.values()):
        refused = [(name, _nothing_left(filtered.narrowing)) for name in filtered.narrowing]
    if not refused:
        observer.leave("PreFilter", Code.SUCCESS)
        return filtered
    status = refused[-1][1]
    observer.leave("PreFilter", status.code)
    rejecting = frozenset(name for name, _ in refused)
    return NoFit(FitError(snapshot.n_nodes, rejecting, prefilter=status))


def _nothing_left(narrowing: dict[str, frozenset[str]]) -> Status:
    """Source: framework/runtime/framework.go, RunPreFilterPlugins (kubernetes 1.36)."""
    names = " ".join(sorted(narrowing))
    if len(narrowing) == 1:
        return unresolvable(f"node(s) didn't satisfy plugin {names}")
    return unresolvable(f"node(s) didn't satisfy plugin(s) [{names}] simultaneously")


def _candidate_nodes(snapshot: Snapshot, filtered: _Filtered) -> Mask:
    """Live nodes, only the named ones where PreFilter narrowed them. A fresh array."""
    if not filtered.narrowing:
        return snapshot.alive.copy()
    mask = np.zeros(snapshot.n_rows, dtype=np.bool_)
    for name in frozenset.intersection(*filtered.narrowing.values()):
        row = snapshot.nodes.row_by_name.get(name)
        if row is not None:
            mask[row] = True
    return mask & snapshot.alive


def _run_filters(nodes: Mask, filtered: _Filtered, observer: Observer) -> Mask:
    mask = nodes
    n_left = int(np.count_nonzero(mask))
    for name, node_filter in filtered.filters:
        observer.evaluated(name, "Filter")
        before, mask = mask, mask & node_filter.fits()
        n_before, n_left = n_left, int(np.count_nonzero(mask))
        if n_left < n_before:
            filtered.refused.append(_Refused(node_filter, before, mask, n_before - n_left))
        if not n_left:
            break
    return mask


def _nominated_first(pod: Pod, snapshot: Snapshot, mask: Mask) -> Mask:
    """A pod nominated to a node that fits has no other choice (evaluateNominatedNode)."""
    row = snapshot.nodes.row_by_name.get(pod.nominated_node_name) if pod.nominated_node_name else None
    if row is None or not mask[row]:
        return mask
    only = np.zeros_like(mask)
    only[row] = True
    return only


def _sampled(mask: Mask, profile: Profile, chance: Chance) -> Mask:
    """
    All feasible nodes, or as many as percentageOfNodesToScore asks for, from a drawn start on.

    Upstream continues where the last cycle stopped; which nodes are looked at is arbitrary in both.
    """
    percentage = profile.percentage_of_nodes_to_score
    if percentage <= 0 or percentage >= 100:
        return mask
    wanted = max(_FEWEST_FEASIBLE, len(mask) * percentage // 100)
    rows = np.flatnonzero(mask)
    if len(rows) <= wanted:
        return mask
    kept = np.roll(rows, -chance.randrange(len(rows)))[:wanted]
    sampled = np.zeros_like(mask)
    sampled[kept] = True
    return sampled


def _diagnosed(snapshot: Snapshot, filtered: _Filtered, nodes: Mask) -> FitError:
    """Per node the first plugin that refuses it, in filter order; asked only where no node is left."""
    parts: list[PluginRefusals] = []
    rejecting: set[str] = set()
    left_out = snapshot.alive & ~nodes
    if left_out.any():
        names = " ".join(sorted(filtered.narrowing))
        status = unresolvable(f"node(s) didn't satisfy plugin(s) [{names}]")
        parts.append(PluginRefusals(names, Refusals.where(left_out, status), left_out))
        rejecting.update(filtered.narrowing)
    open_rows = nodes.copy()
    for name, node_filter in filtered.filters:
        refusals = node_filter.refusals()
        rows = open_rows & (refusals.codes != 0)
        if rows.any():
            parts.append(PluginRefusals(name, refusals, rows))
            rejecting.add(name)
            open_rows &= ~rows
            if not open_rows.any():
                break
    return FitError(snapshot.n_nodes, frozenset(rejecting), per_node=tuple(parts))


def _scored(
    candidate: Candidate, snapshot: Snapshot, profile: Profile, feasible: Feasible, observer: Observer
) -> tuple[Scores, list[tuple[str, int, Scores]]] | Failed:
    """
    Weighted sum of all scores, and what was added up: plugin, weight, scores. One feasible node is not scored at all.

    Arrays are of shape (n_rows,): the sum of the profile's `totals_dtype`, scores int16.
    """
    total: Scores = np.zeros(snapshot.n_rows, dtype=profile.totals_dtype)
    scores: list[tuple[str, int, Scores]] = []
    if feasible.n == 1 or not profile.scorers:
        return total, scores
    observer.enter("PreScore")
    scorers: list[tuple[str, int, NodeScorer[Any]]] = []
    for weighted in profile.scorers:
        name = weighted.plugin.name
        result = weighted.plugin.prescore(candidate, snapshot, feasible)
        if result is SKIP:
            continue
        observer.evaluated(name, "PreScore")
        if isinstance(result, Status):
            observer.leave("PreScore", Code.ERROR)
            return Failed(f'running PreScore plugin "{name}": {result.message}')
        scorers.append((name, weighted.weight, result))
    observer.leave("PreScore", Code.SUCCESS)
    observer.enter("Score")
    for name, weight, scorer in scorers:
        observer.evaluated(name, "Score")
        # That scores are from 0 to 100 is a property of every plugin in the tree, as long as no amount wraps.
        normalized = scorer.normalized(scorer.raw())
        if snapshot.nodes.may_wrap and (problem := _out_of_range(name, normalized, feasible)):
            observer.leave("Score", Code.ERROR)
            return Failed(problem)
        scores.append((name, weight, normalized))
        total += normalized if weight == 1 else np.multiply(normalized, weight, dtype=total.dtype)
    observer.leave("Score", Code.SUCCESS)
    return total, scores


def _out_of_range(name: str, normalized: Scores, feasible: Feasible) -> str:
    """What is wrong with a plugin's scores, empty where nothing is (runtime/framework.go, RunScorePlugins, 1.36)."""
    rows = (feasible.mask & ((normalized < 0) | (normalized > MAX_NODE_SCORE))).nonzero()[0]
    if not len(rows):
        return ""
    problem = f'plugin "{name}" returns an invalid score {normalized.item(rows.item(0))}'
    expected = f"it should in the range of [0, {MAX_NODE_SCORE}] after normalizing"
    return f"applying score defaultWeights on Score plugins: {problem}, {expected}"
