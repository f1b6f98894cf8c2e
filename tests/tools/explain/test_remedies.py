"""The remedy that people use comes first: a field of the workload, a name spelt right, an annotation that is gone."""

from __future__ import annotations

import random
from itertools import chain
from typing import Any

import pytest

from scheduler.tools.explain.formats.explanation import Explanation
from scheduler.tools.explain.formats.manifests import parse_manifest
from scheduler.tools.explain.scenarios import simulate_manifests
from tests.support import build
from tests.support.build import Json, container
from tests.support.cases.volume_rows import using
from tests.support.driving import NAME
from tests.support.json_cluster import (
    Cluster,
    alone_per_zone,
    as_json,
    changes,
    groups,
    loaded,
    zoned,
)
from tests.support.storage_objects import claim, storage_class, volume
from tests.support.workloads import workload
from tests.tools.explain.test_against_scheduler import bound_node


def texts(answer: Explanation) -> list[tuple[str, ...]]:
    return [suggestion.texts for suggestion in answer.suggestions]


def test_no_proposal_takes_away_a_replica_of_the_simulation() -> None:
    """The first two replicas run only in thought: the pod that runs is to leave, or the node to grow."""
    node = build.node("n", allocatable={"cpu": "3", "pods": "9"})
    cluster = loaded(node, build.pod("zz", node="n", cpu="1"))
    pod = build.pod(labels={"app": "web"}, cpu="1", spec={"schedulerName": NAME})
    document = workload("Deployment", "web", pod, 3)
    manifest = parse_manifest(document, namespace="default", semantics=cluster.settings.semantics)
    (simulation,) = simulate_manifests(cluster, [manifest], None, random.Random(1))
    assert simulation.n_placed == 2
    assert simulation.next is not None
    assert texts(simulation.next) == [("pod default/zz leaves node n",), ("node n has 1 more cpu",)]


def test_no_node_grows_to_a_size_that_none_has() -> None:
    nodes = [build.node(name, allocatable={"cpu": cpu}) for name, cpu in (("a", "4"), ("b", "3500m"))]
    answer = Cluster(nodes).explain(build.pod("p", cpu="64"))
    assert groups(answer) == [(2, "NodeResourcesFit", "needs 64 cpu, the largest node has 4")]
    assert texts(answer) == []


def test_a_resource_spelt_nearly_like_one_is_not_added_to_nodes() -> None:
    nodes = [build.node("a", allocatable={"cpu": "4", "nvidia.com/gpu": "1"}), build.node("b")]
    answer = Cluster(nodes).explain(build.pod("p", containers=[container(requests={"nvidia.com/gpus": "1"})]))
    meant = "no node has the resource nvidia.com/gpus; did you mean nvidia.com/gpu?"
    assert groups(answer) == [(2, "NodeResourcesFit", meant)]
    assert texts(answer) == []


ZONE_TYPO = "topolgy.kubernetes.io/zone"
MEANT = f"did you mean {build.ZONE}?"


@pytest.mark.parametrize(
    ("spec", "plugin", "where"),
    [
        (
            {"node_selector": {build.ZONE: "zone-aa"}},
            "NodeAffinity",
            f"needs {build.ZONE}=zone-aa (no node has it, but a, b)",
        ),
        (
            {"node_selector": {ZONE_TYPO: "a"}},
            "NodeAffinity",
            f"needs {ZONE_TYPO}=a (no node has the label {ZONE_TYPO}; {MEANT})",
        ),
        (
            {"spread": [build.spread(ZONE_TYPO, build.selector("app=web"), max_skew=1)]},
            "PodTopologySpread",
            f"no label {ZONE_TYPO}; {MEANT}",
        ),
        (
            {"affinity": build.affinity(required=[build.term(ZONE_TYPO, build.selector("app=db"))])},
            "InterPodAffinity",
            f"no label {ZONE_TYPO}; {MEANT}",
        ),
    ],
    ids=["zone", "node selector", "spread", "affinity"],
)
def test_a_name_that_no_node_has_is_set_beside_those_that_there_are(
    spec: dict[str, Any], plugin: str, where: str
) -> None:
    """No node is to be labelled with the typo."""
    running = [build.pod("db", node="b1", labels={"app": "db"})]
    answer = Cluster(zoned("a1 b1"), running).explain(build.pod("p", labels={"app": "web"}, **spec))
    assert groups(answer) == [(2, plugin, where)]
    assert texts(answer) == []


def of_revision(number: int, name: str, node: str | None = None, **more: Any) -> Json:
    """Return a pod of the Deployment web."""
    labels = {"app": "web", "pod-template-hash": f"{number}"}
    return build.pod(
        name, node=node, labels=labels, owner=build.owned_by("ReplicaSet", f"web-{number}"), **more
    )


