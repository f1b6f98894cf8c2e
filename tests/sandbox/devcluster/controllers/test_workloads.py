"""The plans of replica sets, stateful sets, daemon sets, jobs and disruption budgets."""

from typing import Any

import pytest

from scheduler.sandbox.devcluster.controllers.actions import Create, Delete
from scheduler.sandbox.devcluster.controllers.objects import REVISION_LABEL, deletion_order, template_hash
from scheduler.sandbox.devcluster.controllers.workloads import BURST, INDEX, target_node
from scheduler.sandbox.devcluster.kinds import (
    DAEMON_SET,
    JOB,
    NODE,
    POD_DISRUPTION_BUDGET,
    REPLICA_SET,
    STATEFUL_SET,
    JsonObject,
)
from tests.support.workload_objects import LABELS, of, owner, planned, pod, status_after, template

RUNNING: JsonObject = {"node": "n1", "phase": "Running", "ready": True}


def workload(kind: str, image: str = "web:1", **spec: Any) -> JsonObject:
    return owner(kind, {"selector": {"matchLabels": LABELS}, "template": template(image), **spec})


def steps(actions):
    """Return the pods that are made, with a plus, and those that go, with a minus."""
    made = [f"+{a.obj['metadata'].get('name', '')}" for a in of(actions, Create)]
    return [*made, *(f"-{a.obj['metadata']['name']}" for a in of(actions, Delete))]


# -- replica sets --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "pods", "made", "gone"),
    [
        pytest.param(3, [], 3, 0, id="all are missing"),
        pytest.param(3, [RUNNING] * 5, 0, 2, id="two too many"),
        pytest.param(2, [RUNNING, {**RUNNING, "deleted": True}], 1, 0, id="terminating ones do not count"),
        pytest.param(2, [RUNNING, {"phase": "Failed"}], 1, 0, id="failed ones do not count"),
        pytest.param(BURST + 7, [], BURST, 0, id="no more than a burst at once"),
    ],
)
def test_there_are_as_many_active_pods_as_wanted(size, pods, made, gone):
    wanted = workload("ReplicaSet", replicas=size)
    actions = planned(REPLICA_SET, wanted, [pod(f"p{n}", wanted, **kind) for n, kind in enumerate(pods)])
    assert (len(of(actions, Create)), len(of(actions, Delete))) == (made, gone)
    ready = sum(one == RUNNING for one in pods)
    assert status_after(actions).get("availableReplicas", 0) == ready


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param({}, {"node": "n1"}, id="unassigned before assigned"),
        pytest.param({"node": "n1", "phase": "Running"}, RUNNING, id="not ready before ready"),
        pytest.param(RUNNING, {**RUNNING, "node": "n2"}, id="doubled up before alone"),
        pytest.param({**RUNNING, "age_s": 60}, {**RUNNING, "age_s": 9000}, id="young before old"),
    ],
)
def test_those_go_first_that_are_missed_least(first, second):
    other = pod("other", **RUNNING)
    least, most = pod("zz", **first), pod("aa", **second)
    for pods in ([least, most], [most, least]):
        assert deletion_order(pods, [*pods, other])[0] is least


def test_nothing_is_written_where_nothing_changed():
    wanted = workload("ReplicaSet", replicas=1)
    pods = [pod("a", wanted, **RUNNING)]
    settled = {**wanted, "status": status_after(planned(REPLICA_SET, wanted, pods))}
    assert planned(REPLICA_SET, settled, pods) == []


# -- stateful sets and daemon sets ---------------------------------------------------------------------------


def member(wanted, name, *, outdated=False, **fields):
    """Return a running pod of the newest revision, but for the fields."""
    revision = template_hash(wanted["spec"]["template"])
    if wanted["kind"] == "StatefulSet":
        revision = f"{wanted['metadata']['name']}-{revision}"
    labels = {**LABELS, REVISION_LABEL: "old" if outdated else revision}
    return pod(name, wanted, labels=labels, **{**RUNNING, **fields})


PARALLEL = {"podManagementPolicy": "Parallel"}


@pytest.mark.parametrize(
    ("spec", "members", "expected"),
    [
        pytest.param({}, [], ["+w-0"], id="the first pod alone"),
        pytest.param({}, [{}], ["+w-1"], id="the next once the one below is ready"),
        pytest.param({}, [{"ready": False}], [], id="it waits for the one below"),
        pytest.param({}, [{"deleted": True}], [], id="it waits for a terminating one to go"),
        pytest.param(PARALLEL, [], ["+w-0", "+w-1", "+w-2"], id="all at once in parallel"),
        pytest.param({}, [{}] * 5, ["-w-4"], id="the highest goes first"),
        pytest.param(PARALLEL, [{}] * 5, ["-w-4", "-w-3"], id="all surplus at once in parallel"),
        pytest.param({}, [{}, {"outdated": True}, {"outdated": True}], ["-w-2"], id="updates begin above"),
        pytest.param({}, [{"outdated": True}, {}, {"ready": False}], [], id="one by one, when healthy"),
    ],
)
def test_a_stateful_set_takes_one_step_at_a_time(spec, members, expected):
    wanted = workload("StatefulSet", replicas=3, **spec)
    pods = [member(wanted, f"w-{number}", **one) for number, one in enumerate(members)]
    assert steps(planned(STATEFUL_SET, wanted, pods)) == expected


