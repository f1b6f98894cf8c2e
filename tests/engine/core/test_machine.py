"""The machine as a protocol: stimuli in, instructions out, no clock and no network."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler.daemon.settings.loading import default_settings
from scheduler.engine.core.outcomes import failed_event
from scheduler.engine.model.instructions import EmitEvent, Evicted
from scheduler.engine.model.stimuli import BindDone, PodSeen, SweepDue
from tests.support import build
from tests.support.build import affinity, container, selector, term
from tests.support.driving import NAME, Driver, attempt_of, bind_of, condition_of, each_of, event_of, kinds
from tests.support.messages import not_helpful

HOSTNAME = "kubernetes.io/hostname"


def test_a_pod_that_fits_is_assumed_bound_and_announced(driver: Driver) -> None:
    driver.node("a")
    pod = driver.pod("p")
    bind = bind_of(driver.cycle())
    assert (bind.pod.uid, bind.node_name) == (pod.uid, "a")
    assert driver.state.is_assumed(pod.uid)
    driver.confirm(pod, "a")
    assert not driver.state.is_assumed(pod.uid)
    assert driver.machine.n_binding == 0


def test_a_bound_pod_is_announced_once_with_upstreams_words(driver: Driver) -> None:
    driver.node("a")
    pod = driver.pod("p")
    driver.cycle()
    driver.now_s += 2.0
    assert driver.machine.n_unconfirmed == 0
    told = driver.handle(BindDone(pod.uid))
    assert driver.machine.n_unconfirmed == 1
    event, attempt = event_of(told), attempt_of(told)
    assert (event.type, event.reason, event.action) == ("Normal", "Scheduled", "Binding")
    assert event.note == "Successfully assigned default/p to a"
    assert (attempt.result, attempt.attempts, attempt.started_s) == ("scheduled", 1, 1000.0)
    assert (attempt.message, attempt.record) == ("a", "")
    assert driver.handle(BindDone(pod.uid)) == []
    assert driver.fail_bind(pod, "late") == []


def test_a_pod_that_fits_nowhere_is_reported_and_waits_for_an_event(driver: Driver) -> None:
    driver.node("a", allocatable={"cpu": "1"})
    driver.pod("p", cpu="2")
    told = driver.cycle()
    text = f"0/1 nodes are available: 1 Insufficient cpu. {not_helpful(1)}"
    assert kinds(told) == ["Attempted", "EmitEvent", "PatchCondition"]
    event = event_of(told)
    assert (event.note, event.type) == (text, "Warning")
    assert (event.reason, event.action) == ("FailedScheduling", "Scheduling")
    attempt = attempt_of(told)
    assert (attempt.message, attempt.record) == (text, "")
    assert (attempt.nominated_node_name, attempt.victims) == ("", ())
    condition = condition_of(told)
    assert (condition.reason, condition.message) == ("Unschedulable", text)
    assert condition.nominated_node_name is None
    assert not driver.machine.has_work()


def test_an_unchanged_condition_is_not_patched_again(driver: Driver) -> None:
    driver.node("a", allocatable={"cpu": "1"})
    text = f"0/1 nodes are available: 1 Insufficient cpu. {not_helpful(1)}"
    known = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": text}
    driver.pod("p", cpu="2", status={"conditions": [known]})
    assert kinds(driver.cycle()) == ["Attempted", "EmitEvent"]


def test_without_nodes_the_pod_retries_by_backoff(driver: Driver) -> None:
    """No plugin rejected it, so it does not wait for an event: error backoff, reason Unschedulable."""
    driver.pod("p")
    told = driver.cycle()
    assert condition_of(told).message == "no nodes available to schedule pods"
    assert condition_of(told).reason == "Unschedulable"
    assert not driver.machine.has_work()
    driver.pass_time(2.0)
    assert driver.machine.has_work()


def test_a_failed_bind_frees_the_room_and_is_retried(driver: Driver) -> None:
    driver.node("a")
    pod = driver.pod("p")
    driver.cycle()
    told = driver.fail_bind(pod, "etcdserver: request timed out")
    assert len(driver.state.placed) == 0
    assert condition_of(told).reason == "SchedulerError"
    assert condition_of(told).message == 'running Bind plugin "DefaultBinder": etcdserver: request timed out'
    assert attempt_of(told).result == "error"
    assert not driver.machine.has_work()
    driver.pass_time(2.0)
    assert bind_of(driver.cycle()).node_name == "a"
    attempt = attempt_of(driver.handle(BindDone(pod.uid)))
    assert (attempt.attempts, attempt.first_active_s, attempt.started_s) == (2, 1000.0, 1002.0)


def test_the_observed_node_is_that_of_the_watch_and_not_the_assumed_one(driver: Driver) -> None:
    """It resolves a bind with an unclear result if the API server cannot be asked."""
    driver.node("a")
    pod = driver.pod("p")
    machine = driver.machine
    assert machine.observed_node_name(pod.uid) == ""
    node_name = bind_of(driver.cycle()).node_name
    assert machine.observed_node_name(pod.uid) == ""
    driver.confirm(pod, node_name)
    assert machine.observed_node_name(pod.uid) == node_name
    driver.lose(pod)
    assert machine.observed_node_name(pod.uid) is None


def test_a_pod_is_known_to_end_once_a_watch_shows_it_pending_assumed_or_placed(driver: Driver) -> None:
    driver.node("a")
    placed, assumed = driver.pod("placed", node="a"), driver.pod("assumed")
    driver.cycle()
    pending = driver.pod("pending")
    assert not any(driver.machine.is_ending(uid) for uid in (placed.uid, assumed.uid, pending.uid, "none"))
    for pod in (placed, assumed, pending):
        driver.handle(PodSeen(replace(pod, terminating=True, resource_version="99")))
        assert driver.machine.is_ending(pod.uid)


def test_an_assumed_pod_that_is_relabelled_counts_with_its_new_labels(driver: Driver) -> None:
    """Its bind is in flight; anti-affinity sees its new labels, and affinity no longer sees the old ones."""
    driver.node("a")
    pod = driver.pod("p", labels={"app": "web"})
    driver.cycle()
    driver.handle(PodSeen(replace(pod, labels={"app": "db"}, resource_version="99")))
    assert driver.state.is_assumed(pod.uid)
    driver.pod("avoids", affinity=affinity(anti_required=[term(HOSTNAME, selector("app=db"))]))
    assert "anti-affinity" in event_of(driver.cycle()).note
    driver.pod("follows", affinity=affinity(required=[term(HOSTNAME, selector("app=web"))]))
    assert "pod affinity rules" in event_of(driver.cycle()).note


def test_a_pod_that_a_late_watch_shows_unbound_is_tried_again_once_its_bind_is_answered(
    driver: Driver,
) -> None:
    driver.node("a")
    pod = driver.pod("p")
    driver.cycle()
    driver.handle(PodSeen(replace(pod, node_name="a", resource_version="98")))
    driver.handle(PodSeen(replace(pod, resource_version="99")))
    assert driver.cycles() == []
    driver.handle(BindDone(pod.uid))
    assert bind_of(driver.cycle()).node_name == "a"


def test_a_terminating_pod_is_skipped_when_popped(driver: Driver) -> None:
    driver.node("a")
    driver.pod("p", terminating=True)
    told = driver.cycle()
    assert kinds(told) == ["EmitEvent"]
    assert event_of(told).note == "skip schedule deleting pod: default/p"
    assert not driver.machine.has_work()


def test_a_pod_recreated_with_its_name_is_another_pod(driver: Driver) -> None:
    """Keyed by UID: the result of the old pod's bind does not affect the new one."""
    driver.node("a")
    old = driver.pod("p", uid="old")
    driver.cycle()
    driver.lose(old)
    new = driver.pod("p", uid="new")
    driver.fail_bind(old, "UID in precondition: old, UID in object meta: new")
    assert bind_of(driver.cycle()).pod.uid == new.uid


