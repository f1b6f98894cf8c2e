"""The plans of jobs and daemon sets."""

import pytest

from scheduler.sandbox.devcluster.controllers import daemonsets, jobs
from scheduler.sandbox.devcluster.controllers.actions import Create, Delete
from scheduler.sandbox.devcluster.controllers.ownership import REVISION_LABEL
from tests.support.workload_objects import LABELS, NOW_S, meta, of, pod, status_after, template


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
    return len(of(actions, Create)), len(of(actions, Delete))


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
        pytest.param({"completions": None, "parallelism": 2}, ["Succeeded"], (1, 0), id="a queue"),
        pytest.param({"suspend": True}, ["Running"], (0, 1), id="none while suspended"),
        pytest.param({"completions": 1}, ["Succeeded", "Running"], (0, 1), id="surplus ends"),
    ],
)
def test_a_job_runs_as_many_pods_as_it_lacks(spec, phases, expected):
    owner = job(**spec)
    assert counts(jobs.plan(owner, made(owner, *phases), NOW_S)) == expected


@pytest.mark.parametrize("completions", [1, None])
def test_a_job_says_how_it_ended(completions):
    owner = job(completions=completions)
    status = status_after(jobs.plan(owner, made(owner, "Succeeded"), NOW_S))
    (ended,) = status["conditions"]
    assert (ended["type"], ended["reason"]) == ("Complete", "CompletionsReached")
    assert status["completionTime"] == ended["lastTransitionTime"]
    assert jobs.plan({**owner, "status": status}, [], NOW_S) == []


def test_an_indexed_job_gives_every_pod_the_next_free_index():
    owner = job(completionMode="Indexed", completions=3, parallelism=2)
    done = pod("j-0-x", owner, phase="Succeeded")
    done["metadata"]["annotations"] = {jobs.INDEX: "0"}
    new = [a.obj["metadata"] for a in jobs.plan(owner, [done], NOW_S) if isinstance(a, Create)]
    assert [(one["generateName"], one["labels"][jobs.INDEX]) for one in new] == [("j-1-", "1"), ("j-2-", "2")]


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
    assert targets(daemonsets.plan(daemon_set(**pod_spec), [], nodes)) == expected


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
    assert counts(daemonsets.plan(owner, daemons(owner, "a", "b", revision="old"), nodes)) == (0, 1)
    one_new = [*daemons(owner, "a", ready_for_s=None), *daemons(owner, "b", revision="old")]
    assert counts(daemonsets.plan(owner, one_new, nodes)) == (0, 0)


def test_a_daemon_set_counts_its_pods_and_removes_those_of_lost_nodes():
    owner = daemon_set()
    actions = daemonsets.plan(owner, daemons(owner, "a", "gone"), [node("a"), node("b")])
    assert (targets(actions), counts(actions)) == (["b"], (1, 1))
    status = status_after(actions)
    shown = ("desiredNumberScheduled", "currentNumberScheduled", "numberReady", "numberMisscheduled")
    assert [status[name] for name in shown] == [2, 1, 1, 1]
