"""
How long a pod that failed waits before it is tried again.

Source: pkg/scheduler/backend/queue/backoff_queue.go (kubernetes 1.36).
"""

from dataclasses import dataclass
from math import floor

from scheduler.queueing.queued_pod import QueuedPod


@dataclass(frozen=True, slots=True)
class Backoff:
    """
    Exponential backoff between two bounds, in windows of whole seconds where pods may be popped early.

    Attributes:
        initial_s: wait after the first failure.
        max_s: longest wait.
        whole_seconds: expiries are floored to a whole second and a pod backs off through that second, so that
            all pods of one second leave, or are popped early, in the order of active pods.
    """

    initial_s: float
    max_s: float
    whole_seconds: bool

    def duration_s(self, failures: int) -> float:
        """Seconds that the `failures`-th failure costs: 1, 2, 4, 8, 10, 10 ... by default; 0 for none."""
        if failures == 0:
            return 0.0
        # 2.0 ** 1024 overflows; far below that every configurable maximum is reached.
        return min(self.initial_s * 2.0 ** min(failures - 1, 512), self.max_s)

    def expiry_s(self, queued: QueuedPod) -> float:
        """
        When the backoff of `queued` ends, from its counts and timestamp; -inf if it never failed.

        Errors in a row count if there are any, else the rejections over the pod's life.
        """
        failures = queued.error_count or queued.unschedulable_count
        if failures == 0:
            return float("-inf")
        expiry_s = queued.timestamp_s + self.duration_s(failures)
        return floor(expiry_s) if self.whole_seconds else expiry_s

    def is_backing_off(self, queued: QueuedPod, now_s: float) -> bool:
        """Whether `queued` may not be active yet."""
        return now_s < self.over_s(queued)

    def over_s(self, queued: QueuedPod) -> float:
        """The first moment at which `queued` no longer backs off."""
        return queued.backoff_until_s + 1 if self.whole_seconds else queued.backoff_until_s
