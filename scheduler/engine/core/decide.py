"""
Makes one decision: given a pod, the state and a profile, returns a node, or why there is none.

    PreFilter -> Filter (a mask over all nodes) -> PreScore -> Score (integers over all nodes) -> weighted sum -> argmax

A decision changes no state: the same arguments give the same answer. Source: schedule_one.go, schedulingAlgorithm
(kubernetes 1.36). Difference: all nodes are filtered and scored unless percentageOfNodesToScore asks for fewer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from scheduler.engine.core.node_scores import INFEASIBLE, FilterResult, NodeScores, PluginScores, Refusal
from scheduler.engine.core.nominated_filter import refusals_with_nominated
from scheduler.engine.framework.diagnosis import FitError, PluginRefusals, PostFiltered
from scheduler.engine.framework.interface import FeasibleNodes, NodeScorer, PodContext, PreFilterResult, Rng
from scheduler.engine.framework.node_trial import FilterTrials
from scheduler.engine.framework.observer import UNOBSERVED, Observer
from scheduler.engine.framework.post_filter import UnfitPod
from scheduler.engine.framework.profile import Profile
from scheduler.engine.framework.status import SKIP, Code, NodeStatuses, Status, unresolvable
from scheduler.engine.model.object_writes import ObjectWrite
from scheduler.engine.model.pods import Pod
from scheduler.engine.state.arrays import Mask, Scores
from scheduler.engine.state.batches import Pieces, finished
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.errors import PluginFailed

NO_NODES: Final = "no nodes available to schedule pods"

#: Fewest nodes that sampling may look for, as upstream's minFeasibleNodesToFind.
_FEWEST_FEASIBLE: Final = 100


@dataclass(frozen=True, slots=True)
class ScheduleResult:
    """The chosen node, the number of nodes evaluated and found feasible, and their scores."""

    node_name: str
    n_evaluated: int
    n_feasible: int
    scores: NodeScores = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class CycleError:
    """A failed cycle; the pod is tried again after a backoff. `unschedulable`: it is reported as Unschedulable."""

    message: str
    unschedulable: bool = False


Decision = ScheduleResult | FitError | CycleError


@dataclass(frozen=True, slots=True)
class DecisionScope:
    """The scope of a decision on a group's member: the only rows that may be chosen, `siblings` as in `PodContext`."""

    rows: Mask
    siblings: Sequence[Pod] = ()


def decide(
    pod: Pod, view: ClusterView, profile: Profile, rng: Rng, scope: DecisionScope | None = None
) -> Decision:
    """
    Return the best node for the pod, or why there is none. `rng` chooses among equally good nodes.

    Within a scope, messages count its nodes alone, no node is left out by chance, and no pod is evicted.
    """
    return finished(deciding(pod, view, profile, rng, UNOBSERVED, scope))


def deciding(
    pod: Pod,
    view: ClusterView,
    profile: Profile,
    rng: Rng,
    observer: Observer,
    scope: DecisionScope | None = None,
) -> Pieces[Decision]:
    """Do as `decide`, in pieces: PostFilter and searches for devices take long. The state must not change meanwhile."""
    profile = observer.begin(profile)
    try:
        decided = yield from _decide(pod, view, profile, rng, observer, scope)
        if isinstance(decided, UnfitPod):
            decided = yield from _post_filtered(decided, view, profile, rng, observer)
        decision: Decision = decided
    except PluginFailed as failure:
        observer.leave(failure.point, Code.ERROR)
        decision = CycleError(str(failure))
    observer.end()
    return decision


