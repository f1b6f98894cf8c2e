"""Which pods are evicted, when, and which stay: stimuli in, instructions out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from scheduler.engine.model.annotations import AFFINITY
from scheduler.engine.model.fallback import FALLBACK, RELAXED
from scheduler.engine.model.stimuli import NodeGone
from scheduler.tools.enforcer.eviction_limits import BACKOFF_S, WINDOW_S
from scheduler.tools.enforcer.instructions import (
    EnforcerInstruction,
    Evict,
    EvictionResult,
    EvictionShare,
    ReportTooManyEvictions,
    ViolationCause,
)
from scheduler.tools.enforcer.limits import EvictionLimits
from tests.support import build
from tests.support.build import ZONE, Json, selector, term
from tests.support.enforcer_driver import FREE, REQUIRED, Driver, rules

MARK = {"affinity-scheduler.io/annotation-reach": "cluster"}
WEB, DB = {"app": "web"}, {"app": "db"}
APART = rules(far=[term(ZONE, selector("app=web"))])
NEAR_DB = rules(near=[term(ZONE, selector("app=db"))])
NEAR_WEB = rules(near=[term(ZONE, selector("app=web"))])
HALF = rules(far=[{**term(ZONE, selector("app=web")), "maxPodsPerDomain": "50%"}])


@pytest.fixture
def cluster() -> Iterator[Driver]:
    """Yield a cluster: nodes a1 and a2 in zone a, b1 and b2 in zone b."""
    driver = zones()
    yield driver
    driver.audit()


def zones(limits: EvictionLimits = FREE, **settings: object) -> Driver:
    driver = Driver(limits, **settings)
    for name in ("a1", "a2", "b1", "b2"):
        driver.node(name, labels={ZONE: name[0]})
    driver.namespace("default")
    driver.check()
    return driver


def evict_of(orders: list[EnforcerInstruction]) -> Evict:
    (found,) = (each for each in orders if isinstance(each, Evict))
    return found


# Anti-affinity.


def test_an_enforced_rule_yields_to_a_pod_that_has_relaxed_it(cluster: Driver) -> None:
    """Neither is evicted nor reported; a third pod, which has not relaxed it, is."""
    entry = {"rule": "podAntiAffinity", "topologyKey": ZONE, "afterSeconds": 60}
    name = f"podAntiAffinity by {ZONE}"

    def web(pod: str, node: str, **more: str) -> None:
        document = build.pod(
            pod,
            node=node,
            labels=WEB,
            phase="Running",
            annotations={AFFINITY: json.dumps(APART), FALLBACK: json.dumps([entry]), **more},
        )
        cluster.see(document)

    web("first", "a1")
    web("relaxed", "a2", **{RELAXED: json.dumps([{"rule": name}])})
    assert cluster.check() == []
    assert cluster.enforcer.status.violations == []
    web("second", "a2")
    assert len(cluster.enforce()) == 1
    cluster.gone("uid-default-relaxed")
    assert cluster.enforcer.check(cluster.now_s) == []
    web("third", "a2", **{RELAXED: json.dumps([{"rule": name}])})
    assert cluster.check() == []
    web("third", "a2")
    assert len(cluster.enforce()) == 1, "a mark that is taken off counts no more"


def test_an_enforced_rule_yields_to_one_that_holds_at_scheduling_alone(cluster: Driver) -> None:
    """The scheduler places a pod that has relaxed the term beside one that has it enforced: the term is the same."""
    name = f"podAntiAffinity by {ZONE}"
    entry = json.dumps([{"rule": "podAntiAffinity", "topologyKey": ZONE, "afterSeconds": 60}])
    softer = rules(far=[term(ZONE, selector("app=web"))], which=REQUIRED)
    mark = {RELAXED: json.dumps([{"rule": name}])}
    for pod, node, declared, more in (("enforced", "a1", APART, {}), ("relaxed", "a2", softer, mark)):
        annotations = {AFFINITY: json.dumps(declared), FALLBACK: entry, **more}
        cluster.see(build.pod(pod, node=node, labels=WEB, phase="Running", annotations=annotations))
    assert cluster.check() == []
    assert cluster.enforcer.status.violations == []


#: A pod: the arguments of `Driver.pod`.
Placed = tuple[tuple[Any, ...], dict[str, Any]]


def on(name: str, node: str, rule: Json | None = None, *, day: int = 1, **more: Any) -> Placed:
    return (name, node, rule), {"labels": WEB, "created": f"2026-01-0{day}T00:00:00Z", **more}


def picky(priority: int, *others: int) -> list[Placed]:
    """Return a pod with a rule, and younger ones that break it, of these priorities."""
    web = [on(f"w{n}", "a2", day=2, priority=other) for n, other in enumerate(others)]
    return [on("picky", "a1", APART, priority=priority, labels={}), *web]


def limit(**of_domain: object) -> Json:
    return rules(far=[{**term(ZONE, selector("app=web")), **of_domain}])


def limited(rule: Json, nodes: str) -> list[Placed]:
    """Return a pod with the rule on each of the nodes, the youngest last."""
    return [on(f"p{n}", node, rule, day=n + 1) for n, node in enumerate(nodes.split())]


def case(id_: str, gone: str, *pods: Placed) -> Any:
    return pytest.param(pods, gone, id=id_)


EVERYWHERE = rules(far=[term(ZONE, selector("app=web"), namespace_selector={})])
TIGHTER = [on(f"{n}-{day}", "a1", limit(maxPodsPerDomain=n), day=day) for day, n in enumerate((1, 2, 2), 1)]
OF_ALL, OF_SYSTEM = on("p", "a1", EVERYWHERE, labels={}), on("w", "a2", namespace="kube-system")
BY_SYSTEM = on("d", "b1", EVERYWHERE, namespace="kube-system", labels={})
PICKY, DAEMON = on("picky", "a1", APART, priority=5, labels={}), on("daemon", "a2", priority=1)
OLD, NEW = on("old", "a1", APART), on("new", "a2", APART, day=2)
BOTH = on("p", "a1", {**NEAR_DB, **APART}, grace="0")


@pytest.mark.parametrize(
    ("pods", "gone"),
    [
        case("the younger of two in a zone", "new", OLD, NEW, on("far", "b1", APART)),
        case("the other is of lower priority", "w0", *picky(5, 1)),
        case("all are equal", "picky", *picky(5, 5)),
        case("the declaring pod is of lower priority", "picky", *picky(1, 5)),
        case("all others are of lower priority", "w1 w0", *picky(5, 1, 1)),
        case("evicting the lower one would not be enough", "picky", *picky(5, 1, 9)),
        case("at equal priority the tightest limit", "1-1", *TIGHTER),
        case("50 %, the youngest", "p3", *limited(HALF, "a1 a1 a2 a2 b1 b1")),
        case("shares", "p2", *limited(limit(domainWeights={"a": 1, "b": 2}), "a1 a1 a2 b1 b1")),
        case("50 % on nodes", "p1", *limited(HALF, "a1 a2 gone gone")),
        case("a zone without a weight", "p0", *limited(limit(domainWeights={"b": 1}), "a1 b1")),
        case("a zone that is gone", "", *limited(limit(domainWeights={"b": 1, "gone": 9}), "b1 b2")),
        case("on an unknown node nothing is checked", "", on("p", "gone", NEAR_DB, grace="0")),
        case("a terminating pod does not count", "", OLD, on("q", "a2", APART, terminating=True)),
        # It would return to its node, so the declaring pod is evicted, whatever its priority.
        case("a daemon's pod stays", "picky", PICKY, DAEMON),
        # One eviction mends both rules.
        case("for affinity before anti-affinity is checked", "p", BOTH, on("q", "a2", APART, day=2)),
        case(
            "exempt namespaces neither declare nor are selected",
            "",
            OF_ALL,
            OF_SYSTEM,
            BY_SYSTEM,
            on("v", "b2"),
        ),
    ],
)
def test_who_is_evicted(pods: list[Placed], gone: str) -> None:
    cluster = zones(is_movable=lambda pod: pod.name != "daemon", exempt_namespaces=frozenset({"kube-system"}))
    for where, more in pods:
        cluster.pod(*where, **more)
    assert cluster.enforce() == gone.split()
    assert bool(gone) or cluster.enforcer.status.violations == []
    cluster.audit()


@pytest.mark.parametrize(("priority", "gone"), [(1, ["web"]), (5, []), (9, [])])
def test_rules_of_an_immovable_pod_evict_only_lower_priorities(priority: int, gone: list[str]) -> None:
    cluster = zones(is_movable=lambda pod: pod.name != "daemon")
    cluster.pod("daemon", "a1", APART, priority=5)
    cluster.pod("web", "a2", labels=WEB, priority=priority)
    assert cluster.enforce() == gone
    assert cluster.enforcer.status.waiting["beyond help"] == (not gone)


def test_a_share_is_less_once_a_terminating_pod_is_gone(cluster: Driver) -> None:
    cluster.pod("old", "a1", HALF, labels=WEB, created="2026-01-01T00:00:00Z")
    cluster.pod("new", "a2", HALF, labels=WEB, created="2026-01-02T00:00:00Z")
    leaving = cluster.pod("leaving", "b2", labels=WEB, terminating=True)
    assert cluster.enforce() == []
    cluster.gone(leaving)
    assert cluster.enforce() == ["new"]


def test_an_eviction_that_mends_a_rule_does_not_change_the_order_of_the_others(cluster: Driver) -> None:
    """The database is evicted first. Both others broke a rule at first, so the younger one is next."""
    far_from = {name: term(ZONE, selector(f"app={name}")) for name in ("web", "db")}
    both = rules(far=[far_from["db"], far_from["web"]])
    cluster.pod("old", "a1", both, labels=WEB, priority=2, created="2026-01-01T00:00:00Z")
    new = cluster.pod(
        "new", "a2", rules(far=[far_from["db"]]), labels=WEB, priority=2, created="2026-01-02T00:00:00Z"
    )
    database = cluster.pod("database", "a1", labels={"app": "db"})
    assert evict_of(cluster.check()).pod.uid == database
    cluster.evicted(database)
    assert evict_of(cluster.check()).pod.uid == new


def test_a_pod_is_not_evicted_for_rules_that_it_no_longer_has(cluster: Driver) -> None:
    """Both broke a rule and a budget kept them. Then one allows more pods, so the other is evicted."""
    limited = {n: rules(far=[{**term(ZONE, selector("app=web")), "maxPodsPerDomain": n}]) for n in (1, 2, 3)}
    cluster.pod("plain", "a1", labels=WEB)
    cluster.pod("rewritten", "a1", limited[1], labels=WEB)
    cluster.pod("other", "a2", limited[2], labels=WEB)
    blocked = evict_of(cluster.check()).pod
    assert blocked.name == "rewritten"
    cluster.enforcer.on_eviction_result(blocked.uid, EvictionResult.BLOCKED, cluster.now_s)
    cluster.pod("rewritten", "a1", limited[3], labels=WEB)
    assert cluster.enforce(BACKOFF_S) == ["other"]


def test_an_evicted_pod_does_not_count_although_the_watch_is_late(cluster: Driver) -> None:
    for name in "pq":
        cluster.pod(name, "a1", APART, labels=WEB)
    gone = evict_of(cluster.check()).pod
    assert cluster.check() == [], "one eviction at a time"
    cluster.enforcer.on_eviction_result(gone.uid, EvictionResult.EVICTED, cluster.now_s)
    cluster.see(cluster.pods[gone.uid])
    assert cluster.check() == []


def test_an_annotation_is_enforced_across_namespaces_only_while_its_namespace_is_marked(
    cluster: Driver,
) -> None:
    cluster.pod("p", "a1", rules(far=[term(ZONE, selector("app=web"), namespaces=["shop"])]))
    cluster.pod("q", "a2", namespace="shop", labels=WEB)
    assert cluster.enforce() == []
    assert cluster.enforcer.status.n_enforced.total() == 0
    cluster.namespace("default", **MARK)
    refused = evict_of(cluster.check()).pod
    assert cluster.enforcer.status.n_enforced.total() == 1
    cluster.enforcer.on_eviction_result(refused.uid, EvictionResult.BLOCKED, cluster.now_s)
    cluster.namespace("default")
    assert cluster.enforce(1000.0) == []
    assert cluster.enforcer.status.n_enforced.total() == 0
    cluster.audit()


def test_a_rule_that_holds_again_evicts_no_pod() -> None:
    cluster = zones(replace(FREE, settle_s=2.0))
    cluster.pod("p", "a1", APART, labels=WEB)
    other = cluster.pod("q", "a2", labels=WEB)
    assert cluster.check() == []
    assert cluster.enforcer.wake_s == cluster.now_s + 2.0
    cluster.relabel(other, app="db")
    assert cluster.enforce(2.0) == []
    cluster.relabel(other, app="web")
    assert cluster.enforce(1.0) == []
    assert cluster.enforce(2.0) == ["p"]


# Affinity.


@pytest.mark.parametrize(
    ("grace", "wait_s"), [("0", 0.0), ("2.5", 2.5), ("600", 600.0), ("soon", 60.0), ("-1", 60.0)]
)
def test_a_pod_declares_its_own_grace_period(cluster: Driver, grace: str, wait_s: float) -> None:
    """An invalid number of seconds is ignored."""
    cluster.pod("p", "a1", NEAR_DB, grace=grace)
    names = cluster.enforce()
    if wait_s:
        assert names == []
        assert cluster.enforce(wait_s - 0.01) == []
        names = cluster.enforce(0.01)
    assert names == ["p"]


def lose_another_match(cluster: Driver) -> None:
    database = cluster.pod("db", "a2", labels=DB)
    assert cluster.enforce(1000.0) == []
    cluster.gone(database)


@pytest.mark.parametrize(
    ("change", "left_s"),
    [
        pytest.param(lambda cluster: cluster.relabel("uid-default-p", mood="hopeful"), 20.0, id="a label"),
        pytest.param(lambda cluster: cluster.pod("p", "a1", NEAR_WEB), 60.0, id="another affinity"),
        pytest.param(lose_another_match, 60.0, id="a match that goes again"),
    ],
)
def test_affinity_may_lack_a_match_for_the_grace_period(
    cluster: Driver, change: Callable[[Driver], object], left_s: float
) -> None:
    """Of which 40 s are over at the change."""
    cluster.pod("p", "a1", NEAR_DB)
    assert cluster.enforce() == []
    cluster.now_s += 40.0
    change(cluster)
    assert cluster.enforce() == []
    assert cluster.enforce(left_s - 0.1) == []
    assert cluster.enforce(0.1) == ["p"]


def test_a_standby_counts_the_waiting_time_along(cluster: Driver) -> None:
    """A check without leadership keeps time: the one that takes over goes on with it."""
    cluster.pod("p", "a1", NEAR_DB)
    for _ in range(2):
        assert cluster.enforcer.check(cluster.now_s, leads=False) == []
        cluster.now_s += 40.0
    assert cluster.enforce() == ["p"]


def test_a_terminating_pod_is_a_match_until_it_is_gone(cluster: Driver) -> None:
    cluster.pod("p", "a1", NEAR_DB, grace="0")
    uid = cluster.pod("db", "a2", labels=DB, terminating=True)
    assert cluster.enforce() == []
    cluster.gone(uid)
    assert cluster.enforce() == ["p"]


def test_a_replica_outside_every_domain_does_not_delay_the_others(cluster: Driver) -> None:
    """Its eviction makes no other pod the first of its kind. Of the others, each alone in its zone, one stays."""
    cluster.node("nowhere")
    days = {"old": "a1", "new": "b1", "outside": "nowhere"}
    for day, (name, node) in enumerate(days.items(), start=1):
        cluster.pod(name, node, NEAR_WEB, labels=WEB, grace="0", created=f"2026-01-0{day}T00:00:00Z")
    outside = evict_of(cluster.check()).pod
    assert outside.name == "outside"
    cluster.enforcer.on_eviction_result(outside.uid, EvictionResult.BLOCKED, cluster.now_s)
    assert cluster.enforce() == ["new"]


def test_a_node_that_comes_back_leaves_nothing_behind(cluster: Driver) -> None:
    cluster.pod("p", "a1", APART, labels=WEB)
    cluster.pod("q", "a2", APART, labels=WEB)
    cluster.enforcer.apply(NodeGone("a1"))
    assert cluster.enforce() == []
    cluster.node("a1", labels={ZONE: "a"})
    assert len(cluster.enforce()) == 1


# Limits.


def test_evictions_per_minute_are_limited() -> None:
    cluster = zones(replace(FREE, evictions=2))
    for number in range(5):
        cluster.pod(f"w{number}", "a1", APART, labels=WEB)
    assert len(cluster.enforce()) == 2
    assert cluster.enforcer.status.waiting["limit"] == 2
    assert cluster.enforcer.wake_s == cluster.now_s + WINDOW_S
    assert cluster.enforce(WINDOW_S - 1.0) == []
    assert len(cluster.enforce(1.0)) == 2


@pytest.mark.parametrize("limit", ["evictions_per_node", "evictions_per_namespace"])
def test_limits_per_node_and_namespace_do_not_affect_others(limit: str) -> None:
    cluster = zones(replace(FREE, **{limit: 1}))
    for node, namespace in (("a1", "one"), ("b1", "two")):
        for number in range(4):
            cluster.pod(f"{namespace}-{number}", node, APART, labels=WEB, namespace=namespace)
    assert sorted(name.split("-")[0] for name in cluster.enforce()) == ["one", "two"]


def test_if_too_many_pods_would_be_evicted_none_is() -> None:
    """Reported once. As soon as few enough would be evicted, they are."""
    cluster = zones(replace(FREE, max_share=0.25))
    uids = [cluster.pod(f"w{number}", "a1", APART, labels=WEB) for number in range(9)]
    for number in range(7):
        cluster.pod(f"other-{number}", "b1", rules(far=[term(ZONE, selector("app=none"))]))
    orders = cluster.check()
    assert [each for each in orders if isinstance(each, ReportTooManyEvictions)] == [
        ReportTooManyEvictions(EvictionShare("default", by_others=False), 8, 16, 4)
    ]
    assert not any(isinstance(each, Evict) for each in orders)
    assert cluster.check() == []
    assert cluster.enforcer.status.waiting["share"] == 8
    for uid in uids[:5]:
        cluster.gone(uid)
    assert len(cluster.enforce()) == 3


def test_pods_in_their_grace_period_count_for_the_share() -> None:
    """Otherwise a large loss would be evicted in small portions, as grace periods end."""
    cluster = zones(replace(FREE, max_share=0.1))
    for number in range(10):
        cluster.pod(f"p{number}", "a1", NEAR_DB, grace=str(number))
    refused = [each for each in cluster.check() if isinstance(each, ReportTooManyEvictions)]
    assert refused == [ReportTooManyEvictions(EvictionShare("default", by_others=False), 10, 10, 3)]


def test_rules_of_one_namespace_that_cannot_hold_stop_no_enforcement_of_another() -> None:
    cluster = zones(replace(FREE, max_share=0.1))
    for number in range(5):
        cluster.pod(f"hopeless-{number}", "a1", NEAR_DB, namespace="tenant", grace="0")
    cluster.pod("p", "a1", APART)
    cluster.pod("q", "a2", labels=WEB)
    orders = cluster.check()
    refused = [each for each in orders if isinstance(each, ReportTooManyEvictions)]
    assert refused == [ReportTooManyEvictions(EvictionShare("tenant", by_others=False), 5, 5, 3)]
    assert [each.pod.name for each in orders if isinstance(each, Evict)] == ["p"]
    assert cluster.enforcer.status.waiting["share"] == 5


def test_many_trivial_rules_do_not_let_a_namespace_evict_the_pods_of_another() -> None:
    """The share is that of the evicted pods' namespace too, which has no pod with enforced rules."""
    cluster = zones(replace(FREE, max_share=0.1))
    cluster.namespace("tenant", **MARK)
    for number in range(700):
        cluster.pod(
            f"trivial-{number}", "b1", rules(far=[term(ZONE, selector("app=nobody"))]), namespace="tenant"
        )
    across = rules(far=[term(ZONE, selector("app=web"), namespaces=["default"])])
    cluster.pod("picky", "a1", across, namespace="tenant", priority=5)
    for number in range(10):
        cluster.pod(f"w{number}", "a2", labels=WEB)
    orders = cluster.check()
    assert not [each for each in orders if isinstance(each, Evict)]
    assert [each for each in orders if isinstance(each, ReportTooManyEvictions)] == [
        ReportTooManyEvictions(EvictionShare("default", by_others=True), 10, 0, 3)
    ]


