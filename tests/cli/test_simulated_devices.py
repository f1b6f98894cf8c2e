"""`simulate` and `explain` of pods whose claims, templates, classes and slices are in the manifest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scheduler.cli.main import main
from tests.support import build
from tests.support.build import Json
from tests.support.device_documents import device_class, device_slice, resource_claim
from tests.support.snapshots import header
from tests.support.workloads import workload

API = {"apiVersion": "resource.k8s.io/v1"}
#: As users write it: without the mode, and without the count of one device.
ONE = {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}
TEMPLATE = {
    **API,
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "one"},
    "spec": {"spec": {"devices": ONE}},
}
DEVICES = [API | device_class(), API | device_slice("a", 2), API | device_slice("b", 1)]


def using(**entry: str) -> Json:
    spec = {"resourceClaims": [{"name": "gpu", **entry}], "schedulerName": "affinity-scheduler"}
    return workload("Deployment", "infer", build.pod(labels={"app": "infer"}, spec=spec), 8)


class Files:
    """A snapshot of two nodes with more objects, and a manifest."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._folder, self._capsys = folder, capsys

    def simulate(self, *documents: Json, command: str = "simulate", **snapshot: object) -> Any:
        """Return the JSON of the answer; the lines on standard error if there is no answer."""
        objects = {"nodes": [build.node("a"), build.node("b")], **snapshot}
        (self._folder / "s.json").write_text(json.dumps(header() | objects))
        (self._folder / "m.yaml").write_text("\n---\n".join(map(json.dumps, documents)))
        code = main(
            [command, "-f", str(self._folder / "m.yaml"), "--on", str(self._folder / "s.json"), "-o", "json"]
        )
        out, err = self._capsys.readouterr()
        return err if code == 2 else json.loads(out)


@pytest.fixture
def files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Files:
    return Files(tmp_path, capsys)


def test_each_pod_of_a_template_gets_a_claim_of_its_own(files: Files) -> None:
    (answer,) = files.simulate(*DEVICES, TEMPLATE, using(resourceClaimTemplateName="one"))
    assert (answer["placed"], answer["replicas"]) == (3, 8)
    assert {share["node"]: share["pods"] for share in answer["nodes"]} == {"a": 2, "b": 1}
    assert answer["notes"] == []
    where = {group["examples"][0]: group["where"] for group in answer["next"]["groups"]}
    start = "request r: 1 of class gpu wanted, 0 of"
    assert where["a"].startswith(f"{start} 2 devices free: 2 in use by infer-")
    assert where["b"].startswith(f"{start} 1 device free: 1 in use by infer-")


def test_pods_of_one_claim_share_its_devices(files: Files) -> None:
    """They go where its device is, which the first of them has allocated."""
    claim = {**API, "kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": {"devices": ONE}}
    (answer,) = files.simulate(*DEVICES, claim, using(resourceClaimName="c"))
    assert answer["placed"] == 8
    assert len(answer["nodes"]) == 1


def test_a_template_of_the_cluster_is_known_by_a_claim_made_from_it(files: Files) -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "old", "uid": "u", "controller": True}
    made = resource_claim("old-gpu-x", 2)
    made["metadata"]["ownerReferences"] = [owner]
    old = build.pod(
        "old", uid="u", spec={"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}]}
    )
    old["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "old-gpu-x"}]
    (answer,) = files.simulate(
        *DEVICES, using(resourceClaimTemplateName="one"), pods=[old], resourceClaims=[made]
    )
    assert answer["placed"] == 1
    key = "ResourceClaimTemplate default/one"
    assert answer["notes"] == [f"{key} is not in the manifest: taken from claim default/old-gpu-x"]


def test_an_unknown_template_is_noted(files: Files) -> None:
    (answer,) = files.simulate(*DEVICES, using(resourceClaimTemplateName="one"))
    assert answer["placed"] == 0
    key = "ResourceClaimTemplate default/one"
    assert answer["notes"] == [f"{key} is not in the manifest: no claim made from it is known"]


def test_a_claim_that_exists_stays_as_it_is(files: Files) -> None:
    """Applying its manifest again would not take its devices away."""
    results = [{"request": "r", "driver": "gpu.example.com", "pool": "b", "device": "gpu-0"}]
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}
    allocation = {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [term]}}
    existing = resource_claim("c", allocation=allocation)
    claim = {**API, "kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": {"devices": ONE}}
    (answer,) = files.simulate(*DEVICES, claim, using(resourceClaimName="c"), resourceClaims=[existing])
    assert [share["node"] for share in answer["nodes"]] == ["b"]


def test_the_command_explain_reads_them_too(files: Files) -> None:
    answer = files.simulate(*DEVICES, TEMPLATE, using(resourceClaimTemplateName="one"), command="explain")
    (explanation,) = answer if isinstance(answer, list) else [answer]
    assert explanation["state"] == "schedulable"


@pytest.mark.parametrize("spec", [{}, {"spec": 3}, {"spec": {"devices": {"requests": 3}}}])
def test_a_malformed_template_is_one_line(files: Files, spec: Json) -> None:
    err = files.simulate({**TEMPLATE, "spec": spec}, using(resourceClaimTemplateName="one"))
    assert "m.yaml: document 1: found a malformed ResourceClaim" in err
    assert len(err.splitlines()) == 1