def test_pods_of_other_schedulers_count_and_are_never_tried(driver: Driver) -> None:
    driver.node("a", allocatable={"cpu": "1"})
    driver.pod("foreign", scheduler="default-scheduler", cpu="1", node="a")
    driver.pod("waiting", scheduler="default-scheduler")
    assert not driver.machine.has_work()
    driver.pod("p", cpu="1")
    assert "Insufficient cpu" in condition_of(driver.cycle()).message


def test_a_relabelled_namespace_counts_from_the_next_cycle(driver: Driver) -> None:
    """KEP-2249: the label is read when a cycle starts, and the pod it helps is woken."""
    apart = affinity(anti_required=[term(HOSTNAME, selector(), namespace_selector=selector("tenant=yes"))])
    driver.node("a")
    driver.namespace("one", tenant="yes")
    driver.namespace("two")
    running = driver.pod("r", namespace="one")
    driver.cycle()
    driver.confirm(running, "a")
    driver.pod("p", namespace="two", affinity=apart)
    assert "anti-affinity" in condition_of(driver.cycle()).message
    driver.namespace("one")
    driver.pass_time(2.0)
    assert bind_of(driver.cycle()).node_name == "a"


def test_a_pod_that_needs_an_unsupported_feature_is_never_placed(driver: Driver) -> None:
    driver.node("a")
    driver.pod("p", spec={"resourceClaims": [{"name": "gpu"}]})
    message = condition_of(driver.cycle()).message
    assert message.startswith('0/1 nodes are available: pod needs resourceClaim "gpu"')