def test_the_rate_is_limited_by_the_namespace_of_the_rule_too() -> None:
    cluster = zones(replace(FREE, evictions_per_namespace=2))
    cluster.namespace("tenant", **MARK)
    across = rules(far=[term(ZONE, selector("app=web"), namespace_selector={})])
    cluster.pod("picky", "a1", across, namespace="tenant", priority=5)
    for number in range(4):
        cluster.pod(f"w{number}", "a2", labels=WEB, namespace=f"victim-{number}")
    cluster.pod("p", "b1", APART)
    cluster.pod("q", "b2", labels=WEB)
    gone = cluster.enforce()
    assert "p" in gone
    assert len(gone) == 3
    assert len(cluster.enforce(60.0)) == 2


def test_an_eviction_that_a_budget_refuses_is_retried_later_while_others_continue(cluster: Driver) -> None:
    for zone in "ab":
        cluster.pod(f"picky-{zone}", f"{zone}1", APART)
        cluster.pod(f"web-{zone}", f"{zone}2", labels=WEB)
    blocked = evict_of(cluster.check()).pod
    cluster.enforcer.on_eviction_result(blocked.uid, EvictionResult.BLOCKED, cluster.now_s)
    (other,) = cluster.enforce()
    assert {blocked.name, other} == {"picky-a", "picky-b"}
    assert cluster.enforcer.status.waiting["budget"] == 1
    assert cluster.enforcer.wake_s == cluster.now_s + BACKOFF_S
    cluster.now_s += BACKOFF_S
    assert evict_of(cluster.check()).pod == blocked
    cluster.enforcer.on_eviction_result(blocked.uid, EvictionResult.BLOCKED, cluster.now_s)
    assert cluster.enforce(2 * BACKOFF_S - 1.0) == []
    assert cluster.enforce(1.0) == [blocked.name]


