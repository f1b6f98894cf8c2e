"""Pods of lower priority are evicted for one that fits nowhere, no more than have to, and for nobody in vain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler.engine.core.preemption import preempted_event
from scheduler.engine.model.instructions import (
    Attempted,
    Bind,
    ClearNomination,
    EmitEvent,
    EvictVictim,
    PatchCondition,
)
from scheduler.engine.model.pod_groups import GROUP, MIN_COUNT
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import CycleDue, VictimFate
from scheduler.engine.queueing.queued_pod import SubQueue
from tests.engine.core.preempting import end_eviction, leave, sized_pod, victim_and_preemptor
from tests.support import build
from tests.support.driving import Driver, attempt_of, bind_of, condition_of, each_of, evictions, kinds


def test_a_pod_is_nominated_and_its_victims_go_the_last_one_after_the_others(cluster: Driver):
    low, lower = sized_pod(cluster, "low", 1, node="n"), sized_pod(cluster, "lower", 0, node="n")
    high = sized_pod(cluster, "high", 9, cpu="2")
    told = cluster.cycle()
    assert kinds(told) == ["Attempted", "EmitEvent", "PatchCondition", "EvictVictim"]
    assert condition_of(told).nominated_node_name == "n"
    assert condition_of(told).message == "0/1 nodes are available: 1 Insufficient cpu."
    assert (attempt_of(told).tried_preemption, attempt_of(told).n_victims) == (True, 2)
    assert evictions(told) == ["low"]
    assert cluster.cycle() == []
    told = end_eviction(cluster, high, low)
    assert evictions(told) == ["lower"]
    (event,) = each_of(told, EmitEvent)
    assert (event.pod, event.type, event.reason, event.action) == (low, "Normal", "Preempted", "Preempting")
    assert event.note == f"Preempted by pod {high.uid} on node n"
    assert event.reported_by == high.scheduler_name
    assert kinds(end_eviction(cluster, high, lower)) == ["EmitEvent"]
    leave(cluster, low, lower)
    assert bind_of(cluster.cycle()).node_name == "n"
    assert not cluster.state.nominated
    assert not cluster.state.held_for_evictions


def test_the_state_is_not_to_be_read_between_two_pieces_of_a_search_for_victims(
    cluster: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue does not hold the pod between two pieces."""
    monkeypatch.setattr("scheduler.engine.plugins.default_preemption.search._PODS_AT_ONCE", 1)
    cluster.node("c", allocatable={"cpu": "2"})
    for number, node in enumerate("nncc"):
        sized_pod(cluster, f"low-{number}", 0, node=node)
    incoming = sized_pod(cluster, "incoming", 10, cpu="2")
    machine = cluster.machine
    ordered, n_pieces = machine.handle(CycleDue(), cluster.now_s), 1
    while machine.is_in_cycle:
        assert (ordered, machine.state.is_provisional, machine.queue.depths()["active"]) == ([], True, 0)
        assert (machine.observed_node_name(incoming.uid), machine.n_unconfirmed) == ("", 0)
        ordered, n_pieces = machine.step(), n_pieces + 1
    assert not machine.state.is_provisional
    assert evictions(ordered)
    assert n_pieces > 1


def test_a_victim_that_the_server_deletes_is_not_evicted_again_before_a_watch_shows_it(cluster: Driver):
    low, high = victim_and_preemptor(cluster)
    assert kinds(end_eviction(cluster, high, low)) == ["EmitEvent"]
    assert high.uid in cluster.state.held_for_evictions
    higher = sized_pod(cluster, "higher", 10, cpu="2")
    told = cluster.cycle()
    assert evictions(told) == []
    assert condition_of(told).nominated_node_name == "n"
    assert not cluster.needs_eviction(higher.uid, low.uid)
    cluster.update(low, terminating=True)
    assert not cluster.state.held_for_evictions
    leave(cluster, low)
    assert bind_of(cluster.cycle()).pod.uid == higher.uid


