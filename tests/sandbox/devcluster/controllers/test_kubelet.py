"""What the kubelet stand-in reports of a bound pod."""

from scheduler.sandbox.devcluster.controllers.kubelet import running
from scheduler.sandbox.devcluster.timestamps import rfc3339
from tests.support.workload_objects import NOW_S, pod


def bound():
    return pod("p", node="n1")


def test_a_started_pod_is_running_and_ready():
    report = running(bound(), host_ip="172.18.0.2", pod_ip="10.0.0.5", now_s=NOW_S)["status"]
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


def test_a_pod_on_the_host_network_has_the_hosts_address():
    hosted = bound()
    hosted["spec"]["hostNetwork"] = True
    assert (
        running(hosted, host_ip="172.18.0.2", pod_ip="10.0.0.5", now_s=NOW_S)["status"]["podIP"]
        == "172.18.0.2"
    )
