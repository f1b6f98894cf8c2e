"""Logs attempts to schedule pods: every success, and failures up to a rate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from scheduler.daemon.kube.rate_limit import TokenBucket
from scheduler.daemon.metrics.logs import Logger
from scheduler.engine.model.instructions import Attempted

#: Failures logged per second and at once. A user who changes the labels of a pending pod has it tried again each time.
_FAILURES_PER_S: Final = 20.0
_FAILURES_AT_ONCE: Final = 2000


class AttemptLog:
    """Writes a line for each attempt; of failures beyond the rate only their number, with the next line."""

    def __init__(self, log: Logger, now_s: Callable[[], float]) -> None:
        self._log = log
        self._now_s = now_s
        self._bucket = TokenBucket(qps=_FAILURES_PER_S, burst=_FAILURES_AT_ONCE, now_s=now_s())
        self._n_left_out = 0

    def write(self, attempt: Attempted) -> None:
        """Log the attempt."""
        pod = attempt.pod.key
        if attempt.result == "scheduled":
            self._log.info(
                2,
                "Successfully bound pod to node",
                pod=pod,
                node=attempt.message,
                evaluatedNodes=attempt.n_evaluated,
                feasibleNodes=attempt.n_feasible,
            )
        elif not self._bucket.take(self._now_s()):
            self._n_left_out += 1
        else:
            if self._n_left_out:
                self._log.info(0, "Failed attempts were not logged: too many", n=self._n_left_out)
                self._n_left_out = 0
            if attempt.result == "unschedulable":
                self._log.info(2, "Unable to schedule pod; no fit; waiting", pod=pod, err=attempt.message)
            else:
                self._log.error("Error scheduling pod; retrying", pod=pod, err=attempt.message)
