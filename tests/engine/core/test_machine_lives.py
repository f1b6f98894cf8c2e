"""
Random lives of a machine: pods, nodes and namespaces come, change and go; binds succeed, fail and are overtaken.

Counts equal a recount at any time, no pod is bound twice, and each decision is that of a state of the same objects
which has derived nothing yet.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from scheduler.engine.core.decide import Decision, deciding
from scheduler.engine.framework.interface import Rng
from scheduler.engine.framework.observer import Observer
from scheduler.engine.framework.profile import Profile
from scheduler.engine.model.instructions import Bind, Instruction
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import BindDone, BindFailed, CycleDue, ObjectGone, PodSeen, SweepDue
from scheduler.engine.state.audit import differences
from scheduler.engine.state.batches import Pieces
from scheduler.engine.state.cluster_view import ClusterView
from tests.engine.core.fresh import assert_as_if_fresh
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
    """What happens around a machine, and what has to be so after each of it."""

    @initialize()
    def start(self) -> None:
        self.driver = Driver()
        self._patch = pytest.MonkeyPatch()
        self._patch.setattr("scheduler.engine.core.machine.deciding", self._compared)
        self.known: dict[str, Pod] = {}
        self.ordered: dict[str, Bind] = {}
        self.n_names = 0
        for name, zone in (("a", "z1"), ("b", "z2"), ("c", "z2")):
            self.driver.node(name, labels={build.ZONE: zone})

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
    )
    def roll_out(
        self,
        n_pods: int,
        n_cycles: int,
        namespace: str,
        app: str,
        affinity: build.Json | None,
        spread: list[build.Json],
    ) -> None:
        """Show pods of one template, with `n_cycles` cycles after each."""
        for _ in range(n_pods):
            self._see_pod(namespace, app, affinity=affinity, spread=spread)
            self.cycle(n_cycles)

    def _see_pod(self, namespace: str, app: str, **more: Any) -> None:
        self.n_names += 1
        ports = ["80"] if app == "y" else []
        pod = self.driver.pod(
            f"p{self.n_names}",
            namespace=namespace,
            labels={"app": app},
            containers=[build.container(requests={"cpu": "300m"}, host_ports=ports)],
            **more,
        )
        self.known[pod.uid] = pod

    @rule(data=st.data(), app=st.sampled_from(APPS), terminating=st.booleans())
    def change_pod(self, data, app, terminating) -> None:
        if self.known:
            uid = data.draw(st.sampled_from(sorted(self.known)))
            old = self.known[uid]
            version = self.driver.next_version()
            new = replace(
                old, labels={"app": app}, terminating=old.terminating or terminating, resource_version=version
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
            orders: list[Instruction] = self.driver.handle(CycleDue())
            for order in orders:
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

    def teardown(self) -> None:
        if hasattr(self, "_patch"):
            self._patch.undo()

    def _compared(
        self, pod: Pod, view: ClusterView, profile: Profile, rng: Rng, observer: Observer
    ) -> Pieces[Decision]:
        decision = yield from deciding(pod, view, profile, rng, observer)
        assert_as_if_fresh(pod, self.driver.state, profile, decision)
        return decision

    @invariant()
    def counts_equal_a_recount(self) -> None:
        if hasattr(self, "driver"):
            assert [*differences(self.driver.state), *self.driver.machine.differences()] == []
            assert self.driver.state.n_assumed == sum(p.assumed for p in self.driver.state.placed.values())

    @invariant()
    def every_placed_pod_is_known_or_assumed(self) -> None:
        if hasattr(self, "driver"):
            assert set(self.driver.state.placed) <= set(self.known) | set(self.ordered)


Lives.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestLives = Lives.TestCase
