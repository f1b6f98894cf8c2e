"""What happens in the middle of a preemption: watches that lag, other preemptors, nodes that change."""

from __future__ import annotations

import pytest

from scheduler.engine.model.instructions import Bind, ClearNomination, EmitEvent, EvictVictim
from scheduler.engine.model.pod_groups import GROUP, MIN_COUNT
from scheduler.engine.model.stimuli import EvictionStep, VictimFate
from tests.engine.core.preempting import end_eviction, leave, sized_pod, victim_and_preemptor
from tests.support.driving import Driver, binds, each_of, evictions


def test_nobody_else_is_evicted_while_no_watch_has_shown_the_victim_s_end(cluster: Driver):
    cluster.node("m", allocatable={"cpu": "2"})
    low = sized_pod(cluster, "low", 0, cpu="2", node="n")
    other = sized_pod(cluster, "other", 1, cpu="2", node="m")
    high = sized_pod(cluster, "high", 9, cpu="2")
    assert evictions(cluster.cycle()) == ["low"]
    end_eviction(cluster, high, low)
    # Something else wakes the pod before the watch shows that `low` ends.
    small = sized_pod(cluster, "small", 20, cpu="0", node="n")
    cluster.update(other, priority=-1)
    leave(cluster, small)
    assert evictions(cluster.cycle()) == []
    leave(cluster, low)
    assert [one.node_name for one in each_of(cluster.cycle(), Bind)] == ["n"]


@pytest.mark.parametrize("is_answered_first", [True, False])
def test_a_victim_without_a_grace_period_is_waited_for_until_it_is_gone(
    cluster: Driver, is_answered_first: bool
):
    """The API server shows that it terminates, and right after that it is gone."""
    low, high = victim_and_preemptor(cluster)
    small = sized_pod(cluster, "small", 20, cpu="0", node="n")
    if is_answered_first:
        end_eviction(cluster, high, low)
    cluster.update(low, terminating=True, ends_at_once=True, disruption="PreemptionByScheduler")
    if not is_answered_first:
        end_eviction(cluster, high, low)
    leave(cluster, small)
    assert cluster.cycle() == []
    leave(cluster, low)
    assert list(binds(cluster.cycle())) == ["high"]


@pytest.mark.parametrize("is_answered_first", [True, False])
def test_two_preemptors_of_one_victim_are_both_tried_once_it_is_gone(
    cluster: Driver, *, is_answered_first: bool
):
    low = sized_pod(cluster, "low", 0, cpu="2", node="n")
    first = sized_pod(cluster, "first", 5, cpu="1")
    assert evictions(cluster.cycle()) == ["low"]
    second = sized_pod(cluster, "second", 9, cpu="1")
    cluster.cycle()
    if is_answered_first:
        end_eviction(cluster, first, low)
        assert cluster.state.held_for_evictions.keys() == {first.uid, second.uid}
        cluster.lose(low)
    else:
        cluster.lose(low)
        end_eviction(cluster, first, low, VictimFate.GONE)
        end_eviction(cluster, second, low, VictimFate.GONE)
    assert not cluster.state.held_for_evictions
    cluster.pass_time(20)
    bound = {one.pod.name for _ in range(4) for one in each_of(cluster.cycle(), Bind)}
    assert bound == {"first", "second"}


def test_an_eviction_that_is_answered_after_the_pods_next_attempt_is_reported(cluster: Driver) -> None:
    """The answer to the DELETE is late, and another pod has taken the room of the first victim meanwhile."""
    low, high = victim_and_preemptor(cluster)
    cluster.lose(low)
    thief = sized_pod(cluster, "thief", 1, cpu="2", node="n")
    cluster.pass_time(20)
    assert evictions(cluster.cycle()) == ["thief"]
    assert [event.pod for event in each_of(end_eviction(cluster, high, low), EmitEvent)] == [low]
    assert high.uid in cluster.state.held_for_evictions
    end_eviction(cluster, high, thief)
    leave(cluster, thief)
    assert list(binds(cluster.cycle())) == ["high"]


def test_an_eviction_for_a_group_is_not_in_vain_wherever_its_members_go(cluster: Driver) -> None:
    low = sized_pod(cluster, "low", 0, cpu="2", node="n")
    for name in ("one", "other"):
        sized_pod(cluster, name, 5, labels={GROUP: "g", MIN_COUNT: "2"})
    (eviction,) = each_of(cluster.cycle(), EvictVictim)
    end_eviction(cluster, eviction.preemptor, low)
    leave(cluster, low)
    binds = each_of(cluster.cycle(), Bind)
    for bind in binds:
        cluster.confirm(bind.pod, bind.node_name)
    assert len(binds) == 2
    assert cluster.machine.preemptions.wasted == {}


