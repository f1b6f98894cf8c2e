"""The webhook's own Prometheus series, in a registry of its own: it is a process of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)

from scheduler.observe.series import Counts, Family, Histogram, Reading, exponential

REQUESTS: Final = Family(
    "affinity_scheduler_webhook_requests_total",
    "Number of admission requests, by webhook and verdict: allowed, patched, refused, or malformed, too_large, "
    "too_slow for those that were not answered.",
    ("webhook", "verdict"),
)
DURATION: Final = Family(
    "affinity_scheduler_webhook_request_duration_seconds",
    "Time from the whole request to its answer, in seconds.",
    ("webhook",),
    exponential(0.0001, 2, 14),
)
PATCHES: Final = Family(
    "affinity_scheduler_webhook_patch_operations_total", "Number of JSON patch operations sent."
)
CERTIFICATE_EXPIRY: Final = Family(
    "affinity_scheduler_webhook_certificate_expiry_timestamp_seconds",
    "When the served certificate expires, in seconds since 1970; 0 while none is served.",
)
REST_REQUESTS: Final = Family(
    "rest_client_requests_total",
    "[ALPHA] Number of HTTP requests, partitioned by status code, method, and host.",
    ("code", "method", "host"),
)


class WebhookMetrics:
    """What is counted, and how Prometheus gets it."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counts(REQUESTS)
        self._duration = Histogram(DURATION)
        self._patches = Counts(PATCHES)
        self._rest = Counts(REST_REQUESTS)
        #: Seconds since 1970, 0 while no certificate is served.
        self.certificate_expires_s = 0
        expiry = Reading(CERTIFICATE_EXPIRY, self._expiry)
        for collector in (self._requests, self._duration, self._patches, self._rest, expiry):
            self.registry.register(collector)
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    def _expiry(self) -> Mapping[tuple[str, ...], int]:
        return {(): self.certificate_expires_s}

    def render(self) -> bytes:
        """All series as text for Prometheus."""
        return generate_latest(self.registry)

    def on_answer(self, webhook: str, verdict: str, *, n_operations: int, seconds: float) -> None:
        """A question was answered."""
        self._requests.add(webhook, verdict)
        self._duration.of(webhook).observe(seconds)
        if n_operations:
            self._patches.add(n=n_operations)

    def on_rejected(self, webhook: str, verdict: str) -> None:
        """A request was no question that could be answered."""
        self._requests.add(webhook, verdict)

    def on_api_request(self, verb: str, method: str, code: str, host: str, seconds: float) -> None:
        """The API server answered us, or did not."""
        del verb, seconds
        self._rest.add(code, method, host)
