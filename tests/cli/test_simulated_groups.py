"""`simulate -f` of a group on the embedded cluster: where its members go, and how many more such groups fit."""

from __future__ import annotations

import json
from pathlib import Path

from scheduler.sandbox.devcluster.kinds import NODE, POD
from tests.cli.conftest import Called, embedded
from tests.support import build
from tests.support.workloads import workload

GROUP, MIN_COUNT = "affinity-scheduler.io/pod-group", "affinity-scheduler.io/pod-group-min-count"


def _job(n_pods: int) -> build.Json:
    near = build.affinity(required=[build.term("rack", build.selector("job=train"))])
    labels = {"job": "train", GROUP: "train", MIN_COUNT: str(n_pods)}
    return workload("StatefulSet", "train", build.pod(cpu="1", labels=labels, affinity=near), n_pods)


async def _simulated(
    tmp_path: Path,
    n_pods: int,
    called: Called,
    *more: str,
    n_pending: int = 0,
    running: tuple[build.Json, ...] = (),
) -> str:
    """Return what `simulate` prints for a job on racks with room for 9, 4 and 2 pods, of which some are pending."""
    async with embedded(tmp_path) as cluster:
        for rack, n_nodes in (("a", 9), ("b", 4), ("c", 2)):
            for index in range(n_nodes):
                node = build.node(f"{rack}-{index}", labels={"rack": rack}, allocatable={"cpu": "1"})
                cluster.store.create(NODE, "", node)
        job = _job(n_pods)
        for index in range(n_pending):
            template = job["spec"]["template"]
            metadata = {**template["metadata"], "name": f"train-{index}", "namespace": "default"}
            cluster.store.create(POD, "default", {**template, "metadata": metadata})
        for pod in running:
            cluster.store.create(POD, "default", pod)
        (tmp_path / "group.json").write_text(json.dumps(job))
        arguments = ("-f", str(tmp_path / "group.json"))
        _, out, _ = await called("simulate", *arguments, *more)
    return out


async def test_members_that_are_pending_already_are_not_counted_beside_those_of_the_file(
    tmp_path: Path, called: Called
) -> None:
    """The file was applied before. What would help ten members is not what would help twenty."""
    (before,) = json.loads(await _simulated(tmp_path, 10, called, "-o", "json"))
    (applied,) = json.loads(await _simulated(tmp_path, 10, called, "-o", "json", n_pending=10))
    assert applied["next"]["suggestions"] == before["next"]["suggestions"] != []
    assert applied["notes"] == before["notes"]


async def test_of_a_group_that_does_not_fit_the_moves_that_would_do_are_named(
    tmp_path: Path, called: Called
) -> None:
    """The small pod in the large rack has room elsewhere, if one controller makes it anew."""
    pod = build.pod("small", node="a-0", owner=build.owned_by("ReplicaSet", "web"), cpu="1")
    text = await _simulated(tmp_path, 9, called, running=(pod,))
    assert "note: The group would fit after: move default/small from a-0 to " in text


async def test_why_a_group_of_pods_has_no_places_is_said_once(tmp_path: Path, called: Called) -> None:
    labels = {GROUP: "g", MIN_COUNT: "4"}
    pods = [build.pod(f"p-{index}", cpu="1", labels=labels) for index in range(4)]
    (tmp_path / "group.json").write_text("\n---\n".join(map(json.dumps, pods)))
    async with embedded(tmp_path) as cluster:
        for name in "ab":
            cluster.store.create(NODE, "", build.node(name, allocatable={"cpu": "1"}))
        arguments = ("-f", str(tmp_path / "group.json"))
        _, out, _ = await called("simulate", *arguments)
    assert out.count("0 of 1 replica fits") == 1
    assert out.count("  note: pod group default/g needs 4 places: 2 found; the next, p-2") == 1
    reasons = [line.split(maxsplit=5)[-1] for line in out.splitlines() if line.startswith("  Pod default/p-")]
    assert reasons == ["Insufficient cpu", *["as Pod default/p-0"] * 3]
    assert out.rstrip().endswith("All 4 manifests: 0 of 4 replicas fit")
