"""
Random lives of a machine: pods, groups, nodes and namespaces come, change and go; binds and evictions end late.

Counts equal a recount at any time, and each decision is that of a state of the same objects which has derived nothing
yet. No pod is bound twice, none is evicted for its own priority, no cycle leaves half a group on nodes, and no pod
waits for an event that a decision would place. In the end nothing is held for an eviction, every pod without a node
waits in the queue, and every group is whole that can be. A machine that is asked questions, and whose cycles have come
any way when the next stimulus arrives, orders the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from scheduler.daemon.settings.loading import default_settings
from scheduler.daemon.settings.resolved import Settings
from scheduler.engine.core.decide import Decision, ScheduleResult, decide, deciding
from scheduler.engine.framework.interface import Rng
from scheduler.engine.framework.observer import Observer
from scheduler.engine.framework.profile import Profile
from scheduler.engine.model.instructions import Bind, EvictVictim, Instruction
from scheduler.engine.model.pod_groups import GROUP, MIN_COUNT, RELEASE_AFTER, GroupKey, GroupKind
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.semantics import Version, semantics_of
from scheduler.engine.model.stimuli import (
    BindDone,
    BindFailed,
    EvictionDue,
    EvictionEnded,
    EvictionStep,
    ObjectGone,
    Stimulus,
    SweepDue,
    VictimFate,
)
from scheduler.engine.queueing.queued_pod import SubQueue
from scheduler.engine.state.batches import Pieces
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.tools.page.what_if_service import WhatIfService
from tests.engine.core.fresh import assert_as_if_fresh
from tests.support import build
from tests.support.driving import NAME, Driver, all_differences, each_of

NODES = ("a", "b", "c", "d")
NAMESPACES = ("one", "two")
APPS = ("x", "y")
ZONES = ("z1", "z2")
RACK = "rack"
#: Of the members of each group.
PRIORITIES = {"g0": 0, "g1": 5, "g2": 0, "g3": 10}

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


class _Recorded(Driver):
    """A driver that keeps each stimulus, its time, and what it ordered, and hands on the latter."""

    def __init__(self, its_settings: Settings, take: Callable[[list[Instruction]], None]) -> None:
        super().__init__(settings=its_settings)
        self.record: list[tuple[Stimulus, float, list[Instruction]]] = []
        self._take = take

    def handle(self, stimulus: Stimulus) -> list[Instruction]:
        ordered = super().handle(stimulus)
        self.record.append((stimulus, self.now_s, ordered))
        self._take(ordered)
        return ordered


class Lives(RuleBasedStateMachine):
    """What happens around a machine, and what has to be so after each of it."""

    @initialize(minor=st.sampled_from((36, 37)), seed=st.integers(0, 1 << 32), is_plain=st.booleans())
    def start(self, minor: int, seed: int, is_plain: bool) -> None:
        """
        Show half full nodes. From 1.37 on a group is one entry of the queue.

        `seed`: of the life that is the same with questions. `is_plain`: pods have no rules, so that more are evicted.
        """
        self.settings, self.seed = default_settings(semantics_of(Version(1, minor))), seed
        self.is_plain = is_plain
        self.driver = _Recorded(self.settings, self._take)
        self._patch = pytest.MonkeyPatch()
        self._patch.setattr("scheduler.engine.core.machine.deciding", self._compared)
        #: Pods that watches show, and those of them whose end no watch shows yet.
        self.known: dict[str, Pod] = {}
        self.ended: list[str] = []
        #: Binds and evictions without an answer, of the former those that a watch has shown, and answers on their way.
        self.binds: dict[str, Bind] = {}
        self.shown: set[str] = set()
        self.evictions: list[EvictVictim] = []
        self.answers: list[EvictionEnded] = []
        #: How many members each group needs.
        self.needs: dict[str, int] = {}
        #: By UID, the keywords of `build.pod`.
        self.asked: dict[str, Any] = {}
        for name, zone in (("a", "z1"), ("b", "z2"), ("c", "z2")):
            self.see_node(name, zone, "2", "110")
            self._see_pod("one", "x", cpu="1", node=name)

    def _take(self, told: list[Instruction]) -> None:
        for eviction in each_of(told, EvictVictim):
            victim, preemptor = eviction.victim, eviction.preemptor
            # Of one group, of which members may say different things.
            keys = {None if each.group is None else each.group.key for each in (victim, preemptor)}
            is_released = victim.group is not None and len(keys) == 1
            assert is_released or victim.priority < preemptor.priority
            under_way = {each.victim.uid for each in self.evictions} | {
                each.victim_uid for each in self.answers
            }
            assert victim.uid not in under_way, "evicted twice"
            self.evictions.append(eviction)
        groups = Counter[GroupKey]()
        for bind in each_of(told, Bind):
            assert bind.pod.uid not in self.binds, "bound twice"
            self.binds[bind.pod.uid] = bind
            if bind.pod.group is not None:
                groups[bind.pod.group.key] += 1
        for key, n_new in groups.items():
            state, needs = self.driver.state.groups, self.needs[key.name]
            n_placed = state.n_placed(key)
            # Beside members on nodes, as many are placed of a group that was placed once as are there.
            is_beside = n_placed > n_new and state.is_whole(key, needs)
            assert n_placed >= needs or is_beside, f"half of {key.name} is placed"

    # The cluster.

    @rule(
        name=st.sampled_from(NODES),
        zone=st.one_of(st.none(), st.sampled_from(ZONES)),
        cpu=st.sampled_from(("1", "2", "2", "3")),
        n_pods=st.sampled_from(("2", "110")),
    )
    def see_node(self, name: str, zone: str | None, cpu: str, n_pods: str) -> None:
        labels = {RACK: f"r{NODES.index(name) % 2}", **({build.ZONE: zone} if zone else {})}
        self.driver.node(name, labels=labels, allocatable={"cpu": cpu, "pods": n_pods})

    @rule(name=st.sampled_from(NODES))
    def lose_node(self, name: str) -> None:
        self.driver.lose_node(name)

    @rule(name=st.sampled_from(NAMESPACES), team=st.sampled_from(["", "t", "u"]))
    def see_namespace(self, name: str, team: str) -> None:
        self.driver.namespace(name, **({"team": team} if team else {}))

    @rule(name=st.sampled_from(NAMESPACES))
    def lose_namespace(self, name: str) -> None:
        self.driver.handle(ObjectGone("Namespace", name))

    @rule(
        namespace=st.sampled_from(NAMESPACES),
        app=st.sampled_from(APPS),
        node=st.sampled_from(NODES),
        affinity=affinities,
        terminating=st.booleans(),
    )
    def see_assigned_pod(
        self, namespace: str, app: str, node: str, affinity: build.Json | None, terminating: bool
    ) -> None:
        self._see_pod(namespace, app, node=node, affinity=affinity, terminating=terminating)

    @rule(
        n_pods=st.integers(1, 4),
        n_cycles=st.integers(0, 2),
        namespace=st.sampled_from(NAMESPACES),
        app=st.sampled_from(APPS),
        affinity=affinities,
        spread=spreads,
        priority=st.sampled_from((0, 5, 5, 9)),
        cpu=st.sampled_from(("300m", "1", "1", "2")),
    )
    def roll_out(self, n_pods: int, n_cycles: int, namespace: str, app: str, **more: Any) -> None:
        """Show pods of one template, with `n_cycles` cycles after each."""
        for _ in range(n_pods):
            self._see_pod(namespace, app, **more)
            self.cycle(n_cycles)

    @rule(
        name=st.sampled_from(sorted(PRIORITIES)),
        needs=st.sampled_from((2, 3, 4)),
        n_pods=st.integers(1, 5),
        n_cycles=st.integers(0, 3),
        cpu=st.sampled_from(("500m", "1")),
        is_gated=st.sampled_from((False, False, False, True)),
    )
    def grow(self, name: str, needs: int, n_pods: int, n_cycles: int, cpu: str, is_gated: bool) -> None:
        """Show members of a group: of two groups near each other, of the others released if one is lost."""
        needs = self.needs.setdefault(name, needs)
        near = build.affinity(required=[build.term(RACK, build.selector(f"app={name}"))])
        for _ in range(n_pods):
            self._see_pod(
                "default",
                name,
                labels={GROUP: name, MIN_COUNT: str(needs)},
                affinity=near if name in ("g0", "g1") else None,
                cpu=cpu,
                gates=("hold",) if is_gated else (),
                priority=PRIORITIES[name],
                annotations={RELEASE_AFTER: "15"} if name in ("g2", "g3") else None,
                owner=build.owned_by("StatefulSet", name),
            )
        self.cycle(n_cycles)

    def _see_pod(
        self,
        namespace: str,
        app: str,
        *,
        cpu: str = "300m",
        labels: dict[str, str] | None = None,
        **more: Any,
    ) -> None:
        if self.is_plain:
            more |= {"affinity": None, "spread": ()}
        ports = ["80"] if app == "y" and not self.is_plain else []
        container = build.container(requests={"cpu": cpu}, host_ports=ports)
        labels = {"app": app, **(labels or {})}
        more |= {"namespace": namespace, "labels": labels, "containers": [container]}
        pod = self.driver.pod(f"p{len(self.asked)}", **more)
        self.asked[pod.uid] = more
        self.known[pod.uid] = pod

    @precondition(lambda self: self._waiting_members())
    @rule(data=st.data())
    def regroup(self, data: st.DataObject) -> None:
        """Change the labels of a member that waits: from now on it is of another group, or of none."""
        pod = self.known[data.draw(st.sampled_from(self._waiting_members()))]
        name = data.draw(st.sampled_from(["", *self.needs]))
        group = {GROUP: name, MIN_COUNT: str(self.needs[name])} if name else {}
        more = {**self.asked[pod.uid], "terminating": pod.terminating}
        self.known[pod.uid] = self.driver.pod(
            pod.name, **{**more, "labels": {"app": pod.labels["app"], **group}}
        )

    def _waiting_members(self) -> list[str]:
        return sorted(uid for uid, pod in self.known.items() if pod.group is not None and not pod.node_name)

    @precondition(lambda self: self._plain())
    @rule(data=st.data(), app=st.sampled_from(APPS), terminating=st.booleans())
    def change_pod(self, data: st.DataObject, app: str, terminating: bool) -> None:
        uid = data.draw(st.sampled_from(self._plain()))
        old = self.known[uid]
        is_ending = old.terminating or terminating
        self.known[uid] = self.driver.update(old, labels={"app": app}, terminating=is_ending)

    @precondition(lambda self: self._plain(True))
    @rule(data=st.data())
    def show_unbound(self, data: st.DataObject) -> None:
        """Show a pod without its node: the server was restored from a backup, or lags behind."""
        uid = data.draw(st.sampled_from(self._plain(True)))
        self.known[uid] = self.driver.update(self.known[uid], node_name="")

    def _plain(self, is_bound: bool = False) -> list[str]:
        """Return the pods of no group; the bound ones with `is_bound`."""
        plain = (pod for pod in self.known.values() if pod.group is None)
        return sorted(pod.uid for pod in plain if pod.node_name or not is_bound)

    @precondition(lambda self: self.known)
    @rule(data=st.data(), is_shown=st.booleans())
    def delete_pod(self, data: st.DataObject, is_shown: bool) -> None:
        """Delete a pod; a watch shows it at once, or later."""
        uid = data.draw(st.sampled_from(sorted(self.known)))
        if uid not in self.ended:
            self.ended.insert(0, uid)
        if is_shown:
            self.ended.remove(uid)
            self.driver.lose(self.known.pop(uid))

    @precondition(lambda self: self.ended)
    @rule(how=st.sampled_from(("gone", "terminates", "terminates at once")))
    def show_end(self, how: str) -> None:
        uid = self.ended[-1]
        pod = self.known[uid]
        if how == "gone" or pod.terminating or not pod.node_name:
            self.ended.pop()
            self.driver.lose(self.known.pop(uid))
        else:
            self.known[uid] = self.driver.update(
                pod, terminating=True, ends_at_once="once" in how, disruption="PreemptionByScheduler"
            )

    # The machine.

    @rule(times=st.integers(1, 4))
    def cycle(self, times: int) -> None:
        for _ in range(times):
            self.driver.cycle()

    @precondition(lambda self: self.binds)
    @rule(data=st.data(), outcome=st.sampled_from(["done", "failed", "shown", "shown", "elsewhere"]))
    def answer_bind(self, data: st.DataObject, outcome: str) -> None:
        self._answer_bind(data.draw(st.sampled_from(sorted(self.binds))), outcome)

    def _answer_bind(self, uid: str, outcome: str) -> None:
        """A watch may show the pod bound, and unbound again, before the answer comes."""
        node = "d" if outcome == "elsewhere" else self.binds[uid].node_name
        if outcome in ("shown", "elsewhere") and uid in self.known and uid not in self.ended:
            self.shown.add(uid)
            self.known[uid] = self.driver.update(self.known[uid], node_name=node)
        if outcome == "shown":
            return
        del self.binds[uid]
        fails = outcome != "done" or uid in self.ended
        self.driver.handle(BindFailed(uid, "no") if fails else BindDone(uid))
        if not fails and uid in self.known and uid not in self.shown:
            self.known[uid] = self.driver.update(self.known[uid], node_name=node)
        self.shown.discard(uid)

    @precondition(lambda self: self.evictions)
    @rule(
        data=st.data(),
        fate=st.sampled_from((VictimFate.DELETED, VictimFate.DELETED, VictimFate.FAILED, VictimFate.SPARED)),
        is_answered=st.booleans(),
    )
    def evict(self, data: st.DataObject, fate: VictimFate, is_answered: bool) -> None:
        self._evict(data.draw(st.integers(0, len(self.evictions) - 1)), fate)
        if is_answered:
            self.answer_eviction()

    def _evict(self, index: int, fate: VictimFate) -> None:
        """Carry out an eviction, whose answer and whose end are told later."""
        eviction = self.evictions.pop(index)
        preemptor, victim = eviction.preemptor.uid, eviction.victim.uid
        if not self.driver.needs_eviction(preemptor, victim):
            fate = VictimFate.SPARED
        elif victim not in self.known or victim in self.ended:
            fate = VictimFate.GONE
        if fate is VictimFate.DELETED:
            self.ended.insert(0, victim)
        self.answers.append(EvictionEnded(preemptor, victim, fate))

    @precondition(lambda self: self.answers)
    @rule()
    def answer_eviction(self) -> None:
        self.driver.handle(self.answers.pop())

    @rule(seconds=st.sampled_from([0.5, 3.0, 12.0, 30.0, 130.0, 400.0]))
    def pass_time(self, seconds: float) -> None:
        self.driver.pass_time(seconds)

    @rule()
    def sweep(self) -> None:
        self.driver.handle(SweepDue())

    # What has to be so.

    def _compared(
        self, pod: Pod, view: ClusterView, profile: Profile, rng: Rng, observer: Observer
    ) -> Pieces[Decision]:
        decision = yield from deciding(pod, view, profile, rng, observer)
        assert_as_if_fresh(pod, self.driver.state, profile, decision)
        return decision

    @invariant()
    def counts_equal_a_recount(self) -> None:
        if hasattr(self, "driver"):
            assert all_differences(self.driver.machine) == []
            assert self.driver.state.n_assumed == sum(p.assumed for p in self.driver.state.placed.values())

    @invariant()
    def every_placed_pod_is_known_or_assumed(self) -> None:
        if hasattr(self, "driver"):
            assert set(self.driver.state.placed) <= set(self.known) | set(self.binds)

    @invariant()
    def no_pod_is_held_without_an_eviction(self) -> None:
        if hasattr(self, "driver"):
            held = {
                each.uid for each in self.driver.queue.pods() if each.gating_plugin == "DefaultPreemption"
            }
            assert held <= self.driver.state.held_for_evictions.keys()

    @invariant()
    def no_pod_sleeps_that_would_be_placed(self) -> None:
        """What is assumed wakes nobody before a watch shows it."""
        if hasattr(self, "driver") and not self.driver.state.n_assumed:
            assert self._sleepers() == []

    def _sleepers(self) -> list[str]:
        driver = self.driver
        return [
            f"{each.pod.key} {sorted(each.unschedulable_plugins)}"
            for each in driver.queue.pods()
            if each.sub_queue is SubQueue.UNSCHEDULABLE and each.pod.group is None
            if isinstance(
                decide(each.pod, driver.machine._view, driver.profiles[NAME], Random(0)), ScheduleResult
            )
        ]

    def teardown(self) -> None:
        """Answer everything, on nodes with room for all, and look at what is left; then live the same once more."""
        if not hasattr(self, "driver"):
            return
        self._patch.undo()
        self._settle()
        driver, machine = self.driver, self.driver.machine
        assert (machine.n_binding, machine.preemptions.is_evicting) == (0, False)
        assert not driver.state.held_for_evictions
        assert not driver.state.nominated
        waiting = {queued.uid for queued in driver.queue.pods()}
        assert waiting == {uid for uid, pod in self.known.items() if not pod.node_name}
        for name, needs in self.needs.items():
            key = GroupKey(GroupKind.OWN, "default", name)
            left = [pod for pod in driver.state.groups.pending(key) if not pod.gates]
            n_placed = sum(1 for _ in driver.state.groups.placed(key))
            assert not left or len(left) + n_placed < needs, (name, needs, n_placed, len(left))
        self._live_again()

    def _settle(self) -> None:
        self.ended += [uid for uid, pod in self.known.items() if pod.terminating and uid not in self.ended]
        for name in NODES:
            self.see_node(name, "z1", "64", "110")
        for _ in range(10):
            self.driver.pass_time(60.0)
            self.driver.cycles()
            while self.binds or self.evictions or self.answers or self.ended:
                for uid in sorted(self.binds):
                    self._answer_bind(uid, "done")
                while self.evictions:
                    self._evict(0, VictimFate.DELETED)
                while self.answers:
                    self.answer_eviction()
                while self.ended:
                    self.show_end("gone")

    def _live_again(self) -> None:
        chance, again = Random(self.seed), Driver(settings=self.settings)
        machine, ordered = again.machine, list[Instruction]()
        questions = WhatIfService(self.settings, again.state, now_s=lambda: again.now_s)
        for stimulus, now_s, _ in self.driver.record:
            again.now_s = now_s
            ordered += machine.handle(stimulus, now_s)
            for _ in range(chance.choice((0, 1, 2, 100))):
                ordered += machine.step() if machine.has_backlog else []
            if not machine.is_in_cycle and chance.random() < 0.1:
                again.audit()
                self._ask(again, questions, chance, ordered)
        while machine.has_backlog:
            ordered += machine.step()
        assert ordered == [one for _, _, told in self.driver.record for one in told]
        again.audit()

    def _ask(
        self, driver: Driver, questions: WhatIfService, chance: Random, ordered: list[Instruction]
    ) -> None:
        """Ask what may be asked of a machine at any time."""
        machine, waiting = driver.machine, [queued.pod for queued in driver.queue.pods()]
        machine.next_wake_s(driver.now_s), machine.has_work(), machine.n_binding, machine.n_unconfirmed
        asked = [(one.preemptor, one.victim) for one in each_of(ordered[-20:], EvictVictim)]
        placed = [each.pod for each in driver.state.placed.values()]
        if waiting and placed:
            asked.append((chance.choice(waiting), chance.choice(placed)))
        for preemptor, victim in asked:
            for step in EvictionStep:
                (_,) = machine.handle(EvictionDue(preemptor.uid, victim.uid, step), driver.now_s)
        if waiting:
            pod = chance.choice(waiting)
            machine.observed_node_name(pod.uid)
            questions.explanation(pod, waiting)


Lives.TestCase.settings = settings(max_examples=80, stateful_step_count=50, deadline=None)
TestLives = Lives.TestCase
