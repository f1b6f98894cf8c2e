"""
One decision: a pod, the state, a profile; out comes a node, or why there is none.

    PreFilter -> Filter (a mask over all nodes) -> PreScore -> Score (integers over all nodes) -> weighted sum -> argmax

Nothing is written: the same arguments give the same answer. Source: schedule_one.go, schedulingAlgorithm (kubernetes
1.36). Difference: all nodes are filtered and scored unless percentageOfNodesToScore asks for fewer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from scheduler.core.standings import Chance, Filtered, Leaders, Scored, Standings
from scheduler.framework.diagnosis import FitError, PluginRefusals
from scheduler.framework.interface import Candidate, Feasible, Narrowed, NodeScorer
from scheduler.framework.normalizing import MAX_NODE_SCORE
from scheduler.framework.observer import Observer
from scheduler.framework.profile import Profile
from scheduler.framework.verdicts import SKIP, Code, Refusals, Skip, Status, unresolvable
from scheduler.model.pods import Pod
from scheduler.state.arrays import Mask, Scores
from scheduler.state.snapshot import Snapshot

NO_NODES: Final = "no nodes available to schedule pods"

#: Fewest nodes that sampling may look for, as upstream's minFeasibleNodesToFind.
_FEWEST_FEASIBLE: Final = 100


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


def decide(pod: Pod, snapshot: Snapshot, profile: Profile, chance: Chance, observer: Observer) -> Decision:
    """The best node for the pod, ties drawn by `chance`. O(n_rows) per plugin that has work to do."""
    decision = decided(pod, snapshot, observer.begin(profile), chance, observer)
    observer.end()
    return decision


def decided(pod: Pod, snapshot: Snapshot, profile: Profile, chance: Chance, observer: Observer) -> Decision:
    """What `decide` says, where the observer has been told of the beginning and is still to be told of the end."""
    if snapshot.n_nodes == 0:
        return Failed(NO_NODES, unschedulable=True)
    candidate = Candidate(pod, snapshot.label_set(pod))
    filtered = _prefilter(candidate, snapshot, profile, observer)
    if not isinstance(filtered, Filtered):
        return filtered
    observer.enter("Filter")
    nodes = filtered.nodes = _candidate_nodes(snapshot, filtered)
    mask = _run_filters(nodes, filtered, observer)
    mask = _sampled(_nominated_first(pod, snapshot, mask), profile, chance)
    observer.leave("Filter", Code.SUCCESS)
    feasible = Feasible(mask)
    if feasible.n == 0:
        return NoFit(_diagnosed(snapshot, filtered, nodes))
    scored = _scored(candidate, snapshot, profile, feasible, filtered, observer)
    if isinstance(scored, Failed):
        return scored
    totals, scores = scored
    standings = Standings.drawn(Leaders.of(totals), feasible, lambda: totals, scores, filtered, chance)
    return placed(snapshot, standings)


def placed(snapshot: Snapshot, standings: Standings) -> Placement:
    """The decision for the chosen node."""
    name = snapshot.nodes.name_of(standings.chosen)
    return Placement(name, snapshot.n_nodes, standings.feasible.n, standings)


def _prefilter(
    candidate: Candidate, snapshot: Snapshot, profile: Profile, observer: Observer
) -> Filtered | NoFit | Failed:
    """
    Every plugin's look at the pod, in order.

    UnschedulableAndUnresolvable stops at once; Unschedulable is remembered and fails after all have run.
    """
    observer.enter("PreFilter")
    filtered = Filtered()
    refused: list[tuple[str, Status]] = []
    for plugin in profile.filters:
        result = plugin.prefilter(candidate, snapshot)
        if isinstance(result, Skip):
            filtered.lasts &= result is SKIP
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
    snapshot: Snapshot, filtered: Filtered, refused: Sequence[tuple[str, Status]], observer: Observer
) -> Filtered | NoFit:
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


def _candidate_nodes(snapshot: Snapshot, filtered: Filtered) -> Mask:
    """Live nodes, only the named ones where PreFilter narrowed them. A fresh array."""
    if not filtered.narrowing:
        return snapshot.alive.copy()
    mask = np.zeros(snapshot.n_rows, dtype=np.bool_)
    for name in frozenset.intersection(*filtered.narrowing.values()):
        row = snapshot.nodes.row_by_name.get(name)
        if row is not None:
            mask[row] = True
    return mask & snapshot.alive


def _run_filters(nodes: Mask, filtered: Filtered, observer: Observer) -> Mask:
    mask = nodes
    n_left = int(np.count_nonzero(mask))
    for name, node_filter in filtered.filters:
        observer.evaluated(name, "Filter")
        fitting = node_filter.fits()
        filtered.masks.append(fitting)
        mask, n_left = filtered.sift(node_filter, fitting, mask, n_left)
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


def _diagnosed(snapshot: Snapshot, filtered: Filtered, nodes: Mask) -> FitError:
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
    candidate: Candidate,
    snapshot: Snapshot,
    profile: Profile,
    feasible: Feasible,
    filtered: Filtered,
    observer: Observer,
) -> tuple[Scores, list[Scored]] | Failed:
    """
    Weighted sum of all scores, and what was added up. One feasible node is not scored at all.

    Arrays are of shape (n_rows,): the sum of the profile's `totals_dtype`, its least number where a node is not
    feasible; scores int16.
    """
    total: Scores = np.zeros(snapshot.n_rows, dtype=profile.totals_dtype)
    scores: list[Scored] = []
    if feasible.n == 1 or not profile.scorers:
        feasible.rule_out_others(total)
        return total, scores
    observer.enter("PreScore")
    scorers: list[tuple[str, int, NodeScorer[Any]]] = []
    for weighted in profile.scorers:
        name = weighted.plugin.name
        result = weighted.plugin.prescore(candidate, snapshot, feasible)
        if isinstance(result, Skip):
            filtered.lasts &= result is SKIP
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
        scores.append(Scored(name, weight, normalized, scorer))
        total += scores[-1].weighted(total.dtype)
    feasible.rule_out_others(total)
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