def test_a_pod_that_waits_for_an_eviction_for_another_one_is_tried_if_that_is_not_wanted(cluster: Driver):
    low = sized_pod(cluster, "low", 0, cpu="2", node="n")
    high = sized_pod(cluster, "high", 8, cpu="2")
    cluster.cycle()
    higher = sized_pod(cluster, "higher", 9, cpu="2")
    cluster.cycle()
    cluster.lose(high)
    assert cluster.state.held_for_evictions.keys() == {higher.uid}
    assert end_eviction(cluster, high, low, VictimFate.SPARED) == []
    told = cluster.cycle()
    assert evictions(told) == ["low"]
    assert attempt_of(told).pod.uid == higher.uid


def test_an_answer_that_comes_after_the_bind_is_reported_and_not_in_vain(cluster: Driver):
    """The first answer to a DELETE was lost; the victim is gone long before the second one."""
    low, high = victim_and_preemptor(cluster)
    leave(cluster, low)
    cluster.confirm(high, bind_of(cluster.cycle()).node_name)
    assert kinds(end_eviction(cluster, high, low)) == ["EmitEvent"]
    assert end_eviction(cluster, high, low) == []
    assert cluster.machine.preemptions.wasted == {}
    assert cluster.machine.preemptions.evicted_for(high, "n") == ()


def test_a_pod_is_held_until_its_last_victim_ends(cluster: Driver):
    low, lower = sized_pod(cluster, "low", 1, node="n"), sized_pod(cluster, "lower", 0, node="n")
    high = sized_pod(cluster, "high", 9, cpu="2")
    cluster.cycle()
    cluster.lose(low)
    end_eviction(cluster, high, low)
    cluster.pass_time(20)
    held = cluster.queued(high.uid)
    assert (held.sub_queue, held.gating_plugin) == (SubQueue.GATED, "DefaultPreemption")
    assert cluster.cycle() == []
    cluster.update(lower, terminating=True)
    leave(cluster, lower)
    assert bind_of(cluster.cycle()).node_name == "n"
    end_eviction(cluster, high, lower)


@pytest.mark.parametrize("fate", [VictimFate.FAILED, VictimFate.SPARED])
def test_after_an_eviction_that_failed_or_was_not_wanted_the_others_are_spared(
    cluster: Driver, fate: VictimFate
):
    low = sized_pod(cluster, "low", 1, node="n")
    sized_pod(cluster, "lower", 0, node="n")
    high = sized_pod(cluster, "high", 9, cpu="2")
    cluster.cycle()
    assert end_eviction(cluster, high, low, fate) == []
    place = SubQueue.BACKOFF if fate is VictimFate.FAILED else SubQueue.ACTIVE
    assert cluster.queued(high.uid).sub_queue is place
    cluster.pass_time(20)
    # The nomination stays until the next attempt, which finds the victims again.
    assert evictions(cluster.cycle()) == ["low"]


def test_the_pauses_between_deletions_that_are_denied_grow(cluster: Driver):
    low, high = victim_and_preemptor(cluster)
    for wait_s in (1, 2, 4, 8, 10, 10):
        end_eviction(cluster, high, low, VictimFate.FAILED)
        cluster.pass_time(wait_s - 0.5)
        assert cluster.cycle() == []
        # Backoffs end with a whole second.
        cluster.pass_time(1.5)
        assert evictions(cluster.cycle()) == ["low"]
    end_eviction(cluster, high, low)


@pytest.mark.parametrize("is_shown_first", [False, True])
@pytest.mark.parametrize("others", [VictimFate.DELETED, VictimFate.SPARED])
def test_one_eviction_that_fails_among_several_means_a_backoff(
    cluster: Driver, others: VictimFate, *, is_shown_first: bool
):
    """It is not the last one that is answered, nor the one whose end is seen last."""
    cluster.node("n", allocatable={"cpu": "3"})
    first, second = sized_pod(cluster, "first", 3, node="n"), sized_pod(cluster, "second", 2, node="n")
    sized_pod(cluster, "third", 1, node="n")
    high = sized_pod(cluster, "high", 9, cpu="3")
    assert evictions(cluster.cycle()) == ["first", "second"]
    assert end_eviction(cluster, high, first, VictimFate.FAILED) == []
    if is_shown_first:
        cluster.update(second, terminating=True)
    end_eviction(cluster, high, second, others)
    if others is VictimFate.DELETED and not is_shown_first:
        assert cluster.queued(high.uid).sub_queue is SubQueue.UNSCHEDULABLE
        cluster.update(second, terminating=True)
    held = cluster.queued(high.uid)
    assert (held.sub_queue, held.error_count) == (SubQueue.BACKOFF, 1)
    assert not cluster.state.held_for_evictions