def test_a_long_message_is_cut_for_the_event_alone(driver: Driver) -> None:
    driver.node("a")
    names = [f"x{number:04}.example.com/resource" for number in range(60)]
    driver.pod("p", containers=[container(requests=dict.fromkeys(names, "1"))])
    told = driver.cycle()
    assert len(event_of(told).note.encode()) == 1024
    assert event_of(told).note.endswith(" ...")
    assert len(condition_of(told).message) > 1024


@pytest.mark.parametrize(
    ("note", "shown"),
    [
        pytest.param("x" * 1024, "x" * 1024, id="as long as may be"),
        pytest.param("x" * 1025, "x" * 1020 + " ...", id="too long"),
        pytest.param("x" + "é" * 600, "x" + "é" * 509 + " ...", id="no character is split"),
    ],
)
def test_the_note_of_an_event_has_as_many_bytes_as_the_api_server_takes(
    driver: Driver, note: str, shown: str
) -> None:
    assert failed_event(driver.pod("p"), note).note == shown


def test_an_irrelevant_update_changes_no_counts(driver: Driver) -> None:
    driver.node("a")
    pod = driver.pod("p", node="a")
    placed = driver.state.placed[pod.uid]
    again = driver.pod("p", node="a", status={"conditions": [{"type": "Ready", "status": "True"}]})
    assert driver.state.placed[pod.uid] is placed
    assert placed.pod is again


def test_a_sweep_of_a_small_cluster_is_over_at_once(driver: Driver) -> None:
    driver.node("a")
    driver.pod("p", node="a")
    assert driver.handle(SweepDue()) == []
    assert not driver.machine.is_sweeping


def test_a_running_pod_that_is_evicted_is_told_of_once(driver: Driver) -> None:
    driver.node("a")
    pod = driver.pod("p", node="a")
    evicted = replace(pod, disruption="EvictionByEvictionAPI", resource_version=driver.next_version())
    assert driver.handle(PodSeen(evicted)) == [Evicted(evicted)]
    ends = replace(evicted, terminating=True, resource_version=driver.next_version())
    assert driver.handle(PodSeen(ends)) == []


@pytest.mark.parametrize(
    ("n_nodes", "n_deleted", "percentage", "n_scored"),
    [
        (300, 0, 0, 300),  # every node, our default
        (300, 0, 100, 300),
        (300, 0, 50, 150),
        (300, 0, 10, 100),  # never fewer than 100
        (300, 0, 1, 100),
        (400, 200, 60, 120),  # of the live nodes, not of the rows that deleted ones leave
        (90, 0, 50, 90),
    ],
)
def test_the_percentage_is_of_live_nodes_and_never_fewer_than_a_hundred(
    n_nodes: int, n_deleted: int, percentage: int, n_scored: int
) -> None:
    """The pod's report says how many nodes were evaluated, and how many scored: upstream's numFeasibleNodesToFind."""
    settings = default_settings()
    profiles = tuple(replace(one, percentage_of_nodes_to_score=percentage) for one in settings.profiles)
    cluster = Driver(settings=replace(settings, profiles=profiles))
    for number in range(n_nodes):
        cluster.node(f"n{number}")
    for number in range(n_deleted):
        cluster.lose_node(f"n{number}")
    pod = cluster.pod("p")
    cluster.cycle()
    attempt = attempt_of(cluster.handle(BindDone(pod.uid)))
    assert (attempt.n_evaluated, attempt.n_feasible) == (n_nodes - n_deleted, n_scored)
    cluster.audit()


def test_an_annotation_that_nothing_reads_is_told_once_for_each_set_of_names(driver: Driver) -> None:
    """By one event; the pod is placed without the rule."""
    driver.node("a")

    def shown(name: str, annotation: str, scheduler: str = NAME, **fields: Any) -> list[tuple[str, str]]:
        marks = {f"affinity-scheduler.io/{annotation}": "{}"}
        document = build.pod(name, annotations=marks, spec={"schedulerName": scheduler}, **fields)
        told = each_of(driver.handle(PodSeen(driver.decoded(document))), EmitEvent)
        return [(one.type, one.note) for one in told if one.reason == "UnreadAnnotation"]

    note = (
        "annotation affinity-scheduler.io/afinity has no effect: nothing reads it;"
        " did you mean affinity-scheduler.io/affinity?"
    )
    assert shown("p", "afinity") == [("Warning", note)]
    assert shown("p", "afinity", labels={"a": "b"}) == []
    assert [name for _, name in shown("p", "x")] == [
        "annotation affinity-scheduler.io/x has no effect: nothing reads it"
    ]
    assert bind_of(driver.cycle()).node_name == "a"
    assert shown("other", "x", scheduler="another") == []
    assert shown("running", "x", node="a") == []
