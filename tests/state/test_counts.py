"""Counts equal a recount, whatever happens: random lives of a cluster, and the columns' own arithmetic."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from scheduler.model.instructions import Bind, Instruction
from scheduler.model.pods import Pod
from scheduler.model.stimuli import BindDone, BindFailed, CycleDue, NamespaceGone, PodSeen, SweepDue
from scheduler.state.audit import differences
from scheduler.state.columns import LabelColumn
from scheduler.state.row_counts import RowCounts
from scheduler.state.row_log import RowLog
from tests.support import build
from tests.support.driving import Driver

NODES = ("a", "b", "c", "d")
NAMESPACES = ("one", "two")
APPS = ("x", "y")
ZONES = ("z1", "z2")

own = st.sampled_from(APPS).map(lambda app: build.selector(f"app={app}"))
rules = st.sampled_from(
    [None, {}, build.selector("team=t"), build.selector("!team"), build.selector("team notin t")]
)
terms = st.builds(
    lambda key, selects, namespaces: build.term(key, selects, namespace_selector=namespaces),
    st.sampled_from([build.HOSTNAME, build.ZONE]),
    own,
    rules,
)
weighted = st.tuples(st.integers(1, 100), terms)
affinities = st.one_of(
    st.none(),
    st.builds(
        lambda near, far, liked, disliked: build.affinity(
            required=near, anti_required=far, preferred=liked, anti_preferred=disliked
        ),
        st.lists(terms, max_size=1),
        st.lists(terms, max_size=2),
        st.lists(weighted, max_size=1),
        st.lists(weighted, max_size=1),
    ),
)
spreads: st.SearchStrategy[list[build.Json]] = st.one_of(
    st.just([]),
    st.builds(
        lambda key, selects, soft: [build.spread(key, selects, soft=soft)],
        st.sampled_from([build.HOSTNAME, build.ZONE]),
        own,
        st.booleans(),
    ),
)


class Lives(RuleBasedStateMachine):
    """Pods, nodes and namespaces come, change and go; binds succeed, fail and are overtaken."""

    @initialize()
    def start(self) -> None:
        self.driver = Driver()
        self.known: dict[str, Pod] = {}
        self.ordered: dict[str, Bind] = {}
        self.n_names = 0

    @rule(name=st.sampled_from(NODES), zone=st.one_of(st.none(), st.sampled_from(ZONES)), small=st.booleans())
    def see_node(self, name: str, zone: str | None, small: bool) -> None:
        room = {"cpu": "1", "pods": "2"} if small else {}
        self.driver.node(name, labels={build.ZONE: zone} if zone else {}, allocatable=room)

    @rule(name=st.sampled_from(NODES))
    def lose_node(self, name: str) -> None:
        self.driver.lose_node(name)

    @rule(name=st.sampled_from(NAMESPACES), team=st.sampled_from(["", "t", "u"]))
    def see_namespace(self, name: str, team: str) -> None:
        self.driver.namespace(name, **({"team": team} if team else {}))

    @rule(name=st.sampled_from(NAMESPACES))
    def lose_namespace(self, name: str) -> None:
        self.driver.handle(NamespaceGone(name))

    @rule(
        namespace=st.sampled_from(NAMESPACES),
        app=st.sampled_from(APPS),
        node=st.one_of(st.none(), st.sampled_from(NODES)),
        affinity=affinities,
        spread=spreads,
        terminating=st.booleans(),
    )
    def see_pod(self, namespace, app, node, affinity, spread, terminating) -> None:
        self.n_names += 1
        pod = self.driver.pod(
            f"p{self.n_names}",
            namespace=namespace,
            labels={"app": app},
            node=node,
            affinity=affinity,
            spread=spread,
            terminating=terminating,
            containers=[build.container(requests={"cpu": "300m"}, host_ports=["80"] if app == "y" else [])],
        )
        self.known[pod.uid] = pod

    @rule(data=st.data(), app=st.sampled_from(APPS), terminating=st.booleans())
    def change_pod(self, data, app, terminating) -> None:
        if self.known:
            uid = data.draw(st.sampled_from(sorted(self.known)))
            old = self.known[uid]
            version = self.driver.next_version()
            new = replace(
                old,
                labels={"app": app},
                terminating=old.terminating or terminating,
                resource_version=version,
            )
            self.known[uid] = new
            self.driver.handle(PodSeen(new))

    @rule(data=st.data())
    def lose_pod(self, data) -> None:
        if self.known:
            uid = data.draw(st.sampled_from(sorted(self.known)))
            self.driver.lose(self.known.pop(uid))

    @rule(times=st.integers(1, 4))
    def cycle(self, times: int) -> None:
        for _ in range(times):
            told: list[Instruction] = self.driver.handle(CycleDue())
            for order in told:
                if isinstance(order, Bind):
                    assert order.pod.uid not in self.ordered, "bound twice"
                    self.ordered[order.pod.uid] = order

    @rule(data=st.data(), outcome=st.sampled_from(["done", "failed", "seen first", "elsewhere"]))
    def answer(self, data, outcome: str) -> None:
        if not self.ordered:
            return
        uid = data.draw(st.sampled_from(sorted(self.ordered)))
        order = self.ordered.pop(uid)
        version = self.driver.next_version()
        if outcome == "failed":
            self.driver.handle(BindFailed(uid, "no"))
            return
        node = "d" if outcome == "elsewhere" else order.node_name
        if outcome == "done":
            self.driver.handle(BindDone(uid))
        if uid in self.known:
            bound = replace(self.known[uid], node_name=node, resource_version=version)
            self.known[uid] = bound
            self.driver.handle(PodSeen(bound))
        if outcome in ("seen first", "elsewhere"):
            self.driver.handle(BindFailed(uid, "conflict") if outcome == "elsewhere" else BindDone(uid))

    @rule(seconds=st.sampled_from([0.5, 3.0, 30.0, 400.0]))
    def pass_time(self, seconds: float) -> None:
        self.driver.pass_time(seconds)

    @rule()
    def sweep(self) -> None:
        self.driver.handle(SweepDue())

    @invariant()
    def counts_equal_a_recount(self) -> None:
        if hasattr(self, "driver"):
            assert differences(self.driver.state) == []
            assert self.driver.state.n_assumed == sum(p.assumed for p in self.driver.state.placed.values())

    @invariant()
    def every_placed_pod_is_known_or_assumed(self) -> None:
        if hasattr(self, "driver"):
            assert set(self.driver.state.placed) <= set(self.known) | set(self.ordered)


Lives.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestLives = Lives.TestCase


def test_a_column_gives_equal_values_one_domain_and_forgets_vanished_ones() -> None:
    """Ids of values that no node has any more are given out again: relabelling for ever costs nothing."""
    column = LabelColumn("zone", 4)
    for number in range(1000):
        column.set(0, f"v{number}")
    assert (column.n_ids, column.n_domains) == (3, 1)
    column.set(1, "v999")
    assert column.ids[0] == column.ids[1] != 0
    assert [column.is_unique] == [False]
    column.set(1, None)
    assert [column.is_unique] == [True]
    assert column.ids.tolist()[:2] == [column.id_by_value["v999"], 0]


@pytest.mark.parametrize("dense", [pytest.param(False, id="sparse"), pytest.param(True, id="dense")])
def test_counts_per_node_are_sums_over_the_domain(dense: bool) -> None:
    """Nodes without the label hold no domain, and their pods count in none."""
    column = LabelColumn("zone", 4)
    for row, value in enumerate(("a", "b", "a", None)):
        column.set(row, value)
    counts = RowCounts()
    if dense:
        counts.rows(4)
    for row, pods in enumerate((1, 2, 3, 4)):
        for _ in range(pods):
            counts.add(row, 1)
    assert counts.per_node(column, 4).tolist() == [4, 2, 4, 0]
    counts.add(1, -1)
    assert counts.per_node(column, 4).tolist() == [4, 1, 4, 0]
    column.set(3, "b")
    assert counts.per_node(column, 4).tolist() == [4, 5, 4, 5]
    assert counts.total == 9
    assert dict(counts.items()) == {0: 1, 1: 1, 2: 3, 3: 4}


N_ROWS = 6
VALUES = st.sampled_from((None, "", "a", "b"))


@given(labels=st.lists(VALUES, max_size=N_ROWS), later=st.lists(st.tuples(st.integers(0, N_ROWS), VALUES)))
def test_a_column_of_values_is_the_one_that_was_told_them_in_turn(
    labels: list[str | None], later: list[tuple[int, str | None]]
) -> None:
    """And stays so, whatever labels change later."""
    made, told = LabelColumn.of("zone", labels, N_ROWS), LabelColumn("zone", N_ROWS)
    for row, value in enumerate(labels):
        told.set(row, value)
    for row, value in [(0, None), *later]:
        for column in (made, told):
            column.set(row, value)
        assert made.ids.tolist() == told.ids.tolist()
        assert made.id_by_value == told.id_by_value
        assert {made.value_of(domain): domain for domain in made.domains().tolist()} == made.id_by_value
        assert made.domains().tolist() == told.domains().tolist()
        assert (made.n_ids, made.n_labelled, made.is_unique) == (told.n_ids, told.n_labelled, told.is_unique)


@settings(deadline=None)
@given(
    labels=st.lists(VALUES, min_size=N_ROWS, max_size=N_ROWS),
    masks=st.lists(st.lists(st.booleans(), min_size=N_ROWS, max_size=N_ROWS), min_size=1, max_size=6),
    steps=st.lists(st.tuples(st.integers(0, N_ROWS), st.one_of(VALUES, st.integers(-1, 20))), max_size=12),
)
def test_sums_over_domains_follow_pods_and_labels(
    labels: list[str | None], masks: list[list[bool]], steps: list[tuple[int, str | int | None]]
) -> None:
    """
    Asked over and over through the same masks and through none, they are what adding up anew gives.

    So is who reaches a threshold. A step brings so many pods to a row or takes one, one of them beyond the nodes, or
    gives a row another label.
    """
    column, counts = LabelColumn("zone", N_ROWS), RowCounts()
    for row, value in enumerate(labels):
        column.set(row, value)
    arrays = [None, *(np.array(mask) for mask in masks)]
    pods = [0] * N_ROWS
    for row, step in [(0, 1), *steps]:
        if isinstance(step, int):
            step = max(step, -counts.at(row))
            for _ in range(abs(step)):
                counts.add(row, 1 if step > 0 else -1)
            pods[row : row + 1] = [n + step for n in pods[row : row + 1]]
        elif row < N_ROWS:
            column.set(row, step)
            labels[row] = step
        for array in arrays:
            found = counts.per_domain(column, N_ROWS, array)
            among = [True] * N_ROWS if array is None else array.tolist()
            expected: dict[int, int] = {}
            for value, n, counted in zip(labels, pods, among, strict=True):
                if counted and value is not None:
                    domain = column.id_by_value[value]
                    expected[domain] = expected.get(domain, 0) + n
            assert found.domains.tolist() == sorted(expected)
            assert found.totals.tolist() == [expected.get(domain, 0) for domain in range(column.n_ids)]
            assert found.fewest() == min(expected.values(), default=0)
            for least in (1, 2, 15):
                reached = counts.reached(column, least, N_ROWS, array)
                in_domain = [value is not None and column.id_by_value[value] for value in labels]
                assert reached.mask.tolist() == [
                    bool(domain) and expected.get(domain, 0) >= least for domain in in_domain
                ]
                assert reached.below.tolist() == [not reaches for reaches in reached.mask.tolist()]
                assert reached.n == sum(reached.mask.tolist())


@settings(deadline=None)
@given(
    labels=st.lists(VALUES, min_size=N_ROWS, max_size=N_ROWS),
    steps=st.lists(
        st.tuples(
            st.integers(0, N_ROWS),
            st.one_of(VALUES, st.sampled_from((1, 1, -1, 3, 20))),
            st.lists(st.integers(1, 3), max_size=2),
            st.sampled_from((0, 0, 0, 1)),
        ),
        max_size=16,
    ),
)
def test_who_reaches_a_threshold_follows_pods_and_labels(
    labels: list[str | None], steps: list[tuple[int, str | int | None, list[int], int]]
) -> None:
    """
    Of every node, and whether anybody does.

    A step brings so many pods to a row, takes one away, or gives a row another label, and asks for some thresholds or
    none; the last row is past the nodes until a node comes.
    """
    column, counts = LabelColumn("zone", N_ROWS + 1), RowCounts()
    labels = [*labels, None]
    for row, value in enumerate(labels):
        column.set(row, value)
    pods, n_rows = [0] * (N_ROWS + 1), N_ROWS
    for row, step, thresholds, n_new in [*steps, (0, None, [1, 2, 3], 0)]:
        n_rows = min(N_ROWS + 1, n_rows + n_new)
        if isinstance(step, int):
            step = max(step, -pods[row])
            for _ in range(abs(step)):
                counts.add(row, 1 if step > 0 else -1)
            pods[row] += step
        elif row < n_rows:
            column.set(row, step)
            labels[row] = step
        in_domain = [
            sum(pods[other] for other in range(n_rows) if labels[other] == labels[row])
            for row in range(n_rows)
        ]
        for least in thresholds:
            expected = [labels[row] is not None and in_domain[row] >= least for row in range(n_rows)]
            reached = counts.reached(column, least, n_rows)
            assert (reached.mask.tolist(), reached.n) == (expected, sum(expected))
            assert reached.below.tolist() == [not reaches for reaches in expected]


def test_counts_grow_with_the_rows() -> None:
    """A row past the end of the dense array is a node that came later."""
    counts = RowCounts()
    assert counts.rows(2).tolist() == [0, 0]
    counts.add(500, 1)
    assert counts.rows(501)[500] == 1
    assert np.count_nonzero(counts.rows(600)) == 1


def test_a_row_log_knows_what_changed_until_it_is_too_much() -> None:
    """A reader that fell far behind computes all rows."""
    log = RowLog()
    log.note(3)
    seen = log.version
    assert log.since(seen) == []
    log.note(5)
    log.note(3)
    assert log.since(seen) == [5, 3]
    for _ in range(2000):
        log.note(1)
    assert log.since(seen) is None
    assert log.since(log.version - 2) == [1, 1]


def test_taint_lists_that_no_node_has_any_more_are_forgotten() -> None:
    """Autoscalers put a time into their taints; a year of them must not be remembered, and scores stay right."""
    driver = Driver()
    driver.node("plain")
    for number in range(1000):
        driver.node("busy", taints=[f"deletion={number}:PreferNoSchedule"])
        if number % 250 == 0:
            driver.pod(f"p{number}")
            (bind,) = [i for i in driver.handle(CycleDue()) if isinstance(i, Bind)]
            assert bind.node_name == "plain"
    assert len(driver.state.nodes.taint_sets) < 100


def test_nodes_in_the_same_domains_are_the_same_answer() -> None:
    """Until a label moves or a node comes, and for the last few sets of domains."""
    column = LabelColumn.of("zone", ["a", "b", None, "a"], 4)
    only_a = np.array([False, True, False])
    found = column.parted(only_a, 4)
    assert (found.mask.tolist(), found.n) == ([True, False, False, True], 2)
    assert found.below.tolist() == [False, True, True, False]
    assert column.parted(only_a.copy(), 4) is found
    assert column.parted(only_a, 3).mask.tolist() == [True, False, False]
    column.set(2, "a")
    assert column.parted(only_a, 4).mask.tolist() == [True, False, True, True]


def test_no_more_sets_of_domains_are_kept_than_the_bound() -> None:
    """Racks that fill up one after the other never come again."""
    column = LabelColumn.of("rack", [f"r{number}" for number in range(100)], 100)
    for number in range(1, 101):
        domains = np.arange(101) == number
        assert column.parted(domains, 100).mask.nonzero()[0].tolist() == [number - 1]
    assert len(column._parted) == 8
