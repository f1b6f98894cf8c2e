"""
A state together with its last changes, each of which can be taken back and made again.

Another scheduler may have known a change later than our watch showed it, or earlier: its decision is then the one that
would be made here without the change, or with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final

from scheduler.explain.watch_events import apply_event
from scheduler.framework.kinds import KINDS, STORES
from scheduler.model.nodes import Node
from scheduler.model.pods import Pod
from scheduler.model.stimuli import NodeGone, NodeSeen, ObjectGone, ObjectSeen, PodGone, PodSeen, WatchEvent
from scheduler.state.cluster import ClusterState

#: Changes that can be taken back; each costs up to two decisions per difference.
MAX_RECENT: Final = 50
#: Changes of which every set is tried.
_FEW: Final = 6


@dataclass(frozen=True, slots=True)
class Change:
    """
    An event that changed the state at a time, and the event that takes it back.

    `what`: the object, for people. `key`: the same for all changes of one object.
    """

    what: str
    key: tuple[str, str]
    event: WatchEvent
    reversal: WatchEvent
    at_s: float


class RecentChanges:
    """The last changes of one state; exactly one writer. Nothing inside awaits."""

    def __init__(self, state: ClusterState, *, window_s: float) -> None:
        """`window_s`: how long a change counts as recent."""
        self._state, self._window_s = state, window_s
        self._changes: deque[Change] = deque(maxlen=MAX_RECENT)

    def apply(self, event: WatchEvent, now_s: float) -> Change | None:
        """Take the event over into the state. Return it as a change, None if it changes no decision."""
        made = _change(self._state, event, now_s)
        apply_event(self._state, event)
        if made is not None:
            self._changes.append(made)
        return made

    def explains(self, agrees: Callable[[], bool], now_s: float, *, but: str = "") -> str:
        """
        Return what came last of the recent changes without which `agrees` holds; empty if there is no such change.

        Changes of the pod with the UID `but` stay. The state is as before in the end.
        """
        recent = [one for one in self._changes if now_s - one.at_s <= self._window_s and one.key[1] != but]
        for left_out in _left_out(recent):
            with self._without(left_out):
                if agrees():
                    return left_out[-1].what
        return ""

    @contextmanager
    def _without(self, changes: Sequence[Change]) -> Iterator[None]:
        for one in reversed(changes):
            apply_event(self._state, one.reversal)
        try:
            yield
        finally:
            for one in changes:
                apply_event(self._state, one.event)


def _left_out(recent: Sequence[Change]) -> Iterator[Sequence[Change]]:
    """
    Yield what the other scheduler may not have known yet: all changes since a time, then every set of few, or each one.

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


def _change(state: ClusterState, event: WatchEvent, now_s: float) -> Change | None:
    """Return the change that the event will make. An object whose changes let no pod in changes no decision."""
    match event:
        case PodSeen(pod):
            before = _counted(state, pod.uid)
            after = pod if not pod.is_terminal and (pod.node_name or pod.nominated_node_name) else None
            return _pod_change(before, after, event, now_s)
        case PodGone(uid):
            return _pod_change(_counted(state, uid), None, event, now_s)
        case NodeSeen(node):
            return _node_change(state.node(node.name), node, event, now_s)
        case NodeGone(name):
            return _node_change(state.node(name), None, event, now_s)
        case ObjectSeen(obj):
            return _object_change(state, obj.kind, obj.key, event, now_s)
        case ObjectGone(kind, key):
            return _object_change(state, kind, key, event, now_s)
    return None


def _counted(state: ClusterState, uid: str) -> Pod | None:
    """Return the pod as it counts now, placed or nominated."""
    placed = state.placed.get(uid)
    if placed is not None:
        return placed.pod
    node_name = state.nominated.node_of(uid)
    return next((pod for pod in state.nominated.on(node_name) if pod.uid == uid), None) if node_name else None


def _pod_change(before: Pod | None, after: Pod | None, event: WatchEvent, now_s: float) -> Change | None:
    known = after or before
    if known is None or (
        before is not None and after is not None and _counts_as(before) == _counts_as(after)
    ):
        return None
    reversal = PodGone(known.uid) if before is None else PodSeen(before)
    return Change(known.key, ("Pod", known.uid), event, reversal, now_s)


def _counts_as(pod: Pod) -> tuple[object, ...]:
    return pod.node_name, pod.nominated_node_name, pod.labels, pod.spec, pod.terminating, pod.resize


def _node_change(before: Node | None, after: Node | None, event: WatchEvent, now_s: float) -> Change | None:
    known = after or before
    if known is None or (
        before is not None and after == replace(before, resource_version=known.resource_version)
    ):
        return None
    reversal = NodeGone(known.name) if before is None else NodeSeen(before)
    return Change(f"node {known.name}", ("Node", known.name), event, reversal, now_s)


def _object_change(
    state: ClusterState, kind: str, key: str, event: WatchEvent, now_s: float
) -> Change | None:
    before = STORES[kind].seen(state, kind, key)
    after = event.object if isinstance(event, ObjectSeen) else None
    if before == after or KINDS[kind].resource is None:
        return None
    reversal = ObjectGone(kind, key) if before is None else ObjectSeen(before)
    return Change(f"{kind} {key}", (kind, key), event, reversal, now_s)
