"""The kubelet stand-in's reports, and what a disruption budget allows."""

import pytest

from scheduler.devcluster.controllers.actions import UpdateStatus
from scheduler.devcluster.controllers.disruption import plan
from scheduler.devcluster.controllers.kubelet import refusal, rejected, running
from scheduler.devcluster.timestamps import rfc3339
from scheduler.devcluster.printing.pod_cells import pod_summary
from tests.devcluster.build import LABELS, NOW_S, deployment, meta, pod

NODE = {"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "3"}}}


def asking(name="p", *, phase="Pending", inits=(), **requests):
    made = pod(name, node="n1", phase=phase)
    container = {"name": "c", "image": "i", "resources": {"requests": requests}}
    made["spec"] |= {"containers": [container], "initContainers": list(inits)}
    return made


def test_a_started_pod_is_running_and_ready():
    report = running(asking(), host_ip="172.18.0.2", pod_ip="10.0.0.5", now_s=NOW_S)["status"]
    assert (report["phase"], report["startTime"]) == ("Running", rfc3339(NOW_S))
    assert (report["hostIP"], report["podIP"], report["podIPs"]) == (
        "172.18.0.2",
        "10.0.0.5",
        [{"ip": "10.0.0.5"}],
    )
    assert {c["type"]: c["status"] for c in report["conditions"]} == {
        "PodReadyToStartContainers": "True",
        "Initialized": "True",
        "Ready": "True",
        "ContainersReady": "True",
        "PodScheduled": "True",
    }
    (container,) = report["containerStatuses"]
    assert (container["ready"], container["started"], container["restartCount"]) == (True, True, 0)


def test_kubectl_shows_a_started_pod_with_all_its_containers():
    inits = [{"name": "i"}, {"name": "side", "restartPolicy": "Always"}]
    started = running(asking(inits=inits), host_ip="h", pod_ip="p", now_s=NOW_S)
    summary = pod_summary(started, NOW_S)
    assert (summary.ready, summary.status, summary.restarts) == ("2/2", "Running", "0")


def test_an_unmet_readiness_gate_keeps_the_pod_from_being_ready():
    gated = asking()
    gated["spec"]["readinessGates"] = [{"conditionType": "a.io/x"}]
    conditions = running(gated, host_ip="h", pod_ip="p", now_s=NOW_S)["status"]["conditions"]
    (ready,) = [c for c in conditions if c["type"] == "Ready"]
    assert (ready["status"], ready["reason"]) == ("False", "ReadinessGatesNotReady")


def test_a_pod_on_the_host_network_has_the_hosts_address():
    hosted = asking()
    hosted["spec"]["hostNetwork"] = True
    assert (
        running(hosted, host_ip="172.18.0.2", pod_ip="10.0.0.5", now_s=NOW_S)["status"]["podIP"]
        == "172.18.0.2"
    )


@pytest.mark.parametrize(
    ("wanted", "others", "why"),
    [
        pytest.param(asking(cpu="1"), [], None, id="it fits exactly"),
        pytest.param(
            asking(cpu="600m"),
            [asking("a", cpu="500m")],
            (
                "OutOfcpu",
                "Node didn't have enough resource: cpu, requested: 600, used: 500, capacity: 1000",
            ),
            id="cpu is counted in milli-units",
        ),
        pytest.param(
            asking(memory="2Gi"),
            [],
            (
                "OutOfmemory",
                "Node didn't have enough resource: memory, requested: 2147483648, used: 0, capacity: 1073741824",
            ),
            id="memory in bytes",
        ),
        pytest.param(
            asking(),
            [asking(name) for name in "abc"],
            ("OutOfpods", "Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3"),
            id="pods are a resource",
        ),
        pytest.param(
            asking(cpu="1"), [asking("a", phase="Failed", cpu="1")], None, id="ended pods need nothing"
        ),
        pytest.param(
            asking(inits=[{"name": "i", "resources": {"requests": {"cpu": "2"}}}]),
            [],
            ("OutOfcpu", "Node didn't have enough resource: cpu, requested: 2000, used: 0, capacity: 1000"),
            id="an init container counts by itself",
        ),
    ],
)
def test_a_strict_node_refuses_what_does_not_fit(wanted, others, why):
    assert refusal(wanted, NODE, others) == why


def test_a_refused_pod_has_failed():
    status = rejected(asking(), "OutOfcpu", "too much", now_s=NOW_S)["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "OutOfcpu")
    assert status["message"] == "Pod was rejected: too much"


def budget(**spec):
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": meta("b"),
        "spec": {"selector": {"matchLabels": LABELS}, **spec},
        "status": {},
    }


def counted(pdb, pods, size):
    owner = deployment(size)
    (update,) = plan(pdb, pods, lambda _: owner, NOW_S)[:1]
    assert isinstance(update, UpdateStatus)
    return update.obj["status"]


@pytest.mark.parametrize(
    ("spec", "ready", "size", "desired", "allowed"),
    [
        pytest.param({"minAvailable": 2}, 3, 3, 2, 1, id="at least two of three"),
        pytest.param({"minAvailable": "50%"}, 3, 5, 3, 0, id="a share counts wanted pods and rounds up"),
        pytest.param({"maxUnavailable": 1}, 5, 5, 4, 1, id="at most one of five"),
        pytest.param({"maxUnavailable": "30%"}, 5, 5, 3, 2, id="a share that may be missing rounds up"),
        pytest.param({"minAvailable": 5}, 3, 3, 5, 0, id="too few already"),
        pytest.param({"maxUnavailable": 9}, 3, 3, 0, 3, id="all may go"),
    ],
)
def test_a_budget_allows_what_is_healthy_beyond_need(spec, ready, size, desired, allowed):
    pods = [pod(f"p{n}", node="n1", phase="Running", ready_for_s=9) for n in range(ready)]
    status = counted(budget(**spec), pods, size)
    assert (status["desiredHealthy"], status["disruptionsAllowed"]) == (desired, allowed)
    reason = "SufficientPods" if allowed else "InsufficientPods"
    assert status["conditions"][0]["reason"] == reason


def test_a_granted_eviction_counts_until_the_pod_is_going():
    pods = [pod(f"p{n}", node="n1", phase="Running", ready_for_s=9) for n in range(3)]
    granted = budget(minAvailable=1)
    granted["status"] = {"disruptedPods": {"p0": rfc3339(NOW_S - 5), "p1": rfc3339(NOW_S - 500), "gone": "x"}}
    status = counted(granted, pods, 3)
    assert status["disruptedPods"] == {"p0": rfc3339(NOW_S - 5)}
    assert (status["currentHealthy"], status["disruptionsAllowed"]) == (2, 1)
