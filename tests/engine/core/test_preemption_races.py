"""What happens in the middle of a preemption: watches that lag, other preemptors, nodes that change."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.engine.model.instructions import Bind, ClearNomination, EvictVictim, Instruction
from scheduler.engine.model.pod_groups import GROUP, MIN_COUNT
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import EvictionEnded, EvictionStep, VictimFate
from tests.engine.core.preempting import end_eviction, sized_pod, victim_and_preemptor
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
    cluster.lose(small)
    cluster.pass_time(20)
    assert evictions(cluster.cycle()) == []
    cluster.lose(low)
    cluster.pass_time(20)
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
    cluster.lose(small)
    cluster.pass_time(20)
    assert cluster.cycle() == []
    cluster.lose(low)
    cluster.pass_time(20)
    assert list(binds(cluster.cycle())) == ["high"]


def test_two_preemptors_of_one_victim_are_both_tried_once_it_is_gone(cluster: Driver):
    low = sized_pod(cluster, "low", 0, cpu="2", node="n")
    first = sized_pod(cluster, "first", 5, cpu="1")
    assert evictions(cluster.cycle()) == ["low"]
    second = sized_pod(cluster, "second", 9, cpu="1")
    cluster.cycle()
    cluster.lose(low)
    end_eviction(cluster, first, low, VictimFate.GONE)
    end_eviction(cluster, second, low, VictimFate.GONE)
    cluster.pass_time(20)
    bound = {one.pod.name for _ in range(4) for one in each_of(cluster.cycle(), Bind)}
    assert bound == {"first", "second"}


def test_two_preemptors_of_the_same_victims_hear_of_each_answer(cluster: Driver) -> None:
    cluster.node("n", allocatable={"cpu": "3"})
    first, second, last = (sized_pod(cluster, name, 0, node="n") for name in ("v1", "v2", "v3"))
    high = sized_pod(cluster, "high", 8, cpu="3")
    assert len(evictions(cluster.cycle())) == 2
    higher = sized_pod(cluster, "higher", 9, cpu="3")
    assert evictions(cluster.cycle()) == []
    told = [one for victim in (first, second, last) for one in end_eviction(cluster, high, victim)]
    assert len(evictions(told)) == 1
    for victim in (first, second, last):
        cluster.lose(victim)
    assert not cluster.state.preempting
    cluster.pass_time(20)
    assert [one.pod.uid for one in each_of(cluster.cycle(), Bind)] == [higher.uid]


def test_an_eviction_for_a_group_is_not_in_vain_wherever_its_members_go(cluster: Driver) -> None:
    low = sized_pod(cluster, "low", 0, cpu="2", node="n")
    for name in ("one", "other"):
        sized_pod(cluster, name, 5, labels={GROUP: "g", MIN_COUNT: "2"})
    (eviction,) = each_of(cluster.cycle(), EvictVictim)
    end_eviction(cluster, eviction.preemptor, low)
    cluster.lose(low)
    cluster.pass_time(20)
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


def test_a_victim_that_ends_while_its_bind_is_in_flight_lets_the_pod_be_tried(cluster: Driver):
    """It is shown unbound and ending, and never bound."""
    low = sized_pod(cluster, "low", 0, cpu="2")
    assert list(binds(cluster.cycle())) == ["low"]
    high = sized_pod(cluster, "high", 9, cpu="2")
    assert evictions(cluster.cycle()) == ["low"]
    cluster.update(low, terminating=True)
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


class _Server:
    """An API server that answers late, and shows what it did later still; the machine evicts and binds through it."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.driver = Driver(random.randrange(100))
        #: What the server has: pods by name, and the node of each; None while it is pending.
        self.pods: dict[str, Pod] = {}
        self.asked: list[EvictVictim] = []
        self.answers: list[EvictionEnded] = []
        self.shows: list[Pod] = []
        self.deleted: list[str] = []

    def run(self, told: list[Instruction]) -> None:
        for one in told:
            if isinstance(one, EvictVictim):
                self.asked.append(one)
            elif isinstance(one, Bind) and one.pod.name not in self.pods:
                self.run(self.driver.fail_bind(one.pod, "not found"))
            elif isinstance(one, Bind):
                self.pods[one.pod.name] = replace(self.pods[one.pod.name], node_name=one.node_name)
                self.driver.confirm(one.pod, one.node_name)

    def create(self, name: str, priority: int, node: str | None) -> None:
        cpu = self.random.choice("12")
        self.pods[name] = sized_pod(self.driver, name, priority, cpu=cpu, node=node)

    def delete(self, name: str) -> None:
        """Its end is shown at some time, after what was shown before."""
        self.shows.append(self.pods.pop(name))

    def evict(self) -> None:
        one = self.asked.pop(self.random.randrange(len(self.asked)))
        uid, victim = one.preemptor.uid, one.victim
        if not self.driver.needs_eviction(uid, victim.uid):
            fate = VictimFate.SPARED
        elif victim.name not in self.pods:
            fate = VictimFate.GONE
        elif self.random.random() < 0.15:
            fate = VictimFate.FAILED
        else:
            fate = VictimFate.DELETED
            self.deleted.append(victim.name)
            self.delete(victim.name)
        self.answers.append(EvictionEnded(uid, victim.uid, fate))

    def answer(self) -> None:
        self.run(self.driver.handle(self.answers.pop(self.random.randrange(len(self.answers)))))

    def show(self) -> None:
        gone = self.shows[0]
        if gone.node_name and not gone.terminating and self.random.random() < 0.5:
            self.shows[0] = self.driver.update(
                gone,
                terminating=True,
                ends_at_once=self.random.random() < 0.5,
                disruption="PreemptionByScheduler",
            )
        else:
            self.driver.lose(self.shows.pop(0))

    def cycle(self) -> None:
        self.driver.pass_time(self.random.choice((0.1, 20)))
        self.run(self.driver.cycle())

    def settle(self) -> None:
        """Let everything come to an end."""
        for _ in range(300):
            for one, do in ((self.asked, self.evict), (self.answers, self.answer), (self.shows, self.show)):
                while one:
                    do()
            self.cycle()


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_every_preemption_ends_and_nobody_is_evicted_twice_or_held_for_ever(seed: int):
    """Answers, watches, other pods and the preemptors' ends in any order."""
    random = Random(seed)
    server = _Server(random)
    for name in ("a", "b"):
        server.driver.node(name, allocatable={"cpu": "3"})
    for index in range(6):
        server.create(f"low-{index}", random.randrange(3), "ab"[index % 2])
    for step in range(60):
        ways = [server.cycle]
        ways += [server.evict] * bool(server.asked) + [server.answer] * bool(server.answers)
        ways += [server.show] * bool(server.shows)
        match random.randrange(12):
            case 0:
                server.create(f"high-{step}", random.choice((5, 9)), None)
            case 1:
                server.delete(random.choice([*server.pods])) if server.pods else None
            case 2:
                server.driver.node("b", allocatable={"cpu": "3"}, unschedulable=random.random() < 0.5)
            case _:
                random.choice(ways)()
    server.settle()
    assert len(server.deleted) == len(set(server.deleted))
    assert not server.driver.state.preempting
    machine = server.driver.machine
    assert not machine.preemptions.is_evicting
    waiting = {one.pod.name for one in server.driver.queue.pods()}
    assert waiting == {name for name, pod in server.pods.items() if not pod.node_name}
    server.driver.audit()


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
    assert cluster.state.preempting.keys() == {first.uid, second.uid}
    end_eviction(cluster, first, low)
    cluster.lose(low)
    assert not cluster.state.preempting
