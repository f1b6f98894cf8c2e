"""Which nodes a term about names matches; for labels see the rows of `tests.support.cases`."""

from __future__ import annotations

import json

import pytest

from scheduler.engine.model.nodes import decode_node
from scheduler.engine.model.terms import NodeRequirement, NodeTerm
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.cluster_view import ClusterView
from tests.support import build


@pytest.fixture
def view() -> ClusterView:
    state = ClusterState()
    for name in "abcd":
        state.nodes.upsert(decode_node(json.dumps(build.node(name)).encode()))
    return ClusterView(state)


@pytest.mark.parametrize(
    ("operator", "values", "names"),
    [
        ("In", ("b",), "b"),
        ("NotIn", ("b",), "acd"),
        ("In", ("gone",), ""),
        ("NotIn", ("gone",), "abcd"),
        ("In", (), ""),
    ],
)
def test_a_rule_about_names_matches_by_its_operator(
    view: ClusterView, operator: str, values: tuple[str, ...], names: str
) -> None:
    """Alone it is computed each time: thousands of pods may each name a node of their own."""
    term = NodeTerm((), (NodeRequirement("metadata.name", operator, values),))
    for mask in (view.matching_names(term), view.matching_term(term)):
        assert "".join(name for name, row in view.nodes.row_by_name.items() if mask[row]) == names
