"""
Nodes whose kubelet refused a pod, excluded for pods of the same spec for a while. Not upstream: there the replacement
goes to the same node at once, and a controller makes as many failed pods as the API server bears (kubernetes#106884).

    refused --> excluded for 5 s, 10 s, 20 s ... 300 s --> allowed, and remembered for 300 s --> forgotten
                           a pod of the spec starts there, or the node changes --> forgotten at once

A node that failed under a member of a group is excluded for this group for `FAILED_S`. Once it has been ready for
`READY_S` without a break, it is the group's last resort: the search for a group without other places may take it.
Neither kind of exclusion is known after a restart.

Time is an argument. Bounded: past `CAPACITY` exclusions, the exclusion whose refusal is the oldest is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import inf
from types import MappingProxyType
from typing import Final

from scheduler.engine.model.pod_groups import GroupKey
from scheduler.engine.model.pods import PodSpec
from scheduler.engine.state.sparse_dicts import discard_entry

#: Seconds that a first refusal excludes the node for; each further one doubles them up to `LONGEST_S`.
FIRST_S: Final = 5.0
LONGEST_S: Final = 300.0
#: Seconds that a failure excludes the node for: longer than the 300 s after which members are evicted from it.
FAILED_S: Final = 600.0
#: Seconds that a node that failed has to be ready before it is a last resort: one that flaps mostly is not for so long.
READY_S: Final = 60.0
#: Exclusions that are remembered, about 200 bytes each.
CAPACITY: Final = 4096

#: The pods of a spec, or the members of a group: a node is excluded for these alone.
Subject = PodSpec | GroupKey


@dataclass(slots=True)
class _Exclusion:
    """
    A node that is excluded for one subject until `ends_s`, and remembered for `LONGEST_S` more.

    `last_resort_s`: when it is a last resort, if it stays ready.
    """

    reason: str
    n_refusals: int
    ends_s: float
    has_ended: bool = False
    last_resort_s: float = inf
    is_last_resort: bool = False

    @property
    def next_s(self) -> float:
        """The second at which the exclusion ends, is a last resort or, if it has ended, is forgotten."""
        last_resort_s = inf if self.is_last_resort else self.last_resort_s
        return self.ends_s + LONGEST_S if self.has_ended else min(self.ends_s, last_resort_s)


_NONE: Final[Mapping[str, str]] = MappingProxyType({})


class KubeletRefusals:
    """Exclusions by subject and node. Holds strong references to the specs, so that a replacement shares the spec."""

    def __init__(self) -> None:
        #: Refusals so far.
        self.n_refused = 0
        #: In the order of their last refusal or failure.
        self._exclusions: dict[tuple[Subject, str], _Exclusion] = {}
        #: Subject -> name of each excluded node -> the reason; no subject without a node.
        self._excluded: dict[Subject, dict[str, str]] = {}
        self._next_s: float | None = None

    def copy(self) -> KubeletRefusals:
        """Return a copy that changes on its own. O(exclusions)."""
        copy = KubeletRefusals()
        copy.n_refused, copy._next_s = self.n_refused, self._next_s
        copy._exclusions = {key: replace(exclusion) for key, exclusion in self._exclusions.items()}
        copy._excluded = {subject: dict(nodes) for subject, nodes in self._excluded.items()}
        return copy

    def __len__(self) -> int:
        return len(self._exclusions)

    @property
    def n_excluded(self) -> int:
        """Exclusions for refusals that have not ended. O(subjects)."""
        return sum(len(nodes) for subject, nodes in self._excluded.items() if isinstance(subject, PodSpec))

    @property
    def next_s(self) -> float | None:
        """The second at which `expire` next has something to do; None if never."""
        return self._next_s

    def excluded_nodes(self, subject: Subject) -> Mapping[str, str]:
        """Return the names of the nodes that are excluded for the subject, each with the reason. O(1)."""
        excluded = self._excluded.get(subject) if self._excluded else None
        return _NONE if excluded is None else MappingProxyType(excluded)

    def record(self, spec: PodSpec, node_name: str, reason: str, now_s: float) -> None:
        """Record that the node's kubelet refused a pod of the spec. Exclude the node for it, longer each time."""
        self.n_refused += 1
        known = self._exclusions.pop((spec, node_name), None)
        n_refusals = 1 if known is None else known.n_refusals + 1
        lasts_s = min(FIRST_S * 2.0 ** min(n_refusals - 1, 16), LONGEST_S)
        self._add(spec, node_name, _Exclusion(reason, n_refusals, now_s + lasts_s))

    def record_failure(self, group: GroupKey, node_name: str, reason: str, now_s: float) -> None:
        """Record that the node failed under a member. Exclude it for the group, for `FAILED_S` from now on."""
        self._exclusions.pop((group, node_name), None)
        self._add(group, node_name, _Exclusion(reason, 1, now_s + FAILED_S))

    def note_health(self, node_name: str, now_s: float, *, is_ready: bool) -> None:
        """Note that the node, which failed before, is ready from now on, or fails. O(exclusions)."""
        for (subject, name), exclusion in self._exclusions.items():
            if name == node_name and isinstance(subject, GroupKey):
                exclusion.last_resort_s = now_s + READY_S if is_ready else inf
                exclusion.is_last_resort = False
        self._set_next()

    def last_resorts(self, group: GroupKey) -> list[str]:
        """Return the names of the excluded nodes that the group may take if it has no other places."""
        names = self.excluded_nodes(group)
        return [name for name in names if self._exclusions[group, name].is_last_resort]

    @contextmanager
    def without(self, group: GroupKey, node_names: Sequence[str]) -> Iterator[None]:
        """Do not exclude these nodes for the group within the block."""
        before = self._excluded[group]
        self._excluded[group] = {name: why for name, why in before.items() if name not in node_names}
        try:
            yield
        finally:
            self._excluded[group] = before

    def _add(self, subject: Subject, node_name: str, exclusion: _Exclusion) -> None:
        if len(self._exclusions) >= CAPACITY:
            self._forget(next(iter(self._exclusions)))
        self._exclusions[subject, node_name] = exclusion
        self._excluded.setdefault(subject, {})[node_name] = exclusion.reason
        self._set_next()

    def forget(self, spec: PodSpec, node_name: str) -> bool:
        """Forget refusals of the spec by the node. Return whether an exclusion ends thereby."""
        return bool(self._exclusions) and self._forget_all([(spec, node_name)])

    def forget_node(self, node_name: str) -> bool:
        """Forget the node's refusals, but no failures. Return whether an exclusion ends thereby. O(exclusions)."""
        of_node = [key for key in self._exclusions if key[1] == node_name]
        return self._forget_all([key for key in of_node if isinstance(key[0], PodSpec)])

    def expire(self, now_s: float) -> bool:
        """
        End exclusions whose time is over. Return whether any ended or is a last resort from now on.

        O(exclusions), and O(1) before `next_s`.
        """
        if self._next_s is None or now_s < self._next_s:
            return False
        any_ended = False
        for key, exclusion in list(self._exclusions.items()):
            if exclusion.next_s > now_s:
                continue
            if exclusion.has_ended:
                del self._exclusions[key]
            elif exclusion.ends_s > now_s:
                exclusion.is_last_resort = any_ended = True
            else:
                exclusion.has_ended = any_ended = True
                discard_entry(self._excluded, *key)
        self._set_next()
        return any_ended

    def _forget_all(self, keys: Sequence[tuple[Subject, str]]) -> bool:
        """Drop these exclusions. Return whether one of them had not ended."""
        ended = [self._forget(key) for key in keys if key in self._exclusions]
        if ended:
            self._set_next()
        return any(ended)

    def _forget(self, key: tuple[Subject, str]) -> bool:
        """Drop the exclusion. Return whether it had not ended."""
        exclusion = self._exclusions.pop(key)
        if not exclusion.has_ended:
            discard_entry(self._excluded, *key)
        return not exclusion.has_ended

    def _set_next(self) -> None:
        self._next_s = min((exclusion.next_s for exclusion in self._exclusions.values()), default=None)
