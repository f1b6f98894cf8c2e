"""Tables say what `kubectl get` prints on a real cluster."""

import pytest

from scheduler.devcluster.kinds import KINDS
from scheduler.devcluster.label_selectors import selector_text
from scheduler.devcluster.printing.pod_cells import pod_cells
from scheduler.devcluster.printing.tables import table

BORN = "2026-01-01T00:00:00Z"
NOW_S = 1767225660.0  # a minute later


def named(name, **fields):
    return {"metadata": {"name": name, "creationTimestamp": BORN}, **fields}


def shown(kind, obj, *, wide=False):
    """Return the cells of one object by header, as kubectl prints them."""
    printed = table(kind, [obj], NOW_S)
    columns = printed["columnDefinitions"]
    return {
        column["name"]: cell
        for column, cell in zip(columns, printed["rows"][0]["cells"], strict=True)
        if wide or not column["priority"]
    }


def container(name, state, *, ready=False, restarts=0):
    return {"name": name, "ready": ready, "restartCount": restarts, "state": state}


RUNNING = {"running": {"startedAt": BORN}}


def pod(*, containers=1, inits=(), deleted=False, **status):
    spec = {"containers": [{"name": f"c{n}"} for n in range(containers)], "initContainers": list(inits)}
    made = named("p", spec=spec, status={"phase": "Pending", **status})
    if deleted:
        made["metadata"]["deletionTimestamp"] = BORN
    return made


def scheduled(reason):
    return [{"type": "PodScheduled", "status": "False", "reason": reason}]


@pytest.mark.parametrize(
    ("obj", "ready", "status", "restarts"),
    [
        pytest.param(pod(), "0/1", "Pending", "0", id="a new pod"),
        pytest.param(
            pod(conditions=scheduled("SchedulingGated")), "0/1", "SchedulingGated", "0", id="a gated pod"
        ),
        pytest.param(
            pod(conditions=scheduled("Unschedulable")), "0/1", "Pending", "0", id="an unschedulable pod"
        ),
        pytest.param(
            pod(phase="Running", containers=2, containerStatuses=[container("c0", RUNNING, ready=True)]),
            "1/2",
            "Running",
            "0",
            id="one of two containers is ready",
        ),
        pytest.param(
            pod(phase="Running", containerStatuses=[container("c0", RUNNING, ready=True, restarts=2)]),
            "1/1",
            "Running",
            "2",
            id="restarts are counted",
        ),
        pytest.param(pod(phase="Failed", reason="Evicted"), "0/1", "Evicted", "0", id="the pod's own reason"),
        pytest.param(
            pod(
                phase="Running",
                inits=[{"name": "side", "restartPolicy": "Always"}],
                initContainerStatuses=[container("side", RUNNING, ready=True)],
                containerStatuses=[container("c0", RUNNING, ready=True)],
            ),
            "2/2",
            "Running",
            "0",
            id="a sidecar counts",
        ),
        pytest.param(pod(phase="Running", deleted=True), "0/1", "Terminating", "0", id="a deleted pod"),
        pytest.param(
            pod(phase="Succeeded", deleted=True), "0/1", "Completed", "0", id="a deleted, ended pod"
        ),
    ],
)
def test_the_cells_of_a_pod(obj, ready, status, restarts):
    assert pod_cells(obj) == (ready, status, restarts)


def test_wide_pods_show_ip_node_nomination_and_gates():
    gated = pod(conditions=[{"type": "a.io/x", "status": "True"}], podIP="10.0.0.7")
    gated["spec"] |= {
        "nodeName": "n1",
        "readinessGates": [{"conditionType": "a.io/x"}, {"conditionType": "b"}],
    }
    wide = shown("Pod", gated, wide=True)
    assert list(wide)[5:] == ["IP", "Node", "Nominated Node", "Readiness Gates"]
    assert list(wide.values())[5:] == ["10.0.0.7", "n1", "<none>", "1/2"]


TEMPLATE = {"spec": {"containers": [{"name": "a", "image": "a:1"}, {"name": "b", "image": "b:2"}]}}
SELECTOR = {
    "matchLabels": {"app": "web"},
    "matchExpressions": [{"key": "a", "operator": "In", "values": ["z", "b"]}],
}


