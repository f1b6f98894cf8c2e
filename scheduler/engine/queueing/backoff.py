"""
How long a pod that failed waits before it is tried again.

Source: pkg/scheduler/backend/queue/backoff_queue.go (kubernetes 1.36, with SchedulerPopFromBackoffQ; of groups 1.37).
"""

from dataclasses import dataclass
from math import floor, sqrt

from scheduler.engine.queueing.queued_pod import QueuedPod


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff between two bounds."""

    initial_s: float
    max_s: float

    def duration_s(self, failures: int, n_together: int = 1) -> float:
        """
        Return the wait after one or more failures: 1, 2, 4, 8, 10, 10 ... by default.

        The longest wait of `n_together` pods that are one entry of the queue is longer.
        """
        # 2.0 ** 1024 overflows; every configurable maximum is reached far below that.
        return min(self.initial_s * 2.0 ** min(failures - 1, 512), self.max_s * sqrt(n_together))

    def window_s(self, queued: QueuedPod) -> float:
        """Return the second in which the backoff ends, by errors in a row, else all rejections; -inf without any."""
        failures = queued.error_count or queued.unschedulable_count
        if failures == 0:
            return float("-inf")
        return floor(queued.timestamp_s + self.duration_s(failures, queued.n_together))
