"""The remedy that people use comes first: a field of the workload, a name spelt right, an annotation that is gone."""

from __future__ import annotations

import random

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
from tests.support.json_cluster import decoded, encoded


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
