"""
How long a pod that failed waits before it is tried again.

Source: pkg/scheduler/backend/queue/backoff_queue.go (kubernetes 1.36, with SchedulerPopFromBackoffQ; of groups 1.37).
"""

from dataclasses import dataclass
from math import floor, sqrt

from scheduler.engine.queueing.queued_pod import QueuedPod

#: Backoffs end at whole seconds, so that pods whose backoffs end in the same second are popped by priority.
_WINDOW_S = 1


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff between two bounds."""

    initial_s: float
    max_s: float

    def duration_s(self, failures: int, n_together: int = 1) -> float:
        """
        Return the wait after a number of failures: 0, 1, 2, 4, 8, 10, 10 ... by default.

        The longest wait of `n_together` pods that are one entry of the queue is longer.
        """
        if failures == 0:
            return 0.0
        # 2.0 ** 1024 overflows; every configurable maximum is reached far below that.
        return min(self.initial_s * 2.0 ** min(failures - 1, 512), self.max_s * sqrt(n_together))

    def window_s(self, queued: QueuedPod) -> float:
        """Return the second in which the backoff ends, by errors in a row, else all rejections; -inf without any."""
        failures = queued.error_count or queued.unschedulable_count
        if failures == 0:
            return float("-inf")
        return floor(queued.timestamp_s + self.duration_s(failures, queued.n_together))

    def is_backing_off(self, queued: QueuedPod, now_s: float) -> bool:
        """Return whether the backoff of `queued` is not over."""
        return now_s < self.end_s(queued)

    def end_s(self, queued: QueuedPod) -> float:
        """Return the first moment after the backoff of `queued`: the end of its window."""
        return queued.backoff_window_s + _WINDOW_S