@pytest.mark.parametrize("is_cordoned", [True, False], ids=["cordoned", "another pod took the room"])
def test_a_node_that_closes_in_the_middle_costs_no_further_victim(cluster: Driver, *, is_cordoned: bool):
    low, lower = sized_pod(cluster, "low", 1, node="n"), sized_pod(cluster, "lower", 0, node="n")
    high = sized_pod(cluster, "high", 9, cpu="2")
    assert evictions(cluster.cycle()) == ["low"]
    assert cluster.needs_eviction(high.uid, low.uid)
    end_eviction(cluster, high, low)
    cluster.lose(low)
    assert cluster.needs_eviction(high.uid, lower.uid)
    if is_cordoned:
        cluster.node("n", allocatable={"cpu": "2"}, unschedulable=True)
    else:
        sized_pod(cluster, "thief", 9, node="n")
    assert not cluster.needs_eviction(high.uid, lower.uid)


def test_a_nomination_that_no_watch_has_shown_yet_yields_to_a_higher_priority(cluster: Driver):
    sized_pod(cluster, "low", 0, cpu="2", node="n")
    middle = sized_pod(cluster, "middle", 5, cpu="2")
    cluster.cycle()
    sized_pod(cluster, "high", 9, cpu="2")
    told = cluster.cycle()
    assert [one.pod.uid for one in each_of(told, ClearNomination)] == [middle.uid]
    assert [pod.name for pod in cluster.state.nominated.on("n")] == ["high"]


@pytest.mark.parametrize("is_answered_first", [True, False])
@pytest.mark.parametrize("is_restored", [False, True], ids=["in flight", "the server is restored"])
def test_a_victim_that_is_shown_unbound_and_ending_lets_the_pod_be_tried(
    cluster: Driver, *, is_restored: bool, is_answered_first: bool
):
    """Its bind is in flight, or was shown and is undone by a backup."""
    low = sized_pod(cluster, "low", 0, cpu="2")
    assert list(binds(cluster.cycle())) == ["low"]
    high = sized_pod(cluster, "high", 9, cpu="2")
    assert evictions(cluster.cycle()) == ["low"]
    if is_restored:
        cluster.confirm(low, "n")
    if is_answered_first:
        end_eviction(cluster, high, low)
    cluster.update(low, terminating=True)
    if not is_answered_first:
        end_eviction(cluster, high, low)
    cluster.pass_time(20)
    assert list(binds(cluster.cycle())) == ["high"]


def test_a_victim_that_another_scheduler_has_bound_elsewhere_meanwhile_is_spared(cluster: Driver):
    """Its own bind to the node is in flight; where it runs instead, its eviction would make room too."""
    low = sized_pod(cluster, "low", 0, cpu="2")
    assert list(binds(cluster.cycle())) == ["low"]
    high = sized_pod(cluster, "high", 9, cpu="2")
    assert evictions(cluster.cycle()) == ["low"]
    assert cluster.needs_eviction(high.uid, low.uid, EvictionStep.CONDITION)
    cluster.node("m", allocatable={"cpu": "2"})
    cluster.update(low, node_name="m")
    assert not cluster.needs_eviction(high.uid, low.uid, EvictionStep.CONDITION)
    assert not cluster.needs_eviction(high.uid, low.uid)


def test_the_nomination_of_a_new_pod_counts_once_its_gates_are_gone(cluster: Driver):
    """As upstream: another tool may nominate a gated pod, and no restart lets it keep its room meanwhile."""
    gated = sized_pod(cluster, "gated", 9, cpu="2", gates=("wait",), status={"nominatedNodeName": "n"})
    assert not cluster.state.nominated
    cluster.update(gated, gates=())
    assert cluster.state.nominated.node_of(gated.uid) == "n"


def test_members_that_are_held_for_an_earlier_decision_are_let_go_with_the_next(cluster: Driver) -> None:
    """A new member lets its siblings be tried again, but none that an event has gated meanwhile."""
    low = sized_pod(cluster, "low", 0, cpu="2", node="n")
    first, second = sized_pod(cluster, "first", 5), sized_pod(cluster, "second", 5)
    preemptions = cluster.machine.preemptions
    assert evictions(preemptions.start(first, "", [low], [first.uid, second.uid])) == ["low"]
    assert evictions(preemptions.start(first, "", [low], [first.uid])) == []
    assert cluster.state.held_for_evictions.keys() == {first.uid, second.uid}
    end_eviction(cluster, first, low)
    cluster.lose(low)
    assert not cluster.state.held_for_evictions
