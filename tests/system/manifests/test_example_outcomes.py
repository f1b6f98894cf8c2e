"""What the examples are for comes about: each is applied to a cluster of its own, with a scheduler."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from scheduler.sandbox.demo.examples import documents
from tests.support.build import ZONE, Json
from tests.support.cluster import Cluster
from tests.support.custom_kinds import KUBERNETES, definition, group
from tests.support.daemon import running
from tests.support.manifest_files import collection_of
from tests.support.waiting import until
from tests.system.processes.conftest import embedded
from tests.tools.webhook.client import mutated

RACK = "example.com/rack"
POOL = "example.com/node-pool"
RELAXED = "affinity-scheduler.io/relaxed"


@dataclass(frozen=True, slots=True)
class Played:
    cluster: Cluster

    async def apply(self, name: str, swap: dict[str, str] | None = None) -> None:
        """Create what the example has, and its namespace if it is not there."""
        for document in documents(name, swap):
            answer = await self.cluster.api.post(collection_of(document), document)
            assert answer.code == 201 or document["kind"] == "Namespace", answer

    async def settled(self, n_placed: int, n_refused: int = 0) -> list[Json]:
        """Return all pods, once so many have a node and so many were refused."""

        async def pods() -> list[Json]:
            found: list[Json] = (await self.cluster.api.get("/api/v1/pods")).ok["items"]
            return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

        def are_settled(found: list[Json]) -> bool:
            return (len([*filter(node_of, found)]), len([*filter(reason_of, found)])) == (n_placed, n_refused)

        return await until(pods, are_settled, what=f"{n_placed} placed pods and {n_refused} refused ones")

    async def regions(self, key: str) -> dict[str, str]:
        """Return the region of each node."""
        nodes = (await self.cluster.api.get("/api/v1/nodes")).ok["items"]
        return {node["metadata"]["name"]: node["metadata"]["labels"][key] for node in nodes}


@asynccontextmanager
async def played(folder: Path, *, labels: dict[str, list[str]] | None = None) -> AsyncIterator[Played]:
    settings = {"nodes": 6, "zones": 3, "controllers": True, "node_labels": labels or {}}
    async with embedded(folder, **settings) as cluster, running(Path(cluster.kubeconfig)):
        yield Played(cluster)


def node_of(pod: Json) -> str:
    return str(pod["spec"].get("nodeName", ""))


def reason_of(pod: Json) -> str:
    """Return why the pod was refused, '' if it has a node or was not looked at."""
    conditions = pod["status"].get("conditions", [])
    found = (each["message"] for each in conditions if each.get("reason") == "Unschedulable")
    return "" if node_of(pod) else next(found, "")


async def test_each_tenant_has_a_node_pool_to_itself_and_a_fourth_finds_none(tmp_path: Path) -> None:
    async with played(tmp_path, labels={POOL: ["p1", "p2", "p3"]}) as cluster:
        for i, tenant in enumerate(("azure", "coral", "olive"), 1):
            await cluster.apply("03-tenant.yaml", {"azure": tenant})
            await cluster.settled(4 * i)
        await cluster.apply("03-tenant.yaml", {"azure": "pearl"})
        pods, pools = await cluster.settled(12, 4), await cluster.regions(POOL)
        homes = {(pod["metadata"]["namespace"], pools[node_of(pod)]) for pod in pods if node_of(pod)}
        assert len(homes) == len(dict(homes)) == len({pool for _, pool in homes}) == 3
        assert {pod["metadata"]["namespace"] for pod in pods if reason_of(pod)} == {"tenant-pearl"}


async def test_pods_of_customers_share_no_node_but_one_with_a_namespace_on_trial(tmp_path: Path) -> None:
    async with played(tmp_path) as cluster:
        await cluster.apply("04-customer.yaml")
        await cluster.apply("04-customer.yaml", {"acme": "globex"})
        await cluster.settled(4)
        await cluster.apply("04-trial.yaml")
        await cluster.settled(6)
        await cluster.apply("04-customer.yaml", {"acme": "hooli"})
        names = defaultdict(set)
        for pod in await cluster.settled(8):
            names[node_of(pod)].add(pod["metadata"]["namespace"])
        assert sorted(map(sorted, names.values())) == [
            *[["acme"]] * 2,
            *[["globex"]] * 2,
            *[["hooli", "initech"]] * 2,
        ]


async def test_a_rack_takes_two_pods_of_the_ledger(tmp_path: Path) -> None:
    async with played(tmp_path, labels={RACK: ["r1", "r2", "r3"]}) as cluster:
        await cluster.apply("07-racks.yaml", {"replicas: 6": "replicas: 7"})
        pods, racks = await cluster.settled(6, 1), await cluster.regions(RACK)
        assert Counter(racks[node_of(pod)] for pod in pods if node_of(pod)) == {"r1": 2, "r2": 2, "r3": 2}
        assert any("6 node(s) didn't match pod anti-affinity rules" in reason_of(pod) for pod in pods)


def test_the_webhook_merges_the_revision_into_the_backports_own_example() -> None:
    _, deployment = documents("08-backport.yaml")
    template = deployment["spec"]["template"]
    template["metadata"]["labels"]["pod-template-hash"] = "abc"
    metadata = {**template["metadata"], "name": "p", "namespace": "backport"}
    answer = mutated({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
    assert answer.pod is not None
    anti = answer.pod["spec"]["affinity"]["podAntiAffinity"]
    (term,) = anti["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["topologyKey"] == ZONE
    assert term["labelSelector"] == {
        "matchLabels": {"app": "nginx"},
        "matchExpressions": [{"key": "pod-template-hash", "operator": "In", "values": ["abc"]}],
    }


async def test_the_fourth_of_three_zones_replicas_is_placed_once_its_rule_is_relaxed(tmp_path: Path) -> None:
    async with played(tmp_path) as cluster:
        await cluster.apply("11-fallback.yaml", {'"afterSeconds": 15': '"afterSeconds": 1'})
        pods, zones = await cluster.settled(4), await cluster.regions(ZONE)
        hard = [pod for pod in pods if RELAXED not in pod["metadata"].get("annotations", {})]
        assert len(hard) == len({zones[node_of(pod)] for pod in hard}) == 3


async def test_workers_go_to_one_rack_together(tmp_path: Path) -> None:
    """A node has room for three of the eight."""
    async with played(tmp_path, labels={RACK: ["r1", "r2"]}) as cluster:
        await cluster.apply("12-training.yaml")
        pods, racks = await cluster.settled(8), await cluster.regions(RACK)
        assert len({racks[node_of(pod)] for pod in pods}) == 1


async def test_halves_that_need_each_other_go_through_as_a_group(tmp_path: Path) -> None:
    async with played(tmp_path) as cluster:
        for half in ("12-api.yaml", "12-cache.yaml"):
            await cluster.apply(half)
        pods, zones = await cluster.settled(4), await cluster.regions(ZONE)
        assert len({zones[node_of(pod)] for pod in pods}) == 1


async def test_a_service_evicts_pods_of_the_batch_and_none_of_the_protected_archive(tmp_path: Path) -> None:
    """Two pods of the batch leave for each of the service; their successors wait."""
    async with played(tmp_path) as cluster:
        await cluster.apply("15-archive.yaml")
        await cluster.settled(3)
        await cluster.apply("15-batch.yaml")
        await cluster.settled(24)
        await cluster.apply("15-service.yaml")
        pods = [pod for pod in await cluster.settled(21, 6) if node_of(pod)]
        placed = Counter(pod["metadata"]["namespace"] for pod in pods)
        assert placed == {"checkout": 3, "archive": 3, "batch": 15}


# A placeholder keeps a host free in a group's rack; the member that comes in the place of a lost one gets it.


async def _apply_spare(cluster: Cluster, *, pod_group: bool) -> None:
    """Create what the manifest has; with `pod_group`, the group is a PodGroup of Kubernetes 1.36."""
    made = documents("spare.yaml")
    if pod_group:
        template = next(each for each in made if each["kind"] == "StatefulSet")["spec"]["template"]
        del template["metadata"]["annotations"]
        template["spec"]["schedulingGroup"] = {"podGroupName": "training"}
    for document in made:
        await cluster.create(collection_of(document), document)
        if pod_group and document["kind"] == "Namespace":
            policy = {"gang": {"minCount": 4}}
            spec = {"schedulingPolicy": policy, "schedulingConstraints": {"topology": [{"key": RACK}]}}
            path = f"/apis/{KUBERNETES}/namespaces/fabric/podgroups"
            await cluster.create(path, group(KUBERNETES, "training", spec))


async def _places(cluster: Cluster) -> dict[str, str]:
    """Return the nodes of the members by name, and of the placeholder as `spare`; empty without a node."""
    pods: list[Json] = (await cluster.api.get("/api/v1/namespaces/fabric/pods")).ok["items"]
    return {
        pod["metadata"]["labels"]["app"].replace("training", pod["metadata"]["name"]): pod["spec"].get(
            "nodeName", ""
        )
        for pod in pods
        if "deletionTimestamp" not in pod["metadata"]
    }


def _is_whole(places: dict[str, str]) -> bool:
    return {f"training-{index}" for index in range(4)} <= {name for name, node in places.items() if node}


@pytest.mark.parametrize(
    ("pod_group", "is_deleted"),
    [(False, False), (True, True)],
    ids=["annotations, drained", "PodGroup, deleted"],
)
async def test_the_new_member_gets_the_host_of_the_placeholder(
    tmp_path: Path, pod_group: bool, is_deleted: bool
) -> None:
    """Two racks of five hosts; the other members stay, and a new placeholder waits until a host is free again."""
    async with embedded(tmp_path, nodes=10, controllers=True, node_labels={RACK: ["r1", "r2"]}) as cluster:
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        await cluster.create(path, definition(KUBERNETES))
        nodes = [node["metadata"] for node in (await cluster.api.get("/api/v1/nodes")).ok["items"]]
        rack_of = {node["name"]: node["labels"][RACK] for node in nodes}
        async with running(Path(cluster.kubeconfig)) as daemon:
            await _apply_spare(cluster, pod_group=pod_group)
            before = await until(
                lambda: _places(cluster), lambda p: _is_whole(p) and p.get("spare"), what="all five places"
            )
            assert len({rack_of[node] for node in before.values()}) == 1
            assert len(set(before.values())) == 5
            lost = before["training-1"]
            if is_deleted:
                (await cluster.api.delete(f"/api/v1/nodes/{lost}")).ok  # noqa: B018
                # Pods and nodes are watched by themselves: a pod that is told of first might go to the node.
                nodes_known = partial(daemon.metric, "scheduler_cache_size", type="nodes")
                await until(nodes_known, lambda n_nodes: n_nodes == 9, what="the end of the node")
            else:
                await cluster.edit_node(lost, {"spec": {"unschedulable": True}})
            await cluster.api.delete("/api/v1/namespaces/fabric/pods/training-1", {"gracePeriodSeconds": 0})
            after = await until(
                lambda: _places(cluster),
                lambda p: _is_whole(p) and p.get("spare") == "" and p["training-1"] != lost,
                what="the new member",
            )
            assert after == {**before, "training-1": before["spare"], "spare": ""}
            if not is_deleted:
                await cluster.edit_node(lost, {"spec": {"unschedulable": None}})
                again = await until(
                    lambda: _places(cluster), lambda p: p.get("spare"), what="the placeholder"
                )
                assert again == {**after, "spare": lost}
