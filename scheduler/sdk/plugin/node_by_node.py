"""
Rules that look at nodes one by one.

The rule is asked about each node once per kind of pod (same spec, labels and priority), and again about a node only
after the node or its pods changed. Its answers are derived values like any other (`engine.state.derived`).
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any, ClassVar, Final

import msgspec
import numpy as np

from scheduler.engine.framework.events import Action, ClusterEventWithHint, Resource
from scheduler.engine.framework.interface import (
    MAX_NODE_SCORE,
    FeasibleNodes,
    FinalScores,
    NodeFilter,
    PodContext,
    PreFiltered,
    PreScored,
)
from scheduler.engine.framework.status import NodeStatuses, Status, unschedulable
from scheduler.engine.model.pods import Pod
from scheduler.engine.state.arrays import Codes, Mask
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.engine.state.node_view import NodeView

#: Different statuses of one rule; further ones get the rule's `reason`.
_MAX_STATUSES: Final = 1000

#: All that can change what a rule sees of a node.
_ANY_CHANGE: Final = (
    ClusterEventWithHint(Resource.NODE, Action.ADD | Action.UPDATE),
    ClusterEventWithHint(Resource.POD, Action.ADD | Action.DELETE | Action.UPDATE),
)


class NodeByNode:
    """
    The base of a rule that looks at nodes one by one: override `fits`, `score` or both, and set `name`.

    `fits` and `score` may read the node, its pods, and the pod's spec, labels, namespace and priority alone: all pods
    that are equal in these share one answer. They keep nothing and change nothing.
    """

    name: ClassVar[str]
    #: The status message of a node for which `fits` returns False.
    reason: ClassVar[str] = ""
    #: Derived from the methods that the class overrides.
    extension_points: ClassVar[tuple[str, ...]] = ()
    #: Number of each status that the rule has returned; the same for all instances, which share what they derive.
    _code_by_status: ClassVar[dict[Status, int]]

    def __init_subclass__(cls, **kwargs: Any) -> None:  # noqa: ANN401 - as object's
        super().__init_subclass__(**kwargs)
        if "extension_points" not in vars(cls):
            overridden = {
                "filter": cls.fits is not NodeByNode.fits,
                "score": cls.score is not NodeByNode.score,
            }
            cls.extension_points = tuple(point for point, is_given in overridden.items() if is_given)
        reason = cls.reason or f"node(s) were refused by plugin {getattr(cls, 'name', cls.__name__)}"
        cls._code_by_status = {unschedulable(reason): 1}

    def fits(self, pod: Pod, node: NodeView) -> bool | Status:
        """Return True, or False for the class's `reason`, or a status such as `unschedulable("node(s) were red")`."""
        raise NotImplementedError

    def score(self, pod: Pod, node: NodeView) -> int:
        """Return how much the pod prefers the node, from 0 to 100; asked about nodes that passed every filter."""
        raise NotImplementedError

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """Return every event of nodes and pods. Override it to return fewer if many pods wait for the rule."""
        return _ANY_CHANGE

    def prefilter(self, context: PodContext, view: ClusterView) -> PreFiltered:
        """Return the filter that `fits` makes."""
        pod = context.pod
        codes = view.per_asked_node(
            ("fits", *_kind(context)), lambda node: self._code_of(self.fits(pod, node)), view.alive
        )
        return _CodeFilter(codes, list(self._code_by_status))

    def prescore(self, context: PodContext, view: ClusterView, feasible: FeasibleNodes) -> PreScored:
        """Return the scorer that `score` makes, which is asked about nodes that fit."""
        pod = context.pod
        scores = view.per_asked_node(
            ("score", *_kind(context)), lambda node: _checked(self.score(pod, node), node), feasible.mask
        )
        return FinalScores(scores)

    def _code_of(self, verdict: bool | Status) -> int:  # noqa: FBT001 - what `fits` returned
        if isinstance(verdict, Status):
            if not verdict.code.rejects:
                raise TypeError(f"fits returned a status {verdict.code.value}, expected a refusal")
            codes = self._code_by_status
            return (
                codes.setdefault(verdict, len(codes) + 1)
                if len(codes) < _MAX_STATUSES
                else codes.get(verdict, 1)
            )
        if verdict not in (True, False):
            raise TypeError(f"fits returned {verdict!r}, expected True, False or a status")
        return 0 if verdict else 1


class _CodeFilter(NodeFilter):
    """A filter whose codes are known: 0 where the node fits, -1 on dead rows. No pod is evicted for what it refuses."""

    def __init__(self, codes: Codes, statuses: Sequence[Status]) -> None:
        self._codes, self._statuses = codes, statuses

    def mask(self) -> Mask:
        mask: Mask = self._codes <= 0
        return mask

    def statuses(self) -> NodeStatuses:
        return NodeStatuses(np.maximum(self._codes, 0), self._statuses)


def _kind(context: PodContext) -> tuple[object, ...]:
    """Return the parts of the pod that a rule may read. Pods with equal parts share one answer."""
    return context.pod.spec, context.label_set, context.pod.priority


def _checked(score: int, node: NodeView) -> int:
    """Return the score. Raises TypeError for a fraction, ValueError for one that is not from 0 to 100."""
    if not 0 <= index(score) <= MAX_NODE_SCORE:
        raise ValueError(f"score {score} of node {node.name}, expected 0 to {MAX_NODE_SCORE}")
    return index(score)


class Args(msgspec.Struct, kw_only=True, rename="camel"):
    """
    The arguments of a plugin, as its `args_type`: fields with types, and defaults where there is a sensible one.

    A configuration names `topology_key` as `topologyKey`. Its values are checked when it is read: types, and whatever
    `msgspec.Meta` or a `__post_init__` that raises ValueError demands.
    """
