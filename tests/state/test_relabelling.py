"""A pod that keeps its node and its terms and changes its labels moves only what selects the one or the other."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.model.labels import NOTHING, Requirement, Selector
from scheduler.model.pods import Pod, PodDecoder
from scheduler.state.audit import differences
from scheduler.state.cluster import ClusterState
from scheduler.state.matching import NamespaceRule, PodMatcher
from scheduler.state.row_counts import RowCounts
from tests.support import build

DEFAULT = NamespaceRule(frozenset({"default"}), NOTHING)
ANNOTATION = "affinity-scheduler.io/affinity"
KEYS = ("app", "zone", "tier")
VALUES = ("a", "b")

labels = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))
requirements = st.builds(
    Requirement,
    st.sampled_from(KEYS),
    st.sampled_from(("In", "NotIn", "Exists", "DoesNotExist")),
    st.sampled_from([("a",), ("b",), ("a", "b")]),
).map(lambda one: one if one.operator in ("In", "NotIn") else one._replace(values=()))
matchers = st.lists(requirements, max_size=2).map(
    lambda some: PodMatcher(((DEFAULT, Selector(tuple(some))),))
)
readers = st.sampled_from(("all", "live"))


def _pod(name: str, its: dict[str, str], *, terminating: bool, limit: int = 1) -> Pod:
    affinity = build.affinity(anti_required=[build.term("zone", build.selector("app=a"))])
    document = build.pod(name, labels=its, node="n", affinity=affinity, terminating=terminating)
    if limit > 1:
        term = {**build.term("zone", build.selector("app=a")), "maxPodsPerDomain": limit}
        asked = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        document["metadata"]["annotations"] = {ANNOTATION: json.dumps(asked)}
    return PodDecoder().decode(json.dumps(document).encode())


def _counts(state: ClusterState, matcher: PodMatcher, reader: str) -> RowCounts:
    """As affinity reads them, or as spread does."""
    selections = state.selections
    return selections.counted(matcher) if reader == "all" else selections.counted_live(matcher)


@settings(deadline=None)
@given(
    asked=st.lists(st.tuples(matchers, readers), max_size=6),
    asked_later=st.lists(st.tuples(matchers, readers), max_size=6),
    was=labels,
    turns=st.lists(labels, min_size=1, max_size=3),
    terminating=st.booleans(),
)
def test_counts_equal_a_recount_after_every_change_of_labels(
    asked: list[tuple[PodMatcher, str]],
    asked_later: list[tuple[PodMatcher, str]],
    was: dict[str, str],
    turns: list[dict[str, str]],
    terminating: bool,
) -> None:
    """Among others on the node, for every question that was asked before and for those that nobody has asked."""
    state = ClusterState()
    state.upsert_pod(_pod("other", was, terminating=False))
    pod = _pod("p", was, terminating=terminating)
    state.upsert_pod(pod)
    for matcher, reader in asked:
        _counts(state, matcher, reader)
    for now in turns:
        pod = replace(pod, labels=now)
        state.upsert_pod(pod)
        assert differences(state) == []
        for matcher, reader in asked if now is not turns[-1] else [*asked, *asked_later]:
            n_others = matcher.matches("default", was, None)
            n_mine = matcher.matches("default", now, None)
            expected = {"all": n_others + n_mine, "live": n_others + (n_mine and not terminating)}
            assert _counts(state, matcher, reader).total == expected[reader]


def test_a_bind_that_adds_a_label_moves_no_counts_but_of_who_reads_it() -> None:
    """So with the topology labels that the API server adds to every pod (PodTopologyLabelsAdmission)."""
    state = ClusterState()
    pod = replace(_pod("p", {"app": "a"}, terminating=False), node_name="")
    by_app = state.selections.counted(PodMatcher(((DEFAULT, Selector((Requirement("app", "In", ("a",)),))),)))
    zoned = state.selections.counted(PodMatcher(((DEFAULT, Selector((Requirement("zone", "Exists", ()),))),)))
    state.assume(replace(pod, node_name="n"), "n")
    before = (by_app.version, zoned.version, state.nodes.moved.version)
    state.upsert_pod(replace(pod, node_name="n", labels={"app": "a", "zone": "z"}))
    told = (before[0], before[1] + 1, before[2] + 1)
    assert (by_app.version, zoned.version, state.nodes.moved.version) == told
    state.upsert_pod(replace(pod, node_name="n", labels={"app": "a", "zone": "z", "rack": "r"}))
    assert (by_app.version, zoned.version, state.nodes.moved.version) == told
    assert (by_app.total, zoned.total, state.n_assumed) == (1, 1, 0)


@pytest.mark.parametrize("limit", [1, 3])
def test_whom_limits_count_follows_the_labels(limit: int) -> None:
    state = ClusterState()
    pod = _pod("p", {"app": "a"}, terminating=False, limit=limit)
    state.upsert_pod(pod)
    assert state.declared.has_any_limits() is (limit > 1)
    state.upsert_pod(replace(pod, labels={"app": "b"}))
    assert differences(state) == []