def _with_port(cluster: Driver, name: str, priority: int, **more: Any) -> Pod:
    containers = [build.container(requests={"cpu": "1"}, host_ports=("8080",))]
    return cluster.pod(name, containers=containers, priority=priority, **more)


def test_a_pod_hears_that_its_victims_are_gone_whatever_kept_it_out(cluster: Driver):
    """The victim with the port leaves while the pod is held, and the last one has no port."""
    port = _with_port(cluster, "port", 2, node="n")
    room = sized_pod(cluster, "room", 1, node="n")
    high = cluster.pod(
        "high", containers=[build.container(requests={"cpu": "2"}, host_ports=("8080",))], priority=9
    )
    assert evictions(cluster.cycle()) == ["port"]
    cluster.lose(port)
    assert evictions(end_eviction(cluster, high, port)) == ["room"]
    end_eviction(cluster, high, room)
    leave(cluster, room)
    assert bind_of(cluster.cycle()).node_name == "n"


def test_a_nomination_ends_with_the_victims_if_something_else_keeps_the_pod_out(cluster: Driver):
    low = sized_pod(cluster, "low", 1, node="n")
    cluster.update(low, terminating=True, disruption="PreemptionByScheduler")
    high = _with_port(cluster, "high", 9, status={"nominatedNodeName": "n"})
    _with_port(cluster, "thief", 9, node="n")
    cluster.cycle()
    assert cluster.state.nominated.node_of(high.uid) == "n"
    leave(cluster, low)
    assert condition_of(cluster.cycle()).nominated_node_name == ""
    assert not cluster.state.nominated


def test_victims_that_end_already_are_not_evicted_again(cluster: Driver):
    sized_pod(cluster, "low", 1, node="n", terminating=True)
    lower = sized_pod(cluster, "lower", 0, node="n")
    high = sized_pod(cluster, "high", 9, cpu="2")
    assert evictions(cluster.cycle()) == ["lower"]
    end_eviction(cluster, high, lower)


def test_a_restart_repeats_no_eviction_and_remembers_the_room(cluster: Driver):
    """The server has the nomination, and the victim that ends: all that the next instance knows."""
    low = sized_pod(cluster, "low", 1, cpu="2", node="n")
    cluster.update(low, terminating=True, disruption="PreemptionByScheduler")
    high = sized_pod(cluster, "high", 9, cpu="2", status={"nominatedNodeName": "n"})
    told = cluster.cycle()
    assert evictions(told) == []
    assert condition_of(told).nominated_node_name is None
    assert condition_of(told).message.endswith(
        "preemption: not eligible due to a terminating pod on the nominated node."
    )
    sized_pod(cluster, "equal", 9, cpu="1")
    assert not [one for one in cluster.cycle() if isinstance(one, Bind | EvictVictim)]
    leave(cluster, low)
    binds = [one for _ in range(3) for one in each_of(cluster.cycle(), Bind)]
    assert [one.pod.uid for one in binds] == [high.uid]


def test_a_restart_in_the_middle_evicts_the_rest(cluster: Driver):
    low = sized_pod(cluster, "low", 1, node="n")
    sized_pod(cluster, "lower", 0, node="n")
    cluster.update(low, terminating=True, disruption="PreemptionByScheduler")
    sized_pod(cluster, "high", 9, cpu="2", status={"nominatedNodeName": "n"})
    assert evictions(cluster.cycle()) == []
    leave(cluster, low)
    assert evictions(cluster.cycle()) == ["lower"]


