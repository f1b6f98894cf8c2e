"""
Decides what another scheduler decides, on the state as it stood then, and compares.

    a pod is seen with a node    decide without the pod -> is its node among the best -> then count it
    ... and it is not            decide again without what changed shortly before: a race if that explains it
    a bind shortly after         decide again with it: a race if that explains an earlier difference
    a pod is reported pending    decide -> the same reasons?

The other scheduler knows its own binds before a watch shows them, and does not know yet what a watch has just shown: so
two changes within `RACE_S` may have been in the other order for it. Pods that it bound and that were not seen pending
before are counted, not compared.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from msgspec.structs import replace as with_parts

from scheduler.core.decide import CycleError, Decision, ScheduleResult, decide
from scheduler.explain.inspection import Inspection, inspect_pod
from scheduler.explain.shadow_report import Cause, Difference, ShadowReport
from scheduler.framework.diagnosis import FitError
from scheduler.framework.interface import Rng
from scheduler.framework.observer import Unobserved
from scheduler.framework.profile import Profile
from scheduler.model.pods import Pod
from scheduler.model.stimuli import (
    DisruptionBudgetGone,
    DisruptionBudgetSeen,
    NamespaceGone,
    NamespaceSeen,
    NodeGone,
    NodeSeen,
    PodGone,
    PodSeen,
    Stimulus,
    StorageGone,
    StorageSeen,
    WorkloadGone,
    WorkloadSeen,
)
from scheduler.state.cluster import ClusterState
from scheduler.state.snapshot import Snapshot

RACE_S: Final = 2.0
#: Changes that are taken back, and differences that wait for later binds; each costs a decision.
_MAX_RECENT: Final = 50
_MAX_DIFFERENCES: Final = 1_000


@dataclass(frozen=True, slots=True)
class _Recent:
    """A pod that was counted, or was not counted any more, at a time."""

    pod: Pod
    came: bool
    at_s: float


@dataclass(frozen=True, slots=True)
class _Unsettled:
    """A difference that a later bind may explain, and the pod as it was before its bind."""

    pod: Pod
    node: str
    at_s: float


@dataclass(slots=True)
class _Counts:
    bound: int = 0
    alike: int = 0
    tied: int = 0
    unseen: int = 0
    #: Whether the reasons were the same, by pod.
    pending: dict[str, bool] = field(default_factory=dict)


class Shadow:
    """
    One comparison. Not thread-safe; nothing inside awaits.

    `sample_percentage`: the other scheduler's percentageOfNodesToScore, 0 for its default. Cost: one decision per bind
    and reported reason, and up to 100 more per difference.
    """

    def __init__(
        self,
        scheduler_name: str,
        state: ClusterState,
        profile: Profile,
        rng: Rng,
        *,
        sample_percentage: int = 0,
    ) -> None:
        self.scheduler_name, self.state = scheduler_name, state
        self._profile, self._rng, self._percentage = profile, rng, sample_percentage
        #: Pods of the scheduler without a node, as they were last seen, by UID.
        self._waiting: dict[str, Pod] = {}
        self._recent: deque[_Recent] = deque(maxlen=_MAX_RECENT)
        self._unsettled: OrderedDict[str, _Unsettled] = OrderedDict()
        self._differences: OrderedDict[str, Difference] = OrderedDict()
        self._causes: Counter[Cause] = Counter()
        self._counts = _Counts()
        #: False until the first lists are handled: the binds that they show are of long ago.
        self.compares = False

    def apply(self, stimulus: Stimulus, now_s: float) -> None:
        """Compare what the stimulus tells of a decision, and take it over into the state."""
        match stimulus:
            case PodSeen(pod):
                self._see_pod(pod, now_s)
            case PodGone(uid):
                self._waiting.pop(uid, None)
                self._unsettled.pop(uid, None)
                self._uncount(uid, now_s)
            case NodeSeen(node):
                self.state.upsert_node(node)
            case NodeGone(name):
                self.state.remove_node(name)
            case NamespaceSeen(namespace):
                self.state.upsert_namespace(namespace)
            case NamespaceGone(name):
                self.state.remove_namespace(name)
            case WorkloadSeen(workload):
                self.state.upsert_workload(workload)
            case WorkloadGone(kind, namespace, name):
                self.state.remove_workload(kind, namespace, name)
            case StorageSeen(obj):
                self.state.upsert_storage(obj)
            case StorageGone(storage_kind, key):
                self.state.remove_storage(storage_kind, key)
            case DisruptionBudgetSeen(budget):
                self.state.upsert_budget(budget)
            case DisruptionBudgetGone(namespace, name):
                self.state.remove_budget(namespace, name)
            case _:
                raise TypeError(f"a watch made {type(stimulus).__name__}")

    def report(self) -> ShadowReport:
        """Return what was compared until now."""
        counts = self._counts
        return ShadowReport(
            scheduler=self.scheduler_name,
            n_bound=counts.bound,
            n_alike=counts.alike,
            n_tied=counts.tied,
            n_pending=len(counts.pending),
            n_same_reasons=sum(counts.pending.values()),
            n_unseen=counts.unseen,
            causes={cause: count for cause, count in sorted(self._causes.items()) if count},
            differences=tuple(self._differences.values()),
            n_more_differences=self._causes.total() - len(self._differences),
        )

    def _see_pod(self, pod: Pod, now_s: float) -> None:
        if pod.is_terminal:
            self._waiting.pop(pod.uid, None)
            self._uncount(pod.uid, now_s)
            return
        if not pod.node_name:
            if pod.scheduler_name == self.scheduler_name:
                self._see_waiting(pod, now_s)
            return
        is_new = pod.uid not in self.state.placed
        if is_new and self.compares and pod.scheduler_name == self.scheduler_name:
            waiting = self._waiting.pop(pod.uid, None)
            if waiting is None:
                self._counts.unseen += 1
            else:
                self._compare_bind(waiting, pod.node_name, now_s)
        self.state.upsert_pod(pod)
        if is_new:
            self._recent.append(_Recent(pod, True, now_s))
            self._settle(now_s)

    def _uncount(self, uid: str, now_s: float) -> None:
        gone = self.state.remove_pod(uid)
        if gone is not None:
            self._recent.append(_Recent(gone, False, now_s))

    # -- binds -----------------------------------------------------------------------------------------------

    def _compare_bind(self, pod: Pod, node: str, now_s: float) -> None:
        self._counts.bound += 1
        decision = self._decide(pod)
        n_best = _n_best(decision, self.state, node)
        if n_best:
            self._counts.alike += 1
            self._counts.tied += n_best > 1
            return
        difference = self._difference(pod, node, decision)
        earlier = self._before_recent_changes(
            lambda: bool(_n_best(self._decide(pod), self.state, node)), now_s
        )
        if earlier is not None:
            difference = _as_race(difference, earlier)
        else:
            self._unsettled[pod.uid] = _Unsettled(pod, node, now_s)
        self._note(pod.uid, difference)

    def _before_recent_changes(self, agrees: Callable[[], bool], now_s: float) -> Pod | None:
        """Take recent changes back, the last one first, until the decisions agree; return the last one's pod."""
        undone: list[_Recent] = []
        found: Pod | None = None
        for recent in reversed(self._recent):
            if now_s - recent.at_s > RACE_S:
                break
            if recent.came == (recent.pod.uid in self.state.placed):
                self._redo(recent, came=not recent.came)
                undone.append(recent)
                if agrees():
                    found = recent.pod
                    break
        for recent in reversed(undone):
            self._redo(recent, came=recent.came)
        return found

    def _redo(self, recent: _Recent, *, came: bool) -> None:
        if came:
            self.state.upsert_pod(recent.pod)
        else:
            self.state.remove_pod(recent.pod.uid)

    def _settle(self, now_s: float) -> None:
        """Decide again about recent differences, with what was bound since: it may have been decided earlier."""
        for uid, unsettled in list(self._unsettled.items()):
            placed = self.state.placed.get(uid)
            if now_s - unsettled.at_s > RACE_S or placed is None or len(self._unsettled) > _MAX_RECENT:
                del self._unsettled[uid]
                continue
            latest = self._recent[-1].pod
            if latest.uid == uid:
                continue
            bound = placed.pod
            self.state.remove_pod(uid)
            explained = _n_best(self._decide(unsettled.pod), self.state, unsettled.node)
            self.state.upsert_pod(bound)
            if explained:
                del self._unsettled[uid]
                self._explain_as_race(uid, latest)

    def _explain_as_race(self, uid: str, other: Pod) -> None:
        difference = self._differences.get(uid)
        if difference is not None:
            self._note(uid, _as_race(difference, other))

    def _difference(self, pod: Pod, node: str, decision: Decision) -> Difference:
        here = decision.node_name if isinstance(decision, ScheduleResult) else ""
        row = self.state.nodes.row_by_name.get(node)
        if isinstance(decision, ScheduleResult) and row is not None and decision.scores.feasible.mask[row]:
            behind, plugin, lack = _behind(decision, row)
            cause = Cause.SAMPLING if self._may_be_sampled(decision) else Cause.SCORE
            text = f"{here} has {behind} points more, {lack} of them by {plugin}"
            return _of(pod, cause, node, here, text, behind=behind, plugin=plugin)
        plugin, reason = self._refusal(pod, row)
        return _of(pod, Cause.RULE, node, here, f"{node} is refused here: {reason}", plugin=plugin)

    def _refusal(self, pod: Pod, row: int | None) -> tuple[str, str]:
        """Return the first plugin that refuses the row, and its reason."""
        if row is None or self.state.nodes.nodes[row] is None:
            return "", "there is no such node"
        inspection = inspect_pod(pod, self.state, self._profile)
        if not isinstance(inspection, Inspection):
            return inspection[0], inspection[1].message
        for plugin, statuses in inspection.refusals:
            status = statuses.at(row)
            if status is not None:
                return plugin.name, status.message
        return "", "PreFilter leaves it out"

    def _may_be_sampled(self, decision: ScheduleResult) -> bool:
        """
        Return whether the other scheduler stops looking before it has found all feasible nodes.

        Source: schedule_one.go, numFeasibleNodesToFind (kubernetes 1.36).
        """
        n_nodes = self.state.nodes.n_live
        percentage = self._percentage or max(50 - n_nodes // 125, 5)
        return percentage < 100 and decision.n_feasible > max(100, n_nodes * percentage // 100)

    # -- pending pods ----------------------------------------------------------------------------------------

    def _see_waiting(self, pod: Pod, now_s: float) -> None:
        before = self._waiting.get(pod.uid)
        self._waiting[pod.uid] = pod
        condition = pod.scheduled_condition
        is_new = before is None or before.scheduled_condition != condition
        if not (self.compares and is_new and condition is not None and condition.reason == "Unschedulable"):
            return
        decision = self._decide(pod)
        same = _says(decision, condition.message)
        self._counts.pending[pod.uid] = same
        if same:
            return
        here = decision.node_name if isinstance(decision, ScheduleResult) else ""
        ours = f"fits on {here}" if isinstance(decision, ScheduleResult) else _message(decision)
        difference = _of(pod, Cause.RULE, "", here, f"there: {condition.message} here: {ours}")
        earlier = self._before_recent_changes(lambda: _says(self._decide(pod), condition.message), now_s)
        self._note(f"{pod.uid} pending", difference if earlier is None else _as_race(difference, earlier))

    # ---------------------------------------------------------------------------------------------------------

    def _decide(self, pod: Pod) -> Decision:
        return decide(pod, Snapshot(self.state), self._profile, self._rng, Unobserved())

    def _note(self, key: str, difference: Difference) -> None:
        """Count the difference, in place of an earlier one of the key, and keep it if there is room."""
        earlier = self._differences.get(key)
        if earlier is not None:
            self._causes[earlier.cause] -= 1
        self._causes[difference.cause] += 1
        if earlier is not None or len(self._differences) < _MAX_DIFFERENCES:
            self._differences[key] = difference


def _n_best(decision: Decision, state: ClusterState, node: str) -> int:
    """Return how many nodes share the most points if the node is one of them, else 0."""
    row = state.nodes.row_by_name.get(node)
    if row is None or not isinstance(decision, ScheduleResult) or not decision.scores.feasible.mask[row]:
        return 0
    totals = decision.scores.totals
    most = totals.max()
    return int(np.count_nonzero(totals == most)) if totals[row] == most else 0


def _message(decision: FitError | CycleError) -> str:
    """Return why no node fits, without the outcome of PostFilter."""
    return (
        decision.message if isinstance(decision, CycleError) else replace(decision, postfilter=None).message()
    )


def _says(decision: Decision, message: str) -> bool:
    """Return whether the decision gives the reasons of the message, to which PostFilter may have added."""
    return not isinstance(decision, ScheduleResult) and f"{message} ".startswith(f"{_message(decision)} ")


def _behind(decision: ScheduleResult, row: int) -> tuple[int, str, int]:
    """Return the points that the row lacks to the chosen one, the plugin that most of them are from, and how many."""
    scores = decision.scores
    lacks = [
        (each.weight * (each.scores.item(scores.chosen) - each.scores.item(row)), each.plugin)
        for each in scores.by_plugin
    ]
    lack, plugin = max(lacks)
    return scores.totals.item(scores.chosen) - scores.totals.item(row), plugin, lack


def _as_race(difference: Difference, other: Pod) -> Difference:
    text = f"{difference.explanation}; not so if {other.key} came in the other order"
    return with_parts(difference, cause=Cause.RACE, explanation=text)


def _of(
    pod: Pod, cause: Cause, node: str, here: str, explanation: str, *, behind: int = 0, plugin: str = ""
) -> Difference:
    return Difference(
        namespace=pod.namespace,
        pod=pod.name,
        cause=cause,
        node=node,
        here=here,
        behind=behind,
        plugin=plugin,
        explanation=explanation,
    )
