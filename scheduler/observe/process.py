"""
The Prometheus series that every process of this program has, whatever it does: what it is, what it asks the API server,
and what becomes of its watches.

Source: component-base/metrics/prometheus/restclient (kubernetes 1.36). The `verb` label is the HTTP method, as there.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)

from scheduler.observe.series import Counts, Family, Histogram, Numbers, Reading

#: What `render` returns. Always this: OpenMetrics through the library would hold the loop for 30 ms.
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

REST_REQUESTS: Final = Family(
    "rest_client_requests_total",
    "[ALPHA] Number of HTTP requests, partitioned by status code, method, and host.",
    ("code", "method", "host"),
)
REST_DURATION: Final = Family(
    "rest_client_request_duration_seconds",
    "[ALPHA] Request latency in seconds. Broken down by verb, and host.",
    ("verb", "host"),
    (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0),
)
MALFORMED_OBJECTS: Final = Family(
    "affinity_scheduler_malformed_objects_total",
    "Number of objects the API server sent that are ignored, or an annotation of theirs, since it could not be read.",
    ("kind",),
)
WATCH_RESTARTS: Final = Family(
    "affinity_scheduler_watch_restarts_total",
    "Number of times that listing or watching a kind was interrupted by an error and begun again.",
    ("kind",),
)
EVENTS_DROPPED: Final = Family(
    "affinity_scheduler_events_dropped_total",
    "Number of Kubernetes events given up: too many were waiting, or the API server refused them.",
)
LEADER: Final = Family(
    "leader_election_master_status",
    "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. "
    "'name' is the string used to identify the lease. Please make sure to group by name.",
    ("name",),
)
BUILD_INFO: Final = Family(
    "affinity_scheduler_build_info",
    "Always 1; the labels are the versions of the scheduler and of Python.",
    ("version", "python_version"),
)


class ProcessMetrics:
    """A registry of the process's own, which nothing global shares: two schedulers in a process have one each."""

    def __init__(self, *, version: str) -> None:
        #: Everything, as any prometheus_client encoder takes it; `render` gives the same, faster.
        self.registry = CollectorRegistry()
        self._scalars = CollectorRegistry()
        self.registry.register(self._scalars)
        self._histograms: list[Histogram] = []
        self._requests = self._counts(REST_REQUESTS)
        self._request_duration = self._histogram(REST_DURATION)
        build = {(version, platform.python_version()): 1}
        self._reading(BUILD_INFO, lambda: build)
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self._scalars)

    def render(self) -> bytes:
        """All series in Prometheus' text format 0.0.4 (`CONTENT_TYPE`). Cost: 10 µs a histogram, 4 µs a number."""
        histograms = "".join([histogram.text() for histogram in self._histograms])
        return histograms.encode() + generate_latest(self._scalars)

    def on_request(self, verb: str, method: str, code: str, host: str, seconds: float) -> None:
        """The API server answered, or did not (`<error>`); a watch counts as a request but has no latency."""
        self._requests.add(code, method, host)
        if verb != "watch":
            self._request_duration.of(method, host).observe(seconds)

    def _counts(self, family: Family) -> Counts:
        counts = Counts(family)
        self._scalars.register(counts)
        return counts

    def _histogram(self, family: Family) -> Histogram:
        histogram = Histogram(family)
        self.registry.register(histogram)
        self._histograms.append(histogram)
        return histogram

    def _reading(self, family: Family, read: Callable[[], Numbers]) -> None:
        """The numbers are read at every scrape from now on."""
        self._scalars.register(Reading(family, read))


class InformedMetrics(ProcessMetrics):
    """Of a process that watches the cluster, writes events, and may be one of several of which one leads."""

    def __init__(self, *, version: str) -> None:
        super().__init__(version=version)
        self._malformed = self._counts(MALFORMED_OBJECTS)
        self._watch_restarts = self._counts(WATCH_RESTARTS)
        self._events_dropped = self._counts(EVENTS_DROPPED)

    def watch_leadership(self, name: str, leads: Callable[[], bool]) -> None:
        """Whether this instance holds the Lease is part of every scrape from now on. Call once."""
        self._reading(LEADER, lambda: {name: int(leads())})

    def on_malformed(self, kind: str) -> None:
        """An object of this kind could not be read."""
        self._malformed.add(kind)

    def on_watch_restart(self, kind: str) -> None:
        """Listing or watching this kind begins again after an error."""
        self._watch_restarts.add(kind)

    def on_event_dropped(self) -> None:
        """A Kubernetes event will not be written."""
        self._events_dropped.add()
