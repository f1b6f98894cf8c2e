"""The PostFilter point: what a profile does for a pod that fits on no node."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from scheduler.engine.framework.diagnosis import FitError, PostFiltered
from scheduler.engine.framework.interface import Plugin, PodContext, Rng
from scheduler.engine.framework.node_trial import FilterTrials
from scheduler.engine.model.pods import Pod
from scheduler.engine.state.batches import Pieces
from scheduler.engine.state.cluster import PlacedPod
from scheduler.engine.state.cluster_view import ClusterView

#: Pods that are only evicted together.
EvictionUnit = tuple[PlacedPod, ...]


@dataclass(frozen=True, slots=True)
class UnfitPod:
    """
    A pod that fits on no node: why, and the filters by which it may be tried without some of the other pods.

    `evicts_below`: the priority of its PodGroup, else its own. Which nominated pods keep it out is a matter of its own,
    as in the filters (framework/runtime/framework.go, addGENominatedPods).
    """

    context: PodContext
    fit_error: FitError
    trials: FilterTrials
    evicts_below: int


class GroupPreemptor(ABC):
    """The rules by which a plugin of this point evicts pods for a group."""

    @abstractmethod
    def group_ineligibility(
        self, members: Sequence[Pod], priority: int, node_names: Collection[str], view: ClusterView
    ) -> str | None:
        """Return why the members, of this priority and nominated to these nodes, may not preempt; None if they may."""

    @abstractmethod
    def reprieve_order(self, units: Sequence[EvictionUnit], view: ClusterView) -> list[EvictionUnit]:
        """Return the units in the order in which they are reprieved if there is room for them."""


class PostFilterPlugin(Plugin, ABC):
    """A plugin of the PostFilter point."""

    @abstractmethod
    def postfilter(self, unfit: UnfitPod, view: ClusterView, rng: Rng) -> Pieces[PostFiltered]:
        """Return a nomination, or why there is none; the machine acts on it. No state changes between the pieces."""