def _decide(
    pod: Pod, view: ClusterView, profile: Profile, rng: Rng, observer: Observer, scope: DecisionScope | None
) -> Pieces[Decision | UnfitPod]:
    """Return the decision; a pod for which PostFilter is to be asked."""
    if view.n_nodes == 0:
        return CycleError(NO_NODES, unschedulable=True)
    context = PodContext(pod, view.label_set(pod), () if scope is None else scope.siblings)
    filtered = FilterResult()
    failure = _run_prefilters(context, view, profile, filtered, observer)
    trials, evicts_below = FilterTrials(filtered.filters), view.state.groups.preemptor_priority(pod)
    if isinstance(failure, CycleError):
        return failure
    if failure is not None:
        return failure if scope is not None else UnfitPod(context, failure, trials, evicts_below)
    observer.enter("Filter")
    nodes = _nodes_to_filter(view, filtered)
    if scope is not None:
        nodes = nodes & scope.rows
    mask = yield from _run_filters(nodes, filtered, observer)
    mask = _without_nominated(pod, view, filtered, trials, mask)
    mask = _nominated_first(pod, view, mask)
    if scope is None:
        mask = _sampled(mask, view.n_nodes, profile, rng)
    observer.leave("Filter", Code.SUCCESS)
    feasible = FeasibleNodes(mask)
    if feasible.n == 0:
        # Upstream tries with the nominated pods first: a node that refuses in both passes has the reason of the first.
        _without_nominated(pod, view, filtered, trials, nodes)
        failure = _diagnosed(view, filtered, nodes, view.alive if scope is None else scope.rows)
        return failure if scope is not None else UnfitPod(context, failure, trials, evicts_below)
    scored = _run_scorers(context, view, profile, feasible, observer)
    if isinstance(scored, CycleError):
        return scored
    totals, by_plugin = scored
    # argmax, not max: a third of the time.
    best = (totals == totals.item(totals.argmax())).nonzero()[0]
    chosen = best.item(0 if len(best) == 1 else rng.randrange(len(best)))
    # May fail, so it is called within the decision.
    reservations = filtered.reservations(chosen)
    scores = NodeScores(chosen, feasible, totals, by_plugin, filtered, reservations)
    return ScheduleResult(view.nodes.name_of(chosen), view.n_nodes, feasible.n, scores)


def fits(pod: Pod, view: ClusterView, profile: Profile) -> bool:
    """Return whether a node takes the pod now."""
    filtered = FilterResult()
    failure = _run_prefilters(_alone(pod, view), view, profile, filtered, UNOBSERVED)
    return failure is None and _has_feasible(pod, view, filtered, FilterTrials(filtered.filters))


def fits_only_without(
    pod: Pod, leaving: Sequence[Pod], row: int, view: ClusterView, profile: Profile
) -> bool:
    """Return whether no node takes the pod now, but the row does once these of its pods are gone."""
    filtered = FilterResult()
    failure = _run_prefilters(_alone(pod, view), view, profile, filtered, UNOBSERVED)
    trials = FilterTrials(filtered.filters)
    if failure is None:
        if not _nodes_to_filter(view, filtered).item(row) or _has_feasible(pod, view, filtered, trials):
            return False
    elif isinstance(failure, CycleError) or failure.code_at(row) is not Code.UNSCHEDULABLE:
        return False
    trial = trials.at(row, view.nominated_above_on(row, pod))
    for other in leaving:
        trial.count(other, -1)
    return trial.refusal() is None


def _alone(pod: Pod, view: ClusterView) -> PodContext:
    return PodContext(pod, view.label_set(pod))


def _has_feasible(pod: Pod, view: ClusterView, filtered: FilterResult, trials: FilterTrials) -> bool:
    mask = finished(_run_filters(_nodes_to_filter(view, filtered), filtered, UNOBSERVED))
    return bool(_without_nominated(pod, view, filtered, trials, mask).any())


def _run_prefilters(
    context: PodContext, view: ClusterView, profile: Profile, filtered: FilterResult, observer: Observer
) -> FitError | CycleError | None:
    """
    Run PreFilter of every plugin, in order, and add the filters to `filtered`. Return the failure, if there is one.

    UnschedulableAndUnresolvable stops at once; Unschedulable rejects the pod after all plugins have run.
    """
    observer.enter("PreFilter")
    rejections: list[tuple[str, Status]] = []
    for plugin in profile.filters:
        result = plugin.prefilter(context, view)
        if result is SKIP:
            continue
        observer.evaluated(plugin.name, "PreFilter")
        if isinstance(result, Status):
            if not result.code.rejects:
                observer.leave("PreFilter", Code.ERROR)
                return CycleError(f'running PreFilter plugin "{plugin.name}": {result.message}')
            rejections.append((plugin.name, result))
            if result.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
                break
        elif isinstance(result, PreFilterResult):
            filtered.node_names[plugin.name] = result.node_names
            filtered.filters.append((plugin.name, result.node_filter))
        else:
            filtered.filters.append((plugin.name, result))
    names = filtered.node_names
    if not rejections and names and not frozenset.intersection(*names.values()):
        rejections = [(name, _no_node_left(names)) for name in names]
    if not rejections:
        observer.leave("PreFilter", Code.SUCCESS)
        return None
    status = rejections[-1][1]
    observer.leave("PreFilter", status.code)
    rejecting = frozenset(name for name, _ in rejections)
    return FitError(view.n_nodes, rejecting, prefilter=status)


