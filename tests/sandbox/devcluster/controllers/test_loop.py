"""Controllers and kubelet stand-in, working together on a store."""

import pytest

from scheduler.sandbox.devcluster.bootstrap import node
from scheduler.sandbox.devcluster.kinds import (
    CORE_EVENT,
    DEPLOYMENT,
    JOB,
    NODE,
    POD,
    PRIORITY_CLASS,
    REPLICA_SET,
)
from tests.sandbox.devcluster.controllers.running import cluster
from tests.support.waiting import until_written
from tests.support.workload_objects import LABELS, template

pytestmark = pytest.mark.asyncio


def workload(replicas=3):
    spec = {"replicas": replicas, "selector": {"matchLabels": LABELS}, "template": template()}
    return {"metadata": {"name": "web"}, "spec": spec}


def pods(store):
    return store.list(POD, "default")[0]


def rolled_out(store):
    def check():
        found = store.get(DEPLOYMENT, "default", "web")
        status, wanted = found.get("status") or {}, found["spec"]["replicas"]
        names = ("replicas", "readyReplicas", "availableReplicas", "updatedReplicas")
        is_seen = status.get("observedGeneration") == found["metadata"]["generation"]
        return is_seen and [status.get(name, 0) for name in names] == [wanted] * 4

    return check


async def test_a_rollout_of_hundreds_of_pods_is_quick():
    async with cluster() as store:
        store.create(DEPLOYMENT, "default", workload(replicas=150))
        await until_written(store, rolled_out(store))
        store.patch(DEPLOYMENT, "default", "web", {"spec": {"template": template("web:2")}})
        await until_written(store, rolled_out(store))
        await until_written(store, lambda: len(pods(store)) == 150)
        assert {pod["spec"]["containers"][0]["image"] for pod in pods(store)} == {"web:2"}


async def test_a_pod_on_a_node_runs_and_one_of_a_job_ends(monkeypatch):
    monkeypatch.setattr("scheduler.sandbox.devcluster.controllers.kubelet._JOB_RUNS_S", 0.1)
    async with cluster() as store:
        once = {**template()["spec"], "restartPolicy": "Never"}
        store.create(JOB, "default", {"metadata": {"name": "j"}, "spec": {"template": {"spec": once}}})
        spec = {**template()["spec"], "nodeName": "node-0001"}
        store.create(POD, "default", {"metadata": {"name": "p"}, "spec": spec})
        await until_written(store, lambda: store.get(JOB, "default", "j")["status"].get("completionTime"))
        ended, running = pods(store)
        assert (ended["status"]["phase"], ended["status"]["containerStatuses"][0]["ready"]) == (
            "Succeeded",
            False,
        )
        assert running["status"]["phase"] == "Running"
        met = {one["type"] for one in running["status"]["conditions"] if one["status"] == "True"}
        assert met >= {"Ready", "ContainersReady", "Initialized", "PodScheduled"}
        assert store.get(JOB, "default", "j")["status"]["succeeded"] == 1


async def test_pods_bound_to_a_node_that_is_not_there_start_when_it_comes():
    async with cluster() as store:
        spec = {**template()["spec"], "nodeName": "late"}
        store.create(POD, "default", {"metadata": {"name": "p"}, "spec": spec})
        await until_written(store, lambda: bool(store.find(POD, "default", "p")))
        store.create(NODE, "", node("late", "zone-a", store.now()))
        await until_written(store, lambda: store.get(POD, "default", "p")["status"]["phase"] == "Running")


async def test_a_malformed_workload_hurts_itself_alone(caplog):
    async with cluster() as store:
        metadata = {"name": "broken", "namespace": "default", "uid": "u"}
        broken = {"metadata": metadata, "spec": {"selector": 3}}
        store.rewrite(REPLICA_SET, broken)
        store.rewrite(DEPLOYMENT, {**broken, "metadata": {**metadata, "uid": "v"}})
        odd = {**metadata, "uid": "w", "labels": 3, "ownerReferences": 4}
        store.rewrite(POD, {"metadata": odd, "spec": {"nodeName": "node-0001", "containers": 7}})
        store.create(DEPLOYMENT, "default", workload())
        await until_written(store, rolled_out(store))
        assert "ReplicaSet default/broken is malformed" in caplog.text


async def test_refused_pods_are_recorded_and_retried(monkeypatch):
    monkeypatch.setattr("scheduler.sandbox.devcluster.controllers.loop._PAUSE_S", 0.1)
    async with cluster() as store:
        broken = workload(2)
        broken["spec"]["template"]["spec"]["priorityClassName"] = "later"
        store.create(REPLICA_SET, "default", broken)

        def warnings():
            return [one["reason"] for one in store.list(CORE_EVENT, "default")[0] if one["type"] == "Warning"]

        await until_written(store, lambda: warnings() == ["FailedCreate"])
        store.create(PRIORITY_CLASS, "", {"metadata": {"name": "later"}, "value": 7})
        await until_written(store, lambda: len(pods(store)) == 2)
