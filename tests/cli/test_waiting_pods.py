"""`explain` and `simulate` beside a pod that waits between Reserve and Bind: they know of it what its object says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scheduler.cli.main import main
from tests.support import build
from tests.support.build import Json
from tests.support.cases.volume_rows import using
from tests.support.snapshots import header
from tests.support.storage_objects import claim, csi_node, storage_class


def _pod(name: str, cpu: str, *claims: str, **status: str) -> Json:
    made = using(*claims, name=name)
    made["spec"] |= {
        "schedulerName": "affinity-scheduler",
        "containers": [build.container(requests={"cpu": cpu})],
    }
    return {**made, "apiVersion": "v1", "kind": "Pod", "status": status}


#: The waiting pod, the next one, and what keeps that out.
BESIDE = {
    "room": (_pod("zz-db", "2", "c", nominatedNodeName="n"), _pod("aa-web", "1"), "Insufficient cpu"),
    "attach limit": (
        _pod("zz-db", "100m", "c", "d", nominatedNodeName="n"),
        _pod("aa-web", "100m", "e"),
        "node(s) exceed max volume count",
    ),
}


@pytest.mark.parametrize("command", ["explain", "simulate"])
@pytest.mark.parametrize(("waiting", "pod", "reason"), BESIDE.values(), ids=BESIDE)
def test_the_room_of_a_waiting_pod_is_not_offered(
    command: str, waiting: Json, pod: Json, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    snapshot = {
        **header(),
        "nodes": [build.node("n", allocatable={"cpu": "2"})],
        "pods": [waiting],
        "persistentVolumeClaims": [claim(name, "made", node="n" if name in "cd" else None) for name in "cde"],
        "storageClasses": [storage_class("made")],
        "csiNodes": [csi_node("n", d=2)],
    }
    (tmp_path / "cluster.json").write_text(json.dumps(snapshot))
    (tmp_path / "pod.json").write_text(json.dumps(pod))
    assert main([command, "-f", str(tmp_path / "pod.json"), "--on", str(tmp_path / "cluster.json")]) == 1
    told = capsys.readouterr().out
    assert f"0/1 nodes are available: 1 {reason}." in told
    assert "room is kept for nominated pods: default/zz-db (priority 0) on node n" in told
