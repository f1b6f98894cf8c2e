"""
How much harm is done by evicting pods; the node where it is least is chosen.

Source: framework/preemption/preemption.go, pickOneNodeForPreemption (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from scheduler.model.pods import Pod

#: Makes every priority positive, so that a node with more pods of a negative priority is not better.
LOWEST_PRIORITY: Final = 1 << 31

#: Fewest broken budgets, lowest priority of the first victim, smallest sum of priorities, fewest victims, and latest
#: start of the victims of the highest priority: the smaller, the less harm. Upstream takes any of equal nodes.
Harm = tuple[int, int, int, int, int]


def harm(victims: Sequence[Pod], n_violations: int) -> Harm:
    """Return the harm of evicting these pods, at least one, the most important first."""
    first = victims[0]
    total = sum(victim.priority for victim in victims) + LOWEST_PRIORITY * len(victims)
    return n_violations, first.priority, total, len(victims), -first.start_rank
