"""Rules and their domains on random clusters, against loops over pods; broken ones against the enforcer's detector."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.engine.model.annotations import AFFINITY
from scheduler.engine.state.batches import finished
from scheduler.tools.enforcer.rules import RuleIndex
from scheduler.tools.enforcer.violations import violations
from scheduler.tools.page.occupancy import UNLIMITED, DomainState, RuleRecord, occupancy
from scheduler.tools.page.survey import Survey, survey_pieces
from tests.support import build
from tests.support.driving import Driver

APPS = ("a", "b")
FALLBACK = "affinity-scheduler.io/fallback"
RELAXED = "affinity-scheduler.io/relaxed"
ZONES = ("x", "y", "z")


@st.composite
def pods(draw: st.DrawFn, *, shares: bool = False) -> dict[str, Any]:
    """Return a pod of one of two apps with up to one rule; with `shares`, a rule by annotation or a lost node too."""
    app = draw(st.sampled_from(APPS))
    about = draw(st.sampled_from(APPS))
    term = build.term(build.ZONE, build.selector(f"app={about}"))
    made: dict[str, Any] = {"labels": {"app": app}}
    kinds = ("none", "affinity", "anti", "yields", "relaxed", "spread", "soft", "preferred")
    match draw(st.sampled_from((*kinds, *(("shares",) * 4 if shares else ())))):
        case "shares":
            limit: dict[str, Any] = draw(
                st.sampled_from(({"maxPodsPerDomain": "40%"}, {"domainWeights": {"x": 2, "y": 1}}))
            )
            anti = {"requiredDuringSchedulingIgnoredDuringExecution": [{**term, **limit}]}
            made["annotations"] = {AFFINITY: json.dumps({"podAntiAffinity": anti})}
        case "affinity":
            made["affinity"] = build.affinity(required=[term])
        case "anti":
            made["affinity"] = build.affinity(anti_required=[term])
        case "yields" | "relaxed" as kind:
            made["affinity"] = build.affinity(anti_required=[term])
            rule = {"rule": "podAntiAffinity", "topologyKey": build.ZONE, "afterSeconds": 1}
            made["annotations"] = {FALLBACK: json.dumps([rule])}
            if kind == "relaxed":
                made["annotations"][RELAXED] = json.dumps([{"rule": f"podAntiAffinity by {build.ZONE}"}])
        case "preferred":
            weighted = (draw(st.integers(1, 2)), term)
            made["affinity"] = build.affinity(preferred=[weighted], anti_preferred=[weighted])
        case "spread" | "soft" as kind:
            when = "DoNotSchedule" if kind == "spread" else "ScheduleAnyway"
            made["spread"] = [
                {
                    "maxSkew": draw(st.integers(1, 2)),
                    "topologyKey": build.ZONE,
                    "whenUnsatisfiable": when,
                    "labelSelector": build.selector(f"app={about}"),
                }
            ]
    nodes = [f"node-{zone}-{number}" for zone in ZONES for number in (0, 1)]
    made["node"] = draw(st.sampled_from([*nodes, *(["gone"] if shares else [])]))
    made["terminating"] = draw(st.sampled_from((False, False, False, True)))
    return made


def surveyed(driver: Driver, exempt: frozenset[str] = frozenset()) -> Survey:
    return finished(survey_pieces(driver.state, driver.queue.pods(), exempt))


def cluster(made: list[dict[str, Any]]) -> Driver:
    driver = Driver()
    for zone in ZONES:
        for number in (0, 1):
            driver.node(f"node-{zone}-{number}", labels={build.ZONE: zone})
    for number, pod in enumerate(made):
        driver.pod(f"p{number}", phase="Running", **pod)
    return driver


def declares(pod: dict[str, Any], record: RuleRecord) -> bool:
    """Return whether the pod's JSON has the rule."""
    rule = record.rule
    selector = {"app": rule.matcher.selects.removeprefix("app=")}
    terms, annotations = pod.get("affinity", {}), pod.get("annotations", {})
    if RELAXED in annotations:
        declared = terms["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        is_preferred = (rule.kind, rule.limit) == ("preferredAntiAffinity", 100)
        return is_preferred and bool(declared[0]["labelSelector"]["matchLabels"] == selector)
    if rule.kind == "requiredAntiAffinity" and rule.yields != (FALLBACK in annotations):
        return False
    field = {"requiredAffinity": "podAffinity", "requiredAntiAffinity": "podAntiAffinity"}.get(rule.kind)
    if rule.kind.startswith("preferred"):
        declared = terms.get(f"pod{rule.kind.removeprefix('preferred')}", {}).get(
            "preferredDuringSchedulingIgnoredDuringExecution", []
        )
        wanted = {"matchLabels": selector}, rule.limit
        return any((one["podAffinityTerm"]["labelSelector"], one["weight"]) == wanted for one in declared)
    if field is not None:
        declared = terms.get(field, {}).get("requiredDuringSchedulingIgnoredDuringExecution", [])
        return any(term["labelSelector"]["matchLabels"] == selector for term in declared)
    when = "DoNotSchedule" if rule.is_hard else "ScheduleAnyway"
    return any(
        one["labelSelector"]["matchLabels"] == selector
        and one["maxSkew"] == rule.limit
        and one["whenUnsatisfiable"] == when
        for one in pod.get("spread", ())
    )


@given(made=st.lists(pods(), max_size=10))
@settings(max_examples=50)
def test_domains_equal_loops_over_the_pods(made: list[dict[str, Any]]) -> None:
    """Numbers of pods, of declaring pods (of soft rules in total), and the room of anti-affinity and spread."""
    driver = cluster(made)
    survey = surveyed(driver)
    for record in survey.records.values():
        rule = record.rule
        app = rule.matcher.selects.removeprefix("app=")
        is_spread = rule.kind == "topologySpread"
        n_pods: dict[str, int] = defaultdict(int)
        n_declaring: dict[str, int] = defaultdict(int)
        for pod in made:
            zone = pod["node"][5]
            counts = pod["labels"]["app"] == app and not (is_spread and pod["terminating"])
            n_pods[zone] += counts
            n_declaring[zone] += declares(pod, record)
        found = occupancy(record, driver.state)
        zones = [found.column.value_of(domain) for domain in found.ids.tolist()]
        assert sorted(zones) == list(ZONES)
        fewest = min(n_pods[zone] for zone in ZONES)
        for index, zone in enumerate(zones):
            assert found.n_pods[index] == n_pods[zone]
            assert found.n_declaring[index] == (n_declaring[zone] if rule.is_hard else 0)
            if is_spread:
                room = fewest + rule.limit - n_pods[zone]
                assert found.room[index] == max(0, room)
                assert (found.states[index] == DomainState.BROKEN) == (room < 0 and rule.is_hard)
            elif rule.kind == "requiredAntiAffinity":
                has_room = found.states[index] in (DomainState.EMPTY, DomainState.ROOM)
                assert (found.room[index] > 0) == has_room
                if not rule.yields:
                    assert (found.room[index] > 0) == (found.states[index] == DomainState.EMPTY)
            elif rule.kind.startswith("preferred"):
                state = DomainState.ROOM if n_pods[zone] else DomainState.EMPTY
                assert (found.room[index], found.states[index]) == (UNLIMITED, state)
        assert record.n_declaring == sum(n_declaring.values())
    for summary in survey.summaries:
        assert summary.n_domains == 3
    driver.audit()


@given(made=st.lists(pods(shares=True), max_size=10))
@settings(max_examples=100)
def test_broken_domains_are_those_of_the_violations(made: list[dict[str, Any]]) -> None:
    """Without terminating pods, which the enforcer leaves out."""
    made = [{**pod, "terminating": False} for pod in made]
    driver = cluster(made)
    index = RuleIndex(driver.state)
    for uid in driver.state.placed:
        index.sync_pod(uid)
    expected = {
        (one.rule.kind, one.rule.matcher, driver.state.nodes.name_of(one.row)[5])
        for one in violations(driver.state, index)
    }
    broken = set()
    for record in surveyed(driver).records.values():
        if record.rule.kind not in ("requiredAffinity", "requiredAntiAffinity"):
            continue
        found = occupancy(record, driver.state)
        for domain, state in zip(found.ids.tolist(), found.states.tolist(), strict=True):
            if state == DomainState.BROKEN:
                broken.add((record.rule.kind, record.rule.matcher, found.column.value_of(domain)))
    assert broken == expected


def test_preferred_shares_count_no_pod_of_an_exempt_namespace() -> None:
    term = {
        **build.term(build.ZONE, build.selector("app=a"), namespaces=["default", "free"]),
        "domainWeights": {"x": 1},
    }
    anti = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]}
    annotations = {AFFINITY: json.dumps({"podAntiAffinity": anti})}
    driver = cluster([{"labels": {"app": "a"}, "node": "node-x-0", "annotations": annotations}])
    driver.namespace("default", **{"affinity-scheduler.io/annotation-reach": "cluster"})
    driver.pod("other", phase="Running", namespace="free", labels={"app": "a"}, node="node-x-0")
    for exempt, n_pods in ((frozenset[str](), 2), (frozenset({"free"}), 1)):
        (summary,) = surveyed(driver, exempt).summaries
        assert (summary.rule, summary.n_pods) == ("preferredAntiAffinity", n_pods)
