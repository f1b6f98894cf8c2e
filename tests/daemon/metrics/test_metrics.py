"""The metrics: names, labels and buckets of kube-scheduler 1.36, with values from real cycles."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from dataclasses import replace
from typing import Any

import pytest

from scheduler.daemon.metrics import metrics, process
from scheduler.daemon.metrics.metrics import Metrics
from scheduler.daemon.metrics.series import Family
from scheduler.engine.model.instructions import DevicesAwaited
from scheduler.engine.model.stimuli import BindDone, TimePassed
from tests.daemon.metrics.scheduling import Observed, Samples, samples, value
from tests.engine.core.claim_cluster import ClaimCluster
from tests.support.device_documents import DRIVER, device_slice, resource_claim
from tests.support.driving import NAME, attempt_of

#: The first and the last bound of each histogram, and their number.
_BUCKETS = [
    ("scheduler_scheduling_attempt_duration_seconds", 0.001, 16.384, 15),
    ("scheduler_scheduling_algorithm_duration_seconds", 0.001, 16.384, 15),
    ("scheduler_pod_scheduling_attempts", 1, 16, 5),
    ("scheduler_pod_scheduling_sli_duration_seconds", 0.01, 5242.88, 20),
    ("scheduler_framework_extension_point_duration_seconds", 0.0001, 0.2048, 12),
    ("scheduler_plugin_execution_duration_seconds", 0.00001, 0.022168, 20),
    ("scheduler_event_handling_duration_seconds", 0.0001, 0.2048, 12),
    ("scheduler_podgroup_scheduling_algorithm_duration_seconds", 0.001, 16.384, 15),
    ("scheduler_preemption_victims", 1, 64, 7),
    ("scheduler_dra_bindingconditions_wait_duration_seconds", 0.1, 819.2, 14),
    ("rest_client_request_duration_seconds", 0.005, 60.0, 12),
]


def _declared() -> dict[str, Family]:
    declared = (*vars(metrics).values(), *vars(process).values())
    return {family.name: family for family in declared if isinstance(family, Family)}


@pytest.mark.parametrize(("name", "first", "last", "n"), _BUCKETS, ids=[row[0] for row in _BUCKETS])
def test_histograms_of_upstream_have_its_buckets(name, first, last, n) -> None:
    """Names, types and labels are in tests/data/promised-1.0.0.json."""
    bounds = _declared()[name].bounds
    assert (bounds[0], len(bounds)) == (first, n)
    assert bounds[-1] == pytest.approx(last, rel=1e-4)


@pytest.fixture(scope="module")
def scraped() -> Observed:
    """
    A scheduler that has bound a pod at once, bound one after a failure, failed one and gated one; every cycle is
    sampled.
    """
    observed = Observed(sampled=1.0)
    driver = observed.driver
    driver.node("a", allocatable={"cpu": "1"})
    driver.node("b", allocatable={"cpu": "1"})
    first = driver.pod("first", cpu="1")
    observed.cycle()
    driver.now_s += 0.5
    observed.tell(driver.handle(BindDone(first.uid)))
    driver.pod("large", cpu="2")
    observed.cycle()
    driver.pod("gated", gates=["wait"])
    driver.node("c", allocatable={"cpu": "4"})
    driver.pass_time(1.5)
    observed.cycle()
    driver.now_s += 0.5
    observed.tell(driver.handle(BindDone("uid-default-large")))
    driver.pod("huge", cpu="8")
    observed.cycle()
    observed.metrics.on_event_handled("NodeSeen", 0.0003)
    observed.metrics.on_request("create", "POST", "201", "127.0.0.1:6443", 0.004)
    observed.metrics.on_request("watch", "GET", "200", "127.0.0.1:6443", 0.004)
    observed.metrics.malformed_objects.add("Pod")
    observed.metrics.watch_restarts.add("Node")
    observed.metrics.events_dropped.add()
    observed.metrics.loop_lag.observe(0.002)
    return observed


SHOWN = """
scheduler_schedule_attempts_total{result="scheduled",profile="affinity-scheduler"} 2
scheduler_schedule_attempts_total{result="unschedulable",profile="affinity-scheduler"} 2
scheduler_scheduling_attempt_duration_seconds_sum{result="scheduled",profile="affinity-scheduler"} 1
scheduler_pod_scheduling_attempts_count 2
scheduler_pod_scheduling_attempts_sum 3
scheduler_pod_scheduling_sli_duration_seconds_sum{attempts="1"} 0.5
scheduler_pod_scheduling_sli_duration_seconds_sum{attempts="2"} 2
scheduler_pod_scheduled_after_flush_total 0
scheduler_scheduling_algorithm_duration_seconds_count 4
scheduler_pending_pods{queue="active"} 0
scheduler_pending_pods{queue="unschedulable"} 1
scheduler_pending_pods{queue="gated"} 1
scheduler_queue_incoming_pods_total{queue="active",event="UnschedulablePodAdd"} 3
scheduler_unschedulable_pods{plugin="NodeResourcesFit",profile="affinity-scheduler"} 1
scheduler_unschedulable_pods{plugin="SchedulingGates",profile="affinity-scheduler"} 1
scheduler_cache_size{type="nodes"} 3
scheduler_cache_size{type="pods"} 2
scheduler_cache_size{type="assumed_pods"} 2
scheduler_framework_extension_point_duration_seconds_count{extension_point="Filter",status="Success",profile="OURS"} 4
scheduler_framework_extension_point_duration_seconds_count{extension_point="Score",status="Success",profile="OURS"} 1
scheduler_plugin_execution_duration_seconds_count{plugin="NodeResourcesFit",extension_point="Filter",status="Success"} 4
scheduler_plugin_execution_duration_seconds_count{plugin="InterPodAffinity",extension_point="PreScore",status="Skip"} 1
scheduler_plugin_evaluation_total{plugin="NodeResourcesFit",extension_point="PreFilter",profile="affinity-scheduler"} 4
scheduler_plugin_evaluation_total{plugin="InterPodAffinity",extension_point="Score",profile="affinity-scheduler"} 0
scheduler_event_handling_duration_seconds_count{event="NodeSeen"} 1
rest_client_requests_total{code="201",method="POST",host="127.0.0.1:6443"} 1
rest_client_requests_total{code="200",method="GET",host="127.0.0.1:6443"} 1
rest_client_request_duration_seconds_count{verb="POST",host="127.0.0.1:6443"} 1
affinity_scheduler_malformed_objects_total{kind="Pod"} 1
affinity_scheduler_watch_restarts_total{kind="Node"} 1
affinity_scheduler_events_dropped_total 1
affinity_scheduler_loop_lag_seconds_count 1
"""


def test_a_scrape_shows_what_the_cycles_did(scraped: Observed) -> None:
    found, expected = scraped.samples(), samples(SHOWN.replace("OURS", NAME).encode())
    assert {each: found.get(each) for each in expected} == pytest.approx(expected)


def test_a_watch_is_a_request_without_latency(scraped: Observed) -> None:
    """It stays open for minutes, which says nothing about the server."""
    found = scraped.samples()
    assert (
        "rest_client_request_duration_seconds_count",
        (("host", "127.0.0.1:6443"), ("verb", "GET")),
    ) not in found


def test_the_process_and_the_build_are_described(scraped: Observed) -> None:
    """Memory and CPU rows of dashboards read the process series; the build is a label."""
    found = scraped.samples()
    assert value(found, "process_resident_memory_bytes") > 1e6
    assert value(found, "process_cpu_seconds_total") > 0
    assert value(found, "python_gc_collections_total", generation="2") >= 0
    (info,) = (dict(labels) for name, labels in found if name == "python_info")
    assert info["version"] == platform.python_version()
    assert any(
        dict(labels).get("version") == "1.2.3" for name, labels in found if name.endswith("build_info")
    )


def test_every_family_is_rendered_once(scraped: Observed) -> None:
    told = re.findall(r"^# TYPE (\S+) (\S+)$", scraped.metrics.render().decode(), re.MULTILINE)
    assert len(told) == len({name for name, _ in told})
    assert {(name, family.type) for name, family in _declared().items()} <= set(told)


def test_promtool_accepts_a_scrape(scraped: Observed) -> None:
    """Names, units, help texts and format pass Prometheus' own linter."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed")
    checked = subprocess.run(
        [promtool, "check", "metrics"], input=scraped.metrics.render(), capture_output=True, timeout=30
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


def _after_bound_with(**changes: Any) -> Samples:
    """Return the series after a pod was bound, by an attempt with these changes."""
    observed = Observed()
    observed.driver.node("a")
    pod = observed.driver.pod("p")
    observed.cycle()
    attempt = attempt_of(observed.driver.handle(BindDone(pod.uid)))
    observed.metrics.on_attempt(replace(attempt, **changes), observed.driver.now_s)
    return observed.samples()


@pytest.mark.parametrize(
    ("attempts", "label"), [(1, "1"), (14, "14"), (15, "15+"), (16, "15+"), (4000, "15+")]
)
def test_attempts_have_sixteen_labels_at_most(attempts: int, label: str) -> None:
    """A pod that is retried for weeks adds no series."""
    found = _after_bound_with(attempts=attempts)
    assert value(found, "scheduler_pod_scheduling_sli_duration_seconds_count", attempts=label) == 1
    assert value(found, "scheduler_pod_scheduling_attempts_sum") == attempts


@pytest.mark.parametrize(("after_flush", "counted"), [(True, 1), (False, 0)])
def test_pods_bound_after_the_flush_are_counted(after_flush: bool, counted: int) -> None:
    """They hint at a missing queueing hint."""
    found = _after_bound_with(after_flush=after_flush)
    assert value(found, "scheduler_pod_scheduled_after_flush_total") == counted


def test_two_schedulers_in_a_process_share_no_series() -> None:
    one, other = Metrics(), Metrics()
    one.malformed_objects.add("Pod")
    name = ("affinity_scheduler_malformed_objects_total", (("kind", "Pod"),))
    assert name in samples(one.render())
    assert name not in samples(other.render())


def _device_series(cluster: ClaimCluster) -> dict[str, float]:
    scraped = Metrics()
    scraped.register_state(cluster.queue, cluster.state, {})
    found = samples(scraped.render())
    return {
        state: value(found, "affinity_scheduler_devices", driver=DRIVER, state=state)
        for state in ("free", "allocated")
    }


def test_devices_are_free_or_allocated_from_reserve_on() -> None:
    """Also while a driver publishes one device less, and one that a claim still has."""
    cluster = ClaimCluster(4, ("a", "b"))
    cluster.store(resource_claim("c", 3))
    cluster.watch()
    assert _device_series(cluster) == {"free": 8, "allocated": 0}
    pod = cluster.using("c")
    cluster.write(cluster.reserve())
    cluster.watch()
    assert _device_series(cluster) == {"free": 5, "allocated": 3}
    for name in ("a", "b"):
        cluster.show(device_slice(name, 1))
    assert _device_series(cluster) == {"free": 0, "allocated": 3}
    cluster.lose(pod)
    cluster.audit()


@pytest.mark.parametrize(
    ("condition", "status"), [("ready", "success"), ("broken", "failure"), ("", "timeout")]
)
def test_the_wait_for_devices_is_observed_by_driver_and_outcome(condition: str, status: str) -> None:
    cluster = ClaimCluster(0, ("a",))
    cluster.show(device_slice("a", 1, bindingConditions=["ready"], bindingFailureConditions=["broken"]))
    cluster.store(resource_claim("c"))
    cluster.watch()
    cluster.using("c")
    cluster.write(cluster.reserve())
    cluster.watch()
    cluster.now_s += 3.0
    claim = cluster.server.claims["default/c"]
    device = {"driver": DRIVER, "pool": "a", "device": "gpu-0"}
    if condition:
        devices = [{**device, "conditions": [{"type": condition, "status": "True"}]}]
        cluster.store({**claim, "status": {**claim["status"], "devices": devices}})
        instructions = cluster.watch()
    else:
        cluster.now_s += 1000.0
        instructions = cluster.handle(TimePassed())
    scraped = Metrics()
    for instruction in instructions:
        if isinstance(instruction, DevicesAwaited):
            scraped.on_devices_awaited(instruction)
    found, labels = samples(scraped.render()), {"profile": NAME, "driver": DRIVER, "status": status}
    assert value(found, "scheduler_dra_bindingconditions_allocations_total", **labels) == 1
    waited = value(found, "scheduler_dra_bindingconditions_wait_duration_seconds_sum", **labels)
    assert waited == (3.0 if condition else 1003.0)