def test_a_nomination_that_will_not_come_true_is_cleared(cluster: Driver):
    """Autoscalers pass over nominated pods, so a stale nomination would stop a scale-up."""
    sized_pod(cluster, "other", 9, cpu="2", node="n")
    pod = sized_pod(cluster, "high", 5, cpu="2", status={"nominatedNodeName": "n"})
    assert cluster.state.nominated.node_of(pod.uid) == "n"
    assert condition_of(cluster.cycle()).nominated_node_name == ""
    assert not cluster.state.nominated


def test_a_nomination_is_cleared_where_there_is_no_node_at_all():
    cluster = Driver()
    sized_pod(cluster, "high", 5, status={"nominatedNodeName": "n"})
    assert condition_of(cluster.cycle()).nominated_node_name == ""
    assert not cluster.state.nominated


def test_a_nomination_counts_before_the_server_has_it(cluster: Driver):
    """An update of the pod that does not show it yet leaves it."""
    low, high = victim_and_preemptor(cluster)
    cluster.update(high, generation=high.generation + 1)
    assert cluster.state.nominated.node_of(high.uid) == "n"
    shown = cluster.update(high, nominated_node_name="n")
    cluster.update(shown, nominated_node_name="")
    assert not cluster.state.nominated
    end_eviction(cluster, high, low)


def test_nobody_is_evicted_for_a_pod_that_ends_or_fits_by_now(cluster: Driver):
    low, high = victim_and_preemptor(cluster)
    assert cluster.needs_eviction(high.uid, low.uid)
    cluster.node("new", allocatable={"cpu": "2"})
    assert not cluster.needs_eviction(high.uid, low.uid)
    cluster.lose_node("new")
    assert cluster.needs_eviction(high.uid, low.uid)
    cluster.update(low, terminating=True)
    assert not cluster.needs_eviction(high.uid, low.uid)
    cluster.update(low, terminating=False)
    assert cluster.needs_eviction(high.uid, low.uid)
    cluster.update(high, terminating=True)
    assert not cluster.needs_eviction(high.uid, low.uid)
    cluster.lose(high)
    assert not cluster.needs_eviction(high.uid, low.uid)
    end_eviction(cluster, high, low, VictimFate.SPARED)
    assert cluster.machine.preemptions.wasted == {}


def test_nobody_is_evicted_where_another_pod_took_the_room_beside_the_victim(cluster: Driver):
    """Also if it is of lower priority: no eviction of it was decided."""
    low = sized_pod(cluster, "low", 0, node="n")
    high = sized_pod(cluster, "high", 9, cpu="2")
    cluster.cycle()
    assert cluster.needs_eviction(high.uid, low.uid)
    other = sized_pod(cluster, "other", 0, node="n")
    assert not cluster.needs_eviction(high.uid, low.uid)
    cluster.update(other, terminating=True)
    assert cluster.needs_eviction(high.uid, low.uid)
    end_eviction(cluster, high, low)


def test_evictions_in_vain_are_counted_by_cause(cluster: Driver):
    def evicted(name: str, room: Driver) -> Pod:
        low = sized_pod(room, f"low-{name}", 0, cpu="2", node="n")
        high = sized_pod(room, name, 9, cpu="2")
        room.cycle()
        end_eviction(room, high, low)
        room.lose(low)
        return high

    wasted = cluster.machine.preemptions.wasted
    gone = evicted("gone", cluster)
    cluster.lose(gone)
    assert wasted == {"the pod is gone": 1}
    elsewhere = evicted("elsewhere", cluster)
    cluster.node("other", allocatable={"cpu": "2"})
    cluster.update(elsewhere, node_name="other")
    assert wasted == {"the pod is gone": 1, "the pod runs elsewhere": 1}
    again = evicted("again", cluster)
    thief = sized_pod(cluster, "thief", 0, cpu="2", node="n")
    cluster.pass_time(20)
    assert evictions(cluster.cycle()) == ["thief"]
    assert wasted == {"the pod is gone": 1, "the pod runs elsewhere": 1, "the room was taken": 1}
    end_eviction(cluster, again, thief)
    leave(cluster, thief)
    cluster.confirm(again, bind_of(cluster.cycle()).node_name)
    assert wasted == {"the pod is gone": 1, "the pod runs elsewhere": 1, "the room was taken": 1}


