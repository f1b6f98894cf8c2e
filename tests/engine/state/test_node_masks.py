"""Which nodes a term about labels and names matches."""

from __future__ import annotations

import json

import pytest

from scheduler.engine.model.nodes import decode_node
from scheduler.engine.model.terms import NodeRequirement, NodeTerm
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.cluster_view import ClusterView
from tests.support import build

LABELS = {"a": {"n": "3"}, "b": {"n": "7", "x": "y"}, "c": {"n": "many"}, "d": {}}


@pytest.fixture
def view() -> ClusterView:
    state = ClusterState()
    for name, labels in LABELS.items():
        state.upsert_node(decode_node(json.dumps(build.node(name, labels=labels)).encode()))
    return ClusterView(state)


@pytest.mark.parametrize(
    ("requirement", "names"),
    [
        (NodeRequirement("n", "In", ("3", "many", "9")), "ac"),
        (NodeRequirement("n", "In", ()), ""),
        (NodeRequirement("n", "NotIn", ("3",)), "bcd"),
        (NodeRequirement("x", "Exists", ()), "b"),
        (NodeRequirement("x", "DoesNotExist", ()), "acd"),
        (NodeRequirement("n", "Gt", ("3",)), "b"),
        (NodeRequirement("n", "Lt", ("7",)), "a"),
        (NodeRequirement("n", "Lt", ("few",)), ""),
        (NodeRequirement("none", "Gt", ("3",)), ""),
    ],
    ids=str,
)
def test_an_expression_about_labels_matches_by_its_operator(
    view: ClusterView, requirement: NodeRequirement, names: str
) -> None:
    for other in ((), (NodeRequirement("metadata.name", "NotIn", ("z",)),)):
        mask = view.matching_term(NodeTerm((requirement,), other))
        assert "".join(name for name, row in view.nodes.row_by_name.items() if mask[row]) == names


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


@pytest.mark.parametrize(
    "term",
    [NodeTerm((), ()), NodeTerm((NodeRequirement("n", "Is", ("3",)),), ())],
    ids=["empty", "with a problem"],
)
def test_a_term_that_asks_for_nothing_or_does_not_parse_matches_no_node(
    view: ClusterView, term: NodeTerm
) -> None:
    assert not view.matching_term(term).any()