@pytest.mark.parametrize(
    ("kind", "obj", "cells"),
    [
        pytest.param(
            "Node",
            named(
                "n",
                spec={"unschedulable": True},
                status={
                    "conditions": [{"type": "Ready", "status": "True"}],
                    "nodeInfo": {"kubeletVersion": "v1.36.0"},
                },
            ),
            {
                "Name": "n",
                "Status": "Ready,SchedulingDisabled",
                "Roles": "<none>",
                "Age": "60s",
                "Version": "v1.36.0",
            },
            id="a cordoned node",
        ),
        pytest.param(
            "Node",
            {
                **named("n"),
                "metadata": {"name": "n", "labels": {"node-role.kubernetes.io/control-plane": ""}},
            },
            {"Name": "n", "Status": "Unknown", "Roles": "control-plane", "Age": "<unknown>", "Version": ""},
            id="a node that says nothing",
        ),
        pytest.param(
            "Deployment",
            named("d", spec={"replicas": 3}, status={"readyReplicas": 1, "updatedReplicas": 2}),
            {"Name": "d", "Ready": "1/3", "Up-to-date": 2, "Available": 0, "Age": "60s"},
            id="a rolling deployment",
        ),
        pytest.param(
            "ReplicaSet",
            named("r", spec={"replicas": 3}, status={"replicas": 2, "readyReplicas": 1}),
            {"Name": "r", "Desired": 3, "Current": 2, "Ready": 1, "Age": "60s"},
            id="a replica set",
        ),
        pytest.param(
            "StatefulSet",
            named("s", spec={"replicas": 3}, status={"readyReplicas": 2}),
            {"Name": "s", "Ready": "2/3", "Age": "60s"},
            id="a stateful set",
        ),
        pytest.param(
            "Service",
            named(
                "s",
                spec={
                    "type": "NodePort",
                    "clusterIP": "10.96.0.1",
                    "ports": [
                        {"port": 80, "nodePort": 30080, "protocol": "TCP"},
                        {"port": 53, "protocol": "UDP"},
                    ],
                },
            ),
            {
                "Name": "s",
                "Type": "NodePort",
                "Cluster-IP": "10.96.0.1",
                "External-IP": "<none>",
                "Port(s)": "80:30080/TCP,53/UDP",
                "Age": "60s",
            },
            id="a service with node port",
        ),
        pytest.param(
            "Service",
            named("s", spec={"type": "LoadBalancer"}),
            {
                "Name": "s",
                "Type": "LoadBalancer",
                "Cluster-IP": "<none>",
                "External-IP": "<pending>",
                "Port(s)": "<none>",
                "Age": "60s",
            },
            id="a load balancer that has no address yet",
        ),
        pytest.param(
            "Event",
            named(
                "e",
                type="Normal",
                reason="Scheduled",
                message=" done \n",
                lastTimestamp=BORN,
                involvedObject={"kind": "Pod", "name": "p"},
            ),
            {
                "Last Seen": "60s",
                "Type": "Normal",
                "Reason": "Scheduled",
                "Object": "pod/p",
                "Message": "done",
            },
            id="a core event",
        ),
        pytest.param(
            "Event",
            named(
                "e",
                type="Warning",
                reason="FailedScheduling",
                note="0/1 nodes are available",
                eventTime=BORN,
                regarding={"kind": "Pod", "name": "p"},
                series={"count": 4, "lastObservedTime": "2026-01-01T00:00:30.000000Z"},
            ),
            {
                "Last Seen": "30s",
                "Type": "Warning",
                "Reason": "FailedScheduling",
                "Object": "pod/p",
                "Message": "0/1 nodes are available",
            },
            id="an events.k8s.io event that repeated",
        ),
        pytest.param(
            "PodDisruptionBudget",
            named("b", spec={"maxUnavailable": "25%"}, status={"disruptionsAllowed": 2}),
            {
                "Name": "b",
                "Min Available": "N/A",
                "Max Unavailable": "25%",
                "Allowed Disruptions": 2,
                "Age": "60s",
            },
            id="a disruption budget",
        ),
        pytest.param(
            "PriorityClass",
            named("high", value=1000, preemptionPolicy="Never"),
            {
                "Name": "high",
                "Value": 1000,
                "Global-Default": False,
                "Age": "60s",
                "PreemptionPolicy": "Never",
            },
            id="a priority class",
        ),
        pytest.param(
            "Lease",
            named("l", spec={"holderIdentity": "me"}),
            {"Name": "l", "Holder": "me", "Age": "60s"},
            id="a lease",
        ),
        pytest.param(
            "Namespace",
            named("ns", status={"phase": "Active"}),
            {"Name": "ns", "Status": "Active", "Age": "60s"},
            id="a namespace",
        ),
        pytest.param(
            "ConfigMap",
            named("c", data={"a": "1"}, binaryData={"b": ""}),
            {"Name": "c", "Data": "2", "Age": "60s"},
            id="a config map",
        ),
        pytest.param(
            "ServiceAccount", named("default"), {"Name": "default", "Age": "60s"}, id="a service account"
        ),
        pytest.param("Other", named("x"), {"Name": "x", "Created At": BORN}, id="a kind without columns"),
    ],
)
def test_every_kind_has_its_columns(kind, obj, cells):
    assert shown(kind, obj) == cells


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet"])
def test_wide_workloads_show_containers_images_and_selector(kind):
    wide = shown(kind, named("w", spec={"template": TEMPLATE, "selector": SELECTOR}), wide=True)
    assert (wide["Containers"], wide["Images"]) == ("a,b", "a:1,b:2")
    assert wide["Selector"] == "a in (b,z),app=web"


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        ({"matchExpressions": [{"key": "k", "operator": "Exists"}]}, "k"),
        ({"matchExpressions": [{"key": "k", "operator": "DoesNotExist"}]}, "!k"),
        ({"matchExpressions": [{"key": "k", "operator": "NotIn", "values": ["b", "a"]}]}, "k notin (a,b)"),
        (None, ""),
    ],
)
def test_selectors_are_written_as_arguments_of_minus_l(selector, text):
    assert selector_text(selector) == text


def test_rows_carry_the_object_in_the_form_asked_for():
    obj = named("c", data={})
    rows = {
        include: table("ConfigMap", [obj], NOW_S, include_object=include)["rows"][0]["object"]
        for include in ("Metadata", "Object", "None")
    }
    assert rows["Metadata"] == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": obj["metadata"],
    }
    assert rows["Object"] == obj
    assert rows["None"] is None


@pytest.mark.parametrize("kind", sorted({kind.kind for kind in KINDS}))
def test_every_row_has_as_many_cells_as_there_are_columns(kind):
    printed = table(kind, [named("x")], NOW_S)
    assert len(printed["rows"][0]["cells"]) == len(printed["columnDefinitions"])


def test_later_events_of_a_watch_repeat_no_columns():
    assert table("Pod", [pod()], NOW_S, headers=False)["columnDefinitions"] == []
