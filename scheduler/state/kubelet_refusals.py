"""
Nodes whose kubelet refused a pod, left out for pods of the same spec for a while. Not upstream: there the replacement
goes to the same node at once, and a controller makes as many failed pods as the API server bears (kubernetes#106884).

    refuse --> closed for 5 s, 10 s, 20 s ... 300 s --> open, and remembered for 300 s --> forgotten
                          a pod of the spec starts there, or the node changes --> forgotten at once

Time is an argument. Bounded: past `CAPACITY` pairs the one that has been in longest is forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from scheduler.model.pods import PodSpec

#: Seconds that a first refusal closes the node for; each further one doubles them up to the longest.
FIRST_S: Final = 5.0
LONGEST_S: Final = 300.0
#: Pairs of spec and node that are remembered, about 200 bytes each.
CAPACITY: Final = 4096


@dataclass(slots=True)
class _Pair:
    """One spec on one node: closed until `open_at_s`, remembered for `LONGEST_S` more."""

    reason: str
    n_refusals: int
    open_at_s: float
    is_open: bool = False

    @property
    def next_s(self) -> float:
        """When something is to be done about it."""
        return self.open_at_s + LONGEST_S if self.is_open else self.open_at_s


_NONE: Final[Mapping[str, str]] = {}


class KubeletRefusals:
    """All pairs of spec and node. Holds the specs, so that a replacement that comes later shares its forerunner's."""

    def __init__(self) -> None:
        #: Refusals so far.
        self.n_refused = 0
        #: Moves where a node is closed or open again.
        self.version = 0
        #: In the order of their last refusal.
        self._pairs: dict[tuple[PodSpec, str], _Pair] = {}
        #: Spec -> name of each closed node -> the kubelet's reason; no spec without a node.
        self._closed: dict[PodSpec, dict[str, str]] = {}
        self._next_s: float | None = None

    def __len__(self) -> int:
        return len(self._pairs)

    @property
    def n_closed(self) -> int:
        """Pairs of spec and node that are closed. O(specs)."""
        return sum(map(len, self._closed.values()))

    @property
    def next_s(self) -> float | None:
        """When `expire` next has something to do; None if never."""
        return self._next_s

    def closed(self, spec: PodSpec) -> Mapping[str, str]:
        """Return the nodes that are closed to pods of the spec, each with its kubelet's reason. O(1)."""
        return self._closed.get(spec, _NONE) if self._closed else _NONE

    def refuse(self, spec: PodSpec, node_name: str, reason: str, now_s: float) -> None:
        """Close the node, whose kubelet refused a pod of the spec, to others of it: for longer each time."""
        self.n_refused += 1
        known = self._pairs.pop((spec, node_name), None)
        n_refusals = 1 if known is None else known.n_refusals + 1
        lasts_s = min(FIRST_S * 2.0 ** min(n_refusals - 1, 16), LONGEST_S)
        if len(self._pairs) >= CAPACITY:
            self._forget(next(iter(self._pairs)))
        self._pairs[spec, node_name] = _Pair(reason, n_refusals, now_s + lasts_s)
        self._closed.setdefault(spec, {})[node_name] = reason
        self.version += 1
        self._set_next()

    def accept(self, spec: PodSpec, node_name: str) -> bool:
        """Note that a pod of the spec has started on the node. Returns whether that opens it."""
        return bool(self._pairs) and self._forgotten([(spec, node_name)])

    def forget_node(self, node_name: str) -> bool:
        """Forget refusals of a node that changed or is gone. Returns whether that opens it for a spec. O(pairs)."""
        return self._forgotten([pair for pair in self._pairs if pair[1] == node_name])

    def expire(self, now_s: float) -> bool:
        """Open nodes whose time is over. Returns whether there was one. O(pairs), and O(1) before `next_s`."""
        if self._next_s is None or now_s < self._next_s:
            return False
        opened = False
        for key, pair in list(self._pairs.items()):
            if pair.next_s > now_s:
                continue
            if pair.is_open:
                del self._pairs[key]
            else:
                pair.is_open = opened = True
                self._open(*key)
        self._set_next()
        return opened

    def _forgotten(self, keys: list[tuple[PodSpec, str]]) -> bool:
        opened = [self._forget(key) for key in keys if key in self._pairs]
        if opened:
            self._set_next()
        return any(opened)

    def _forget(self, key: tuple[PodSpec, str]) -> bool:
        """Drop the pair. Returns whether it was closed."""
        pair = self._pairs.pop(key)
        if not pair.is_open:
            self._open(*key)
        return not pair.is_open

    def _open(self, spec: PodSpec, node_name: str) -> None:
        self.version += 1
        nodes = self._closed[spec]
        del nodes[node_name]
        if not nodes:
            del self._closed[spec]

    def _set_next(self) -> None:
        self._next_s = min((pair.next_s for pair in self._pairs.values()), default=None)
