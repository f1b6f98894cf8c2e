"""The JSON of explanations is stable."""

from __future__ import annotations

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
from tests.support.json_cluster import Cluster

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
    assert [field.encode_name for field in msgspec.structs.fields(part)] == fields.split()


def test_scores_of_a_bound_pod_add_up_and_start_with_its_node() -> None:
    nodes = [build.node(f"n{i}", allocatable={"cpu": str(2 + i)}) for i in range(4)]
    pod = build.pod("p", node="n0", cpu="1")
    answer = Cluster(nodes, [pod]).explain(pod)
    assert [ranked.node for ranked in answer.scores] == ["n0", "n3", "n2", "n1"]
    assert [ranked.total for ranked in answer.scores] == [sum(r.scores.values()) for r in answer.scores]
    assert answer.n_feasible == 4
