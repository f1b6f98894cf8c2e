"""
`explain` notes what the cluster says beside the decision.

Kubelets that rejected pods with the same spec, from failed pods; a condition that contradicts the answer.
"""

from __future__ import annotations

import pytest
from syrupy.assertion import SnapshotAssertion

from scheduler.tools.explain.answers import explain_named_pod
from scheduler.tools.explain.pending import pending_workloads
from tests.support import build
from tests.support.cases.volume_rows import using
from tests.support.json_cluster import encoded, loaded
from tests.support.storage_objects import claim, storage_class

ONE_CPU = [build.container(requests={"cpu": "1"})]
SPEC = {"schedulerName": "affinity-scheduler"}


def _failed(name: str, node: str, reason: str, containers: list[build.Json] = ONE_CPU) -> build.Json:
    document = build.pod(name, node=node, containers=containers, spec=SPEC, phase="Failed")
    document["status"]["reason"] = reason
    return document


def notes_of(*documents: build.Json) -> list[str]:
    """Return the notes of the explanation of pod p."""
    answer = explain_named_pod(loaded(*documents), "default", "p", None)
    assert answer is not None
    return list(answer.notes)


def test_the_note_names_nodes_and_reasons() -> None:
    pending = build.pod("p", containers=ONE_CPU, spec=SPEC)
    (note,) = notes_of(
        build.node("a"),
        build.node("b"),
        _failed("gone", "b", "OutOfcpu"),
        _failed("evicted", "a", "Evicted"),
        _failed("another", "a", "OutOfcpu", [build.container(requests={"cpu": "2"})]),
        pending,
    )
    assert note.startswith("pods with the same spec were rejected by the kubelet of b (OutOfcpu); ")
    assert notes_of(build.node("a"), pending) == []
    # A pod that appeared after the cluster was read.
    assert explain_named_pod(loaded(build.node("a")), "default", "p", encoded(pending)) is not None


def test_a_condition_that_contradicts_the_answer_is_noted() -> None:
    """The running scheduler has a plugin that the command was not given."""
    message = "0/1 nodes are available: 1 node(s) had enough pods of the team in their zone."
    pod = build.pod("p", containers=ONE_CPU, spec=SPEC)
    pod["status"]["conditions"] = [build.unscheduled(message)]
    (note,) = notes_of(build.node("a"), pod)
    assert note.startswith(f"the scheduler last said of it: {message} If nothing has changed since, ")
    assert note.endswith("was not given with --config and --plugins")
    tainted = build.node("a", taints=["t=:NoSchedule"])
    assert notes_of(tainted, pod) == [], "both say that it fits nowhere"


PROVISIONING_FAILED = (
    'running PreBind plugin "VolumeBinding": binding volumes: provisioning failed for PVC "c"'
)


@pytest.mark.parametrize("chosen", ["a", None], ids=["waits", "failed"])
def test_a_pod_whose_volume_is_being_made_contradicts_nothing(
    chosen: str | None, snapshot: SnapshotAssertion
) -> None:
    """The condition is of an attempt before, and no plugin is missing."""
    pod = using("c", name="p")
    pod["spec"] |= SPEC
    failed = build.unscheduled(PROVISIONING_FAILED, reason="SchedulerError")
    pod |= {"kind": "Pod", "status": {"nominatedNodeName": chosen or "", "conditions": [failed]}}
    documents = build.node("a"), storage_class("s"), claim("c", "s", node=chosen), pod
    notes, (row,) = notes_of(*documents), pending_workloads(loaded(*documents)).workloads
    assert [PROVISIONING_FAILED in note for note in notes] == ([False, False] if chosen else [True])
    assert [*notes, row.reason] == snapshot
