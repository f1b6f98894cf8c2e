"""The Prometheus series of `shadow`: what was compared, and what would be otherwise here."""

from __future__ import annotations

from typing import Final

from scheduler.daemon.metrics.process import ControllerMetrics
from scheduler.daemon.metrics.series import Family
from scheduler.tools.shadow.report import Cause
from scheduler.tools.shadow.shadow import Shadow

COMPARED: Final = Family(
    "affinity_scheduler_shadow_compared_decisions",
    "Decisions of the other scheduler: pods bound, pods left pending, and pods bound that were not seen pending before "
    "or while a watch was interrupted (unseen), which are not compared.",
    ("decision",),
)
ALIKE: Final = Family(
    "affinity_scheduler_shadow_alike_decisions",
    "Compared decisions that would be the same here: the node is one of the best, or the reasons are the same.",
    ("decision",),
)
DIFFERENT: Final = Family(
    "affinity_scheduler_shadow_different_decisions",
    "Compared decisions that would be otherwise here, by cause; a later change may still explain one as a race.",
    ("cause",),
)


class ShadowMetrics(ControllerMetrics):
    """The series of one comparison."""

    def register_shadow(self, shadow: Shadow) -> None:
        """Read the comparison's numbers at every scrape. Call once."""
        counts = shadow.counts
        self._callback(
            COMPARED,
            lambda: {"bound": counts.n_bound, "pending": counts.n_pending, "unseen": counts.n_unseen},
        )
        self._callback(ALIKE, lambda: {"bound": counts.n_alike, "pending": counts.n_same_reasons})
        self._callback(DIFFERENT, lambda: {cause.value: shadow.causes[cause] for cause in Cause})
