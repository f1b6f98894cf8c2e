"""The JSON of explanations is stable."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.engine.core.decision_annotation import DecisionRecord, RankedNode
from scheduler.engine.framework.explaining import Share, Skew
from scheduler.engine.model.changes import (
    AddMatchLabelKey,
    AddRoom,
    AllowSkew,
    DropDeviceConstraint,
    LabelNamespace,
    LabelNode,
    RecreateWithMatchLabelKey,
    RemovePod,
    RemoveTaint,
    RunPod,
    TolerateDeviceTaint,
    TolerateTaint,
    Uncordon,
)
from scheduler.tools.explain.formats import explanation
from scheduler.tools.explain.simulation.replicas import NodeShare, Simulation, ZoneShare
from tests.support import build
from tests.support.json_cluster import Cluster, alone_per_zone, as_json, web, zoned
from tests.support.messages import no_victims

FIELDS = {
    explanation.Explanation: (
        "apiVersion kind namespace pod node schedulerName profile state message nodes feasible groups moreGroups "
        "rules moreRules suggestions scores recorded notes group member unserved nodeGone incomplete"
    ),
    explanation.RefusedMember: "namespace pod domain placed",
    explanation.Incomplete: "pods needed workload replicas",
    explanation.NodeGroup: "plugin reason where nodes examples removable nowhere misspelt",
    explanation.Rule: (
        "kind declaredBy topologyKey selects namespaces nodes pods pending skew domains moreDomains text share"
    ),
    Share: "pods percent weights ofMinimum declaringTakes",
    Skew: "maxSkew minDomains domains fewest countsItself",
    explanation.DomainCount: "domain nodes pods most allowed",
    explanation.Pods: "total shown",
    explanation.PodRef: "namespace name node domain",
    explanation.Suggestion: "changes node texts",
    RemovePod: "namespace pod node uid terminating",
    RunPod: "namespace labels node",
    AddRoom: "node resource amount",
    TolerateTaint: "key value effect",
    RemoveTaint: "node key value effect",
    Uncordon: "node",
    LabelNode: "node key value",
    LabelNamespace: "namespace key value",
    AllowSkew: "topologyKey maxSkew",
    AddMatchLabelKey: "field topologyKey labelKey",
    RecreateWithMatchLabelKey: "topologyKey labelKey pods",
    TolerateDeviceTaint: "namespace claim request key value effect",
    DropDeviceConstraint: "namespace claim attribute",
    RankedNode: "node total scores",
    DecisionRecord: "v evaluated feasible top rejected relaxed evicted",
    Simulation: (
        "apiVersion kind manifestKind namespace name replicas placed zones nodes moreNodes next notes evicted victims "
        "moreGroups running"
    ),
    ZoneShare: "zone nodes pods",
    NodeShare: "node zone pods",
}


@pytest.mark.parametrize(("part", "fields"), FIELDS.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_the_fields_of_each_part_keep_their_names(part: type[msgspec.Struct], fields: str) -> None:
    """Scripts read them."""
    assert [field.encode_name for field in msgspec.structs.fields(part)] == fields.split()


def test_a_whole_explanation() -> None:
    """One complete example."""
    cluster = Cluster(zoned("a1 a2"), [web("one", "a2")])
    answer: Any = as_json(cluster.explain(web("p", affinity=alone_per_zone())))
    one = {"namespace": "default", "name": "one", "node": "a2", "domain": "a"}
    assert answer == {
        "apiVersion": "affinity-scheduler.io/v1",
        "kind": "Explanation",
        "namespace": "default",
        "pod": "p",
        "node": "",
        "schedulerName": "default-scheduler",
        "profile": "affinity-scheduler",
        "state": "unschedulable",
        "message": "0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules. "
        + no_victims(2),
        "nodes": 2,
        "feasible": 0,
        "groups": [
            {
                "plugin": "InterPodAffinity",
                "reason": "node(s) didn't match pod anti-affinity rules",
                "where": f"{build.ZONE}=a",
                "nodes": 2,
                "examples": ["a1", "a2"],
                "removable": True,
                "nowhere": False,
                "misspelt": False,
            }
        ],
        "moreGroups": 0,
        "rules": [
            {
                "kind": "requiredAntiAffinity",
                "declaredBy": None,
                "topologyKey": build.ZONE,
                "selects": "app=web",
                "namespaces": "namespace default",
                "nodes": 2,
                "pods": {"total": 1, "shown": [one]},
                "pending": {"total": 0, "shown": []},
                "skew": None,
                "domains": [{"domain": "a", "nodes": 2, "pods": 1, "most": 0, "allowed": False}],
                "moreDomains": 0,
                "text": f"The pod's anti-affinity: not beside pods with app=web in namespace default, by {build.ZONE}; "
                "closes 2 nodes",
                "share": None,
            }
        ],
        "moreRules": 0,
        "suggestions": [
            {
                "changes": [
                    {
                        "change": "removePod",
                        "namespace": "default",
                        "pod": "one",
                        "node": "a2",
                        "uid": "uid-default-one",
                        "terminating": False,
                    }
                ],
                "node": answer["suggestions"][0]["node"],
                "texts": ["pod default/one leaves node a2"],
            }
        ],
        "scores": [],
        "recorded": None,
        "notes": [],
        "group": "",
        "member": None,
        "unserved": "",
        "nodeGone": False,
        "incomplete": None,
    }
    assert answer["suggestions"][0]["node"] in ("a1", "a2")


def test_scores_of_a_bound_pod_add_up_and_start_with_its_node() -> None:
    """Weighted scores by plugin; the best other nodes follow."""
    nodes = [build.node(f"n{i}", allocatable={"cpu": str(2 + i)}) for i in range(4)]
    pod = build.pod("p", node="n0", cpu="1")
    answer = Cluster(nodes, [pod]).explain(pod)
    assert [ranked.node for ranked in answer.scores] == ["n0", "n3", "n2", "n1"]
    assert [ranked.total for ranked in answer.scores] == [sum(r.scores.values()) for r in answer.scores]
    assert answer.n_feasible == 4


def test_a_bound_pod_that_no_longer_fits_its_node_has_the_reasons() -> None:
    """The taint was added after the pod was bound."""
    pod = build.pod("p", node="a")
    answer = Cluster([build.node("a", taints=["x:NoSchedule"]), build.node("b")], [pod]).explain(pod)
    assert (answer.state, answer.node, answer.message) == (
        "bound",
        "a",
        "runs on a, where it does not fit now",
    )
    assert answer.notes == ("TaintToleration: node(s) had untolerated taint(s)",)
    assert answer.is_ok


@pytest.mark.parametrize(
    ("status", "since"),
    [({}, "it never started"), ({"startTime": "2026-01-01T00:00:00Z"}, "its node is gone")],
)
def test_a_pod_bound_to_a_node_that_does_not_exist_says_so(status: build.Json, since: str) -> None:
    pod = build.pod("p", node="gone")
    pod["status"] = {**pod.get("status", {}), **status}
    answer = Cluster([build.node("a")], [pod]).explain(pod)
    assert (answer.state, answer.message) == ("bound", f"bound to gone, which does not exist: {since}")
    assert answer.node_gone
    assert not answer.is_ok


def test_a_bound_pod_that_fits_no_node_now_says_so() -> None:
    """It still runs, so the exit code is 0."""
    pod = build.pod("p", node="a")
    answer = Cluster([build.node("a", taints=["x:NoSchedule"])], [pod]).explain(pod)
    assert answer.message.startswith("runs on a; it fits on no node now: 0/1 nodes are available:")
    assert answer.is_ok
