"""
The orders of changes that proven races need: which change the other scheduler knew before which.

Each race alone has an order that explains it. Two races whose orders contradict each other are not both proven.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from typing import Final

#: Seconds within which changes may have been in another order for the other scheduler, unless a flag says otherwise.
RACE_S: Final = 2.0
#: The kind and the key of an object that changed.
ChangeKey = tuple[str, str]
#: Changes that are remembered: many times as many as are in one window.
_MAX_KEPT: Final = 1_000


class ProvenOrders:
    """Orders of changes, without a cycle."""

    def __init__(self) -> None:
        self._later: OrderedDict[ChangeKey, set[ChangeKey]] = OrderedDict()

    def prove(self, decision: ChangeKey, before: Collection[ChangeKey], after: Collection[ChangeKey]) -> bool:
        """Note that the decision came between these changes; return False if that contradicts what is noted."""
        if self._following(after) & {decision, *before} or self._following([decision]) & set(before):
            return False
        for key in before:
            self._after(key).add(decision)
        self._after(decision).update(after)
        while len(self._later) > _MAX_KEPT:
            self._later.popitem(last=False)
        return True

    def _after(self, key: ChangeKey) -> set[ChangeKey]:
        later = self._later.setdefault(key, set())
        self._later.move_to_end(key)
        return later

    def _following(self, keys: Collection[ChangeKey]) -> set[ChangeKey]:
        """Return these changes and all that came after them."""
        found: set[ChangeKey] = set()
        left = list(keys)
        while left:
            key = left.pop()
            if key not in found:
                found.add(key)
                left.extend(self._later.get(key, ()))
        return found
