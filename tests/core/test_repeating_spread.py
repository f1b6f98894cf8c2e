"""
Rollouts with soft spread constraints, whose scores are by kinds of nodes: beside whatever else moves scores and nodes.

That a repeated decision is the same as one made anew is said by conftest; here is drawn what happens in between.
"""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from scheduler.core.kept import Kept
from scheduler.core.kind_totals import KindTotals
from scheduler.framework.by_kind import ByKind
from scheduler.framework.interface import Candidate, Feasible, PreScored, Rescored
from scheduler.framework.profile import Weighted
from scheduler.model.pods import Pod
from scheduler.state.arrays import Scores
from scheduler.state.snapshot import Snapshot
from tests.support import build
from tests.support.build import HOSTNAME, ZONE, Json
from tests.support.driving import NAME, Driver, bind_of

_N_NODES, _N_ZONES = 12, 3
_WEB, _DB = {"app": "web"}, {"app": "db"}
_SOFT = build.spread(ZONE, build.selector("app=web"), soft=True)
_ON_NODES = build.spread(HOSTNAME, build.selector("app=web"), soft=True)
_HARD = build.spread(ZONE, build.selector("app=db"))
_FAR = build.affinity(anti_required=[build.term(ZONE, build.selector("app=db"))])
_NEAR = build.affinity(preferred=[(3, build.term(HOSTNAME, build.selector("app=db")))])
_NEAR_AND_FAR = {**_NEAR, **_FAR}

#: What a rollout's pods ask for.
_ROLLOUTS: dict[str, Json] = {
    "zones": {"spread": [_SOFT]},
    "zones and nodes": {"spread": [_SOFT, _ON_NODES]},
    "zones, others hard": {"spread": [_SOFT, _HARD]},
    "zones and nodes, far": {"spread": [_SOFT, _ON_NODES], "affinity": _FAR},
    "zones, near": {"spread": [_SOFT], "affinity": _NEAR},
    "zones and nodes, near and far": {"spread": [_SOFT, _ON_NODES], "affinity": _NEAR_AND_FAR},
}


class _Cluster:
    """Pods come and go while rollouts go on."""

    def __init__(self, seed: int, factor: int) -> None:
        self._chance = Random(seed)
        self.driver = Driver(seed)
        profile = self.driver.profiles[NAME]
        heavier = tuple(Weighted(one.plugin, one.weight * factor) for one in profile.scorers)
        assert isinstance(self.driver.profiles, dict)
        self.driver.profiles[NAME] = replace(profile, scorers=heavier)
        room = {"cpu": "4", "memory": "8Gi", "pods": "12"}
        for index in range(_N_NODES):
            labels = {ZONE: f"z{index % _N_ZONES}", HOSTNAME: f"n{index}"}
            self.driver.node(f"n{index}", labels=labels, allocatable=room)
        self._others: list[Pod] = []
        self._n = 0

    def step(self, rollout: Json) -> None:
        """A pod of the rollout is decided, or another one comes or goes."""
        self._n += 1
        draw = self._chance.random()
        if draw < 0.2:
            labels = self._chance.choice([_WEB, _DB, _DB])
            node = f"n{self._chance.randrange(_N_NODES)}"
            self._others.append(self.driver.pod(f"other-{self._n}", node=node, labels=labels))
        elif draw < 0.4 and self._others:
            self.driver.lose(self._others.pop(self._chance.randrange(len(self._others))))
        else:
            pod = self.driver.pod(f"web-{self._n}", labels=_WEB, **rollout)
            binds = [bind_of([one]) for one in self.driver.cycle() if getattr(one, "node_name", "")]
            if binds:
                self._others.append(self.driver.confirm(pod, binds[0].node_name))
            else:
                self.driver.lose(pod)


