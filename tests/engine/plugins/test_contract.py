"""Every plugin keeps the framework's contract, on random clusters."""

import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.engine.framework.interface import FeasibleNodes, PodContext
from scheduler.engine.framework.status import Skip, Status
from scheduler.engine.model.terms import NodeTerm, RequiredNodeAffinity
from scheduler.engine.plugins.node_affinity import rule_matches
from tests.conformance.product import LiveCluster, ProductSubject
from tests.engine.plugins.lives import BEGINNINGS, CHANGES, NODE_TERMS, NODES, Applied, Deleted, pods
from tests.support.build import Json


@settings(max_examples=30, deadline=None)
@given(
    beginning=BEGINNINGS,
    changes=st.lists(CHANGES, max_size=6),
    incoming=pods(placed=False),
    chosen=st.integers(min_value=1),
)
def test_scores_of_feasible_nodes_are_from_0_to_100_whatever_is_feasible(
    beginning: list[Applied], changes: list[Applied | Deleted], incoming: Json, chosen: int
):
    subject = ProductSubject(None)
    for change in (*beginning, *changes):
        change.tell(subject)
    view, pod = subject.cluster.view(), subject.cluster.pod(incoming)
    context = PodContext(pod, view.label_set(pod))
    drawn = np.array([bool(chosen >> row & 1) for row in range(view.n_rows)], dtype=np.bool_)
    feasible = FeasibleNodes(view.alive & drawn)
    if not feasible.n:
        return
    for weighted in subject.profile.scorers:
        scorer = weighted.plugin.prescore(context, view, feasible)
        if isinstance(scorer, Skip):
            continue
        assert not isinstance(scorer, Status), weighted.plugin.name
        scores = scorer.normalized(scorer.raw())
        assert scores.shape == (view.n_rows,), weighted.plugin.name
        assert scores.dtype == np.int16, weighted.plugin.name
        assert 0 <= feasible.lowest(scores) <= feasible.highest(scores) <= 100, weighted.plugin.name


@settings(max_examples=50, deadline=None)
@given(
    applied=st.lists(NODES, min_size=1, max_size=5),
    terms=st.lists(st.sampled_from(NODE_TERMS), max_size=3),
    zone=st.sampled_from((None, "a", "b")),
)
def test_the_waking_hint_reads_node_rules_as_the_filter_does(
    applied: list[Json], terms: list[Json], zone: str | None
):
    cluster = LiveCluster()
    for obj in applied:
        cluster.apply(obj)
    pairs = None if zone is None else (("topology.kubernetes.io/zone", zone),)
    rule = RequiredNodeAffinity(
        pairs,
        tuple(msgspec.convert(term, NodeTerm) for term in terms) if terms else None,
    )
    matching = cluster.view().matching(rule)
    for row, node in enumerate(cluster.state.nodes.nodes):
        assert node is not None
        assert rule_matches(rule, node) is bool(matching[row])
