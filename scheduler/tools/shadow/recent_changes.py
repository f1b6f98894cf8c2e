"""
A state together with its last changes, each of which can be taken back and made again.

Another scheduler may have known a change later than our watch showed it, or earlier: its decision is then the one that
would be made here without the change, or with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final

from scheduler.engine.framework.kinds import KINDS
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import NodeSeen, ObjectSeen, PodGone, PodSeen, WatchEvent
from scheduler.engine.state.cluster import ClusterState
from scheduler.tools.explain.simulation.watch_events import applied, apply_event, reversal
from scheduler.tools.shadow.orders import ChangeKey

#: Changes that can be taken back; each costs up to two decisions per difference.
MAX_RECENT: Final = 50
#: Up to this many changes, every subset is tried.
_FEW: Final = 6
_SEEN: Final = (PodSeen, NodeSeen, ObjectSeen)


@dataclass(frozen=True, slots=True)
class AppliedEvent:
    """The reversal of an event that changed the state. `what`: the object, for people. `key`: the object's."""

    what: str
    key: ChangeKey
    reversal: WatchEvent
    at_s: float


class RecentChanges:
    """The last changes of one state; exactly one writer. Nothing inside awaits."""

    def __init__(self, state: ClusterState, *, window_s: float) -> None:
        """`window_s`: how long a change counts as recent."""
        self._state, self._window_s = state, window_s
        self._changes: deque[AppliedEvent] = deque(maxlen=MAX_RECENT)

    def apply(self, event: WatchEvent, now_s: float) -> AppliedEvent | None:
        """Apply the event to the state. Return it as a change; None if no decision depends on it."""
        made = _change(self._state, event, now_s)
        apply_event(self._state, event)
        if made is not None:
            self._changes.append(made)
        return made

    def keys(self, now_s: float, *, but: Collection[str] = ()) -> list[ChangeKey]:
        """Return the keys of the recent changes, except those of the pods with these UIDs."""
        return [change.key for change in self._recent(now_s, but)]

    def explains(
        self, agrees: Callable[[], bool], now_s: float, *, but: Collection[str] = ()
    ) -> Iterator[Sequence[AppliedEvent]]:
        """
        Yield the recent changes without which `agrees` holds, the first of them first, for each such set.

        Changes of the pods with the UIDs `but` are not left out. The state is restored before each yield.
        """
        for left_out in _left_out(self._recent(now_s, but)):
            with applied(self._state, (change.reversal for change in reversed(left_out))):
                is_explained = agrees()
            if is_explained:
                yield left_out

    def _recent(self, now_s: float, but: Collection[str]) -> list[AppliedEvent]:
        return [
            change
            for change in self._changes
            if now_s - change.at_s <= self._window_s and change.key[1] not in but
        ]


def _left_out(recent: Sequence[AppliedEvent]) -> Iterator[Sequence[AppliedEvent]]:
    """
    Yield sets of changes that the other scheduler may not have known yet: the latest ones, then every subset of few
    changes, or each single change of many.

    A later change of an object is never kept without an earlier one.
    """
    for start in range(len(recent) - 1, -1, -1):
        yield recent[start:]
    sizes = range(1, len(recent)) if len(recent) <= _FEW else range(1, 2)
    for size in sizes:
        for places in combinations(range(len(recent)), size):
            kept_keys = (one.key for at, one in enumerate(recent) if at > places[0] and at not in places)
            if {recent[at].key for at in places}.isdisjoint(kept_keys):
                yield [recent[at] for at in places]


def _change(state: ClusterState, event: WatchEvent, now_s: float) -> AppliedEvent | None:
    """Return the change that the event will make. An object whose changes let no pod in changes no decision."""
    undo = reversal(state, event)
    if undo is None or _counts_alike(undo, event):
        return None
    match event if isinstance(event, _SEEN) else undo:
        case PodSeen(pod):
            return AppliedEvent(pod.key, ("Pod", pod.uid), undo, now_s)
        case NodeSeen(node):
            return AppliedEvent(f"node {node.name}", ("Node", node.name), undo, now_s)
        case ObjectSeen(obj) if KINDS[obj.kind].resource is not None:
            return AppliedEvent(f"{obj.kind} {obj.key}", (obj.kind, obj.key), undo, now_s)
    return None


def _counts_alike(before: WatchEvent, after: WatchEvent) -> bool:
    """Return whether every decision treats the objects of both events alike."""
    match before, after:
        case PodGone(), PodSeen(pod):
            return pod.is_terminal or not (pod.node_name or pod.nominated_node_name)
        case PodSeen(pod), PodSeen(new):
            return not new.is_terminal and _counts_as(pod) == _counts_as(new)
        case NodeSeen(node), NodeSeen(new_node):
            return new_node == replace(node, resource_version=new_node.resource_version)
        case ObjectSeen(obj), ObjectSeen(new_obj):
            return obj == new_obj
    return False


def _counts_as(pod: Pod) -> tuple[object, ...]:
    return pod.node_name, pod.nominated_node_name, pod.labels, pod.spec, pod.terminating, pod.resize
