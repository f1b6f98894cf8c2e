"""Which replica goes first: the costs, against trying every order; what is written, and what is left alone."""

from __future__ import annotations

import asyncio
import io
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import combinations, islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.daemon.metrics.logs import configure
from scheduler.engine.model.annotations import AFFINITY
from scheduler.engine.model.pods import DELETION_COST, WRITTEN_DELETION_COST
from scheduler.engine.model.stimuli import PodGone, PodSeen
from scheduler.engine.state.batches import finished
from scheduler.tools.enforcer.cost_writer import CostWriter
from scheduler.tools.enforcer.deletion_costs import DeletionCosts
from scheduler.tools.enforcer.metrics import EnforcementMetrics
from scheduler.tools.enforcer.reports import EnforcementReporter
from tests.support import build
from tests.support.api_bodies import body
from tests.support.build import HOSTNAME, ZONE, Json, selector, term
from tests.support.enforcer_driver import Driver
from tests.support.json_cluster import decoded
from tests.support.scripted_server import client_of, reply, scripted

_SPREAD = [build.spread(ZONE, selector("app=web"))]


class Costs:
    """Replicas of one ReplicaSet in zones, with pods of none between them, and what is written."""

    def __init__(
        self, *, per_minute: int = 100, acts: bool = True, protected: Sequence[str] = (), **more: Any
    ) -> None:
        self.driver = Driver()
        self.more = more
        self.costs = DeletionCosts(
            self.driver.enforcer.state,
            writes_per_minute=per_minute,
            acts=acts,
            exempt_namespaces=frozenset(),
            is_protected=lambda pod: pod.namespace in protected,
        )
        self.now_s = 0.0
        self._n_seen = 0
        self.documents: dict[str, Json] = {}
        self.driver.node("other")

    def place(
        self, zones: Sequence[str], annotations: Mapping[str, str] | None = None, *, first: int = 0
    ) -> None:
        for number, zone in enumerate(zones, first):
            for node in (0, 1):
                self.driver.node(f"{zone}{node}", labels={ZONE: zone})
            document = build.pod(
                f"web-{number:02}",
                node=f"{zone}{number % 2}",
                labels={"app": "web"},
                owner=build.owned_by("ReplicaSet", "web"),
                **self.more,
            )
            document["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:{number:02}Z"
            document["metadata"].setdefault("annotations", {}).update(annotations or {})
            self.see(document)
            self.see(build.pod(f"other-{number}", node="other"))

    def see(self, document: Json) -> None:
        self._n_seen += 1
        document["metadata"]["resourceVersion"] = str(self._n_seen)
        self.documents[document["metadata"]["name"]] = document
        self.driver.enforcer.apply(PodSeen(decoded(document)))

    def annotate(self, name: str, **annotations: str | None) -> None:
        document = self.documents[name]
        own = document["metadata"].setdefault("annotations", {})
        for key, value in (
            (DELETION_COST, annotations["cost"]),
            (WRITTEN_DELETION_COST, annotations["written"]),
        ):
            own.pop(key, None)
            if value is not None:
                own[key] = value
        self.see(document)

    def check(self) -> dict[str, str]:
        self.now_s += 5.0
        return {write.pod.name: write.cost for write in finished(self.costs.check(self.now_s))}

    def settle(self) -> dict[str, str]:
        """Write until nothing is left, as the API server would show it. Return all costs."""
        told: dict[str, str] = {}
        while writes := self.check():
            for name, cost in writes.items():
                self.annotate(name, cost=cost, written=cost)
            told |= writes
        return told

    def order(self) -> list[str]:
        """Return the zones of the pods in the order in which they go."""
        costs = self.settle()
        names = sorted(costs, key=lambda name: (int(costs[name]), name))
        return [self.documents[name]["spec"]["nodeName"][0] for name in names]


def test_the_second_rule_says_which_pod_of_a_zone():
    """Two of the three on a0 are by age in the middle."""
    spread = [*_SPREAD, build.spread(HOSTNAME, selector("app=web"), soft=True)]
    costs = Costs(spread=spread)
    costs.place("aaaaa")
    told = costs.settle()
    assert told["web-04"] == "-5"
    assert {told["web-00"], told["web-01"]} == {"-1", "-2"}


@pytest.mark.parametrize("percent", [2, "40%"])
def test_a_maximum_per_domain_counts_too(percent: int | str):
    limited = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {**term(ZONE, selector("app=web")), "maxPodsPerDomain": percent}]}}  # fmt: skip
    costs = Costs()
    costs.place("aabb", {AFFINITY: json.dumps(limited)})
    assert sorted(costs.settle().values()) == ["-1", "-1", "-2", "-2"]


def test_a_users_cost_is_left_alone_and_ours_follows():
    costs = Costs(spread=_SPREAD)
    costs.place("aaab")
    costs.annotate("web-01", cost="7", written=None)
    costs.annotate("web-02", cost="8", written="-3")
    assert costs.settle() == {"web-00": "-1", "web-03": "-1"}
    costs.annotate("web-02", cost=None, written="-3")
    assert costs.settle() == {"web-02": "-3"}


@pytest.mark.parametrize("n_pieces", range(3))
def test_a_pod_that_is_evicted_between_two_pieces_gets_no_cost(n_pieces: int):
    costs = Costs(spread=_SPREAD)
    costs.place("aa")
    pieces = costs.costs.check(costs.now_s)
    assert sum(1 for _ in islice(pieces, n_pieces)) == n_pieces
    costs.driver.enforcer.apply(PodGone(costs.documents["web-01"]["metadata"]["uid"]))
    assert {write.pod.name for write in finished(pieces)} <= {"web-00"}


