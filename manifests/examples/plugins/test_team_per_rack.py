"""TeamPerRack does what it says, and keeps the plugin contract."""

from affinity_scheduler.testing import Cluster, PluginTests, make_node, make_pod
from team_per_rack import TeamPerRack, TeamPerRackArgs

RACK = "example.com/rack"
FULL = "node(s) had enough pods of the team in their rack"


def two_racks(n_pods: int) -> Cluster:
    """Return two racks, the first with `n_pods` pods of team blue, and a node without a rack."""
    cluster = Cluster(plugins=[TeamPerRack], args={"TeamPerRack": TeamPerRackArgs(most=2)})
    cluster.add(make_node("a1", labels={RACK: "a"}), make_node("a2", labels={RACK: "a"}))
    cluster.add(make_node("b1", labels={RACK: "b"}), make_node("elsewhere"))
    return cluster.add(
        *(make_pod(f"p{i}", labels={"team": "blue"}, node=f"a{i % 2 + 1}") for i in range(n_pods))
    )


def test_the_nodes_of_a_full_rack_are_refused() -> None:
    """The whole rack is full, not only the node; nodes without a rack have no limit."""
    decision = two_racks(2).decide(make_pod("new", labels={"team": "blue"}))
    assert decision.refused == {"a1": FULL, "a2": FULL}
    assert set(decision.feasible) == {"b1", "elsewhere"}


def test_a_rack_with_room_is_not_refused() -> None:
    """One pod is fewer than two."""
    assert two_racks(1).decide(make_pod("new", labels={"team": "blue"})).refused == {}


def test_other_teams_and_pods_without_a_team_are_not_counted() -> None:
    """Nor are they refused."""
    for labels in ({"team": "red"}, {}):
        assert two_racks(5).decide(make_pod("new", labels=labels)).refused == {}


def test_a_simulation_stops_where_both_racks_are_full() -> None:
    """Two racks take two pods each."""
    cluster = Cluster(plugins=[TeamPerRack], args={"TeamPerRack": {"most": 2}})
    cluster.add(make_node("a1", labels={RACK: "a"}), make_node("b1", labels={RACK: "b"}))
    simulated = cluster.simulate(make_pod("new", labels={"team": "blue"}), replicas=5)
    assert sorted(simulated.nodes) == ["a1", "a1", "b1", "b1"]
    assert str(simulated).startswith(f"4 of 5 replicas fit; 0/2 nodes are available: 2 {FULL}.")


class TestTeamPerRack(PluginTests):
    """What every plugin is put through."""

    plugin = TeamPerRack
    args = TeamPerRackArgs(most=2)
    pods = (
        make_pod("blue", labels={"team": "blue"}),
        make_pod("red", labels={"team": "red"}),
        make_pod("none"),
    )
    node_labels = {RACK: ("a", "b", "c")}
