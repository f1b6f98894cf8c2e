"""
The Prometheus series of every process of this program: its version, its API requests, its watches.

Source: component-base/metrics/prometheus/restclient (kubernetes 1.36). The `verb` label is the HTTP method, as there.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.metrics_core import Metric

from scheduler.daemon.metrics.series import Counter, Family, Histogram, Numbers
from scheduler.engine.model.semantics import FeatureStage, Semantics, Version

#: The only format of `render`: OpenMetrics would need the library's encoder, which blocks the loop for 30 ms.
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
    "Number of malformed objects or annotations from the API server that were ignored.",
    ("kind",),
)
OBJECTS_MALFORMED: Final = Family(
    "affinity_scheduler_objects_malformed",
    "Number of objects that are ignored now, or an annotation of theirs, since they are malformed.",
    ("kind",),
)
WATCH_RESTARTS: Final = Family(
    "affinity_scheduler_watch_restarts_total",
    "Number of times that listing or watching a kind was interrupted by an error and restarted.",
    ("kind",),
)
EVENTS_DROPPED: Final = Family(
    "affinity_scheduler_events_dropped_total",
    "Number of Kubernetes events dropped: too many were queued, or the API server refused them.",
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
FEATURE_ENABLED: Final = Family(
    "kubernetes_feature_enabled",
    "[BETA] This metric records the data about the stage and enablement of a k8s feature.",
    ("name", "stage"),
)
VERSION_INFO: Final = Family(
    "version_info",
    "[ALPHA] Provides the compatibility version info of the component. The component label is the name of the "
    "component, usually kube, but is relevant for aggregated-apiservers.",
    ("component", "binary", "emulation", "min_compat"),
)
UNKNOWN_SERVER_VERSION: Final = Family(
    "affinity_scheduler_unknown_server_version",
    "1 if the API server is newer or older than every version of Kubernetes that can be emulated, else 0.",
)


class ProcessMetrics:
    """The metrics registry of one process. Nothing in it is global: two schedulers in one process have one each."""

    def __init__(self, *, version: str) -> None:
        self._version = version
        #: Return each family in the text format, in the order in which they were registered.
        self._texts: list[Callable[[], str]] = []
        self._requests = self._counter(REST_REQUESTS)
        self._request_duration = self._histogram(REST_DURATION)
        build = {(version, platform.python_version()): 1}
        self._callback(BUILD_INFO, lambda: build)
        of_process = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=of_process)
        self._texts.append(lambda: "".join(map(_text_of, of_process.collect())))

    def render(self) -> bytes:
        """Return all series in the text format (`CONTENT_TYPE`)."""
        return "".join([text() for text in self._texts]).encode()

    def on_request(self, verb: str, method: str, code: str, host: str, seconds: float) -> None:
        """Observe a response of the API server, or `<error>`; a watch is counted but has no latency."""
        self._requests.add(code, method, host)
        if verb != "watch":
            self._request_duration.labels(method, host).observe(seconds)

    def _counter(self, family: Family) -> Counter:
        counts = Counter(family)
        self._texts.append(counts.text)
        return counts

    def _histogram(self, family: Family) -> Histogram:
        histogram = Histogram(family)
        self._texts.append(histogram.text)
        return histogram

    def _callback(self, family: Family, read: Callable[[], Numbers]) -> None:
        """Read the numbers at every scrape."""
        self._texts.append(lambda: family.text_of(read()))


def _text_of(metric: Metric) -> str:
    """Return a family of the library's, a counter or gauge, in the text format."""
    name = f"{metric.name}_total" if metric.type == "counter" else metric.name
    labels = tuple(metric.samples[0].labels) if metric.samples else ()
    family = Family(name, metric.documentation, labels)
    return family.text_of({tuple(each.labels.values()): each.value for each in metric.samples})


class ControllerMetrics(ProcessMetrics):
    """The registry of a process that watches the cluster, writes events and may take part in leader election."""

    def __init__(self, *, version: str) -> None:
        super().__init__(version=version)
        self.malformed_objects = self._counter(MALFORMED_OBJECTS)
        self.watch_restarts = self._counter(WATCH_RESTARTS)
        self.events_dropped = self._counter(EVENTS_DROPPED)

    def register_malformed(self, count: Callable[[], Mapping[str, int]]) -> None:
        """Read at every scrape how many objects of each kind are malformed. Call once."""
        self._callback(OBJECTS_MALFORMED, count)

    def register_leader(self, name: str, leads: Callable[[], bool]) -> None:
        """Read at every scrape whether this instance holds the Lease. Call once."""
        self._callback(LEADER, lambda: {name: int(leads())})

    def register_semantics(self, semantics: Semantics, server: Version | None) -> None:
        """Show what is emulated, beside an API server of this version; None if a flag named it. Call once."""
        stages = {
            gate: "" if stage is FeatureStage.GA else stage.value for gate, stage in semantics.stages.items()
        }
        features = {(gate.value, stage): int(semantics.enabled(gate)) for gate, stage in stages.items()}
        minimum = str(semantics.minimum_compatibility)
        labels: tuple[str, ...] = ("kube", self._version, str(semantics.version), minimum)
        unknown = int(server not in (None, semantics.version))
        self._callback(FEATURE_ENABLED, lambda: features)
        self._callback(VERSION_INFO, lambda: {labels: 1})
        self._callback(UNKNOWN_SERVER_VERSION, lambda: unknown)
