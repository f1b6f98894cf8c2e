"""A recording has the fields of a snapshot, and why pods are not scheduled."""

from __future__ import annotations

import copy
import json

import msgspec

from scheduler.tools.explain.formats.recording_file import DeletedObject, Header, Line, recorded_fields
from scheduler.tools.explain.formats.snapshot_file import scheduling_fields
from tests.support import build
from tests.support.json_cluster import decoded
from tests.tools.explain.formats.test_snapshot_file import FULL_POD, SECRET

UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/1 nodes are available: 1 Insufficient cpu.",
}


def test_no_secret_of_a_pod_is_recorded() -> None:
    """Not in the messages of other conditions either."""
    pod = copy.deepcopy(FULL_POD)
    ready = {"type": "Ready", "status": "False", "message": SECRET, SECRET: SECRET}
    pod["status"] = {**pod.get("status", {}), "message": SECRET, "conditions": [ready, UNSCHEDULABLE]}
    found = recorded_fields("Pod", pod)
    assert SECRET not in json.dumps(found)
    assert found["status"]["conditions"][1] == UNSCHEDULABLE  # type: ignore[index]  # JSON


def test_a_pod_is_read_as_it_was() -> None:
    pod = build.pod("p", labels={"a": "b"})
    pod["status"] |= {"nominatedNodeName": "n", "conditions": [UNSCHEDULABLE]}
    before, after = decoded(pod), decoded(recorded_fields("Pod", pod))
    assert after.scheduled_condition == before.scheduled_condition
    assert (after.labels, after.nominated_node_name) == (before.labels, "n")
    assert after.scheduled_condition is not None


def test_other_kinds_have_the_fields_of_a_snapshot() -> None:
    node = build.node("n")
    assert recorded_fields("Node", node) == scheduling_fields("Node", node)


def test_lines_are_short_json() -> None:
    gone = DeletedObject(namespace="shop", name="web", uid="u")
    lines = [
        Header(),
        Line(at_s=0.5, kind="Node", object=msgspec.Raw(b'{"a":1}')),
        Line(at_s=0.5, kind="Pod", deleted=gone),
        Line(at_s=1.0, kind="Synced"),
    ]
    assert [json.loads(msgspec.json.encode(line)) for line in lines] == [
        {"apiVersion": "affinity-scheduler.io/v1", "kind": "ClusterRecording"},
        {"atS": 0.5, "kind": "Node", "object": {"a": 1}},
        {"atS": 0.5, "kind": "Pod", "deleted": {"namespace": "shop", "name": "web", "uid": "u"}},
        {"atS": 1.0, "kind": "Synced"},
    ]