def test_nothing_is_written_twice_before_a_watch_shows_it_and_again_after_a_failure():
    costs = Costs(spread=_SPREAD)
    costs.place("aa")
    assert costs.check() == {"web-00": "-1", "web-01": "-2"}
    assert costs.check() == {}
    costs.costs.on_failed(costs.documents["web-01"]["metadata"]["uid"], costs.now_s)
    assert costs.check() == {}
    costs.now_s += 30.0
    assert costs.check() == {"web-01": "-2"}


def test_at_most_so_many_writes_a_minute_the_first_to_go_first():
    costs = Costs(spread=_SPREAD, per_minute=2)
    costs.place("aaab")
    assert costs.check() == {"web-02": "-3", "web-01": "-2"}
    assert costs.check() == {}
    costs.now_s += 60.0
    assert costs.check() == {"web-00": "-1", "web-03": "-1"}


def test_a_dry_run_says_each_cost_once():
    costs = Costs(spread=_SPREAD, acts=False)
    costs.place("aa")
    assert len(costs.check()) == 2
    costs.see(costs.documents["web-01"])
    assert costs.check() == {}


@pytest.mark.parametrize(
    "settings_",
    [
        pytest.param({}, id="no rule"),
        pytest.param({"spread": [build.spread(ZONE, selector("app=db"))]}, id="a rule about others"),
        pytest.param({"spread": _SPREAD, "namespace": "kube-system"}, id="protected"),
        pytest.param(
            {"spread": [build.spread(ZONE, {"matchExpressions": [{"key": "a b", "operator": "In"}]})]},
            id="a malformed rule",
        ),
    ],
)
def test_no_cost_for(settings_: dict[str, Any]):
    costs = Costs(protected=["kube-system"], **settings_)
    costs.place("aab")
    assert costs.check() == {}


def test_pods_of_others_stay_and_terminating_ones_do_not_count():
    costs = Costs(spread=_SPREAD)
    costs.place("ab")
    other = build.pod("other", node="b0", labels={"app": "web"})
    costs.see(other)
    assert costs.settle() == {"web-00": "-1", "web-01": "-2"}
    other["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    costs.see(other)
    assert costs.settle() == {"web-01": "-1"}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from("abc"), min_size=2, max_size=9))
def test_any_scale_down_leaves_the_least_skew_that_any_choice_leaves(zones: list[str]):
    costs = Costs(spread=_SPREAD)
    costs.place(zones)
    order = costs.order()
    assert sorted(order) == sorted(zones)

    def spread(left: Sequence[str]) -> int:
        counts = Counter(left)
        there = [counts[zone] for zone in set(zones)]
        return max(there) - min(there)

    for n_gone in range(len(zones)):
        least = min(spread(left) for left in combinations(order, len(order) - n_gone))
        assert spread(order[n_gone:]) == least


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12), st.integers(1, 9), st.integers(1, 9))
def test_any_scale_down_keeps_two_weights_within_their_share(n_pods: int, a: int, b: int):
    """Replicas that were at their shares stay below the next whole pod of it, whichever number is left."""
    shares = {**term(ZONE, selector("app=web")), "domainWeights": {"a": a, "b": b}}
    preferred = [{"weight": 100, "podAffinityTerm": shares}]
    weights = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    n_a = round(Fraction(a * n_pods, a + b))
    costs = Costs()
    costs.place("a" * n_a + "b" * (n_pods - n_a), {AFFINITY: json.dumps(weights)})
    costs.driver.node("a0", labels={ZONE: "a"})
    costs.driver.node("b0", labels={ZONE: "b"})
    order = costs.order()
    for n_gone in range(len(order)):
        left = Counter(order[n_gone:])
        for zone, weight in (("a", a), ("b", b)):
            assert left[zone] < Fraction(weight * left.total(), a + b) + 1


@pytest.mark.parametrize(
    ("acts", "status", "says"),
    [
        (False, 200, "Would write the cost of deletion"),
        (True, 200, "Wrote the cost of deletion"),
        (True, 403, "Cost of deletion not written; retrying later"),
    ],
)
async def test_a_cost_is_logged_or_written_or_written_later(acts: bool, status: int, says: str) -> None:
    """Once this instance may act, and not before."""
    costs, log, leads = Costs(spread=_SPREAD, acts=acts), io.StringIO(), False
    costs.place("aa")
    logger = configure(verbosity=2, form="text", stream=log)
    reports = EnforcementReporter(EnforcementMetrics(version="v"), logger, None)
    answers = [reply(body(status, "X", ""), status=status)] * (2 * acts)
    async with scripted(*answers) as script, client_of(script) as client:
        writer = CostWriter(costs.costs, client, reports, may_act=lambda: leads, now_s=lambda: costs.now_s)
        for leads in (False, True):
            async with asyncio.TaskGroup() as group:
                await writer.write(group)
            assert log.getvalue().count(says) == 2 * leads
            assert writer.next_s > costs.now_s
            costs.now_s = writer.next_s
        sent = [json.loads(each.body)["metadata"]["annotations"] for each in script.received]
    assert sent == [{DELETION_COST: cost, WRITTEN_DELETION_COST: cost} for cost in ("-2", "-1") if acts]
