"""The recount in pieces finds what is wrong, and nothing where all is right."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection

import pytest

from scheduler.model.stimuli import SweepDue
from scheduler.state.cluster import ClusterState, PlacedPod
from scheduler.state.recounting import Recount
from tests.support import build
from tests.support.driving import Driver, bind_of

AWAY = build.affinity(anti_required=[build.term(build.HOSTNAME, build.selector("app=a"))])


def driven() -> Driver:
    """Two nodes, pods that keep away from each other, and one that is terminating."""
    driver = Driver()
    driver.namespace("default")
    for name in ("n1", "n2"):
        driver.node(name, labels={build.ZONE: name})
    for name in ("p1", "p2"):
        pod = driver.pod(name, labels={"app": "a"}, affinity=AWAY)
        driver.confirm(pod, bind_of(driver.cycle()).node_name)
    ports = [build.container(host_ports=["8080"])]
    driver.pod("old", labels={"app": "b"}, node="n1", terminating=True, containers=ports)
    return driver


def round_of(recount: Recount, state: ClusterState) -> list[str]:
    """What a whole round and more find, in pieces of one comparison or little more each."""
    n_kept = len(list(state.selections.selections())) * (state.nodes.n_rows + 1) + 20 * len(state.placed)
    return [text for _ in range(n_kept + 20) for text in recount.step()]


def test_a_piece_looks_at_few_pods_however_many_there_are() -> None:
    """Comparisons are counted by what they yield: of 400 pods on 40 nodes no piece makes more than a few."""
    driver = Driver()
    for number in range(40):
        driver.node(f"n{number}")
    for number in range(400):
        driver.pod(f"p{number}", labels={"app": "a"}, affinity=AWAY, node=f"n{number % 40}")
    recount = Recount(driver.state, at_once=20)
    recount.step()
    this_round = recount._round
    looked_at: list[int] = []
    original = driver.state.placed_on

    def placed_on(row: int) -> Collection[PlacedPod]:
        looked_at[-1] += 1
        return original(row)

    driver.state.placed_on = placed_on  # type: ignore[method-assign]  # counts, and answers as before
    while recount._round is this_round:
        looked_at.append(0)
        assert recount.step() == []
    assert len(looked_at) > 50
    assert max(looked_at) <= 45, "the first one looks at every row"


def test_a_piece_looks_at_few_nodes_that_have_no_pods() -> None:
    """One of them takes as long as several pods do."""
    driver = Driver()
    for number in range(400):
        driver.node(f"n{number}")
    recount = Recount(driver.state, at_once=100)
    recount.step()
    this_round = recount._round
    n_pieces = 0
    while recount._round is this_round:
        assert recount.step() == []
        n_pieces += 1
    assert n_pieces >= 20


def test_nothing_differs_while_everything_moves() -> None:
    """Pods come, go and end between pieces; selections are swept away under the recount's feet."""
    chance, driver = random.Random(1), driven()
    recount = Recount(driver.state, at_once=100)
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
        assert recount.step() == []
    driver.audit()


def _a_pod_too_many(state: ClusterState) -> None:
    state.nodes.pod_count[0] += 1


def _a_port_that_nobody_holds(state: ClusterState) -> None:
    state.nodes.ports["TCP", 8080][1] = {"0.0.0.0": 1}


def _room_that_nobody_takes(state: ClusterState) -> None:
    requested = state.nodes.requested("ephemeral-storage")
    assert requested is not None
    requested[0] += 1


def _a_label_set_elsewhere(state: ClusterState) -> None:
    label_set = next(one for one in state.selections.label_sets() if one.rows)
    label_set.rows[1] = label_set.rows.get(1, 0) + 1


def _a_selection_that_missed_a_pod(state: ClusterState) -> None:
    selection = next(one for one in state.selections.selections() if one.counts is not None)
    assert selection.counts is not None
    selection.counts.add(0, 1)


def _a_selection_that_missed_a_live_pod(state: ClusterState) -> None:
    selection = next(one for one in state.selections.selections())
    state.selections.counted_live(selection.matcher).add(0, 1)


def _a_label_set_lost(state: ClusterState) -> None:
    selection = next(one for one in state.selections.selections() if one.label_sets)
    selection.label_sets.clear()


def _a_declared_term_twice(state: ClusterState) -> None:
    next(iter(state.declared.all().values())).counts.add(0, 1)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(_a_pod_too_many, id="node"),
        pytest.param(_a_port_that_nobody_holds, id="host port"),
        pytest.param(_room_that_nobody_takes, id="resource"),
        pytest.param(_a_label_set_elsewhere, id="label set"),
        pytest.param(_a_selection_that_missed_a_pod, id="selection"),
        pytest.param(_a_selection_that_missed_a_live_pod, id="selection of live pods"),
        pytest.param(_a_label_set_lost, id="membership"),
        pytest.param(_a_declared_term_twice, id="declared term"),
    ],
)
def test_every_kind_of_damage_is_found_within_a_round(damage: Callable[[ClusterState], None]) -> None:
    driver = driven()
    recount = Recount(driver.state, at_once=1)
    assert round_of(recount, driver.state) == []
    damage(driver.state)
    assert round_of(recount, driver.state)
