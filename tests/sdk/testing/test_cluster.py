"""The cluster in memory answers as the scheduler and its commands do."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scheduler.errors import SettingsError
from scheduler.sdk.plugin import NodeByNode, NodeView, Pod
from scheduler.sdk.testing import Cluster, make_node, make_pod
from scheduler.tools.explain.formats.recording_file import recorded_fields
from tests.support.messages import refusals
from tests.support.snapshots import header
from tests.support.workloads import workload

PLUGINS = Path(__file__).parents[3] / "manifests" / "examples" / "plugins"
ZONE = "topology.kubernetes.io/zone"
PRICE = "example.com/price-per-hour"


class Cheap(NodeByNode):
    """Refuses nodes without a price."""

    name = "Cheap"
    reason = "node(s) had no price"
    node_annotations = (PRICE,)

    def fits(self, pod: Pod, node: NodeView) -> bool:
        return PRICE in node.annotations

    def score(self, pod: Pod, node: NodeView) -> int:
        return 100 - int(node.annotations.get(PRICE, "0"))


def _objects() -> list[dict[str, Any]]:
    return [
        make_node("a", labels={ZONE: "z1"}, annotations={PRICE: "20"}),
        make_node("b", labels={ZONE: "z2"}, annotations={PRICE: "70"}),
        make_node("c", labels={ZONE: "z2"}),
        make_pod("web-1", namespace="shop", labels={"app": "web"}, node="a"),
        make_pod("web-2", namespace="shop", labels={"app": "web"}),
    ]


@pytest.fixture(params=["added", "read from a snapshot"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Cluster:
    """Return three nodes, one without a price, from objects or from the file that `snapshot` makes of them."""
    if request.param == "added":
        return Cluster(plugins=[Cheap], alone=True).add(*_objects())
    sections: dict[str, list[Any]] = {"nodes": [], "pods": []}
    for one in _objects():
        stored = {**one, "metadata": {"uid": one["metadata"]["name"], **one["metadata"]}}
        sections[f"{one['kind'].lower()}s"].append(recorded_fields(one["kind"], stored, {PRICE}))
    file = tmp_path / "snap.json.gz"
    file.write_bytes(gzip.compress(json.dumps({**header(), **sections}).encode()))
    return Cluster.from_snapshot(file, plugins=[Cheap], alone=True)


def test_a_decision_has_the_nodes_the_reasons_and_the_points(cluster: Cluster):
    decision = cluster.decide("shop/web-2")
    assert (decision.node, decision.feasible, decision.message) == ("a", ("a", "b"), "")
    assert (decision.refused, decision.refused_by) == ({"c": "node(s) had no price"}, {"c": "Cheap"})
    assert (decision.scores, decision.totals) == (
        {"a": {"Cheap": 80}, "b": {"Cheap": 30}},
        {"a": 80, "b": 30},
    )


def test_a_pod_that_runs_is_decided_as_if_it_did_not(cluster: Cluster):
    before = cluster.pods.rows
    assert cluster.decide("shop/web-1").node == "a"
    assert (cluster.pods.rows, cluster.differences) == (before, [])


def test_the_explanation_is_that_of_the_command(cluster: Cluster):
    explained = cluster.explain("shop/web-2")
    assert explained.explanation.message == "fits on 2 of 3 nodes; a would be chosen now"
    assert str(explained).startswith("Pod shop/web-2 can be scheduled")
    assert str(cluster.explain("shop/web-1")).startswith("Pod shop/web-1 is bound")


def test_a_simulation_places_replicas_and_changes_nothing(cluster: Cluster):
    before = cluster.nodes.rows
    simulated = cluster.simulate(make_pod("new"), replicas=3)
    assert (simulated.nodes, simulated.next) == (("a", "a", "a"), None)
    assert simulated.table.rows == [{"node": "a", "zone": "z1", "replicas": 3}]
    assert cluster.simulate("shop/web-2", replicas=2).nodes == ("a", "a")
    assert cluster.nodes.rows == before


def test_a_deployment_is_simulated_with_its_own_replicas(cluster: Cluster):
    deployment = workload("Deployment", "x", make_pod(labels={"app": "x"}), 2)
    assert str(cluster.simulate(deployment)) == "2 of 2 replicas fit"


def test_tables_are_rows_and_text(cluster: Cluster):
    assert [(row["node"], row["zone"], row["pods"]) for row in cluster.nodes] == [
        ("a", "z1", 1),
        ("b", "z2", 0),
        ("c", "z2", 0),
    ]
    assert [(row["pod"], row["node"]) for row in cluster.pods] == [("web-1", "a"), ("web-2", "")]
    assert str(cluster.decide("shop/web-2").table).splitlines() == [
        "NODE  TOTAL  CHEAP  REFUSED_BY  REASON",
        "a     80     80",
        "b     30     30",
        "c                   Cheap       node(s) had no price",
    ]


def test_a_table_gives_pandas_its_rows(cluster: Cluster, monkeypatch: pytest.MonkeyPatch):
    """pandas itself is not among the dependencies."""
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="frame\\(\\) needs pandas: pip install pandas"):
        cluster.nodes.frame()
    monkeypatch.setitem(
        sys.modules, "pandas", SimpleNamespace(DataFrame=lambda rows, columns: (columns, rows))
    )
    columns, rows = cluster.nodes.frame()
    assert columns[0] == "node"
    assert [row["node"] for row in rows] == ["a", "b", "c"]


def test_the_built_in_plugins_run_too_unless_told_otherwise():
    cluster = Cluster(plugins=[Cheap]).add(
        *_objects(), make_node("d", annotations={PRICE: "1"}, unschedulable=True)
    )
    decision = cluster.decide(make_pod())
    assert decision.refused["d"] == "node(s) were unschedulable"
    assert {"Cheap", "NodeResourcesFit", "InterPodAffinity"} >= decision.scores["a"].keys() & {"Cheap"}
    assert len(decision.weights) > 3


def test_files_folders_and_configurations_are_taken_as_run_takes_them():
    cluster = Cluster(plugins=[PLUGINS], config=PLUGINS / "configuration.yaml")
    cluster.add(make_node("a", labels={"example.com/rack": "r"}))
    cluster.add(*(make_pod(f"p{i}", labels={"team": "x"}, node="a") for i in range(2)))
    refused = cluster.decide(make_pod(labels={"team": "x"}, scheduler="own-rules"))
    assert (
        refusals(refused.message)
        == "0/1 nodes are available: 1 node(s) had enough pods of the team in their rack."
    )
    assert cluster.decide(make_pod(labels={"team": "x"})).node == "a"


def test_mistakes_are_told_as_at_the_start_of_the_scheduler():
    with pytest.raises(SettingsError, match=r"args\.mots: found an unknown field"):
        Cluster(plugins=[PLUGINS / "team_per_rack.py"], args={"TeamPerRack": {"mots": 3}})
    with pytest.raises(ValueError, match="found kind 'Gadget', expected one of Node, Namespace, Pod"):
        Cluster().add({"kind": "Gadget", "metadata": {"name": "g"}})
    with pytest.raises(KeyError, match="there is no pod default/nobody"):
        Cluster().decide("nobody")


def test_objects_that_go_and_change_count_no_more():
    cluster = Cluster(plugins=[Cheap], alone=True).add(*_objects())
    cluster.remove_pod("web-1", "shop")
    cluster.remove_node("b")
    cluster.add(make_node("a"))
    assert cluster.decide("shop/web-2").refused.keys() == {"a", "c"}
    assert cluster.differences == []
    with pytest.raises(KeyError):
        cluster.remove_node("b")


def test_another_annotation_is_another_price_at_once():
    """Also in what rules keep for all nodes."""
    cluster = Cluster(plugins=[PLUGINS / "cheaper_nodes.py", Cheap], alone=True).add(*_objects())
    pod = make_pod()
    assert cluster.decide(pod).scores["a"] == {"CheaperNodes": 100, "Cheap": 80}
    cluster.add(make_node("a", labels={ZONE: "z1"}, annotations={PRICE: "90", "example.com/other": "x"}))
    assert cluster.decide(pod).scores["a"] == {"CheaperNodes": 0, "Cheap": 10}
    assert cluster.differences == []
