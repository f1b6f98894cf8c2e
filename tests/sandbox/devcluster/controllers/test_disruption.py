"""How many pods a disruption budget lets go."""

import pytest

from scheduler.sandbox.devcluster.controllers.actions import Update
from scheduler.sandbox.devcluster.controllers.disruption import plan
from scheduler.sandbox.devcluster.timestamps import rfc3339
from tests.support.workload_objects import LABELS, NOW_S, meta, pod


def budget(**spec):
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": meta("b"),
        "spec": {"selector": {"matchLabels": LABELS}, **spec},
        "status": {},
    }


def counted(pdb, pods):
    (update,) = plan(pdb, pods, NOW_S)[:1]
    assert isinstance(update, Update) and update.subresource == "status"
    return update.obj["status"]


@pytest.mark.parametrize(
    ("spec", "ready", "desired", "allowed"),
    [
        pytest.param({"minAvailable": 2}, 3, 2, 1, id="at least two of three"),
        pytest.param({"minAvailable": "50%"}, 3, 3, 0, id="a share counts all pods and rounds up"),
        pytest.param({"maxUnavailable": 1}, 5, 4, 1, id="at most one of five"),
        pytest.param({"maxUnavailable": "30%"}, 5, 3, 2, id="a share that may be missing rounds up"),
        pytest.param({"minAvailable": 6}, 5, 6, 0, id="too few already"),
        pytest.param({"maxUnavailable": 9}, 5, 0, 5, id="all may go"),
    ],
)
def test_a_budget_allows_as_many_evictions_as_there_are_spare_healthy_pods(spec, ready, desired, allowed):
    pods = [pod(f"p{n}", node="n1", phase="Running", ready_for_s=9) for n in range(ready)]
    pods += [pod(f"new{n}", node="n1", ready_for_s=None) for n in range(5 - ready)]
    status = counted(budget(**spec), pods)
    assert (status["desiredHealthy"], status["disruptionsAllowed"]) == (desired, allowed)


def test_a_granted_eviction_counts_until_the_pod_is_going():
    pods = [pod(f"p{n}", node="n1", phase="Running", ready_for_s=9) for n in range(3)]
    granted = budget(minAvailable=1)
    granted["status"] = {"disruptedPods": {"p0": rfc3339(NOW_S - 5), "p1": rfc3339(NOW_S - 500), "gone": "x"}}
    status = counted(granted, pods)
    assert status["disruptedPods"] == {"p0": rfc3339(NOW_S - 5)}
    assert (status["currentHealthy"], status["disruptionsAllowed"]) == (2, 1)
