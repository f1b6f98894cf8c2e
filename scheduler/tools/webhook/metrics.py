"""The webhook's Prometheus series."""

from __future__ import annotations

from typing import Final

from scheduler.daemon.metrics.process import ProcessMetrics
from scheduler.daemon.metrics.series import Family, exponential_bounds

REQUESTS: Final = Family(
    "affinity_scheduler_webhook_requests_total",
    "Number of admission requests, by webhook and verdict: allowed, patched, refused, reported for those that "
    "--report-only allows, or malformed, too_large, too_slow for requests that were not answered.",
    ("webhook", "verdict"),
)
DURATION: Final = Family(
    "affinity_scheduler_webhook_request_duration_seconds",
    "Time from the last byte of the request to its answer, in seconds.",
    ("webhook",),
    exponential_bounds(0.0001, 2, 14),
)
PATCHES: Final = Family(
    "affinity_scheduler_webhook_patch_operations_total", "Number of JSON patch operations sent."
)
CERTIFICATE_EXPIRY: Final = Family(
    "affinity_scheduler_webhook_certificate_expiry_timestamp_seconds",
    "When the served certificate expires, in seconds since 1970; 0 while none is served.",
)


class WebhookMetrics(ProcessMetrics):
    """The series of one webhook process."""

    def __init__(self, *, version: str = "unknown") -> None:
        super().__init__(version=version)
        self.answers = self._counter(REQUESTS)
        self._duration = self._histogram(DURATION)
        self._patches = self._counter(PATCHES)
        #: Seconds since 1970, 0 while no certificate is served.
        self.certificate_expires_s = 0
        self._callback(CERTIFICATE_EXPIRY, lambda: self.certificate_expires_s)

    def on_answer(self, webhook: str, verdict: str, *, n_operations: int, seconds: float) -> None:
        """Count an answered request."""
        self.answers.add(webhook, verdict)
        self._duration.labels(webhook).observe(seconds)
        if n_operations:
            self._patches.add(n=n_operations)
