"""A pod for which plugins name nodes: what it is told if none is left, in upstream's words."""

from __future__ import annotations

import pytest

from scheduler.engine.core.decide import _diagnosed, _no_node_left, _nodes_to_filter
from scheduler.engine.core.node_scores import FilterResult
from scheduler.engine.state.cluster_view import ClusterView
from tests.support.driving import Driver


@pytest.mark.parametrize(
    ("plugins", "message"),
    [
        (("Mine",), "node(s) didn't satisfy plugin Mine"),
        (("Mine", "Also"), "node(s) didn't satisfy plugin(s) [Also Mine] simultaneously"),
    ],
)
def test_the_plugins_that_leave_no_node_are_named(plugins: tuple[str, ...], message: str) -> None:
    assert _no_node_left(dict.fromkeys(plugins, frozenset())).message == message


def test_a_node_that_is_not_named_counts_for_all_plugins_that_name_nodes() -> None:
    cluster = Driver()
    for name in ("n", "m", "o"):
        cluster.node(name)
    view = ClusterView(cluster.state)
    filtered = FilterResult(node_names={"Mine": frozenset({"n"}), "Also": frozenset({"n", "m"})})
    error = _diagnosed(view, filtered, _nodes_to_filter(view, filtered), view.alive)
    assert error.message() == "0/3 nodes are available: 2 node(s) didn't satisfy plugin(s) [Also Mine]."
    assert error.rejecting == {"Also", "Mine"}
