"""Decision times from the scheduler's /metrics: a sample, the difference of two, and its quantiles."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

_DECISION: Final = "scheduler_scheduling_algorithm_duration_seconds"
_ATTEMPTS: Final = "scheduler_schedule_attempts_total"


@dataclass(frozen=True, slots=True)
class Sample:
    """Decisions counted so far, or between two samples."""

    #: Upper bound in seconds -> decisions that took no longer, ascending; the last bound is infinite.
    at_most: dict[float, float]
    #: Pods bound.
    scheduled: float

    def __sub__(self, earlier: Sample) -> Sample:
        """Return what happened since `earlier`, a sample of the same process."""
        at_most = {bound: n - earlier.at_most.get(bound, 0.0) for bound, n in self.at_most.items()}
        return Sample(at_most, self.scheduled - earlier.scheduled)

    @property
    def decisions(self) -> float:
        """Return the number of decisions."""
        return max(self.at_most.values(), default=0.0)

    def quantile_s(self, share: float) -> float:
        """
        Return the seconds within which the `share` of decisions was made, linear within a bucket; 0 without any.

        Source: PromQL's histogram_quantile, its rule for the last bucket included.
        """
        rank = share * self.decisions
        if not rank:
            return 0.0
        for (lower_s, below), (upper_s, reached) in pairwise([(0.0, 0.0), *sorted(self.at_most.items())]):
            if reached >= rank:
                if upper_s == float("inf"):
                    return lower_s
                return lower_s + (upper_s - lower_s) * (rank - below) / (reached - below)
        return 0.0


def parse_sample(text: str) -> Sample:
    """Return the sample in an answer of /metrics. Raises: ValueError if it is no exposition text."""
    at_most: dict[float, float] = {}
    scheduled = 0.0
    for family in text_string_to_metric_families(text):
        for name, labels, value, *_ in family.samples:
            if name == f"{_DECISION}_bucket":
                at_most[float(labels["le"])] = value
            elif name == _ATTEMPTS and labels.get("result") == "scheduled":
                scheduled += value
    return Sample(dict(sorted(at_most.items())), scheduled)
