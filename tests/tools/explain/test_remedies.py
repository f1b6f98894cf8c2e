"""The remedy that people use comes first: a field of the workload, a name spelt right, an annotation that is gone."""

from __future__ import annotations

import random
from typing import Any

import pytest

from scheduler.cli.simulate import simulate_manifests
from scheduler.daemon.settings.loading import default_settings
from scheduler.engine.model.nodes import decode_node
from scheduler.engine.model.stimuli import NodeSeen, PodSeen
from scheduler.tools.explain.formats.explanation import Explanation
from scheduler.tools.explain.formats.manifests import parse_manifest
from scheduler.tools.explain.simulation.loaded_cluster import LoadedCluster
from tests.support import build
from tests.support.build import container
from tests.support.driving import NAME
from tests.support.json_cluster import Cluster, decoded, encoded, groups, zoned


def texts(answer: Explanation) -> list[tuple[str, ...]]:
    return [suggestion.texts for suggestion in answer.suggestions]


def test_no_proposal_takes_away_a_replica_of_the_simulation() -> None:
    """The first two replicas run only in thought: the pod that runs is to leave, or the node to grow."""
    cluster = LoadedCluster(default_settings())
    cluster.apply(NodeSeen(decode_node(encoded(build.node("n", allocatable={"cpu": "3", "pods": "9"})))))
    cpu = [container(requests={"cpu": "1"})]
    cluster.apply(PodSeen(decoded(build.pod("zz", node="n", containers=cpu))))
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"schedulerName": NAME, "containers": cpu}}
    document = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    }
    manifest = parse_manifest(document, namespace="default", semantics=cluster.settings.semantics)
    (simulation,) = simulate_manifests(cluster, [manifest], None, random.Random(1))
    assert simulation.n_placed == 2
    assert simulation.next is not None
    assert texts(simulation.next) == [("pod default/zz leaves node n",), ("node n has 1 more cpu",)]


def test_no_node_grows_to_a_size_that_none_has() -> None:
    nodes = [build.node(name, allocatable={"cpu": cpu}) for name, cpu in (("a", "4"), ("b", "3500m"))]
    answer = Cluster(nodes).explain(build.pod("p", containers=[container(requests={"cpu": "64"})]))
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