def test_a_longer_retry_after_replaces_the_backoff(cluster: Driver) -> None:
    cluster.pod("p", "a1", APART)
    cluster.pod("w", "a1", labels=WEB)
    uid = evict_of(cluster.check()).pod.uid
    cluster.enforcer.on_eviction_result(uid, EvictionResult.BLOCKED, cluster.now_s, retry_after_s=30.0)
    assert cluster.enforce(29.0) == []
    assert cluster.enforce(1.0) == ["p"]


def test_a_dry_run_returns_each_eviction_once_and_waits_for_none() -> None:
    cluster = zones(acts=False)
    for number in range(3):
        cluster.pod(f"w{number}", "a1", APART, labels=WEB)
    told = [each.pod.name for each in cluster.check() if isinstance(each, Evict)]
    assert told == ["w2", "w1"]
    assert cluster.check() == []


# Reports.


def test_a_broken_rule_is_reported_once_per_pod_with_rule_domain_and_other_pod(cluster: Driver) -> None:
    cluster.pod("p", "a1", APART)
    uid = cluster.pod("w", "a2", labels=WEB)
    orders = cluster.check()
    (found,) = (each for each in orders if not isinstance(each, Evict))
    evict = evict_of(orders)
    assert found.pod.name == evict.pod.name == "p"  # type: ignore[union-attr]  # a ReportTooManyEvictions would fail here, too
    report = evict.report
    assert report.rule == f"anti-affinity: no other pod with app=web in namespace default in the same {ZONE}"
    assert report.domain == f"{ZONE}=a"
    assert report.other is not None
    assert report.other.name == "w"
    cluster.relabel(uid, app="db")
    cluster.check()
    cluster.relabel(uid, app="web")
    assert cluster.found() == []


