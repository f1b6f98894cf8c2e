"""Jobs, cron jobs and daemon sets: plans, and the schedule that they follow."""

from datetime import UTC, datetime

import pytest

from scheduler.devcluster.admission.schedules import ScheduleError, parse_schedule
from scheduler.devcluster.controllers import cronjobs, daemonsets, jobs
from scheduler.devcluster.controllers.actions import Create, Delete, Revisit, UpdateStatus
from scheduler.devcluster.controllers.statefulsets import REVISION_LABEL
from scheduler.devcluster.kinds import JsonObject
from scheduler.devcluster.timestamps import rfc3339
from tests.support.workload_objects import LABELS, NOW_S, meta, pod, template


def job(**spec):
    own = {"selector": {"matchLabels": LABELS}, "template": template(), "parallelism": 1, "backoffLimit": 6}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": meta("j"),
        "spec": {**own, "completions": 1, **spec},
    }


def made(owner, *phases):
    return [pod(f"p{index}", owner, phase=phase) for index, phase in enumerate(phases)]


def counts(actions):
    return sum(isinstance(a, Create) for a in actions), sum(isinstance(a, Delete) for a in actions)


def status_of(actions):
    (update,) = [a for a in actions if isinstance(a, UpdateStatus)]
    return update.obj["status"]


# -- jobs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "phases", "expected"),
    [
        pytest.param({}, [], (1, 0), id="one pod"),
        pytest.param({}, ["Running"], (0, 0), id="no second one"),
        pytest.param(
            {"completions": 5, "parallelism": 3}, ["Running"], (2, 0), id="as many as may run at once"
        ),
        pytest.param(
            {"completions": 3, "parallelism": 3}, ["Succeeded", "Succeeded"], (1, 0), id="the last one"
        ),
        pytest.param({}, ["Failed"], (1, 0), id="another one for one that failed"),
        pytest.param({"backoffLimit": 0}, ["Failed"], (0, 0), id="none beyond the limit"),
        pytest.param({"completions": None, "parallelism": 2}, ["Succeeded", "Running"], (0, 0), id="a queue"),
        pytest.param({"suspend": True}, ["Running"], (0, 1), id="none while suspended"),
        pytest.param({"completions": 1}, ["Succeeded", "Running"], (0, 1), id="surplus ends"),
    ],
)
def test_a_job_runs_as_many_pods_as_it_lacks(spec, phases, expected):
    owner = job(**spec)
    assert counts(jobs.plan(owner, made(owner, *phases), NOW_S)) == expected


@pytest.mark.parametrize(
    ("spec", "phases", "condition"),
    [
        ({}, ["Succeeded"], ("Complete", "CompletionsReached")),
        ({"completions": None}, ["Succeeded"], ("Complete", "CompletionsReached")),
        ({"backoffLimit": 1}, ["Failed", "Failed"], ("Failed", "BackoffLimitExceeded")),
    ],
)
def test_a_job_says_how_it_ended(spec, phases, condition):
    owner = job(**spec)
    status = status_of(jobs.plan(owner, made(owner, *phases), NOW_S))
    (ended,) = status["conditions"]
    assert (ended["type"], ended["reason"]) == condition
    assert ("completionTime" in status) == (condition[0] == "Complete")


def test_a_job_ends_at_its_deadline():
    owner = {**job(activeDeadlineSeconds=10), "status": {"startTime": rfc3339(NOW_S - 10), "ready": 0}}
    actions = jobs.plan(owner, made(owner, "Running"), NOW_S)
    assert (counts(actions), status_of(actions)["conditions"][0]["reason"]) == ((0, 1), "DeadlineExceeded")


def test_an_indexed_job_gives_every_pod_the_next_free_index():
    owner = job(completionMode="Indexed", completions=3, parallelism=2)
    done = pod("j-0-x", owner, phase="Succeeded")
    done["metadata"]["annotations"] = {jobs.INDEX: "0"}
    new = [a.obj["metadata"] for a in jobs.plan(owner, [done], NOW_S) if isinstance(a, Create)]
    assert [(one["generateName"], one["labels"][jobs.INDEX]) for one in new] == [("j-1-", "1"), ("j-2-", "2")]


def test_a_finished_job_goes_when_its_time_is_over():
    ended = {"type": "Complete", "status": "True", "lastTransitionTime": rfc3339(NOW_S - 10)}
    owner = {**job(ttlSecondsAfterFinished=30), "status": {"conditions": [ended]}}
    assert jobs.plan(owner, [], NOW_S) == [Revisit(20.0)]
    assert counts(jobs.plan(owner, [], NOW_S + 20)) == (0, 1)


# -- cron jobs -----------------------------------------------------------------------------------------------