def _no_node_left(node_names: dict[str, frozenset[str]]) -> Status:
    """Return the status if no node is named by all plugins (runtime/framework.go, RunPreFilterPlugins, 1.36)."""
    names = " ".join(sorted(node_names))
    if len(node_names) == 1:
        return unresolvable(f"node(s) didn't satisfy plugin {names}")
    return unresolvable(f"node(s) didn't satisfy plugin(s) [{names}] simultaneously")


def _nodes_to_filter(view: ClusterView, filtered: FilterResult) -> Mask:
    """Return the live nodes, without those that PreFilter left out."""
    if not filtered.node_names:
        return view.alive
    mask = np.zeros(view.n_rows, dtype=np.bool_)
    for name in frozenset.intersection(*filtered.node_names.values()):
        row = view.nodes.row_by_name.get(name)
        if row is not None:
            mask[row] = True
    return mask & view.alive


def _run_filters(nodes: Mask, filtered: FilterResult, observer: Observer) -> Pieces[Mask]:
    """Return the nodes that pass every filter, and add what each filter refuses to `filtered.refusals`."""
    left, n_left = nodes, int(np.count_nonzero(nodes))
    for name, node_filter in filtered.filters:
        observer.evaluated(name, "Filter")
        if node_filter.prepare is not None:
            yield from node_filter.prepare(left)
        after = left & node_filter.mask_within(left)
        n_after = int(np.count_nonzero(after))
        if n_after < n_left:
            filtered.refusals.append(Refusal(name, node_filter.statuses, left ^ after))
        left, n_left = after, n_after
        if not n_left:
            break
    return left


def _without_nominated(
    pod: Pod, view: ClusterView, filtered: FilterResult, trials: FilterTrials, mask: Mask
) -> Mask:
    """Return the nodes of `mask` that also take the pod beside the pods nominated there; note why the others do not."""
    if not view.state.nominated or not mask.any():
        return mask
    for plugin, statuses in refusals_with_nominated(pod, view, trials, mask):
        filtered.replace_refusals(plugin, statuses)
        mask = mask & (statuses.codes == 0)
    return mask


def _nominated_first(pod: Pod, view: ClusterView, mask: Mask) -> Mask:
    """Return only the nominated node if it is feasible, else all feasible nodes (evaluateNominatedNode)."""
    row = view.nodes.row_by_name.get(pod.nominated_node_name) if pod.nominated_node_name else None
    if row is None or not mask[row]:
        return mask
    only = np.zeros_like(mask)
    only[row] = True
    return only


