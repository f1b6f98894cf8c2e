"""NewestNodesLast does what it says, and keeps the plugin contract."""

from affinity_scheduler.testing import Cluster, PluginTests, make_node, make_pod
from newest_nodes_last import NewestNodesLast


def test_the_oldest_node_scores_100_and_the_newest_0() -> None:
    """Scores go by rank: how long ago a node came makes no difference."""
    cluster = Cluster(plugins=[NewestNodesLast], alone=True)
    for name, year in (("new", 2026), ("old", 2019), ("newer", 2025)):
        cluster.add(make_node(name, created=f"{year}-06-01T00:00:00Z"))
    scores = {node: by["NewestNodesLast"] for node, by in cluster.decide(make_pod()).scores.items()}
    assert scores == {"old": 100, "newer": 50, "new": 0}


class TestNewestNodesLast(PluginTests):
    """What every plugin is put through."""

    plugin = NewestNodesLast
