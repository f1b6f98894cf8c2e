"""The data of the page: pending pods by reason, decisions, cells of the map, questions, and what users may not see."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import msgspec
import pytest

from scheduler.daemon.assembly.profiles import default_spreading
from scheduler.daemon.settings.loading import default_settings
from scheduler.engine.framework.kinds import KINDS
from scheduler.engine.model.instructions import Attempted, Evicted
from scheduler.engine.model.pod_groups import GROUP, MIN_COUNT
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import ObjectSeen, PodSeen
from scheduler.engine.state.audit import differences
from scheduler.engine.state.batches import finished
from scheduler.errors import SettingsError
from scheduler.tools.explain.scenarios import simulate_drain
from scheduler.tools.explain.simulation.loaded_cluster import LoadedCluster
from scheduler.tools.page.decisions import MAX_DECISIONS, DecisionFeed
from scheduler.tools.page.domains import cell_of, domain_map_pieces
from scheduler.tools.page.pending import Pending, PodQuery, grouped
from scheduler.tools.page.survey import survey_pieces
from scheduler.tools.page.what_if import NodeLabel, WhatIf, WhatIfRequest, what_if
from tests.reference.fallback import FALLBACK, RELAXED, name_of
from tests.support import build
from tests.support.driving import Driver, attempt_of

ALONE = build.affinity(anti_required=[build.term(build.ZONE, build.selector("app=web"))])


@pytest.fixture
def driver() -> Driver:
    """Return a node with web-0; web-1, and web-2 of another namespace, wait for another zone, and one is gated."""
    driver = Driver()
    driver.node("a", labels={build.ZONE: "za"})
    driver.namespace("default")
    driver.namespace("secret")
    first = driver.pod("web-0", labels={"app": "web"}, affinity=ALONE)
    driver.cycle()
    driver.confirm(first, "a")
    driver.pod("web-1", labels={"app": "web", "tier": "front"}, affinity=ALONE)
    driver.cycle()
    other = build.affinity(
        anti_required=[build.term(build.ZONE, build.selector("app=web"), namespaces=["default", "secret"])]
    )
    driver.pod("web-2", namespace="secret", labels={"app": "web"}, affinity=other)
    driver.cycle()
    driver.pod("later", gates=["example.com/wait"])
    return driver


def pending(driver: Driver, search: PodQuery = PodQuery()) -> Pending:  # noqa: B008
    refused = "0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules."
    messages = {f"uid-{key}": refused for key in ("default-web-1", "secret-web-2")}
    return finished(grouped(driver.queue.pods(), messages, search))


def test_pods_are_grouped_by_the_reason_without_its_numbers(driver: Driver) -> None:
    groups = {group.reason: group for group in pending(driver).groups}
    assert set(groups) == {
        "node(s) didn't match pod anti-affinity rules",
        "scheduling gates: example.com/wait",
    }
    assert groups["node(s) didn't match pod anti-affinity rules"].n_pods == 2


def test_a_member_of_an_incomplete_group_says_what_it_waits_for(driver: Driver) -> None:
    """Also before it is reported; and not that a gate is closed, of which its user knows nothing."""
    labels = {GROUP: "train", MIN_COUNT: "3"}
    driver.pod("early", namespace="a", labels=labels)
    driver.pod("late", namespace="b", labels=labels)
    messages = {
        "uid-b-late": "pod group b/train waits until 3 of its pods exist that may be placed (minCount)"
    }
    found = finished(grouped(driver.queue.pods(), messages, PodQuery(namespace="b")))
    early = finished(grouped(driver.queue.pods(), messages, PodQuery(name="early")))
    assert [one.reason for one in found.groups] == [messages["uid-b-late"]]
    assert [one.reason for one in early.groups] == ["pod group a/train is not complete"]


@pytest.mark.parametrize(
    ("search", "names"),
    [
        (PodQuery(namespace="sec"), {"web-2"}),
        (PodQuery(name="web"), {"web-1", "web-2"}),
        (PodQuery(label="tier"), {"web-1"}),
        (PodQuery(label="tier=front"), {"web-1"}),
        (PodQuery(label="tier=back"), set()),
    ],
)
def test_a_search_finds_by_namespace_name_and_label(
    driver: Driver, search: PodQuery, names: set[str]
) -> None:
    found = pending(driver, search)
    assert {one.pod for group in found.groups for one in group.shown} == names
    assert found.n_matching == len(names)


def test_a_pod_that_was_not_tried_has_the_message_of_its_condition() -> None:
    """As on a standby, which learns from the API server what the leader found."""
    driver = Driver()
    message = "0/12 nodes are available: 2 Insufficient cpu, 10 node(s) had untolerated taint(s)."
    driver.pod("p", status={"conditions": [build.unscheduled(message)]})
    (group,) = finished(grouped(driver.queue.pods(), {}, PodQuery())).groups
    assert group.reason == "Insufficient cpu, node(s) had untolerated taint(s)"


def test_the_feed_has_evictions_with_their_reason(driver: Driver) -> None:
    """Once per pod, when a watch first shows the condition."""
    (placed,) = (one.pod for one in driver.state.placed.values())
    ending = replace(placed, disruption="EvictionByEvictionAPI", resource_version=driver.next_version())
    feed = DecisionFeed(7.0)
    for event in (PodSeen(ending), PodSeen(replace(ending, terminating=True))):
        for instruction in driver.handle(event):
            assert isinstance(instruction, Evicted)
            feed.record_eviction(instruction.pod, 100.0)
    found = feed.after(0, 10)
    (one,) = found.evictions
    assert (one.number, one.pod, one.node, one.reason) == (1, "web-0", "a", "EvictionByEvictionAPI")
    assert (found.newest, found.began, found.decisions) == (1, 7.0, ())


def test_a_pod_that_a_list_shows_while_it_is_evicted_is_no_news() -> None:
    driver = Driver()
    driver.node("a")
    ending = replace(driver.pod("p"), uid="other", node_name="a", disruption="EvictionByEvictionAPI")
    assert driver.handle(PodSeen(ending)) == []


def test_pods_of_a_service_have_the_default_constraints() -> None:
    """Which are soft, and named with the nodes that form their domains."""
    driver = Driver()
    driver.node("a", labels={build.ZONE: "za", "disk": "ssd"})
    driver.node("b", labels={build.ZONE: "zb"})
    service = {"metadata": {"name": "web", "namespace": "default"}, "spec": {"selector": {"app": "web"}}}
    driver.handle(ObjectSeen(KINDS["Service"].decode(msgspec.json.encode(service))))
    driver.pod("web-0", labels={"app": "web"}, node="a")
    driver.pod("web-1", labels={"app": "web"}, node_selector={"disk": "ssd"})
    driver.pod("other", labels={"app": "other"}, node="b")
    defaults = default_spreading(default_settings())
    survey = finished(survey_pieces(driver.state, driver.queue.pods(), defaults=defaults))
    found = {(one.topology_key, one.nodes): one for one in survey.summaries}
    assert set(found) == {
        (key, on) for key in (build.HOSTNAME, build.ZONE) for on in ("", "nodes with disk=ssd")
    }
    zones = found[build.ZONE, ""]
    assert (zones.rule, zones.selects, zones.limit, zones.is_hard) == ("topologySpread", "app=web", 5, False)
    assert (zones.n_domains, zones.n_pods, zones.n_declaring, zones.n_pending) == (2, 1, 1, 0)
    of_ssd = found[build.ZONE, "nodes with disk=ssd"]
    assert (of_ssd.n_domains, of_ssd.n_pods, of_ssd.n_declaring, of_ssd.n_pending) == (1, 1, 0, 1)
    assert not finished(survey_pieces(driver.state, driver.queue.pods())).summaries


def attempt(driver: Driver, name: str) -> Attempted:
    """Return a failed attempt of a new pod."""
    driver.pod(name, labels={"app": "web"}, node_selector={"no": "where"})
    return attempt_of(driver.cycle())


def test_the_feed_has_the_newest_first(driver: Driver) -> None:
    feed = DecisionFeed(0.0)
    for number in range(4):
        feed.record(attempt(driver, f"p{number}"), 0.001, 100.0)
    found = feed.after(0, 10)
    assert [one.pod for one in found.decisions] == ["p3", "p2", "p1", "p0"]
    assert found.newest == 4
    feed.record(replace(attempt(driver, "p4"), n_victims=2), 0.0, 0.0)
    assert feed.after(4, 1).decisions[0].n_victims == 2
    assert [one.pod for one in feed.after(3, 1).decisions] == ["p4"]


def test_the_feed_is_bounded(driver: Driver) -> None:
    feed, one = DecisionFeed(0.0), attempt(driver, "p")
    for _ in range(MAX_DECISIONS + 10):
        feed.record(one, 0.0, 0.0)
    found = feed.after(0, 10 * MAX_DECISIONS)
    assert (len(found.decisions), found.decisions[-1].number) == (MAX_DECISIONS, 11)


def test_a_full_domain_names_its_pods_and_those_it_holds_off(driver: Driver) -> None:
    survey = finished(survey_pieces(driver.state, driver.queue.pods()))
    records = [one for one in survey.records.items() if one[1].rule.matcher.namespaces == "namespace default"]
    ((identifier, record),) = records
    found = finished(domain_map_pieces(identifier, record, driver.state, ""))
    assert (found.domains, found.pods, found.room, found.states) == (("za",), (1,), (0,), (2,))
    cell = cell_of(record, driver.state, driver.queue, "za")
    assert cell is not None
    assert [pod.name for pod in cell.pods.shown] == ["web-0"]
    assert [pod.name for pod in cell.pending.shown] == ["web-1"]
    assert cell_of(record, driver.state, driver.queue, "nowhere") is None


def answered(driver: Driver, request: WhatIfRequest, template: Pod | None = None) -> WhatIf:
    """Return the answer on a copy of the cluster."""
    settings = default_settings()
    cluster = LoadedCluster(settings, driver.state.copy())
    return what_if(cluster, settings, request, random.Random(1), template=template)


def test_a_label_that_no_node_has_is_told(driver: Driver) -> None:
    request = WhatIfRequest(without=(NodeLabel(build.ZONE, "za"), NodeLabel(build.ZONE, "zz")))
    with pytest.raises(SettingsError, match=rf"without: found {build.ZONE}=zz, expected a label of a node"):
        answered(driver, request)


def test_a_lost_zone_sends_its_pods_elsewhere_and_the_cluster_stays(driver: Driver) -> None:
    """Where the pod of the zone would go, with a second zone and without."""
    request = WhatIfRequest(without=(NodeLabel(build.ZONE, "za"),))
    found = answered(driver, request)
    assert found.displaced is not None
    assert (found.displaced.n_pods, found.displaced.n_placed) == (1, 0)
    assert found.displaced.refused[0].examples[0].name == "web-0"
    driver.node("b", labels={build.ZONE: "zb"})
    found = answered(driver, request)
    assert found.displaced is not None
    assert [(one.node, one.n_pods) for one in found.displaced.by_node] == [("b", 1)]
    assert differences(driver.state) == []
    assert driver.state.node("a") is not None


def test_a_drain_is_held_by_budgets_as_simulate_has_it() -> None:
    """The budget lets one of two pods go, which has room nowhere else."""
    driver = Driver()
    driver.namespace("default")
    driver.node("a")
    for name in ("web-0", "web-1"):
        owner = build.owned_by("ReplicaSet", "web")
        driver.pod(name, node="a", labels={"app": "web"}, owner=owner, phase="Running")
    budget = build.disruption_budget("web", build.selector("app=web"), allowed=1)
    driver.handle(ObjectSeen(KINDS["PodDisruptionBudget"].decode(json.dumps(budget).encode())))
    found = answered(driver, WhatIfRequest(drain=("a",)))
    cluster = LoadedCluster(default_settings(), driver.state.copy())
    assert found.drained == simulate_drain(cluster, ["a"], None, random.Random(1), try_changes=False)
    assert [(one.round, one.held_by) for one in found.drained.leaving] == [(1, ""), (0, "default/web")]
    assert differences(driver.state) == []


def test_of_a_lost_node_only_pods_that_end_with_it_stay(driver: Driver) -> None:
    """A critical pod is created anew, one that ends already is not; as `simulate --without-zone` has it."""
    driver.node("b", labels={build.ZONE: "zb"})
    driver.pod("dns", node="a", priority=2_000_000_000, owner=build.owned_by("ReplicaSet", "dns"))
    driver.pod("agent", node="a", owner=build.owned_by("DaemonSet", "agent"))
    driver.pod("ending", node="a", terminating=True, owner=build.owned_by("ReplicaSet", "old"))
    request = WhatIfRequest(without=(NodeLabel(build.ZONE, "za"),))
    displaced = answered(driver, request).displaced
    assert displaced is not None
    assert (displaced.n_pods, displaced.n_stay, displaced.n_placed) == (4, 2, 2)


def test_a_displaced_pod_starts_with_the_rules_that_were_relaxed_for_it(driver: Driver) -> None:
    """Its replacement is a new pod, and its own rule keeps it out of the zone of web-0 until it has waited again."""
    entry = {"rule": "podAntiAffinity", "topologyKey": build.ZONE, "afterSeconds": 1}
    annotations = {FALLBACK: json.dumps([entry]), RELAXED: json.dumps([{"rule": name_of(entry)}])}
    driver.node("a2", labels={build.ZONE: "za", "rack": "lost"})
    driver.pod("db-0", labels={"app": "db"}, affinity=ALONE, annotations=annotations, node="a2")
    request = WhatIfRequest(without=(NodeLabel("rack", "lost"),))
    found = answered(driver, request)
    assert found.displaced is not None
    assert (found.displaced.n_pods, found.displaced.n_placed) == (1, 1)
    (note,) = found.notes
    assert note == f"1 pod fits only once {name_of(entry)} counts as preferred with weight 100, after 1 s"


def test_replicas_are_placed_with_and_without_the_changes(driver: Driver) -> None:
    """Cordoned, the second zone takes none of them."""
    driver.node("b", labels={build.ZONE: "zb"})
    template = next(queued.pod for queued in driver.queue.pods() if queued.pod.name == "web-1")
    found = answered(driver, WhatIfRequest(cordon=("b",), replicas=2), template)
    assert [one.n_placed for one in found.now] == [1]
    assert [one.n_placed for one in found.then] == [0]
    assert found.then[0].next is not None
    assert found.then[0].next.rules[0].pods.shown[0].name == "web-0"
    assert len(driver.state.placed) == 1


def test_victims_are_named_for_replicas_and_counted_for_pods_of_a_lost_node() -> None:
    driver = Driver()
    for name in ("a", "b"):
        driver.node(name, labels={"rack": name}, allocatable={"cpu": "2", "pods": "9"})
    for namespace in ("default", "other"):
        driver.namespace(namespace)
        driver.pod("low", namespace=namespace, node="b", priority=0, cpu="1")
    high = driver.pod("high", node="a", priority=9, cpu="2")
    request = WhatIfRequest(cordon=("a",), without=(NodeLabel("rack", "a"),))
    found = answered(driver, request, high)
    (now,) = found.now
    assert (now.n_placed, now.n_evicted) == (1, 2)
    assert {victim.namespace for victim in now.victims} == {"default", "other"}
    assert found.displaced is not None
    assert found.displaced.n_placed == 1
    assert found.notes == ("2 pods of lower priority would be evicted for pods of the lost nodes",)
