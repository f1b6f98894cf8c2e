"""`simulate --priority-class` on the embedded cluster: who would be evicted."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.kinds import POD, POD_DISRUPTION_BUDGET, PRIORITY_CLASS
from tests.cli.conftest import Called, embedded
from tests.support import build
from tests.support.workloads import workload


@asynccontextmanager
async def _full(tmp_path: Path) -> AsyncIterator[DevCluster]:
    """Yield two nodes, each full with two pods; a budget protects those on the first."""
    async with embedded(tmp_path, nodes=2, zones=1) as cluster:
        for node, app in (("node-0001", "kept"), ("node-0002", "batch")):
            for index in range(2):
                pod = build.pod(f"{app}-{index}", node=node, cpu="2", labels={"app": app})
                cluster.store.create(POD, "default", pod)
        budget = {"metadata": {"name": "kept"}, "spec": {"selector": {"matchLabels": {"app": "kept"}}}}
        cluster.store.create(POD_DISRUPTION_BUDGET, "default", budget)
        cluster.store.create(PRIORITY_CLASS, "", {"metadata": {"name": "urgent"}, "value": 1000})
        gentle = {"metadata": {"name": "gentle"}, "value": 1000, "preemptionPolicy": "Never"}
        cluster.store.create(PRIORITY_CLASS, "", gentle)
        _write(tmp_path / "urgent.json", _deployment())
        yield cluster


def _deployment(name: str = "urgent", n_replicas: int = 2, cpu: str = "3", **spec: str) -> build.Json:
    pod = build.pod(labels={"app": "urgent"}, cpu=cpu, spec=spec)
    return workload("Deployment", name, pod, n_replicas)


async def test_victims_are_named_and_the_budget_that_one_breaks(tmp_path: Path, called: Called) -> None:
    """The pods that no budget protects go first; nothing is written. A snapshot gives the same answer for the value."""
    command = ("simulate", "-f", str(tmp_path / "urgent.json"))
    snapshot = str(tmp_path / "snapshot.json")
    async with _full(tmp_path) as cluster:
        before = cluster.store.resource_version
        code, out, err = await called(*command, "--priority-class", "urgent")
        assert (await called("snapshot", "-o", snapshot))[0] == 0
        gentle = await called(*command, "--priority-class", "gentle")
        unknown = await called(*command, "--priority-class", "none")
        assert cluster.store.resource_version == before
    assert (code, err) == (0, "")
    lines = [line.split() for line in out.splitlines()]
    assert lines[0] == ["Deployment", "default/urgent:", "2", "of", "2", "replicas", "fit"]
    evicted = lines[lines.index(["EVICTED", "PRIORITY", "NODE", "BREAKS", "BUDGET"]) + 1 :]
    assert [(one[2], one[3]) for one in evicted] == [("node-0002", "-")] * 2 + [("node-0001", "kept")] * 2
    assert (await called(*command, "--priority-class", "1000", "--on", snapshot))[:2] == (0, out)
    assert gentle[0] == 1
    assert "0 of 2 replicas fit" in gentle[1]
    assert "EVICTED" not in gentle[1]
    assert unknown == (
        2,
        "",
        "--priority-class: found none, expected the name or the value of a PriorityClass\n",
    )


def _write(path: Path, *documents: build.Json) -> str:
    path.write_text("\n---\n".join(map(json.dumps, documents)))
    return str(path)


async def test_the_class_that_a_manifest_names_is_the_clusters_or_in_the_file(
    tmp_path: Path, called: Called
) -> None:
    own = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "own"},
        "value": 7,
    }
    manifests = {
        name: _write(tmp_path / f"of-{name}.json", own, _deployment(priorityClassName=name))
        for name in ("urgent", "gentle", "own", "system-node-critical", "none")
    }
    snapshot = str(tmp_path / "snapshot.json")
    async with _full(tmp_path):
        found = {name: await called("simulate", "-f", path) for name, path in manifests.items()}
        explained = {name: (await called("explain", "-f", path))[1] for name, path in manifests.items()}
        assert (await called("snapshot", "-o", snapshot))[0] == 0
    for name in ("urgent", "own", "system-node-critical"):
        assert found[name][0] == 0, found[name]
        assert "EVICTED" in found[name][1], name
        assert "it evicts default/batch-" in explained[name], name
    assert found["gentle"][0] == 1
    assert "not eligible due to preemptionPolicy=Never" in explained["gentle"]
    line = "Deployment default/urgent: spec.priorityClassName: found none, expected the name of a PriorityClass\n"
    assert found["none"] == (2, "", line)
    for command in ("simulate", "explain"):
        code, out, err = await called(command, "-f", manifests["urgent"], "--on", snapshot)
        assert (code, err) == (1, "read Deployment, PriorityClass\n")
        assert "a snapshot has no PriorityClasses: priority 0 is assumed, not urgent's" in out
    assert (await called("simulate", "-f", manifests["own"], "--on", snapshot))[0] == 0


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param("2000000000", "a value from -2147483648 to 1000000000", id="too high"),
        pytest.param("urgent", "its value: a snapshot has no PriorityClasses", id="a name for a snapshot"),
    ],
)
async def test_bad_classes(tmp_path: Path, called: Called, value: str, expected: str) -> None:
    file = _write(tmp_path / "pod.json", _deployment())
    command = ("simulate", "-f", file, "--on", str(tmp_path / "none.json"), "--priority-class", value)
    assert await called(*command) == (2, "", f"--priority-class: found {value}, expected {expected}\n")


async def test_replicas_that_a_later_manifest_evicts_are_not_placed(tmp_path: Path, called: Called) -> None:
    """Three small replicas fill two nodes of 4 CPUs; one of 3 CPUs takes the place of two, or of the single one."""
    urgent = _deployment(n_replicas=1, priorityClassName="system-cluster-critical")
    path = _write(tmp_path / "both.json", _deployment("small", 3, "2"), urgent)
    async with embedded(tmp_path, nodes=2, zones=1):
        command = ("simulate", "-f", path)
        code, out, _ = await called(*command)
    assert code == 1
    assert "Deployment default/small: 2 of 3 replicas fit" in out
    assert "note: 1 replica would be evicted again for a manifest of higher priority" in out
    assert "Deployment default/urgent: 1 of 1 replica fits" in out
