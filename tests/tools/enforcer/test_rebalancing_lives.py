"""Scheduler, fallbacks and rebalancing together, while zones come and go: rules bend, and hold again."""

from __future__ import annotations

import json
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.engine.model.fallback import FALLBACK, RELAXED
from scheduler.engine.model.stimuli import NodeGone
from scheduler.tools.enforcer.limits import RebalanceLimits
from tests.support.build import ZONE, Json, affinity, selector, term
from tests.tools.enforcer.rebalanced_cluster import RebalancedCluster

_ENTRY = json.dumps([{"rule": "podAntiAffinity", "topologyKey": ZONE, "afterSeconds": 20}])
_APART = affinity(anti_required=[term(ZONE, selector("app=web"))])
_LIMITS = RebalanceLimits(min_gain=100, hold_s=6.0, pause_s=10.0, cool_down_s=30.0)


class Life(RebalancedCluster):
    """Zones come and go, and a controller creates the replicas that are missing at each step."""

    def __init__(self, n_replicas: int) -> None:
        super().__init__(_LIMITS)
        self.zones: dict[str, str] = {}
        self._n_created = 0
        self._n_replicas = n_replicas

    def add_node(self, name: str, zone: str) -> None:
        self.zones[name] = zone
        self.node(name, labels={ZONE: zone})

    def remove_node(self, name: str) -> None:
        del self.zones[name]
        for uid in [uid for uid, pod in self.pods.items() if pod["spec"].get("nodeName") == name]:
            self.delete(uid)
        self.driver.handle(NodeGone(name))
        self.state.nodes.remove(name)

    def schedule(self) -> None:
        while len(self.pods) < self._n_replicas:
            self._n_created += 1
            rule: Json = {"affinity": _APART, "annotations": {FALLBACK: _ENTRY}}
            self.pod(f"web-{self._n_created}", labels={"app": "web"}, **rule)
        super().schedule()

    def replace(self, evicted: Json) -> None:
        """At the next step."""

    def replicas_by_zone(self) -> Counter[str]:
        return Counter(self.zones[pod["spec"]["nodeName"]] for pod in self.pods.values() if _is_bound(pod))


def _is_bound(pod: Json) -> bool:
    return bool(pod["spec"].get("nodeName"))


def test_a_rule_bends_while_a_zone_is_missing_and_holds_again_after() -> None:
    """The third replica waits, is relaxed, and moves to the third zone once that is there."""
    life = Life(3)
    for name, zone in (("a1", "a"), ("b1", "b"), ("b2", "b")):
        life.add_node(name, zone)
    life.live(18.0)
    assert life.replicas_by_zone().total() == 2
    life.live(10.0)
    assert life.replicas_by_zone().total() == 3
    life.live(60.0)
    assert life.moves == []
    life.add_node("c1", "c")
    life.live(120.0)
    assert life.replicas_by_zone() == {"a": 1, "b": 1, "c": 1}
    assert [move.why for move in life.moves] == [f"podAntiAffinity by {ZONE} can hold again"]
    assert not any(RELAXED in pod["metadata"]["annotations"] for pod in life.pods.values())


@settings(max_examples=8, deadline=None)
@given(
    n_replicas=st.integers(1, 5),
    changes=st.lists(
        st.tuples(st.sampled_from(("a1", "b1", "c1", "d1", "d2")), st.sampled_from((10.0, 40.0, 100.0))),
        max_size=8,
    ),
)
def test_whatever_comes_and_goes_all_replicas_run_in_the_end_as_far_apart_as_they_can(
    n_replicas: int, changes: list[tuple[str, float]]
) -> None:
    """
    Nodes come and go, with their zones. Then, in a quiet time, every replica runs, and the moves end.

    A replica is relaxed in the end only if no zone is free for it, or if its like has left its node before.
    """
    life = Life(n_replicas)
    life.add_node("base", "base")
    for name, seconds in changes:
        if name in life.zones:
            life.remove_node(name)
        else:
            life.add_node(name, name[0])
        life.live(seconds)
    life.live(600.0)
    n_moves = len(life.moves)
    found = life.replicas_by_zone()
    assert found.total() == n_replicas
    left = {move.pod.node_name for move in life.moves}
    for pod in life.pods.values():
        if RELAXED in pod["metadata"]["annotations"] and pod["spec"]["nodeName"] not in left:
            free = set(life.zones.values()) - set(found)
            alone = found[life.zones[pod["spec"]["nodeName"]]] == 1
            assert alone or not free, (found, free)
    life.live(300.0)
    assert len(life.moves) == n_moves
    life.audit()
