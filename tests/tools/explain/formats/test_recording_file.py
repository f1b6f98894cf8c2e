"""The lines of a recording, and why pods are not scheduled."""

from __future__ import annotations

import json

import msgspec

from scheduler.tools.explain.formats.recording_file import DeletedObject, Header, Line, recorded_fields
from tests.support import build
from tests.support.json_cluster import decoded

UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/1 nodes are available: 1 Insufficient cpu.",
}


def test_a_pod_is_read_as_it_was() -> None:
    pod = build.pod("p", labels={"a": "b"})
    pod["status"] |= {"nominatedNodeName": "n", "conditions": [UNSCHEDULABLE]}
    before, after = decoded(pod), decoded(recorded_fields("Pod", pod))
    assert after.scheduled_condition == before.scheduled_condition
    assert (after.labels, after.nominated_node_name) == (before.labels, "n")
    assert after.scheduled_condition is not None


def test_lines_are_short_json() -> None:
    gone = DeletedObject(namespace="shop", name="web", uid="u")
    lines = [
        Header(),
        Line(at_s=0.5, kind="Node", object=msgspec.Raw(b'{"a":1}')),
        Line(at_s=0.5, kind="Pod", deleted=gone),
        Line(at_s=0.5, kind="Pod", listed=True),
        Line(at_s=1.0, kind="Synced"),
    ]
    assert [json.loads(msgspec.json.encode(line)) for line in lines] == [
        {"apiVersion": "affinity-scheduler.io/v1", "kind": "ClusterRecording"},
        {"atS": 0.5, "kind": "Node", "object": {"a": 1}},
        {"atS": 0.5, "kind": "Pod", "deleted": {"namespace": "shop", "name": "web", "uid": "u"}},
        {"atS": 0.5, "kind": "Pod", "listed": True},
        {"atS": 1.0, "kind": "Synced"},
    ]
