"""`simulate --drain` and `--without-zone` on the embedded cluster."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import yaml

from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.kinds import POD, POD_DISRUPTION_BUDGET
from tests.cli.conftest import Called, embedded
from tests.support import build


def web(name: str, node: str, *, owner: str = "ReplicaSet") -> build.Json:
    controller = {**build.owned_by(owner, "web"), "uid": "u"} if owner else None
    return build.pod(name, node=node, labels={"app": "web"}, owner=controller)


@asynccontextmanager
async def served(tmp_path: Path) -> AsyncIterator[DevCluster]:
    """Yield six nodes in three zones; a budget lets two web pods on node-0001 go one at a time."""
    async with embedded(tmp_path, nodes=6, zones=3) as cluster:
        for pod in (
            web("web-0", "node-0001"),
            web("web-1", "node-0001"),
            web("agent", "node-0001", owner="DaemonSet"),
            web("bare", "node-0004", owner=""),
        ):
            cluster.store.create(POD, "default", pod)
            running = {"status": {"phase": "Running"}}
            cluster.store.patch(POD, "default", pod["metadata"]["name"], running, subresource="status")
        budget = {
            "metadata": {"name": "web"},
            "spec": {"selector": {"matchLabels": {"app": "web"}}, "maxUnavailable": 1},
        }
        cluster.store.create(POD_DISRUPTION_BUDGET, "default", budget)
        allowed = {"status": {"disruptionsAllowed": 1}}
        cluster.store.patch(POD_DISRUPTION_BUDGET, "default", "web", allowed, subresource="status")
        yield cluster


async def with_commas_and_as_yaml(called: Called, *base: str) -> None:
    """Names with commas, with spaces, and both, are the same drain; YAML says what JSON does."""
    answers = [
        await called(*base, "--drain", *names, "-o", form)
        for names in (("node-0001,node-0002", "node-0004"), ("node-0001", "node-0002", "node-0004"))
        for form in ("json", "yaml")
    ]
    json_texts, yaml_texts = [out for _, out, _ in answers[::2]], [out for _, out, _ in answers[1::2]]
    assert json_texts[0] == json_texts[1]
    document = json.loads(json_texts[0])
    assert document["nodes"] == ["node-0001", "node-0002", "node-0004"]
    assert [yaml.safe_load(text) for text in yaml_texts] == [document, document]
    assert yaml_texts[0].startswith(f"{next(iter(document))}: ")


async def test_a_drain_says_where_pods_go_and_when(tmp_path: Path, called: Called) -> None:
    """A live cluster and its snapshot give the same answer; nothing is written."""
    snapshot = str(tmp_path / "snapshot.json")
    async with served(tmp_path) as cluster:
        before = cluster.store.resource_version
        code, out, err = await called("simulate", "--drain", "node-0001")
        assert (await called("snapshot", "-o", snapshot))[0] == 0
        assert cluster.store.resource_version == before
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "Drain of node node-0001: 2 of 2 pods find a place elsewhere"
    assert "  1 pod stays: of DaemonSets" in lines
    assert [line.split()[:3] for line in lines if "default/web" in line] == [
        ["1", "default/web-0", "node-0001"],
        ["2", "default/web-1", "node-0001"],
    ]
    assert await called("simulate", "--drain", "node-0001", "--on", snapshot) == (0, out, "")
    await with_commas_and_as_yaml(called, "simulate", "--on", snapshot)


async def test_without_a_zone_its_pods_leave_at_once(tmp_path: Path, called: Called) -> None:
    async with served(tmp_path):
        base = ("simulate", "-o", "json")
        code, out, _ = await called(*base, "--without-zone", "zone-a")
        unknown = await called(*base, "--without-zone", "zone-z")
        empty = await called(*base, "--without-zone", "")
        missing = await called(*base, "--drain", "node-0009")
        nothing = await called(*base, "--drain", "")
        comma = await called(*base, "--drain", ",")
        replicas = await called(*base, "--drain", "node-0001", "--replicas", "1")
    answer = json.loads(out)
    assert code == 1, "the pod without a controller is lost"
    assert (answer["kind"], answer["zone"], answer["nodes"]) == (
        "Drain",
        "zone-a",
        ["node-0001", "node-0004"],
    )
    assert (answer["pods"], answer["placed"], answer["rounds"]) == (2, 2, 1)
    assert {staying["why"]: staying["pods"]["total"] for staying in answer["staying"]} == {
        "DaemonSet": 1,
        "no controller": 1,
    }
    for code, out, err in (unknown, empty, missing, nothing, comma, replicas):
        assert (code, out, err.count("\n")) == (2, "", 1)
    assert "expected a zone of the cluster (zone-a, zone-b, zone-c)" in unknown[2]


async def test_pods_of_a_workload_without_a_place_are_one_line(tmp_path: Path, called: Called) -> None:
    """A wide table has them one by one; a workload can be given to `explain` as it is printed."""
    async with embedded(tmp_path, nodes=3, zones=3) as cluster:
        for number in range(4):
            pod = web(f"web-{number}", "node-0001")
            pod["spec"]["nodeSelector"] = {"topology.kubernetes.io/zone": "zone-a"}
            cluster.store.create(POD, "default", pod)
        base = ("simulate", "--without-zone", "zone-a")
        code, out, _ = await called(*base)
        wide = await called(*base, "-o", "wide")
        answered = await called(*base, "-o", "json")
        explained = await called("explain", "default/rs/web")
    assert code == 1
    lines = out.splitlines()
    place = lines.index("NO PLACE")
    assert lines[place + 1].split() == ["PODS", "WORKLOAD", "FROM", "WHY"]
    assert lines[place + 2] == (
        "     4  default/rs/web  node-0001  node(s) didn't match Pod's node affinity/selector"
    )
    assert lines[place + 3] == ""
    assert sum("default/web-" in line and "node-0001" in line for line in wide[1].splitlines()) == 4
    assert {each["workload"] for each in json.loads(answered[1])["leaving"]} == {"rs/web"}
    assert explained[0] == 0
