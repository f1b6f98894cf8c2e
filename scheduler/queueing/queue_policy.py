"""Which active pod is tried next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from scheduler.queueing.ordered_pods import OrderKey, by_priority_and_age
from scheduler.queueing.queued_pod import QueuedPod


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """
    The order of active pods, and what a namespace may use before its pods go behind others of equal priority.

    `order`: returns the sort key of a pod, which begins with the negated priority and ends in the arrival.
    `namespace_share`: of all time, at most 1; 0 lets every namespace use all of it. See `NamespaceShares`.
    """

    order: Callable[[QueuedPod], OrderKey] = by_priority_and_age
    namespace_share: float = 0.0


#: Upstream's order, in which every namespace may use all of the time.
DEFAULT_POLICY: Final = QueuePolicy()