def cron_job(*, last_s=NOW_S - 60, **spec):
    own = {"schedule": "* * * * *", "concurrencyPolicy": "Allow", "suspend": False}
    own |= {"successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 1}
    own |= {"jobTemplate": {"metadata": {"labels": LABELS}, "spec": {"template": template()}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": meta("c"),
        "spec": {**own, **spec},
        "status": {"lastScheduleTime": rfc3339(last_s)},
    }


def child(name, *, ended: str = "", began_s=NOW_S) -> JsonObject:
    conditions = [{"type": ended, "status": "True"}] if ended else []
    status = {"conditions": conditions, "startTime": rfc3339(began_s)}
    return {"metadata": {**meta(name), "resourceVersion": "1"}, "status": status}


@pytest.mark.parametrize(
    ("spec", "children", "expected"),
    [
        pytest.param({}, [], (1, 0), id="it is time"),
        pytest.param({"last_s": NOW_S}, [], (0, 0), id="it was done"),
        pytest.param({"suspend": True}, [], (0, 0), id="suspended"),
        pytest.param({"concurrencyPolicy": "Forbid"}, [child("x")], (0, 0), id="not beside another"),
        pytest.param({"concurrencyPolicy": "Replace"}, [child("x")], (1, 1), id="in place of another"),
        pytest.param({"concurrencyPolicy": "Allow"}, [child("x")], (1, 0), id="beside another"),
        pytest.param(
            {"last_s": NOW_S},
            [child("x", ended="Complete", began_s=NOW_S - 60), child("y", ended="Complete")],
            (0, 1),
            id="the oldest goes",
        ),
    ],
)
def test_a_cron_job_makes_a_job_when_it_is_time(spec, children, expected):
    assert counts(cronjobs.plan(cron_job(**spec), children, NOW_S)) == expected


def test_a_cron_job_names_its_jobs_by_the_time_and_says_when_it_ran():
    actions = cronjobs.plan(cron_job(), [], NOW_S)
    (new,) = [a.obj for a in actions if isinstance(a, Create)]
    due_s = NOW_S // 60 * 60
    assert new["metadata"]["name"] == f"c-{int(due_s // 60)}"
    assert status_of(actions)["lastScheduleTime"] == rfc3339(due_s)
    (again,) = [a.after_s for a in actions if isinstance(a, Revisit)]
    assert 0 < again <= 60


@pytest.mark.parametrize(
    ("text", "after", "expected"),
    [
        ("*/15 * * * *", "2026-03-01T10:07", "2026-03-01T10:15"),
        ("0 3 * * *", "2026-03-01T10:07", "2026-03-02T03:00"),
        ("30 4 1,15 * 5", "2026-03-02T00:00", "2026-03-06T04:30"),
        ("0 0 29 2 *", "2026-03-01T00:00", "2028-02-29T00:00"),
        ("@hourly", "2026-12-31T23:30", "2027-01-01T00:00"),
        ("5-10/5 1-2 * * *", "2026-03-01T01:05", "2026-03-01T01:10"),
        ("0 0 30 2 *", "2026-03-01T00:00", None),
    ],
)
def test_schedules_say_what_time_comes_next(text, after, expected):
    at_s = datetime.fromisoformat(after).replace(tzinfo=UTC).timestamp()
    found_s = parse_schedule(text).next_after(at_s)
    found = None if found_s is None else datetime.fromtimestamp(found_s, UTC).strftime("%Y-%m-%dT%H:%M")
    assert found == expected


@pytest.mark.parametrize("text", ["", "* * * *", "60 * * * *", "a * * * *", "*/0 * * * *", "9-3 * * * *"])
def test_what_is_no_schedule_is_refused(text):
    with pytest.raises(ScheduleError):
        parse_schedule(text)


# -- daemon sets ---------------------------------------------------------------------------------------------


def daemon_set(image="web:1", **pod_spec):
    wanted = template(image)
    wanted["spec"] = {**wanted["spec"], **pod_spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": meta("ds"),
        "spec": {"selector": {"matchLabels": LABELS}, "template": wanted},
    }


def node(name, *, labels=None, taints=()):
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": {"taints": list(taints)}}


def targets(actions):
    """Return the nodes that new pods are made for."""
    return [daemonsets.target_node(a.obj) for a in actions if isinstance(a, Create)]


_NO_SCHEDULE = {"key": "own", "value": "v", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("pod_spec", "nodes", "expected"),
    [
        pytest.param({}, [node("a"), node("b")], ["a", "b"], id="every node"),
        pytest.param(
            {"nodeSelector": {"x": "y"}}, [node("a"), node("b", labels={"x": "y"})], ["b"], id="selector"
        ),
        pytest.param({}, [node("a", taints=[_NO_SCHEDULE])], [], id="a taint"),
        pytest.param(
            {"tolerations": [{"key": "own", "value": "v"}]},
            [node("a", taints=[_NO_SCHEDULE])],
            ["a"],
            id="tolerated",
        ),
        pytest.param(
            {},
            [node("a", taints=[{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}])],
            ["a"],
            id="cordoned",
        ),
    ],
)
def test_a_daemon_set_makes_a_pod_for_every_node_that_takes_it(pod_spec, nodes, expected):
    assert targets(daemonsets.plan(daemon_set(**pod_spec), [], nodes, NOW_S)) == expected


def daemons(owner, *names, ready_for_s=50, revision=""):
    revision = revision or daemonsets.revision_hash(owner)
    labels = {**LABELS, REVISION_LABEL: revision}
    return [
        pod(f"ds-{name}", owner, node=name, labels=labels, phase="Running", ready_for_s=ready_for_s)
        for name in names
    ]


def test_a_daemon_set_replaces_outdated_pods_one_at_a_time():
    owner = daemon_set("web:2")
    nodes = [node("a"), node("b")]
    assert counts(daemonsets.plan(owner, daemons(owner, "a", "b", revision="old"), nodes, NOW_S)) == (0, 1)
    one_new = [*daemons(owner, "a", ready_for_s=None), *daemons(owner, "b", revision="old")]
    assert counts(daemonsets.plan(owner, one_new, nodes, NOW_S)) == (0, 0)


def test_a_daemon_set_counts_its_pods_and_removes_those_of_lost_nodes():
    owner = daemon_set()
    actions = daemonsets.plan(owner, daemons(owner, "a", "gone"), [node("a"), node("b")], NOW_S)
    assert (targets(actions), counts(actions)) == (["b"], (1, 1))
    status = status_of(actions)
    shown = ("desiredNumberScheduled", "currentNumberScheduled", "numberReady", "numberMisscheduled")
    assert [status[name] for name in shown] == [2, 1, 1, 1]