def test_a_pod_of_a_stateful_set_knows_its_ordinal():
    (made,) = of(planned(STATEFUL_SET, workload("StatefulSet", serviceName="db")), Create)
    labels = made.obj["metadata"]["labels"]
    assert labels["statefulset.kubernetes.io/pod-name"] == made.obj["metadata"]["name"] == "w-0"
    assert labels["apps.kubernetes.io/pod-index"] == "0"
    assert (made.obj["spec"]["hostname"], made.obj["spec"]["subdomain"]) == ("w-0", "db")


def node(name, *, labels=None, taints=()):
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": {"taints": list(taints)}}


_OWN = {"key": "own", "value": "v", "effect": "NoSchedule"}
_CORDONED = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("pod_spec", "nodes", "expected"),
    [
        pytest.param({"nodeSelector": {"x": "y"}}, [node("a"), node("b", labels={"x": "y"})], ["b"], id="selector"),
        pytest.param({}, [node("a", taints=[_OWN]), node("b", taints=[_CORDONED])], ["b"], id="taints"),
        pytest.param({"tolerations": [{"key": "own", "value": "v"}]}, [node("a", taints=[_OWN])], ["a"],
                     id="tolerated"),
    ],
)  # fmt: skip
def test_a_daemon_set_makes_a_pod_for_every_node_that_takes_it(pod_spec, nodes, expected):
    wanted = workload("DaemonSet")
    wanted["spec"]["template"]["spec"] |= pod_spec
    actions = planned(DAEMON_SET, wanted, beside=[(NODE, one) for one in nodes])
    assert [target_node(one.obj) for one in of(actions, Create)] == expected


def test_a_daemon_set_counts_its_pods_and_removes_those_of_lost_nodes():
    wanted, nodes = workload("DaemonSet"), [(NODE, node("a")), (NODE, node("b"))]
    actions = planned(
        DAEMON_SET, wanted, [member(wanted, name, node=name) for name in ("a", "gone")], beside=nodes
    )
    assert (steps(actions), target_node(of(actions, Create)[0].obj)) == (["+", "-gone"], "b")
    status = status_after(actions)
    shown = ("desiredNumberScheduled", "currentNumberScheduled", "numberReady", "numberMisscheduled")
    assert [status[name] for name in shown] == [2, 1, 1, 1]
    old = [member(wanted, name, node=name, outdated=True) for name in "ab"]
    assert steps(planned(DAEMON_SET, wanted, old, beside=nodes)) == ["-b"]


# -- jobs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "phases", "n_made", "n_gone"),
    [
        pytest.param({"completions": 1}, [], 1, 0, id="one pod"),
        pytest.param(
            {"completions": 5, "parallelism": 3}, ["Running"], 2, 0, id="as many as may run at once"
        ),
        pytest.param(
            {"completions": 3, "parallelism": 3}, ["Succeeded", "Succeeded"], 1, 0, id="the last one"
        ),
        pytest.param({"completions": 1}, ["Failed"], 1, 0, id="another one for one that failed"),
        pytest.param({"parallelism": 2}, ["Succeeded"], 1, 0, id="a queue"),
        pytest.param({"completions": 1}, ["Succeeded", "Running"], 0, 1, id="surplus ends"),
    ],
)
def test_a_job_runs_as_many_pods_as_it_lacks(spec, phases, n_made, n_gone):
    wanted = workload("Job", **spec)
    actions = planned(
        JOB, wanted, [pod(f"p{index}", wanted, phase=phase) for index, phase in enumerate(phases)]
    )
    assert (len(of(actions, Create)), len(of(actions, Delete))) == (n_made, n_gone)
    status = status_after(actions)
    is_done = "Succeeded" in phases and spec.get("completions") == 1
    assert [one["type"] for one in status.get("conditions", ())] == (["Complete"] if is_done else [])
    assert not is_done or planned(JOB, {**wanted, "status": status}) == []


def test_an_indexed_job_gives_every_pod_the_next_free_index():
    wanted = workload("Job", completionMode="Indexed", completions=3, parallelism=2)
    done = pod("w-0-x", wanted, phase="Succeeded", annotations={INDEX: "0"})
    new = [one.obj["metadata"] for one in of(planned(JOB, wanted, [done]), Create)]
    assert [(one["generateName"], one["labels"][INDEX]) for one in new] == [("w-1-", "1"), ("w-2-", "2")]


# -- disruption budgets --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "n_ready", "desired", "allowed"),
    [
        pytest.param({"minAvailable": 2}, 3, 2, 1, id="at least two of three"),
        pytest.param({"minAvailable": "50%"}, 3, 3, 0, id="a share counts all pods and rounds up"),
        pytest.param({"maxUnavailable": "30%"}, 5, 3, 2, id="a share that may be missing rounds up"),
        pytest.param({"minAvailable": 6}, 5, 6, 0, id="too few already"),
        pytest.param({"maxUnavailable": 9}, 5, 0, 5, id="all may go"),
    ],
)
def test_a_budget_allows_as_many_evictions_as_there_are_spare_healthy_pods(spec, n_ready, desired, allowed):
    budget = owner("PodDisruptionBudget", {"selector": {"matchLabels": LABELS}, **spec})
    pods = [pod(f"p{n}", **{**RUNNING, "ready": n < n_ready}) for n in range(5)]
    status = status_after(planned(POD_DISRUPTION_BUDGET, budget, pods))
    assert (status["desiredHealthy"], status["disruptionsAllowed"]) == (desired, allowed)
