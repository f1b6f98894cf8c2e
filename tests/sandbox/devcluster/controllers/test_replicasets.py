"""The ReplicaSet controller: how many pods, which ones go, what the status says."""

import pytest

from scheduler.sandbox.devcluster.controllers.actions import Create, Delete
from scheduler.sandbox.devcluster.controllers.pods import deletion_order
from scheduler.sandbox.devcluster.controllers.replicasets import BURST, plan
from scheduler.sandbox.devcluster.kinds import JsonObject
from tests.support.workload_objects import LABELS, meta, of, pod, status_after, template


def replica_set(size=3, *, status=None, **spec):
    wanted = {"replicas": size, "selector": {"matchLabels": LABELS}, "template": template(), **spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": meta("web-x", labels=dict(LABELS)),
        "spec": wanted,
        "status": status or {"replicas": 0},
    }


RUNNING: JsonObject = {"node": "n1", "phase": "Running", "ready_for_s": 50}


@pytest.mark.parametrize(
    ("size", "pods", "made", "gone"),
    [
        pytest.param(3, [], 3, 0, id="all are missing"),
        pytest.param(3, [RUNNING] * 3, 0, 0, id="all are there"),
        pytest.param(3, [RUNNING] * 5, 0, 2, id="two too many"),
        pytest.param(0, [RUNNING] * 2, 0, 2, id="none are wanted"),
        pytest.param(2, [RUNNING, {**RUNNING, "deleted": True}], 1, 0, id="terminating ones do not count"),
        pytest.param(2, [RUNNING, {"phase": "Failed"}], 1, 0, id="failed ones do not count"),
        pytest.param(BURST + 7, [], BURST, 0, id="no more than a burst at once"),
    ],
)
def test_there_are_as_many_active_pods_as_wanted(size, pods, made, gone):
    owner = replica_set(size)
    actions = plan(owner, [pod(f"p{n}", owner, **kind) for n, kind in enumerate(pods)], [])
    assert (len(of(actions, Create)), len(of(actions, Delete))) == (made, gone)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(
            {"phase": "Pending"}, {"phase": "Pending", "node": "n1"}, id="unassigned before assigned"
        ),
        pytest.param({"node": "n1", "phase": "Running"}, RUNNING, id="not ready before ready"),
        pytest.param(RUNNING, {**RUNNING, "node": "n2", "ready_for_s": 1}, id="doubled up before alone"),
        pytest.param({**RUNNING, "age_s": 60}, {**RUNNING, "age_s": 9000}, id="young before old"),
    ],
)
def test_those_go_first_that_are_missed_least(first, second):
    other = pod("other", **RUNNING)
    least, most = pod("zz", **first), pod("aa", **second)
    for pods in ([least, most], [most, least]):
        assert deletion_order(pods, [*pods, other])[0] is least


def test_status_counts_pods_by_how_far_they_are():
    owner = replica_set(4)
    pods = [
        pod("a", owner, **RUNNING),
        pod("b", owner, node="n1", phase="Running", ready_for_s=4),
        pod("c", owner, node="n1", labels={**LABELS, "more": "1"}),
        pod("d", owner, **{**RUNNING, "deleted": True}),
    ]
    owner["spec"]["template"]["metadata"]["labels"] = dict(LABELS)
    actions = plan(owner, pods, [])
    assert status_after(actions) == {
        "replicas": 3,
        "fullyLabeledReplicas": 3,
        "readyReplicas": 2,
        "availableReplicas": 2,
        "terminatingReplicas": 1,
        "observedGeneration": 1,
    }


def test_nothing_is_written_where_nothing_changed():
    owner = replica_set(1)
    pods = [pod("a", owner, **RUNNING)]
    settled = {**owner, "status": status_after(plan(owner, pods, []))}
    assert plan(settled, pods, []) == []