@pytest.mark.parametrize("by", ["annotation", "spec"])
@pytest.mark.parametrize("which", ["anti-affinity", "affinity"])
def test_a_rule_that_is_not_enforced_is_reported_but_evicts_no_pod(
    cluster: Driver, which: str, by: str
) -> None:
    ordinary = (
        rules(far=[term(ZONE, selector("app=web"))], which=REQUIRED)
        if which == "anti-affinity"
        else rules(near=[term(ZONE, selector("app=db"))], which=REQUIRED)
    )
    annotation, affinity = (ordinary, None) if by == "annotation" else (None, ordinary)
    cluster.pod("p", "a1", annotation, affinity=affinity)
    cluster.pod("w", "a2", labels=WEB)
    orders = [*cluster.check(), *cluster.check(60.0)]
    assert [type(each).__name__ for each in orders] == ["ReportViolation"]
    assert [(each.side, each.rule.enforced) for each in cluster.enforcer.status.violations] == [
        (which, False)
    ]
    assert cluster.enforce(1000.0) == []


@pytest.mark.parametrize(
    ("what", "origin"),
    [
        ("placed", ViolationCause.PLACEMENT),
        ("relabelled", ViolationCause.CHANGE),
        ("first look", ViolationCause.UNKNOWN),
    ],
)
def test_the_cause_is_a_placement_or_a_later_change(what: str, origin: ViolationCause) -> None:
    cluster = Driver()
    cluster.node("a1", labels={ZONE: "a"})
    cluster.namespace("default")
    cluster.pod("p", "a1", rules(far=[term(ZONE, selector("app=web"))], which=REQUIRED))
    if what != "first look":
        cluster.check()
    uid = cluster.pod("w", "a1", labels=DB if what == "relabelled" else WEB)
    if what == "relabelled":
        cluster.check()
        cluster.relabel(uid, app="web")
    assert [each.cause for each in cluster.found()] == [origin]
