"""
Which namespaces have lately used more than their share of the time in which pods are scheduled.

kube-scheduler tries pods of equal priority in the order of their arrival, so one namespace with expensive pods delays
all others for as long as its pods take. Here its pods come after others of equal priority while it is over its share.
"""

from __future__ import annotations

from typing import Final

#: A namespace may use its share of this many seconds at once.
BURST_S: Final = 2.0
#: Bounds what is held against a namespace: after this many seconds without a cycle it counts as unused.
MEMORY_S: Final = 10.0


class NamespaceShares:
    """
    The time that the cycles of each namespace used, less its share of all time since.

    Nothing starves: a namespace whose pods wait is within its share again after `MEMORY_S` at most, and then its oldest
    pod is first.
    """

    def __init__(self, share: float) -> None:
        """`share`: of all time, above 0 and at most 1; 0 lets every namespace use all of it."""
        self._share = share
        #: When the namespace counts as unused again, if it has no more cycles.
        self._unused_at_s: dict[str, float] = {}

    def charge(self, namespace: str, used_s: float, now_s: float) -> None:
        """Add what a cycle of the namespace took."""
        if self._share:
            at_s = max(now_s, self._unused_at_s.get(namespace, now_s)) + used_s / self._share
            self._unused_at_s[namespace] = min(at_s, now_s + MEMORY_S)

    def is_over(self, namespace: str, now_s: float) -> bool:
        """Return whether the namespace has used up its share for longer than the next `BURST_S`."""
        return self._unused_at_s.get(namespace, now_s) - now_s > BURST_S

    def sweep(self, now_s: float) -> None:
        """Forget the namespaces that have used nothing lately."""
        self._unused_at_s = {name: at_s for name, at_s in self._unused_at_s.items() if at_s > now_s}
