"""
Decides what another scheduler decides, on the state as it stood then, and compares.

    a pod is seen with a node    decide without the pod -> is its node among the best -> then count it
    ... and it is not            try the orders of what changed shortly before: a proven race if one explains it
    a change shortly after       decide again with it: a proven race if that explains an earlier difference
    a pod is reported pending    decide -> the same reasons?

The other scheduler knows its own binds before a watch shows them, and does not know yet what a watch has just shown: so
two changes within `race_s` may have been in the other order for it: `races`.

Pods that it bound and that were not seen pending before are counted, not compared.

While a watch is interrupted, the state is of no one moment, and the events that follow happened in another order:
nothing is compared for `INTERRUPTED_S`, and a pod bound in that time counts as not seen pending.

Members of a group that are bound, or reported pending, shortly after each other are one decision, compared as a whole:
`group_binds`.

A pod whose volumes have to be bound first is decided long before its bind: kube-scheduler writes its node into
`nominatedNodeName` (since 1.35) or into a claim, and counts it there from then on. So does this.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from math import inf
from typing import Final

from scheduler.engine.core.decide import Decision, ScheduleResult, decide
from scheduler.engine.framework.interface import Rng
from scheduler.engine.framework.profile import Profile
from scheduler.engine.model.pod_groups import GroupKey
from scheduler.engine.model.pods import Pod, may_use_claim
from scheduler.engine.model.stimuli import ObjectSeen, PodGone, PodSeen, WatchEvent
from scheduler.engine.model.volumes import (
    ClaimReference,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageKind,
)
from scheduler.engine.state.batches import Pieces, finished
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.engine.syntax.words import counted
from scheduler.tools.explain.inspection import refusals_at
from scheduler.tools.shadow.differences import (
    count_best,
    difference_of,
    is_feasible,
    points_behind,
    reasons_of,
    says,
)
from scheduler.tools.shadow.group_binds import GroupBinds, GroupComparison
from scheduler.tools.shadow.orders import RACE_S
from scheduler.tools.shadow.races import Races, Unsettled
from scheduler.tools.shadow.recent_changes import RecentChanges
from scheduler.tools.shadow.report import Cause, Difference, ShadowReport

#: Longer than the longest pause between two attempts to list or watch, which is 30 s.
INTERRUPTED_S: Final = 40.0
_MAX_SCHEDULERS: Final = 10


@dataclass(slots=True)
class Counts:
    """The numbers of a `ShadowReport`."""

    n_bound: int = 0
    n_alike: int = 0
    n_tied: int = 0
    n_unseen: int = 0
    n_pending: int = 0
    n_same_reasons: int = 0


class Shadow:
    """
    One comparison. Not thread-safe; nothing inside awaits.

    It goes from event to event in pieces, since the comparison of a group of 1,000 members takes 0.7 s: the next event
    may be applied once the pieces of the last one are done. A watch may be interrupted before.

    `sample_percentage`: the other scheduler's percentageOfNodesToScore, 0 for its default. `race_s`: within which
    changes may have been in another order for it. Cost: one decision per bind and reported reason, and up to 150 more
    per difference.
    """

    def __init__(
        self,
        scheduler_name: str,
        state: ClusterState,
        profile: Profile,
        rng: Rng,
        *,
        sample_percentage: int = 0,
        race_s: float = RACE_S,
    ) -> None:
        self.scheduler_name, self.state = scheduler_name, state
        self._profile, self._rng, self._percentage = profile, rng, sample_percentage
        #: Pods of the scheduler without a node, as they were last seen, by UID.
        self._waiting: dict[str, Pod] = {}
        self._race_s = race_s
        self._recent = RecentChanges(state, window_s=race_s)
        self._races = Races(state, self._recent, race_s=race_s)
        self._comparison = GroupComparison(state, profile)
        #: Groups with members that were bound within the last `race_s` and members that still wait.
        self._bound_groups: dict[GroupKey, GroupBinds] = {}
        #: Groups that were reported pending within the last `race_s`, and when.
        self._reported_s: dict[GroupKey, float] = {}
        self.counts = Counts()
        #: Its own schedulerName if a pod names it, and the first others.
        self._schedulers: set[str] = set()
        #: False until the first lists are handled: the binds that they show are of long ago.
        self.compares = False
        self._compares_from_s = 0.0

    @property
    def causes(self) -> Counter[Cause]:
        """How many differences there are, by cause."""
        return self._races.causes

    def interrupt(self, now_s: float) -> None:
        """Compare nothing for a while, since a watch is interrupted."""
        self._compares_from_s = now_s + INTERRUPTED_S
        self._races.interrupt()
        self.counts.n_unseen += sum(len(binds.members) for binds in self._bound_groups.values())
        self._bound_groups.clear()

    def _is_current(self, now_s: float) -> bool:
        """Return whether the state is as the other scheduler saw it."""
        return self.compares and now_s >= self._compares_from_s

    def apply(self, event: WatchEvent, now_s: float) -> Pieces[None]:
        """Compare the decision that the event shows, if any, and apply the event to the state."""
        for binds in [each for each in self._bound_groups.values() if now_s - each.last_s > self._race_s]:
            yield from self._compare_group(binds, now_s)
        if isinstance(event, PodSeen):
            name = event.pod.scheduler_name
            if name == self.scheduler_name or len(self._schedulers) < _MAX_SCHEDULERS:
                self._schedulers.add(name)
        match event:
            case PodSeen(pod) if not pod.is_terminal and pod.scheduler_name == self.scheduler_name:
                yield from self._see_pod(pod, now_s)
                return
            case PodSeen(Pod(uid=uid)) | PodGone(uid):
                self._waiting.pop(uid, None)
            case ObjectSeen(PersistentVolumeClaim(key=key, selected_node=str(node))):
                yield from self._see_choice(key, node, now_s)
            case ObjectSeen(PersistentVolume(claim=ClaimReference(key=key))):
                yield from self._see_choice(key, "", now_s)
        self._take_over(event, now_s)

    def end(self, now_s: float) -> None:
        """Compare the groups that still waited for binds of more members: no event follows."""
        for binds in list(self._bound_groups.values()):
            finished(self._compare_group(binds, now_s))

    def report(self) -> ShadowReport:
        """Return the comparison until now."""
        kept, order = self._races.kept.values(), tuple(Cause)
        return ShadowReport(
            scheduler=self.scheduler_name,
            **asdict(self.counts),
            causes={cause: self.causes[cause] for cause in order if self.causes[cause]},
            differences=tuple(sorted(kept, key=lambda each: order.index(each.cause))),
            n_more_differences=self.causes.total() - len(kept),
            schedulers_seen=tuple(sorted(self._schedulers)),
        )

    def _take_over(self, event: WatchEvent, now_s: float) -> None:
        change = self._recent.apply(event, now_s)
        if change is not None:
            self._races.settle(change, now_s)

    def _see_pod(self, pod: Pod, now_s: float) -> Pieces[None]:
        """Apply a pod of the other scheduler that has not finished, and compare what it shows."""
        waiting = self._waiting.get(pod.uid)
        node = pod.node_name
        if not node and waiting is not None and self._is_chosen(waiting, pod):
            node = pod.nominated_node_name
        if not node:
            if self._is_assumed(pod):
                # Its node was chosen and its volumes are being bound.
                return
            yield from self._see_waiting(pod, now_s)
            return
        placed = self.state.placed.get(pod.uid)
        if self.compares and (placed is None or placed.pod.node_name != node):
            if waiting is None or not self._is_current(now_s):
                self.counts.n_unseen += 1
            else:
                self._recent.apply(PodGone(pod.uid), now_s)
                self._compare_bind(waiting, node, now_s)
        if pod.node_name:
            self._waiting.pop(pod.uid, None)
        self._take_over(PodSeen(replace(pod, node_name=node)), now_s)
        yield from self._compare_if_whole(pod, now_s)

    def _is_chosen(self, before: Pod, pod: Pod) -> bool:
        """
        Return whether the nomination says where the pod is about to be bound, once its volumes are.

        Preemption nominates pods too, to nodes that refuse them yet.

        Source: schedule_one.go, bindingCycle; gate NominatedNodeNameForExpectation (kubernetes 1.36).
        """
        node = pod.nominated_node_name
        if node in ("", before.nominated_node_name) or not pod.spec.claim_volumes:
            return False
        if pod.scheduled_condition != before.scheduled_condition:
            return False
        return is_feasible(self._decide(before), self.state.nodes.row_by_name.get(node))

    def _is_assumed(self, pod: Pod) -> bool:
        """Return whether the pod, which has no node yet, is counted on one and its condition shows no failure since."""
        known, waiting = self.state.placed.get(pod.uid), self._waiting.get(pod.uid)
        return (
            known is not None
            and waiting is not None
            and waiting.scheduled_condition == pod.scheduled_condition
        )

    def _see_choice(self, claim_key: str, node: str, now_s: float) -> Pieces[None]:
        """
        Count the user of the claim as bound to `node`, or else to its nominated node: the claim got a node or a volume.

        What a watch shows again changes nothing: the pod is counted by then, or has no place yet.
        """
        users = [pod for pod in self._waiting.values() if may_use_claim(pod, claim_key)]
        claim = self.state.volumes.get(StorageKind.CLAIM, claim_key)
        if len(users) != 1 or not isinstance(claim, PersistentVolumeClaim) or claim.volume_name:
            return
        pod = users[0]
        node = node or pod.nominated_node_name
        if node and pod.uid not in self.state.placed:
            if self._is_current(now_s):
                self._compare_bind(pod, node, now_s)
            self._take_over(PodSeen(replace(pod, node_name=node)), now_s)
            yield from self._compare_if_whole(pod, now_s)

    # -- binds -----------------------------------------------------------------------------------------------

    def _compare_bind(self, pod: Pod, node: str, now_s: float) -> None:
        """Compare the choice of the node for the waiting pod, which does not count there yet; of a member later."""
        if (key := self.state.groups.key_of(pod)) is not None:
            self._bound_groups.setdefault(key, GroupBinds(key)).add(pod, node, now_s)
            return
        self.counts.n_bound += 1
        decision = self._decide(pod)
        n_best = count_best(decision, self.state, node)
        if n_best:
            self.counts.n_alike += 1
            self.counts.n_tied += n_best > 1
            return
        difference = self._difference(pod, node, decision)
        # The other one may have dropped the pod's nomination; no watch shows when.
        variants = {pod.nominated_node_name: pod, "": replace(pod, nominated_node_name="")}.values()
        self._races.explain(
            Unsettled(
                (pod.uid,),
                difference,
                lambda: any(count_best(self._decide(each), self.state, node) for each in variants),
                now_s,
            )
        )

    def _compare_if_whole(self, pod: Pod, now_s: float) -> Pieces[None]:
        """Compare the group of a pod that was bound, if no other member waits."""
        binds = None if pod.group is None else self._bound_groups.get(pod.group.key)
        if binds is not None and all(uid in binds.members for uid, _ in self._waiting_members(binds.key)):
            yield from self._compare_group(binds, now_s)

    def _waiting_members(self, key: GroupKey) -> Iterator[tuple[str, Pod]]:
        """Yield the members that wait and could be placed, with their UIDs. O(waiting pods)."""
        for uid, pod in self._waiting.items():
            if pod.group is not None and pod.group.key == key and not pod.gates and not pod.terminating:
                yield uid, pod

    def _compare_group(self, binds: GroupBinds, now_s: float) -> Pieces[None]:
        """Compare the places of the members that were bound shortly after each other. They are one decision."""
        if self._bound_groups.pop(binds.key, None) is None:
            return  # a watch was interrupted meanwhile
        self.counts.n_bound += 1
        difference = yield from self._comparison.worse(binds)
        if difference is None:
            self.counts.n_alike += 1
            return
        self._races.explain(
            Unsettled(
                binds.members, difference, lambda: finished(self._comparison.worse(binds)) is None, now_s
            )
        )

    def _difference(self, pod: Pod, node: str, decision: Decision) -> Difference:
        here = decision.node_name if isinstance(decision, ScheduleResult) else ""
        row = self.state.nodes.row_by_name.get(node)
        if isinstance(decision, ScheduleResult) and row is not None and is_feasible(decision, row):
            behind, plugin, lack = points_behind(decision, row)
            cause = Cause.SAMPLING if self._may_be_sampled(decision) else Cause.SCORE
            text = f"{here} has {counted(behind, 'point')} more; {plugin} alone gives it {lack} more"
            return difference_of(pod, cause, node, here, text, behind=behind, plugin=plugin)
        plugin, reason = self._refusal(pod, row)
        return difference_of(pod, Cause.RULE, node, here, f"{node} is refused here: {reason}", plugin=plugin)

    def _refusal(self, pod: Pod, row: int | None) -> tuple[str, str]:
        """Return the first plugin that refuses the row, and its reason."""
        if row is None or self.state.nodes.nodes[row] is None:
            return "", "there is no such node"
        if refusals := refusals_at(row, pod, self.state, self._profile):
            return refusals[0]
        nominated = pod.nominated_node_name
        return "", f"the pod is nominated to {nominated}" if nominated else "PreFilter leaves it out"

    def _may_be_sampled(self, decision: ScheduleResult) -> bool:
        """
        Return whether the other scheduler stops looking before it has found all feasible nodes.

        Source: schedule_one.go, numFeasibleNodesToFind (kubernetes 1.36).
        """
        n_nodes = self.state.nodes.n_live
        percentage = self._percentage or max(50 - n_nodes // 125, 5)
        return percentage < 100 and decision.n_feasible > max(100, n_nodes * percentage // 100)

    # -- pending pods ----------------------------------------------------------------------------------------

    def _see_waiting(self, pod: Pod, now_s: float) -> Pieces[None]:
        before = self._waiting.get(pod.uid)
        self._waiting[pod.uid] = pod
        condition = pod.scheduled_condition
        is_new = before is None or before.scheduled_condition != condition
        is_told = is_new and self._is_current(now_s)
        if is_told and condition is not None and condition.reason == "Unschedulable":
            yield from self._compare_reasons(pod if before is None else before, condition.message, now_s)
        self._take_over(PodSeen(pod), now_s)

    def _compare_reasons(self, pod: Pod, message: str, now_s: float) -> Pieces[None]:
        """Compare the reasons for which the pod is left pending. For a group compare once whether it has places."""
        if (key := self.state.groups.key_of(pod)) is not None:
            if now_s - self._reported_s.get(key, -inf) > self._race_s:
                yield from self._compare_pending_group(key, pod, message, now_s)
            return
        self.counts.n_pending += 1
        decision = self._decide(pod)
        if says(decision, message):
            self.counts.n_same_reasons += 1
            return
        here = decision.node_name if isinstance(decision, ScheduleResult) else ""
        ours = f"fits on {here}" if isinstance(decision, ScheduleResult) else reasons_of(decision)
        difference = difference_of(pod, Cause.RULE, "", here, f"there: {message} here: {ours}")
        self._races.explain(
            Unsettled((pod.uid,), difference, lambda: says(self._decide(pod), message), now_s, is_bind=False)
        )

    def _compare_pending_group(self, key: GroupKey, pod: Pod, message: str, now_s: float) -> Pieces[None]:
        reported = self._reported_s.items()
        self._reported_s = {key: at_s for key, at_s in reported if now_s - at_s <= self._race_s}
        self._reported_s[key] = now_s
        self.counts.n_pending += 1
        members = dict(self._waiting_members(key))
        if not (yield from self._comparison.fits(key, members)):
            self.counts.n_same_reasons += 1
            return
        text = f"there: {message} here: pod group {key.text} has places"
        self._races.explain(
            Unsettled(
                dict.fromkeys((pod.uid, *members)),
                difference_of(pod, Cause.RULE, "", "", text),
                lambda: not finished(self._comparison.fits(key, members)),
                now_s,
                is_bind=False,
            )
        )

    # ---------------------------------------------------------------------------------------------------------

    def _decide(self, pod: Pod) -> Decision:
        return decide(pod, ClusterView(self.state), self._profile, self._rng)
