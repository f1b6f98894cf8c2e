"""Seeds that failed once, named by the defect that they found."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from unittest import mock

import pytest

from scheduler.daemon.kube import store
from scheduler.daemon.loop import app
from scheduler.daemon.loop.informers import Informer
from scheduler.engine.state.cluster import ClusterState
from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.http.faults import Effect, Fault
from scheduler.sandbox.devcluster.kinds import NODE, POD
from tests.proof.chaos.happenings import (
    AddNamespace,
    AddNode,
    AddPod,
    AddPriorityClass,
    BindByStranger,
    Change,
)
from tests.proof.chaos.instance import OURS, Instance
from tests.proof.chaos.journal import node_of
from tests.proof.chaos.kinds import Shape
from tests.proof.chaos.run import replay, virtually
from tests.proof.chaos.scene import told
from tests.proof.chaos.shapes import NAIVE
from tests.proof.chaos.virtual import run_virtually
from tests.support import build

ALONE = build.affinity(anti_required=[build.term(build.HOSTNAME, build.selector("app=alone"))])


def test_a_new_leader_with_a_late_watch_knows_what_the_old_one_bound() -> None:
    """
    Both watches stall; the leader binds `first` to n1 and stops in order; the standby is elected within seconds.

    By its watch n1 is free, `first` fits n2 better, and `second` may go to n1.
    """
    run_virtually(_takeover(late_lines=False))


def test_late_lines_of_a_watch_do_not_undo_what_a_list_has_told() -> None:
    """
    Seed 40023: as above, and when the watch recovers, its first line shows `first` as it was before its bind.

    For five seconds the new leader took that for the current state, and gave n1 to `second`.
    """
    run_virtually(_takeover(late_lines=True))


def test_a_new_leader_with_a_late_watch_takes_a_list_in_spite_of_a_handover() -> None:
    """The watch of the one that stops has shown all of its binds, and the watch of the other one has not."""
    for stalls_s in ((60.0, 0.1), (0.1, 60.0)):
        run_virtually(_takeover(late_lines=False, stalls_s=stalls_s))


async def _takeover(*, late_lines: bool, stalls_s: tuple[float, float] = (60.0, 60.0)) -> None:
    async with _two_electing() as (cluster, instances):
        for name in ("n1", "n2"):
            cluster.store.create(NODE, "", build.node(name, unschedulable=True))
        rather_n2 = build.node_affinity(preferred=[(100, build.node_term(f"{build.HOSTNAME} in n2"))])
        _add(cluster, "first", affinity={**ALONE, "nodeAffinity": rather_n2})
        _add(cluster, "second", affinity=ALONE, node_selector={build.HOSTNAME: "n1"})
        await asyncio.sleep(20.0)
        for stall_s in stalls_s:
            cluster.faults.add(Fault(action=Effect.STALL_STREAM, kind="pods", delay_s=stall_s))
        await asyncio.sleep(1.0)
        if late_lines:
            cluster.store.patch(POD, "default", "first", {"metadata": {"annotations": {"seen": "unbound"}}})
            # Between the two lines that are held back: the unbound pod and the bound one.
            for pause_s in (0.1, 5.0):
                cluster.faults.add(Fault(action=Effect.STALL_STREAM, kind="pods", delay_s=pause_s))
        cluster.store.patch(NODE, "", "n1", {"spec": {"unschedulable": None}})
        await asyncio.sleep(3.0)
        assert _nodes(cluster) == {"first": "n1", "second": ""}
        cluster.store.patch(NODE, "", "n2", {"spec": {"unschedulable": None}})
        await _hand_over(cluster, instances)


@virtually
async def test_a_late_watch_does_not_take_away_a_pod_that_a_list_shows_running_again() -> None:
    """
    Seed 41002: `first` succeeds and runs again while both watches stall, and the new leader lists it as running.

    When its watch recovers, the first line shows that `first` has left the field selector. For five seconds the leader
    took n1 for free, and gave it to `second`.
    """
    async with _two_electing() as (cluster, instances):
        cluster.store.create(NODE, "", build.node("n1"))
        # A leader that has bound nothing leaves no version, so that the new one takes a list.
        _add(cluster, "first", affinity=ALONE, node="n1")
        await asyncio.sleep(20.0)
        cluster.faults.add(Fault(action=Effect.STALL_STREAM, kind="pods", delay_s=60.0, times=2))
        await asyncio.sleep(1.0)
        cluster.store.patch(POD, "default", "first", {"status": {"phase": "Succeeded"}}, subresource="status")
        await asyncio.sleep(1.0)
        # The second pause is between the line of its end and that of its return.
        for pause_s in (0.1, 5.0):
            cluster.faults.add(Fault(action=Effect.STALL_STREAM, kind="pods", delay_s=pause_s))
        cluster.store.patch(POD, "default", "first", {"status": {"phase": "Running"}}, subresource="status")
        _add(cluster, "second", affinity=ALONE)
        await _hand_over(cluster, instances)


@asynccontextmanager
async def _two_electing() -> AsyncIterator[tuple[DevCluster, list[Instance]]]:
    """Yield a cluster and its two instances on one Lease, after the first election."""
    async with told(shape=Shape.ELECTED) as scene:
        await asyncio.sleep(20.0)
        assert scene.cluster is not None
        yield scene.cluster, scene.instances


async def _hand_over(cluster: DevCluster, instances: list[Instance]) -> None:
    """Stop the leader in order; `first` is to stay alone on n1 under the other one, whose watch recovers meanwhile."""
    leader = next(one for one in instances if one.life and one.life.scheduler._leads())
    leader.restart_after_s = 1000.0
    assert leader.life is not None
    leader.life.scheduler.stop()
    await asyncio.sleep(100.0)
    assert _nodes(cluster) == {"first": "n1", "second": ""}
    assert any(one.life and one.life.scheduler._leads() for one in instances)
    assert not cluster.faults.pending()


def test_a_pod_that_is_relabelled_on_its_way_counts_with_its_new_labels() -> None:
    """
    Seed 50004: a label change of a pod whose bind is not stored yet was ignored until the watch showed the bind.

    The follower was let in by a label that the first pod had lost, or kept out by one that it had not yet gained.
    """
    outcome = replay(
        23,
        Shape.ALONE,
        [
            (0.0, AddNamespace("green", "y")),
            (0.0, AddNode("n1", "12", "b", "ssd")),
            (0.0, AddNode("n2", "6", "c")),
            (2.445, Fault(action=Effect.DELAY, path=r"/pods/[^/]+/binding$", times=10, delay_s=3.0)),
            (4.069, AddPod("green/p17", "big", OURS)),
            (5.761, Change("Pod", "green/p17", {"metadata": {"labels": {"app": "web"}}})),
            (6.868, AddPod("green/p29", "web", OURS)),
        ],
    )
    assert not outcome.wrongs, outcome.story()


def test_of_two_pods_with_one_port_the_first_to_go_frees_it() -> None:
    """Seed 9108: Kubernetes keeps a node's ports as a set, so a deletion that frees none is no mistake of ours."""
    outcome = replay(
        9108,
        Shape.RANKED,
        [
            (0.0, AddPriorityClass("low", 10)),
            (0.0, AddPriorityClass("high", 1000)),
            (0.0, AddNamespace("red", "x")),
            (0.0, AddNode("n1", "4", "a")),
            (1.0, AddPod("red/low", "port batch", OURS)),
            (2.95, AddPod("red/naive", "port critical", NAIVE)),
            (2.95, BindByStranger("red/naive", "n1")),
            (2.97, AddPod("red/high", "port critical", OURS)),
        ],
        until_s=8.0,
    )
    assert not outcome.wrongs, outcome.story()
    assert outcome.judgement.n_evictions == 1