def _sampled(mask: Mask, n_nodes: int, profile: Profile, rng: Rng) -> Mask:
    """
    Return all feasible nodes, or as many as percentageOfNodesToScore asks for, beginning at a random one.

    `n_nodes`: live nodes, the base of the percentage (numFeasibleNodesToFind, kubernetes 1.36). Upstream begins
    where the last cycle stopped; the choice is arbitrary in both.
    """
    percentage = profile.percentage_of_nodes_to_score
    if percentage <= 0:
        return mask
    wanted = max(_FEWEST_FEASIBLE, n_nodes * percentage // 100)
    rows = np.flatnonzero(mask)
    if len(rows) <= wanted:
        return mask
    chosen = np.roll(rows, -rng.randrange(len(rows)))[:wanted]
    sampled = np.zeros_like(mask)
    sampled[chosen] = True
    return sampled


def _diagnosed(view: ClusterView, filtered: FilterResult, nodes: Mask, asked: Mask) -> FitError:
    """Return the error of a pod that fits on none of `asked`; each counts for the first plugin that refuses it."""
    parts: list[PluginRefusals] = []
    rejecting: set[str] = set()
    left_out = asked & ~nodes
    if left_out.any():
        names = " ".join(sorted(filtered.node_names))
        status = unresolvable(f"node(s) didn't satisfy plugin(s) [{names}]")
        statuses = NodeStatuses.first_broken([(~left_out, status)], view.n_rows)
        parts.append(PluginRefusals(names, statuses, left_out))
        rejecting.update(filtered.node_names)
    for name, statuses_of, rows in filtered.refusals:
        if rows.any():
            parts.append(PluginRefusals(name, statuses_of(), rows))
            rejecting.add(name)
    n_asked = view.n_nodes if asked is view.alive else int(np.count_nonzero(asked))
    return FitError(n_asked, frozenset(rejecting), per_node=tuple(parts))


def _post_filtered(
    unfit: UnfitPod, view: ClusterView, profile: Profile, rng: Rng, observer: Observer
) -> Pieces[FitError]:
    """
    Return the error with what the PostFilter plugins did.

    They run until one succeeds, fails, or says that nothing helps. Otherwise their reasons are joined, and the last
    nomination holds (runtime/framework.go, RunPostFilterPlugins, kubernetes 1.36).
    """
    if not profile.post_filters:
        return unfit.fit_error
    observer.enter("PostFilter")
    reasons: tuple[str, ...] = ()
    nominated: str | None = None
    writes: tuple[ObjectWrite[Any], ...] = ()
    for plugin in profile.post_filters:
        observer.evaluated(plugin.name, "PostFilter")
        result = yield from plugin.postfilter(unfit, view, rng)
        writes += result.writes
        if result.status.code is not Code.UNSCHEDULABLE:
            break
        reasons += result.status.reasons
        nominated = nominated if result.nominated_node_name is None else result.nominated_node_name
    else:
        result = PostFiltered(Status(Code.UNSCHEDULABLE, reasons), nominated)
    observer.leave("PostFilter", result.status.code)
    return replace(unfit.fit_error, postfilter=replace(result, writes=writes))


def _run_scorers(
    context: PodContext, view: ClusterView, profile: Profile, feasible: FeasibleNodes, observer: Observer
) -> tuple[Scores, list[PluginScores]] | CycleError:
    """Return `NodeScores.totals` and the scores of each plugin. A single feasible node is not scored."""
    totals: Scores = np.zeros(view.n_rows, dtype=profile.totals_dtype)
    by_plugin: list[PluginScores] = []
    if feasible.n > 1 and profile.scorers:
        scorers = _run_prescorers(context, view, profile, feasible, observer)
        if isinstance(scorers, CycleError):
            return scorers
        observer.enter("Score")
        for name, weight, scorer in scorers:
            observer.evaluated(name, "Score")
            scores = scorer.normalized(scorer.raw())
            by_plugin.append(PluginScores(name, weight, scores))
            totals += scores if weight == 1 else np.multiply(scores, weight, dtype=totals.dtype)
        observer.leave("Score", Code.SUCCESS)
    if feasible.n < len(totals):
        np.copyto(totals, INFEASIBLE[totals.dtype], where=~feasible.mask)
    return totals, by_plugin


def _run_prescorers(
    context: PodContext, view: ClusterView, profile: Profile, feasible: FeasibleNodes, observer: Observer
) -> Sequence[tuple[str, int, NodeScorer[Any]]] | CycleError:
    observer.enter("PreScore")
    scorers: list[tuple[str, int, NodeScorer[Any]]] = []
    for weighted in profile.scorers:
        name = weighted.plugin.name
        result = weighted.plugin.prescore(context, view, feasible)
        if result is SKIP:
            continue
        observer.evaluated(name, "PreScore")
        if isinstance(result, Status):
            observer.leave("PreScore", Code.ERROR)
            return CycleError(f'running PreScore plugin "{name}": {result.message}')
        scorers.append((name, weighted.weight, result))
    observer.leave("PreScore", Code.SUCCESS)
    return scorers
