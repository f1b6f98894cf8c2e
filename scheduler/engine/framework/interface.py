"""
The plugin contract.

A plugin is called once per pod (`prefilter`, `prescore`) and returns an object that answers for all nodes at once, with
arrays. It keeps nothing about nodes between decisions: the view caches what is expensive to compute. A plugin does
not loop over nodes in Python, see another plugin, log, count or read a clock.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeAlias, TypeVar

import numpy as np

from scheduler.engine.framework.events import ClusterEventWithHint
from scheduler.engine.framework.explaining import ExplainContext, PluginExplanation, Where
from scheduler.engine.framework.reserving import Reservation
from scheduler.engine.framework.status import NodeStatuses, Skip, Status
from scheduler.engine.model.device_requests import ResourceClaim
from scheduler.engine.model.devices import DeviceKind
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.semantics import DEFAULT_SEMANTICS, Semantics
from scheduler.engine.model.volumes import StorageKind
from scheduler.engine.state.arrays import Amounts, Mask, Rows, Scores
from scheduler.engine.state.batches import Pieces
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.engine.state.label_sets import LabelSet
from scheduler.engine.syntax.selectors import Selector

if TYPE_CHECKING:
    from scheduler.engine.framework.room import RoomFilter

#: Upstream's MaxNodeScore.
MAX_NODE_SCORE: Final = 100


@dataclass(frozen=True, slots=True)
class PodContext:
    """
    The pod under decision and its label set.

    `siblings`: pods of its group that are placed after it. Its required affinity may select one of them.
    """

    pod: Pod
    label_set: LabelSet
    siblings: Sequence[Pod] = ()
    #: Data that one extension point of a plugin hands on to its later ones in a cycle, by plugin name.
    cycle_state: dict[str, Any] = field(default_factory=dict, compare=False)


class PreFilterExtensions(ABC):
    """
    A filter's answer at one row for pods that are added and removed in a trial: preemption removes pods, and nominated
    pods are added. A pod that is added and removed again leaves no trace.
    """

    __slots__ = ()

    @abstractmethod
    def count(self, pod: Pod, delta: int) -> None:
        """Answer from now on as if the pod were on the node as well (`delta` 1), or had left it (-1)."""

    def add_pod(self, pod: Pod) -> None:
        """Count the pod in; by this name and the next, upstream's, trials of out-of-tree plugins are asked."""
        self.count(pod, 1)

    def remove_pod(self, pod: Pod) -> None:
        """Count the pod out."""
        self.count(pod, -1)

    def count_elsewhere(self, pod: Pod, delta: int) -> None:  # noqa: B027  (few filters read other nodes' pods)
        """Count a pod of another node out (`delta` -1), which leaves with one of this node; or in again."""

    @abstractmethod
    def refusal(self) -> Status | None:
        """Return why the row is refused now, None if it is not."""


#: Returns a filter's answer at a row; where pods do not matter, its status there, None if it accepts the row.
TrialAt: TypeAlias = Callable[[int], PreFilterExtensions | Status | None]


class NodeFilter(ABC):
    """
    What PreFilter returns for Filter. `statuses().codes` is 0 exactly where `mask()` is true.

    A filter that knows more than its mask defines some of these:

    Attributes:
        needs_pods: whether a row that is accepted may be refused because a pod leaves it.
        copies: returns the most copies of the pod that each row takes, if nothing else refuses them: int64, shape
            (n_rows,), undefined on refused rows.
        reserve: returns what has to be written before the pod is bound to the row, which is not refused.
        prepare: does in pieces what `mask_within` of these rows needs and takes long; the state does not change.
    """

    __slots__ = ()

    needs_pods: bool = True
    copies: Callable[[], Amounts] | None = None
    reserve: Callable[[int], Reservation | None] | None = None
    prepare: Callable[[Mask], Pieces[None]] | None = None

    @property
    def trial(self) -> TrialAt | None:
        """Return the answer at a row while pods come and go there; None if it does not depend on the row's pods."""
        return None

    @property
    def room(self) -> RoomFilter | None:
        """Return the filter if it refuses rows for lack of room alone; None if it does not."""
        return None

    @abstractmethod
    def mask(self) -> Mask:
        """Return the rows that the plugin accepts: bool array of shape (n_rows,). Dead rows may be either."""

    def mask_within(self, rows: Mask) -> Mask:
        """Return a mask that is right within `rows`. Raises PluginFailed if the plugin fails at one of them."""
        del rows
        return self.mask()

    @abstractmethod
    def statuses(self) -> NodeStatuses:
        """Return why the other rows are refused; only called for an unschedulable pod or a decision record."""