def _leave(_state: ClusterState, _pod: object) -> None:
    """Pass no event on."""


async def _know_already(*_: object) -> None:
    """Skip the read of what the previous leader has done."""


async def _believe(*_: object) -> bool:
    """Return True, however late the watch is."""
    return True


@pytest.mark.parametrize(
    ("regression", "guard"),
    [
        pytest.param(
            test_a_new_leader_with_a_late_watch_knows_what_the_old_one_bound,
            (app, "catch_up", _know_already),
            id="catching up",
        ),
        pytest.param(
            test_a_new_leader_with_a_late_watch_takes_a_list_in_spite_of_a_handover,
            (Informer, "has_reached", _believe),
            id="how far a watch has come",
        ),
        pytest.param(
            test_late_lines_of_a_watch_do_not_undo_what_a_list_has_told,
            (store, "is_older", lambda *_: False),
            id="old news",
        ),
        pytest.param(
            test_a_late_watch_does_not_take_away_a_pod_that_a_list_shows_running_again,
            (store, "is_older", lambda *_: False),
            id="an old end",
        ),
        pytest.param(
            test_a_pod_that_is_relabelled_on_its_way_counts_with_its_new_labels,
            (ClusterState, "update_assumed", _leave),
            id="new labels",
        ),
    ],
)
def test_each_of_these_fails_without_its_guard(
    regression: Callable[[], None], guard: tuple[Any, str, Any]
) -> None:
    with mock.patch.object(*guard), pytest.raises(AssertionError):
        regression()


def _add(cluster: DevCluster, name: str, **settings: Any) -> None:
    pod = build.pod(name, labels={"app": "alone"}, spec={"schedulerName": "ours"}, **settings)
    del pod["metadata"]["uid"], pod["status"]
    cluster.store.create(POD, "default", pod)


def _nodes(cluster: DevCluster) -> dict[str, str]:
    return {pod["metadata"]["name"]: node_of(pod) for pod in cluster.store.list(POD)[0]}
