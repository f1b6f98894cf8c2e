"""A placeholder keeps a host free in a group's rack; the member that comes in the place of a lost one gets it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.cluster import Cluster
from tests.support.custom_kinds import KUBERNETES, definition, group
from tests.support.daemon import running
from tests.support.manifest_files import MANIFESTS, collection_of
from tests.support.waiting import until
from tests.system.processes.conftest import embedded

RACK = "example.com/rack"


async def _apply(cluster: Cluster, *, pod_group: bool) -> None:
    """Create what the manifest has; with `pod_group`, the group is a PodGroup of Kubernetes 1.36."""
    documents = list(yaml.safe_load_all((MANIFESTS / "examples" / "spare.yaml").read_text()))
    if pod_group:
        template = next(each for each in documents if each["kind"] == "StatefulSet")["spec"]["template"]
        del template["metadata"]["annotations"]
        template["spec"]["schedulingGroup"] = {"podGroupName": "training"}
    for document in documents:
        await cluster.create(collection_of(document), document)
        if pod_group and document["kind"] == "Namespace":
            policy = {"gang": {"minCount": 4}}
            spec = {"schedulingPolicy": policy, "schedulingConstraints": {"topology": [{"key": RACK}]}}
            path = f"/apis/{KUBERNETES}/namespaces/fabric/podgroups"
            await cluster.create(path, group(KUBERNETES, "training", spec))


async def _places(cluster: Cluster) -> dict[str, str]:
    """Return the nodes of the members by name, and of the placeholder as `spare`; empty without a node."""
    pods: list[Any] = (await cluster.api.get("/api/v1/namespaces/fabric/pods")).ok["items"]
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
        async with running(Path(cluster.kubeconfig)):
            await _apply(cluster, pod_group=pod_group)
            before = await until(
                lambda: _places(cluster), lambda p: _is_whole(p) and p.get("spare"), what="all five places"
            )
            assert len({rack_of[node] for node in before.values()}) == 1
            assert len(set(before.values())) == 5
            lost = before["training-1"]
            if is_deleted:
                (await cluster.api.delete(f"/api/v1/nodes/{lost}")).ok  # noqa: B018
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