class RuleFilter(NodeFilter):
    """
    A filter of rules: each has a mask of the nodes that satisfy it, bool of shape (n_rows,), and the others' status.

    A node gets the status of the first rule that it does not satisfy. `trial`, `needs_pods`: as of `NodeFilter`;
    without a trial, pods do not matter.
    """

    __slots__ = ("_n_rows", "needs_pods", "rules", "trial")

    trial: Callable[[int], PreFilterExtensions] | None

    def __init__(
        self,
        n_rows: int,
        *rules: tuple[Mask, Status],
        trial: Callable[[int], PreFilterExtensions] | None = None,
        needs_pods: bool = True,
    ) -> None:
        self._n_rows = n_rows
        self.rules = rules
        self.trial = trial
        self.needs_pods = needs_pods

    def mask(self) -> Mask:
        """Return the rows that satisfy every rule."""
        if not self.rules:
            return np.ones(self._n_rows, dtype=np.bool_)
        return reduce(and_, [mask for mask, _ in self.rules])

    def statuses(self) -> NodeStatuses:
        """Return the status of the first rule that each row does not satisfy."""
        return NodeStatuses.first_broken(self.rules, self._n_rows)


@dataclass(frozen=True, slots=True)
class PreFilterResult:
    """A filter together with the only node names that can be feasible."""

    node_filter: NodeFilter
    node_names: frozenset[str]


PreFiltered = NodeFilter | PreFilterResult | Skip | Status


class FeasibleNodes:
    """The nodes that passed every filter. `mask`: bool array of shape (n_rows,). `n`: their number."""

    __slots__ = ("mask", "n")

    def __init__(self, mask: Mask) -> None:
        self.mask = mask
        self.n = int(np.count_nonzero(mask))

    def highest(self, amounts: Scores) -> int:
        """Return the largest amount of a feasible row. There must be one."""
        row = amounts.argmax()
        if self.mask.item(row):
            return amounts.item(row)
        return int(amounts[self.mask].max())

    def lowest(self, amounts: Scores) -> int:
        """Return the smallest amount of a feasible row. There must be one."""
        row = amounts.argmin()
        if self.mask.item(row):
            return amounts.item(row)
        return int(amounts[self.mask].min())

    def n_per_domain(self, ids: Rows, n_ids: int) -> Rows:
        """Return the number of feasible rows per domain id, including ABSENT: array of shape (n_ids,)."""
        if self.n == len(self.mask):
            return np.bincount(ids, minlength=n_ids)
        return np.bincount(ids[self.mask], minlength=n_ids)


_Raw = TypeVar("_Raw")


class NodeScorer(Protocol[_Raw]):
    """What PreScore returns for Score and NormalizeScore."""

    def raw(self) -> _Raw:
        """Return the scores before normalising, in a form of the plugin's choice."""
        ...

    def normalized(self, raw: _Raw) -> Scores:
        """
        Return scores from 0 to 100: integers of shape (n_rows,), undefined on infeasible rows.

        Return `raw` itself if the plugin does not normalise: the point is not measured then.
        """
        ...


class RawScores:
    """A scorer of known raw scores, and the function that brings them to 0..100."""

    __slots__ = ("_normalize", "_raw")

    def __init__(self, raw: Scores, normalize: Callable[[Scores], Scores]) -> None:
        self._raw = raw
        self._normalize = normalize

    def raw(self) -> Scores:
        """Return the raw scores."""
        return self._raw

    def normalized(self, raw: Scores) -> Scores:
        """Return the scores from 0 to 100."""
        return self._normalize(raw)


class FinalScores(RawScores):
    """A scorer whose scores need no normalising."""

    __slots__ = ()

    def __init__(self, scores: Scores) -> None:
        super().__init__(scores, lambda raw: raw)


