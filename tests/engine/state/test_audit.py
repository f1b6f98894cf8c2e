"""The audit in pieces finds what is wrong, and nothing if all is right."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from itertools import count, islice

import numpy as np
import pytest

from scheduler.engine.model.pod_groups import GROUP, MIN_COUNT, GroupKey, GroupKind
from scheduler.engine.model.stimuli import SweepDue
from scheduler.engine.state.audit import Audit, differences
from scheduler.engine.state.cluster import ClusterState, PlacedPod
from scheduler.engine.state.cluster_view import OutOfTreeKey
from scheduler.engine.state.label_sets import LabelSet
from scheduler.engine.state.matching import NamespaceRule, PodMatcher
from scheduler.engine.syntax.selectors import EVERYTHING, Requirement, Selector
from tests.conformance.product import ProductSubject
from tests.support import build, storage_objects
from tests.support.cases.volume_rows import using
from tests.support.driving import Driver, bind_of

APP_A = PodMatcher(((NamespaceRule(frozenset(), EVERYTHING), Selector((Requirement("app", "In", ("a",)),))),))
MEMBER = {"app": "c", GROUP: "train", MIN_COUNT: "3"}
AWAY = build.affinity(anti_required=[build.term(build.HOSTNAME, build.selector("app=a"))])


def driven() -> Driver:
    """Return two nodes, pods with anti-affinity to each other, and one that is terminating."""
    driver = Driver()
    driver.namespace("default")
    for name in ("n1", "n2"):
        driver.node(name, labels={build.ZONE: name})
    for name in ("p1", "p2"):
        pod = driver.pod(name, labels={"app": "a"}, affinity=AWAY)
        driver.confirm(pod, bind_of(driver.cycle()).node_name)
    ports = [build.container(host_ports=["8080"])]
    driver.pod("old", labels={"app": "b"}, node="n1", terminating=True, containers=ports)
    driver.pod("member", labels=MEMBER, node="n2")
    driver.pod("ending", labels=MEMBER, node="n2", terminating=True)
    driver.pod("sibling", labels=MEMBER)
    return driver


def pieces_of(audit: Audit) -> Iterator[list[str]]:
    """Yield the differences of each piece of a whole round."""
    audit.step()
    this_round = audit._round
    while audit._round is this_round:
        yield audit.step()


def round_of(state: ClusterState) -> list[str]:
    """Return the differences of a whole round, in pieces of one comparison each."""
    return [line for lines in pieces_of(Audit(state, pods_per_piece=1)) for line in lines]


def test_a_piece_looks_at_few_pods_however_many_there_are() -> None:
    driver = Driver()
    for number in range(40):
        driver.node(f"n{number}")
    for number in range(400):
        driver.pod(f"p{number}", labels={"app": "a"}, affinity=AWAY, node=f"n{number % 40}")
    looked_at = [0]
    original = driver.state.placed_on

    def placed_on(row: int) -> Collection[PlacedPod]:
        looked_at[-1] += 1
        return original(row)

    driver.state.placed_on = placed_on  # type: ignore[method-assign]  # counts, and answers as before
    for lines in pieces_of(Audit(driver.state, pods_per_piece=20)):
        assert lines == []
        looked_at.append(0)
    assert len(looked_at) > 50
    assert max(looked_at) <= 45, "the first one looks at every row"


def test_a_piece_looks_at_few_nodes_without_pods() -> None:
    """One of them costs as much as several pods."""
    driver = Driver()
    for number in range(400):
        driver.node(f"n{number}")
    pieces = list(pieces_of(Audit(driver.state, pods_per_piece=100)))
    assert not any(pieces)
    assert len(pieces) >= 20


def test_a_piece_looks_at_few_members_of_groups() -> None:
    driver = Driver()
    for number in range(200):
        driver.pod(f"p{number}", labels={**MEMBER, GROUP: f"group-{number % 20}"})
    pieces = list(pieces_of(Audit(driver.state, pods_per_piece=20)))
    assert not any(pieces)
    assert len(pieces) >= 10


def test_a_piece_tries_few_label_sets_and_terms_however_many_there_are() -> None:
    """Three thousand label sets and a selector of no value; pods of a hundred terms each."""
    driver = driven()
    for number in range(3000):
        driver.pod(f"p{number}", labels={"job": f"{number}"}, node="n1")
    for number in range(20):
        terms = [build.term(build.HOSTNAME, build.selector(f"app={number}-{one}")) for one in range(100)]
        driver.pod(f"far-{number}", node=f"n{number % 2}", affinity=build.affinity(anti_required=terms))
    has_job = PodMatcher(
        ((NamespaceRule(frozenset(), EVERYTHING), Selector((Requirement("job", "Exists"),))),)
    )
    assert driver.state.counts.selected(has_job).by_row.sum() == 3000
    tried, n_terms = [0], [0]
    matches, placed_on = driver.state.label_sets.matches, driver.state.placed_on

    def counted_matches(matcher: PodMatcher, label_set: LabelSet) -> bool:
        tried[-1] += 1
        return matches(matcher, label_set)

    def counted_placed_on(row: int) -> Collection[PlacedPod]:
        n_terms[-1] += 1
        return placed_on(row)

    driver.state.label_sets.matches = counted_matches  # type: ignore[method-assign]
    driver.state.placed_on = counted_placed_on  # type: ignore[method-assign]
    for lines in pieces_of(Audit(driver.state, pods_per_piece=100)):
        assert lines == []
        tried.append(0)
        n_terms.append(0)
    assert sum(tried) > 3000
    assert max(tried) <= 500
    assert sum(n_terms) > 2000
    assert max(n_terms) <= 100


def test_a_matcher_of_many_terms_is_tried_on_few_label_sets_at_once() -> None:
    """A hundred terms that all match: a label set takes a hundred times as long as with one."""
    driver = Driver()
    driver.node("n1")
    for number in range(40):
        driver.pod(f"p{number}", labels={"app": "a", "job": f"{number}"}, node="n1")
    rule = NamespaceRule(frozenset(), EVERYTHING)
    absent = (Requirement(f"no-{number}", "DoesNotExist") for number in range(100))
    of_all = PodMatcher(tuple((rule, Selector((Requirement("app", "Exists"), each))) for each in absent))
    assert driver.state.counts.selected(of_all).by_row.sum() == 40
    tried = [0]
    matches = driver.state.label_sets.matches

    def counted_matches(matcher: PodMatcher, label_set: LabelSet) -> bool:
        tried[-1] += 1
        return matches(matcher, label_set)

    driver.state.label_sets.matches = counted_matches  # type: ignore[method-assign]
    for lines in pieces_of(Audit(driver.state, pods_per_piece=1)):
        assert lines == []
        tried.append(0)
    assert sum(tried) == 40
    assert max(tried) == 5


def test_nothing_differs_while_everything_changes() -> None:
    chance, driver = random.Random(1), driven()
    audit = Audit(driver.state, pods_per_piece=100)
    pods = []
    for number in range(300):
        app = f"app-{chance.randrange(40)}"
        away = build.affinity(anti_required=[build.term(build.HOSTNAME, build.selector(f"app={app}"))])
        pods.append(driver.pod(f"x{number}", labels={"app": app}, affinity=away))
        for order in driver.cycle():
            if order.__class__.__name__ == "Bind":
                driver.confirm(pods[-1], bind_of([order]).node_name)
        if chance.random() < 0.6:
            driver.lose(pods.pop(chance.randrange(len(pods))))
        if number % 10 == 0:
            driver.handle(SweepDue())
        assert audit.step() == []
    driver.audit()


def test_nothing_differs_whenever_a_pod_leaves_during_a_round() -> None:
    """Its node and its term, which another pod declares too, were listed before it left."""
    for n_before in count():
        driver = driven()
        pieces = pieces_of(Audit(driver.state, pods_per_piece=1))
        before = list(islice(pieces, n_before))
        if len(before) < n_before:
            break
        driver.lose(next(one.pod for one in driver.state.placed.values() if one.pod.name == "p2"))
        assert not any([*before, *pieces])
    assert n_before > 10


def _a_pod_too_many(state: ClusterState) -> None:
    state.nodes._pod_count.own[0] += 1


def _a_port_that_nobody_holds(state: ClusterState) -> None:
    state.nodes._ports["TCP", 8080][1] = {"0.0.0.0": 1}


def _room_that_nobody_takes(state: ClusterState) -> None:
    state.nodes._requested.own[state.nodes._resource_id["ephemeral-storage"], 0] += 1


def _a_pod_under_another_label_set(state: ClusterState) -> None:
    placed = next(iter(state.placed.values()))
    other = next(one for one in state.label_sets if one is not placed.label_set)
    state.pods.recount(placed.slot, other.number, live=True)


def _a_pod_on_another_row(state: ClusterState) -> None:
    placed = next(one for one in state.placed.values() if one.pod.name == "old")
    state.pods._row[placed.slot] = 1 - placed.row


def _a_live_pod_that_is_taken_for_terminating(state: ClusterState) -> None:
    placed = next(one for one in state.placed.values() if one.pod.name == "p1")
    state.pods._live[placed.slot] = False


def _a_count_that_missed_a_pod(state: ClusterState) -> None:
    state.counts.selected(APP_A)._own[0] += 1


def _a_count_that_missed_a_live_pod(state: ClusterState) -> None:
    state.counts.selected(APP_A, live_only=True)._own[0] += 1


def _a_count_that_missed_a_pod_after_a_value_that_is_not_ours(state: ClusterState) -> None:
    state.derived.get(OutOfTreeKey("plugin", "key"), lambda: np.zeros(2))
    state.counts.selected(APP_A)._own[0] += 1


def _a_label_set_lost(state: ClusterState) -> None:
    state.counts.selected(APP_A)
    state.label_sets._by_pair.clear()


def _a_declared_term_that_lost_its_pod(state: ClusterState) -> None:
    # Sums of terms are not compared with what was true before a restart.
    state.log.restart()
    next(iter(state.terms)).pods_by_row = {}


def _a_declared_term_twice(state: ClusterState) -> None:
    next(iter(state.terms)).pods_by_row[0] += 1


def _a_sum_of_terms_that_missed_a_pod(state: ClusterState) -> None:
    label_set = state.label_sets.of("default", {"app": "a"})
    state.counts.term_sums("test", label_set, lambda _: 1).own(
        build.HOSTNAME, state.nodes.column(build.HOSTNAME), 1
    ).add(0, 1)


def _a_sum_of_terms_lost(state: ClusterState) -> None:
    label_set = state.label_sets.of("default", {"app": "a"})
    state.counts.term_sums("test", label_set, lambda _: 1).by_key.clear()


def _a_count_of_declaring_pods_that_missed_one(state: ClusterState) -> None:
    counts = state.counts.declaring(next(iter(state.terms)))
    assert isinstance(counts.base, np.ndarray)
    counts.base[0] += 1


def _a_pod_that_forgot_its_terms(state: ClusterState) -> None:
    placed = next(one for one in state.placed.values() if one.terms)
    state.terms.remove(placed.terms, placed.row)
    placed.terms = ()


def _a_member_on_a_node_lost(state: ClusterState) -> None:
    state.groups.displace(next(one.pod for one in state.placed.values() if one.pod.group))


def _a_member_that_left(state: ClusterState) -> None:
    member = next(one.pod for one in state.placed.values() if one.pod.group)
    state.groups.place(replace(member, uid="left"))


def _a_member_that_ends_lost(state: ClusterState) -> None:
    state.groups.displace(next(state.groups.ending()))


def _a_member_that_has_ended(state: ClusterState) -> None:
    state.groups.place(replace(next(state.groups.ending()), uid="left"))


def _a_member_that_waits_though_it_is_bound(state: ClusterState) -> None:
    state.groups.add_pending(next(one.pod for one in state.placed.values() if one.pod.group))


def _a_group_without_members(state: ClusterState) -> None:
    state.groups.note_whole(GroupKey(GroupKind.OWN, "default", "gone"), 1)


DAMAGES: list[Callable[[ClusterState], None]] = [
    _a_pod_too_many,
    _a_port_that_nobody_holds,
    _room_that_nobody_takes,
    _a_pod_under_another_label_set,
    _a_pod_on_another_row,
    _a_live_pod_that_is_taken_for_terminating,
    _a_count_that_missed_a_pod,
    _a_count_that_missed_a_live_pod,
    _a_count_that_missed_a_pod_after_a_value_that_is_not_ours,
    _a_label_set_lost,
    _a_declared_term_that_lost_its_pod,
    _a_declared_term_twice,
    _a_sum_of_terms_that_missed_a_pod,
    _a_sum_of_terms_lost,
    _a_count_of_declaring_pods_that_missed_one,
    _a_pod_that_forgot_its_terms,
    _a_member_on_a_node_lost,
    _a_member_that_left,
    _a_member_that_ends_lost,
    _a_member_that_has_ended,
    _a_member_that_waits_though_it_is_bound,
    _a_group_without_members,
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__.strip("_").replace("_", " "))
def test_every_kind_of_damage_is_found_at_once_and_within_a_round(
    damage: Callable[[ClusterState], None],
) -> None:
    state = driven().state
    assert round_of(state) == differences(state) == []
    damage(state)
    assert differences(state)
    assert round_of(state)


def test_amounts_that_are_clamped_are_no_difference() -> None:
    """Of a resource with a column and of one without; a node holds what is written on it, however much."""
    driver = Driver()
    driver.node("n1")
    huge = {"memory": "9223372036854775807", "cpu": "9000P", "example.com/none": "9223372036854775807"}
    for name in ("p1", "p2", "p3"):
        driver.pod(name, node="n1", containers=[build.container(requests=huge)])
    assert differences(driver.state) == []


def test_an_audit_between_two_decisions_leaves_the_room_for_volumes_right() -> None:
    """A driver's map of volumes appears with its first volume: what was kept before must not be patched from none."""
    subject = ProductSubject(None)
    made = (
        build.node("n"),
        storage_objects.csi_node("n", d=3),
        storage_objects.claim("c", volume="v"),
        storage_objects.volume("v", claimed_by="default/c"),
    )
    for one in made:
        subject.apply(one)
    view = subject.cluster.view()
    assert view.volume_room("d").tolist() == [3]
    subject.apply(using("c", on="n"))
    assert subject.differences() == []
    assert view.volume_room("d").tolist() == [2]