def test_an_attempt_names_the_victims_and_their_node(cluster: Driver):
    low = sized_pod(cluster, "low", 0, cpu="2", node="n")
    high = sized_pod(cluster, "high", 9, cpu="2")
    told = cluster.cycle()
    assert attempt_of(told).nominated_node_name == "n"
    assert attempt_of(told).victims == (("default", "low"),)
    end_eviction(cluster, high, low)
    assert cluster.machine.preemptions.evicted_for(high, "n") == ("default/low",)
    assert cluster.machine.preemptions.evicted_for(high, "other") == ()
    # An annotation of a pod names no pod of another namespace.
    stranger = replace(high, namespace="other")
    assert cluster.machine.preemptions.evicted_for(stranger, "n") == ("1 of other namespaces",)


def test_victims_that_all_end_already_cost_nobody_a_nomination(cluster: Driver):
    """There is nothing to do but wait (prepareCandidateAsync returns before it clears nominations)."""
    sized_pod(cluster, "low", 0, cpu="2", node="n", terminating=True)
    middle = sized_pod(cluster, "middle", 5, cpu="2", status={"nominatedNodeName": "n"})
    sized_pod(cluster, "high", 9, cpu="2")
    told = cluster.cycle()
    assert not [one for one in told if isinstance(one, ClearNomination | EvictVictim)]
    assert attempt_of(told).n_victims == 0
    assert cluster.state.nominated.node_of(middle.uid) == "n"


@pytest.mark.parametrize(
    ("group", "namespace", "note"),
    [
        ("other", "default", "Preempted by pod group default/other on node n"),
        ("other", "foreign", "Preempted by a pod group of another namespace on node n"),
        ("own", "default", "Evicted from node n with its pod group default/own, which is placed anew"),
    ],
)
def test_a_victim_of_a_group_hears_which(cluster: Driver, group: str, namespace: str, note: str) -> None:
    own = {GROUP: "own", MIN_COUNT: "1"}
    victim = sized_pod(cluster, "victim", 0, node="n", labels=own, namespace=namespace)
    member = sized_pod(cluster, "member", 9, labels={GROUP: group, MIN_COUNT: "1"}, gates=["wait"])
    event = preempted_event(victim, member, "")
    assert (event.pod, event.note, event.reported_by) == (victim, note, member.scheduler_name)


def test_a_pod_that_never_preempts_says_so(cluster: Driver):
    sized_pod(cluster, "low", 0, cpu="2", node="n")
    sized_pod(cluster, "high", 9, cpu="2", spec={"preemptionPolicy": "Never"})
    told = cluster.cycle()
    assert condition_of(told).message.endswith("preemption: not eligible due to preemptionPolicy=Never.")
    assert not each_of(told, EvictVictim)


def test_attempts_of_many_preemptors_find_each_its_own_node():
    """Nominated pods of the same priority keep their nodes from each other."""
    cluster = Driver()
    for index in range(20):
        cluster.node(f"n{index}", allocatable={"cpu": "1"})
        sized_pod(cluster, f"low-{index}", 0, node=f"n{index}")
    for index in range(20):
        sized_pod(cluster, f"high-{index}", 9)
    told = [one for _ in range(20) for one in cluster.handle(CycleDue())]
    nominated = [one.nominated_node_name for one in each_of(told, PatchCondition)]
    assert sorted(map(str, nominated)) == sorted(f"n{index}" for index in range(20))
    assert sum(isinstance(one, Attempted) and one.n_victims == 1 for one in told) == 20
    numbers = [one.number for one in each_of(told, EvictVictim)]
    assert numbers == sorted(set(numbers)), (
        "evictions for equally important pods begin in the order of decisions"
    )
