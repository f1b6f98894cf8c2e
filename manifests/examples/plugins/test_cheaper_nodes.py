"""CheaperNodes does what it says, and keeps the plugin contract."""

from affinity_scheduler.testing import Cluster, PluginTests, make_node, make_pod
from cheaper_nodes import INSTANCE_TYPE, PRICE, CheaperNodes, CheaperNodesArgs


def test_the_cheapest_node_scores_100_and_the_dearest_0() -> None:
    """By annotation, by instance type, or by the default; what is no price counts as none."""
    args = CheaperNodesArgs(price_by_instance_type={"large": 0.4}, otherwise=0.5)
    cluster = Cluster(plugins=[CheaperNodes], args={"CheaperNodes": args}, alone=True)
    cluster.add(
        make_node("annotated", annotations={PRICE: "0.10"}, labels={INSTANCE_TYPE: "large"}),
        make_node("by-type", labels={INSTANCE_TYPE: "large"}),
        make_node("unknown"),
        make_node("no-number", annotations={PRICE: "nan"}),
    )
    scores = {node: by["CheaperNodes"] for node, by in cluster.decide(make_pod()).scores.items()}
    assert scores == {"annotated": 100, "by-type": 25, "unknown": 0, "no-number": 0}


def test_nodes_of_one_price_score_alike() -> None:
    """There is nothing to prefer."""
    cluster = Cluster(plugins=[CheaperNodes], alone=True).add(make_node("a"), make_node("b"))
    scores = cluster.decide(make_pod()).scores
    assert {by["CheaperNodes"] for by in scores.values()} == {100}


class TestCheaperNodes(PluginTests):
    """What every plugin is put through."""

    plugin = CheaperNodes
    args = CheaperNodesArgs(price_by_instance_type={"large": 0.4})
    node_labels = {INSTANCE_TYPE: ("large", "small")}
    node_annotations = {PRICE: ("0.1", "0.25", "7", "cheap")}
