"""
Nodes whose kubelet refused a pod, excluded for pods of the same spec for a while. Not upstream: there the replacement
goes to the same node at once, and a controller makes as many failed pods as the API server bears (kubernetes#106884).

    refused --> excluded for 5 s, 10 s, 20 s ... 300 s --> allowed, and remembered for 300 s --> forgotten
                           a pod of the spec starts there, or the node changes --> forgotten at once

No exclusion is known after a restart. Time is an argument. Bounded: past `CAPACITY` exclusions, the one with the
oldest refusal is forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from scheduler.engine.model.pods import PodSpec
from scheduler.engine.state.sparse_dicts import discard_entry

#: Seconds that a first refusal excludes the node for; each further one doubles them up to `LONGEST_S`.
FIRST_S: Final = 5.0
LONGEST_S: Final = 300.0
#: Exclusions that are remembered, about 200 bytes each.
CAPACITY: Final = 4096


@dataclass(slots=True)
class _Exclusion:
    """A node that is excluded for one spec until `ends_s`, and remembered for `LONGEST_S` more."""

    reason: str
    n_refusals: int
    ends_s: float
    has_ended: bool = False

    @property
    def next_s(self) -> float:
        """The second at which the exclusion ends or, if it has ended, is forgotten."""
        return self.ends_s + LONGEST_S if self.has_ended else self.ends_s


_NONE: Final[Mapping[str, str]] = MappingProxyType({})


class KubeletRefusals:
    """Exclusions by spec and node. Holds strong references to the specs, so that a replacement shares the spec."""

    def __init__(self) -> None:
        #: Refusals so far.
        self.n_refused = 0
        #: In the order of their last refusal.
        self._exclusions: dict[tuple[PodSpec, str], _Exclusion] = {}
        #: Spec -> name of each excluded node -> the reason. Each spec has a node.
        self._excluded: dict[PodSpec, dict[str, str]] = {}
        #: The second at which `expire` next has something to do; None if never.
        self.next_s: float | None = None

    def copy(self) -> KubeletRefusals:
        """Return a copy that changes on its own. O(exclusions)."""
        copy = KubeletRefusals()
        copy.n_refused, copy.next_s = self.n_refused, self.next_s
        copy._exclusions = {key: replace(exclusion) for key, exclusion in self._exclusions.items()}
        copy._excluded = {spec: dict(nodes) for spec, nodes in self._excluded.items()}
        return copy

    @property
    def n_excluded(self) -> int:
        """Exclusions for refusals that have not ended. O(specs)."""
        return sum(map(len, self._excluded.values()))

    def excluded_nodes(self, spec: PodSpec) -> Mapping[str, str]:
        """Return the names of the nodes that are excluded for the spec, each with the reason. O(1)."""
        excluded = self._excluded.get(spec) if self._excluded else None
        return _NONE if excluded is None else MappingProxyType(excluded)

    def record(self, spec: PodSpec, node_name: str, reason: str, now_s: float) -> None:
        """Record that the node's kubelet refused a pod of the spec. Exclude the node for it, longer each time."""
        self.n_refused += 1
        known = self._exclusions.pop((spec, node_name), None)
        n_refusals = 1 if known is None else known.n_refusals + 1
        lasts_s = min(FIRST_S * 2.0 ** min(n_refusals - 1, 16), LONGEST_S)
        if len(self._exclusions) >= CAPACITY:
            self._forget(next(iter(self._exclusions)))
        self._exclusions[spec, node_name] = _Exclusion(reason, n_refusals, now_s + lasts_s)
        self._excluded.setdefault(spec, {})[node_name] = reason
        self._set_next()

    def forget(self, spec: PodSpec, node_name: str) -> bool:
        """Forget refusals of the spec by the node. Return whether an exclusion ends thereby."""
        return bool(self._exclusions) and self._forget_all([(spec, node_name)])

    def forget_node(self, node_name: str) -> bool:
        """Forget the node's refusals. Return whether an exclusion ends thereby. O(exclusions)."""
        return self._forget_all([key for key in self._exclusions if key[1] == node_name])

    def expire(self, now_s: float) -> bool:
        """End exclusions whose time is over. Return whether any ended. O(exclusions), and O(1) before `next_s`."""
        if self.next_s is None or now_s < self.next_s:
            return False
        any_ended = False
        for key, exclusion in list(self._exclusions.items()):
            if exclusion.next_s > now_s:
                continue
            if exclusion.has_ended:
                del self._exclusions[key]
            else:
                exclusion.has_ended = any_ended = True
                discard_entry(self._excluded, *key)
        self._set_next()
        return any_ended

    def _forget_all(self, keys: Sequence[tuple[PodSpec, str]]) -> bool:
        """Drop these exclusions. Return whether one of them had not ended."""
        ended = [self._forget(key) for key in keys if key in self._exclusions]
        if ended:
            self._set_next()
        return any(ended)

    def _forget(self, key: tuple[PodSpec, str]) -> bool:
        """Drop the exclusion. Return whether it had not ended."""
        exclusion = self._exclusions.pop(key)
        if not exclusion.has_ended:
            discard_entry(self._excluded, *key)
        return not exclusion.has_ended

    def _set_next(self) -> None:
        self.next_s = min((exclusion.next_s for exclusion in self._exclusions.values()), default=None)