def default_normalized(raw: Scores, feasible: FeasibleNodes, *, reverse: bool) -> Scores:
    """
    Return scores scaled so that the highest raw score of a feasible node gives 100; with `reverse`, it gives 0.

    Raw scores must not be negative; the lowest is not subtracted.
    Source: plugins/helper/normalize_score.go (kubernetes 1.36).
    """
    highest = max(0, feasible.highest(raw))
    if highest == 0:
        return np.full(len(raw), MAX_NODE_SCORE if reverse else 0, dtype=np.int16)
    scaled = (MAX_NODE_SCORE * raw // highest).astype(np.int16)
    return MAX_NODE_SCORE - scaled if reverse else scaled


PreScored = NodeScorer[Any] | Skip | Status


class Plugin:
    """
    What every plugin says about itself.

    `extension_points`: upstream's names of the points at which it can run. `args_type`: None if it takes none.
    `storage_kinds`: the kinds of volumes and of devices that it reads.
    """

    name: str
    extension_points: ClassVar[Sequence[str]] = ()
    args_type: ClassVar[type[Any] | None] = None
    storage_kinds: ClassVar[Sequence[StorageKind | DeviceKind]] = ()

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """Return the events that may lift the plugin's rejections, each with an optional hint."""
        return ()


ReserveTogether = Callable[[Sequence[Pod], int, ClusterView], Sequence[Reservation | None] | None]


class FilterPlugin(Plugin, ABC):
    """
    A plugin of the PreFilter and Filter points.

    `reads_siblings`: whether it lets a pod wait for siblings that are placed after it. `lifted_by_siblings`: whether a
    node that it refuses may be accepted once siblings are placed. `reserve_together`: of a plugin that chooses which
    parts of a node it reserves; returns reservations for each of several pods on a row, of which none has one yet; None
    if not all get theirs.
    """

    reads_siblings: ClassVar[bool] = False
    lifted_by_siblings: ClassVar[bool] = False
    reserve_together: ReserveTogether | None = None

    @abstractmethod
    def prefilter(self, context: PodContext, view: ClusterView) -> PreFiltered:
        """Return a filter for the nodes, SKIP, or the status with which the pod is rejected."""

    def explain(self, _context: ExplainContext) -> PluginExplanation:
        """Explain the refusals of a pod that `prefilter` returned a filter for."""
        return PluginExplanation()

    def explain_rejection(self, _context: ExplainContext) -> str | Where:
        """Return what the status of a rejection by `prefilter` leaves unsaid; may be empty."""
        return ""

    def is_left_behind(self, _claim: ResourceClaim, _view: ClusterView) -> bool:
        """Return whether the claim's devices come free without an eviction, since all of its pods are gone."""
        return False


class ScorePlugin(Plugin, ABC):
    """A plugin of the PreScore and Score points. `default_weight`: of its scores."""

    default_weight: ClassVar[int] = 1

    @abstractmethod
    def prescore(self, context: PodContext, view: ClusterView, feasible: FeasibleNodes) -> PreScored:
        """Return a scorer for the feasible nodes, SKIP, or the status with which the plugin failed."""


class PreEnqueuePlugin(Plugin, ABC):
    """A plugin of the PreEnqueue point, which can keep a pod out of the active queue."""

    @abstractmethod
    def admits(self, pod: Pod) -> bool:
        """Return whether the pod may enter the active queue."""


@dataclass(frozen=True, slots=True)
class PluginContext:
    """
    What a plugin's constructor gets besides its arguments: semantics, and functions by which hints read the cluster.

    `default_selector`: returns the selector of a pod's default spread constraints, None if no workload selects it.
    `namespace_labels`: returns the labels of a namespace, None if it is not known.
    `is_kept_apart`: returns whether a running pod's required anti-affinity by one of these topology keys selects a pod.
    `is_preempting`: returns whether pods are being evicted for a pod.
    `is_group_complete`: returns whether as many members exist as a pod's group needs.
    `resource_claim`: returns the claim of `namespace/name`, None if it is not known.
    `serves_claims`: returns whether the API server has ResourceClaims, and all have been seen.
    `is_provided_by_class`: returns whether a device class provides an extended resource.
    """

    semantics: Semantics = DEFAULT_SEMANTICS
    default_selector: Callable[[Pod], Selector | None] = lambda _pod: None
    namespace_labels: Callable[[str], Mapping[str, str] | None] = lambda _namespace: None
    is_kept_apart: Callable[[Pod, Collection[str]], bool] = lambda _pod, _keys: False
    is_preempting: Callable[[Pod], bool] = lambda _pod: False
    is_group_complete: Callable[[Pod], bool] = lambda _pod: True
    resource_claim: Callable[[str], ResourceClaim | None] = lambda _key: None
    serves_claims: Callable[[], bool] = lambda: False
    is_provided_by_class: Callable[[str], bool] = lambda _resource: False


class Rng(Protocol):
    """A random number generator, seeded by the caller."""

    def randrange(self, stop: int, /) -> int:
        """Return a number from 0 to stop - 1."""
        ...
