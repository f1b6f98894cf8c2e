"""
Pods that are decided alike, one after the other: what the last of them left behind is brought up to date, and read.

Between two pods of a deployment one node has changed. Filters and scorers of the last decision are asked again with the
rows that moved, and totals are added up there alone; only a plugin whose other rows moved too is added up everywhere.
What is decided is what `decide` says, and the draw is the same. kube-scheduler 1.36 has the same idea with other
means (OpportunisticBatching, KEP-5598): it remembers the order of the nodes, where no pod affinity or spread is asked.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from scheduler.core.decide import Decision, Placement, decided
from scheduler.core.kept import Kept
from scheduler.core.standings import Chance
from scheduler.framework.observer import Observer
from scheduler.framework.profile import Profile
from scheduler.model.pods import Owner, Pod, PodSpec
from scheduler.state.selection import LabelSet
from scheduler.state.snapshot import Snapshot

#: Classes of pods whose last decision is kept for as long as the epoch lasts, at 5,000 nodes 50 to 600 KB each.
MAX_KEPT: Final = 32


class _Class(NamedTuple):
    """All that a decision reads of a pod."""

    spec: PodSpec
    label_set: LabelSet
    owner: Owner | None
    scheduler_name: str


class Repeating:
    """Decides as `core.decide` does, in a third of the time where a pod like it was decided shortly before."""

    def __init__(self, snapshot: Snapshot, chance: Chance, observer: Observer) -> None:
        """Nothing was decided yet."""
        self.snapshot = snapshot
        self._chance = chance
        self._observer = observer
        #: Decided longest ago first, all in the same epoch: none of those before is of use, and they hold counts.
        self._kept: OrderedDict[_Class, Kept] = OrderedDict()
        self._epoch = snapshot.epoch

    def __len__(self) -> int:
        return len(self._kept)

    def decide(self, pod: Pod, profile: Profile) -> Decision:
        """The best node for the pod."""
        watched = self._observer.begin(profile)
        if _is_alone(pod, profile) or self.snapshot.nodes.may_wrap:
            decision = decided(pod, self.snapshot, watched, self._chance, self._observer)
        else:
            # Plugins that are wrapped to be timed are not to be asked again by themselves.
            decision = self._like_others(pod, watched, keeps=watched is profile)
        self._observer.end()
        return decision

    def _like_others(self, pod: Pod, profile: Profile, *, keeps: bool) -> Decision:
        snapshot = self.snapshot
        if self._epoch != snapshot.epoch:
            self._kept.clear()
            self._epoch = snapshot.epoch
        like = _Class(pod.spec, snapshot.label_set(pod), pod.owner, profile.scheduler_name)
        kept = self._kept.pop(like, None)
        if kept is not None:
            again = kept.again(self._chance, self._observer)
            if again is not None:
                self._kept[like] = kept
                return again
        decision = decided(pod, snapshot, profile, self._chance, self._observer)
        # Questions that were not asked for long may have been forgotten for the sake of this pod's.
        is_same = self._epoch == snapshot.epoch
        if keeps and is_same and isinstance(decision, Placement) and decision.standings.lasts:
            self._kept[like] = Kept(decision.standings, snapshot)
            if len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        return decision


def _is_alone(pod: Pod, profile: Profile) -> bool:
    """Whether something counts in its decision that is not of its class, or that is drawn."""
    is_sampled = 0 < profile.percentage_of_nodes_to_score < 100
    return is_sampled or bool(pod.nominated_node_name or pod.node_name) or pod.resize is not None