def test_of_a_rollout_that_has_no_room_for_a_surge_the_strategy_is_to_change() -> None:
    """Three replicas, one in each of three zones; which old pod is the first to leave is the controller's matter."""
    old = [of_revision(1, f"old-{zone}", f"{zone}1", affinity=alone_per_zone()) for zone in "abc"]
    cluster = Cluster(zoned("a1 b1 c1"), old)
    pod = of_revision(2, "new", affinity=alone_per_zone())
    answer = cluster.explain(pod)
    keyed = f"the pod's podAntiAffinity with topologyKey {build.ZONE} has matchLabelKeys: [pod-template-hash]"
    assert texts(answer)[0] == ("Deployment default/web rolls out with maxSurge: 0, maxUnavailable: 1",)
    assert [each[0] for each in texts(answer)[1:]] == [keyed]
    helped(cluster, pod, answer)


@pytest.mark.parametrize(
    ("deleted", "leaves"),
    [(False, []), (True, [("pod default/r-a leaves node a1 (it is terminating already)",)])],
)
def test_a_replica_does_not_leave_for_another_of_its_controller(deleted: bool, leaves: list[object]) -> None:
    """Its controller would make one like it in its place, and has done so for one that is being deleted."""
    running = [of_revision(1, f"r-{zone}", f"{zone}1", affinity=alone_per_zone()) for zone in "abc"]
    if deleted:
        running[0]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    answer = Cluster(zoned("a1 b1 c1"), running).explain(of_revision(1, "new", affinity=alone_per_zone()))
    assert [each for each in texts(answer) if "leave" in each[0]] == leaves


def helped(cluster: Cluster, pod: Json, answer: Explanation) -> None:
    """Make the changes of each suggestion on the API objects, and see that a machine binds the pod."""
    for suggestion in as_json(answer)["suggestions"]:
        assert bound_node(*cluster.changed(suggestion["changes"], pod)) is not None, suggestion["texts"]


def test_what_would_help_more_replicas_is_no_change_that_all_of_them_share() -> None:
    """With matchLabelKeys, all replicas of a Deployment are of one revision again: no more of them fit."""
    running = [of_revision(1, f"old-{zone}", f"{zone}1", affinity=alone_per_zone()) for zone in "ab"]
    cluster, pod = Cluster(zoned("a1 b1"), running), of_revision(2, "new", affinity=alone_per_zone())
    shared = {"AddMatchLabelKey", "RecreateWithMatchLabelKey", "RollOutInPlace"}
    assert shared <= set(chain(*changes(cluster.explain(pod))))
    asked = changes(cluster.explain(pod, adds_replicas=True))
    assert asked
    assert shared.isdisjoint(chain(*asked))


@pytest.mark.parametrize("field", ["nodeTaintsPolicy", "nodeAffinityPolicy"])
def test_a_domain_where_the_pod_never_goes_is_not_to_count(field: str) -> None:
    """The control plane is empty, so that no other node may have a second pod."""
    of_control_plane: Json = (
        {"taints": ["node-role.kubernetes.io/control-plane:NoSchedule"]}
        if field == "nodeTaintsPolicy"
        else {}
    )
    nodes = [
        build.node("control", labels={"role": "control"}, **of_control_plane),
        *(build.node(name, labels={"role": "worker"}) for name in ("w1", "w2")),
    ]
    running = [build.pod(f"on-{name}", node=name, labels={"app": "web"}) for name in ("w1", "w2")]
    spread = {**build.spread(build.HOSTNAME, build.selector("app=web"), max_skew=1), field: "Ignore"}
    pod = build.pod("p", labels={"app": "web"}, spread=[spread], node_selector={"role": "worker"})
    if field == "nodeTaintsPolicy":
        del pod["spec"]["nodeSelector"]
    cluster = Cluster(nodes, running)
    answer = cluster.explain(pod)
    assert texts(answer)[0] == (f"the pod's spread by {build.HOSTNAME} has {field}: Honor",)
    helped(cluster, pod, answer)


def test_a_claim_whose_selected_node_is_gone_is_to_lose_the_annotation() -> None:
    cluster = Cluster(zoned("a1 b1"), storage=[storage_class("s"), claim("c", "s", node="gone")])
    pod = using("c")
    answer = cluster.explain(pod)
    where = "claim c: its volume is to be on node gone, which is gone"
    assert groups(answer) == [(2, "VolumeBinding", where)]
    assert texts(answer) == [("claim c is without the annotation volume.kubernetes.io/selected-node",)]
    (suggestion,) = as_json(answer)["suggestions"]
    after, _ = cluster.changed(suggestion["changes"], pod)
    assert after.explain(pod).state == "schedulable"


def test_a_volume_that_no_node_reaches_says_so() -> None:
    terms = [build.node_term(f"{build.HOSTNAME} in gone")]
    storage = [volume("v", terms=terms, claimed_by="default/c"), claim("c", volume="v")]
    (group,) = Cluster(zoned("a1 b1"), storage=storage).explain(using("c")).groups
    assert group.where == (f"claim c: volume v is reached from {build.HOSTNAME}=gone, of which none is left")