@pytest.fixture
def by_kind(monkeypatch: pytest.MonkeyPatch) -> list[KindTotals]:
    """The totals by kind that were looked at, decision by decision."""
    looked_at: list[KindTotals] = []
    count = Kept._count_kinds

    def counted(kept: Kept, scores: ByKind, rows: Sequence[int]) -> KindTotals:
        looked_at.append(count(kept, scores, rows))
        return looked_at[-1]

    monkeypatch.setattr(Kept, "_count_kinds", counted)
    return looked_at


@pytest.mark.parametrize("factor", [1, 2**8, 2**24], ids=["16 bits", "32 bits", "64 bits"])
@pytest.mark.parametrize("rollout", _ROLLOUTS)
def test_a_rollout_is_decided_as_each_pod_would_be_anew(
    rollout: str, factor: int, by_kind: list[KindTotals]
) -> None:
    for seed in range(3):
        cluster = _Cluster(seed, factor)
        for _ in range(150):
            cluster.step(_ROLLOUTS[rollout])
        cluster.driver.audit()
    # Preferences may move as well.
    if "near" not in rollout:
        assert len(by_kind) > 50


class _Turn:
    """What the scorers below go by, one further before each pod."""

    number = 0


class _ByZone:
    """Scores by zone, whose numbers as kinds are others every few turns: told by another array then."""

    def __init__(self, turn: _Turn) -> None:
        self._turn = turn
        zones = np.arange(_N_NODES) % 2
        self._numbered = (zones, 1 - zones)

    def raw(self) -> ByKind:
        number, swapped = self._turn.number, self._turn.number // 3 % 2
        return ByKind(
            self._numbered[swapped],
            lambda kinds: {kind: 20 + (number + (kind ^ swapped)) % 2 * 30 for kind in kinds},
        )

    def normalized(self, raw: ByKind) -> Scores:
        raw.among((0, 1))
        return raw.on_nodes()

    def again(self, rows: Sequence[int]) -> Rescored:
        return self.raw(), rows


class _AtOneNode:
    """Scores that move at a node to which no pod came."""

    def __init__(self, turn: _Turn) -> None:
        self._turn = turn
        self._scores = np.full(_N_NODES, 50, dtype=np.int16)

    def raw(self) -> Scores:
        self._scores[5] = self._turn.number % 7
        return self._scores

    def normalized(self, raw: Scores) -> Scores:
        return raw

    def again(self, rows: Sequence[int]) -> Rescored:
        return self.raw(), [*rows, 5]


class _Made:
    """A plugin whose scorer is made by the turn."""

    def __init__(self, name: str, made: type[_ByZone] | type[_AtOneNode], turn: _Turn) -> None:
        self.name, self._made, self._turn = name, made, turn

    def prescore(self, candidate: Candidate, snapshot: Snapshot, feasible: Feasible) -> PreScored:
        del candidate, snapshot, feasible
        return self._made(self._turn)


@pytest.mark.parametrize("weight", [2, 2**26])
def test_plugins_may_do_all_that_a_scorer_may(weight: int, by_kind: list[KindTotals]) -> None:
    """Zones close in turn, kinds get other numbers, and a node is liked more or less that nobody came to."""
    turn, driver = _Turn(), Driver()
    profiles = driver.profiles
    assert isinstance(profiles, dict)
    made = (
        Weighted(_Made("ByZone", _ByZone, turn), weight),
        Weighted(_Made("AtOneNode", _AtOneNode, turn), 1),
    )
    profiles[NAME] = replace(profiles[NAME], scorers=made)
    for index in range(_N_NODES):
        driver.node(f"n{index}", labels={ZONE: f"z{index % 2}", HOSTNAME: f"n{index}"})
    for number in range(60):
        closing = [driver.pod(f"db-{number}", node=f"n{number % 2}", labels=_DB)] if number % 4 < 2 else []
        turn.number += 1
        pod = driver.pod(f"web-{number}", labels=_WEB, affinity=_FAR)
        driver.confirm(pod, bind_of(driver.cycle()).node_name)
        for other in closing:
            driver.lose(other)
    assert len(by_kind) > 30
