"""Required rules that become preferences: when, which, and the events."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scheduler.engine.core.fallbacks import keeping_rules
from scheduler.engine.model.annotations import AFFINITY
from scheduler.engine.model.fallback import FALLBACK, RELAXED, Fallback, relaxed_spec
from scheduler.engine.model.instructions import Bind, EmitEvent, Instruction
from scheduler.engine.model.pod_groups import GROUP, MIN_COUNT
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import BindDone, PodSeen
from tests.support.build import HOSTNAME, ZONE, affinity, node_term, selector, spread, term
from tests.support.driving import Driver, bind_of, binds, each_of

APART = affinity(anti_required=[term(ZONE, selector("app=web"))])
BY_ZONE = {"rule": "podAntiAffinity", "topologyKey": ZONE}


def fallback(*entries: dict[str, Any]) -> dict[str, str]:
    return {FALLBACK: json.dumps(entries)}


@pytest.fixture
def cluster(driver: Driver) -> Driver:
    driver.node("a", labels={ZONE: "z1"})
    driver.node("b", labels={ZONE: "z2"})
    return driver


def web(cluster: Driver, name: str, after_s: int | None = 60, **kwargs: Any) -> Pod:
    entry = {**BY_ZONE, "afterSeconds": after_s}
    kwargs = {"labels": {"app": "web"}, **kwargs}
    return cluster.pod(name, affinity=APART, annotations=fallback(entry), **kwargs)


def full_zones(cluster: Driver) -> Pod:
    """Place two replicas in two zones. Return a third, which their common rule keeps pending."""
    for name, node in (("first", "a"), ("second", "b")):
        pod = web(cluster, name, node=node)
        assert pod.node_name == node
    third = web(cluster, "third")
    assert not binds(cluster.cycle())
    return third


def events(told: list[Instruction], reason: str) -> list[str]:
    return [one.note for one in told if isinstance(one, EmitEvent) and one.reason == reason]


def test_a_rule_counts_as_preferred_after_its_time(cluster: Driver) -> None:
    """Hard until then; the bind has the mark and the record, the event says which, as what and why."""
    third = full_zones(cluster)
    assert not binds(cluster.live(59))
    bind = bind_of(cluster.live(2))
    assert bind.pod.uid == third.uid
    (mark,) = json.loads(bind.annotations[RELAXED])
    assert mark["rule"] == "podAntiAffinity by topology.kubernetes.io/zone"
    assert mark["why"] == "after 60 s it kept the pod pending alone"
    told = cluster.handle(BindDone(third.uid))
    assert events(told, "RuleRelaxed") == [
        "podAntiAffinity by topology.kubernetes.io/zone counts as preferred with weight 100: after 60 s it kept the "
        "pod pending alone"
    ]
    (relaxed,) = [one for one in told if isinstance(one, EmitEvent) and one.reason == "RuleRelaxed"]
    assert (relaxed.type, relaxed.action) == ("Normal", "Binding")


def test_a_relaxed_pod_keeps_no_others_away(cluster: Driver) -> None:
    """The watch shows the mark: the pod's own term is a preference for others too, as it was while assumed."""
    third = full_zones(cluster)
    bind = bind_of(cluster.live(61))
    marks = {**fallback({**BY_ZONE, "afterSeconds": 60}), **bind.annotations}
    cluster.handle(BindDone(third.uid))
    seen = cluster.pod("third", labels={"app": "web"}, affinity=APART, annotations=marks, node=bind.node_name)
    assert seen.relaxed[0].rule == "podAntiAffinity by topology.kubernetes.io/zone"
    assert seen.spec.affinity.required_anti == ()
    (weighted,) = seen.spec.affinity.preferred_anti  # type: ignore[misc]
    assert weighted.weight == 100


def test_a_mark_on_a_pending_pod_relaxes_nothing(cluster: Driver) -> None:
    """Only the bind writes it; a pod that is created with one waits as any other."""
    full_zones(cluster)
    marks = {RELAXED: '[{"rule": "podAntiAffinity by topology.kubernetes.io/zone"}]'}
    annotations = {**fallback({**BY_ZONE, "afterSeconds": 60}), **marks}
    forged = cluster.pod("forged", labels={"app": "web"}, affinity=APART, annotations=annotations)
    assert forged.spec.relaxed == ()
    assert not binds(cluster.live(59))


def test_a_rule_without_a_fallback_does_not_yield(cluster: Driver) -> None:
    """A running pod that declares the term hard is not overrun by one that may relax its own."""
    for name, node in (("first", "a"), ("second", "b")):
        cluster.pod(name, labels={"app": "web"}, affinity=APART, node=node)
    web(cluster, "third", 0)
    assert not binds(cluster.live(30))


def test_a_pod_without_room_is_not_relaxed(cluster: Driver) -> None:
    """However long it waits: its rule is not what keeps it pending."""
    web(cluster, "first", node="a")
    web(cluster, "second", node="b")
    web(cluster, "third", 10, cpu="64")
    assert not binds(cluster.live(3600))


def test_the_time_counts_whatever_keeps_the_pod(cluster: Driver) -> None:
    """A cordon until after the time: then the rule, which is the last reason, is relaxed at once."""
    third = full_zones(cluster)
    cluster.live(40)
    for name, zone in (("a", "z1"), ("b", "z2")):
        cluster.node(name, labels={ZONE: zone}, unschedulable=True)
    cluster.queue.activate_each((third.uid,), cluster.now_s)
    assert not binds(cluster.live(100))
    for name, zone in (("a", "z1"), ("b", "z2")):
        cluster.node(name, labels={ZONE: zone})
    assert bind_of(cluster.live(15)).pod.uid == third.uid


@pytest.mark.parametrize(
    ("reason", "waits_s"), [("Unschedulable", 10), ("SchedulerError", 10), ("SchedulingGated", 60), ("", 60)]
)
def test_after_a_restart_the_time_counts_from_the_condition(
    cluster: Driver, reason: str, waits_s: int
) -> None:
    """In whole seconds, rounded down, so that it is not relaxed early. A pod that had gates until now begins now."""
    web(cluster, "first", node="a")
    web(cluster, "second", node="b")
    told = {"type": "PodScheduled", "status": "False", "reason": reason}
    told |= {"lastTransitionTime": "1970-01-01T00:16:39Z"}
    cluster.now_s = 1050.0
    web(cluster, "third", status={"conditions": [told] if reason else []})
    cluster.cycle()
    assert not binds(cluster.live(waits_s - 1))
    assert bind_of(cluster.live(2)).pod.name == "third"


def test_rules_that_keep_a_pod_only_together_are_relaxed_together(cluster: Driver) -> None:
    """Neither alone would help; the later time counts."""
    both = [
        {**BY_ZONE, "afterSeconds": 20},
        {"rule": "topologySpreadConstraints", "topologyKey": HOSTNAME, "afterSeconds": 50},
    ]
    uneven = spread(HOSTNAME, selector("app=web"), min_domains=3)
    for name, node in (("first", "a"), ("second", "b")):
        cluster.pod(name, labels={"app": "web"}, affinity=APART, node=node, annotations=fallback(both[0]))
    third = cluster.pod(
        "third", labels={"app": "web"}, affinity=APART, spread=[uneven], annotations=fallback(*both)
    )
    cluster.cycle()
    assert not binds(cluster.live(49))
    marks = json.loads(bind_of(cluster.live(2)).annotations[RELAXED])
    assert [one["rule"] for one in marks] == [
        "podAntiAffinity by topology.kubernetes.io/zone",
        "topologySpreadConstraints by kubernetes.io/hostname",
    ]
    why = "after 50 s it kept the pod pending with the other rules"
    assert marks[1]["why"] == why
    assert events(cluster.handle(BindDone(third.uid)), "RuleRelaxed") == [
        f"podAntiAffinity by topology.kubernetes.io/zone counts as preferred with weight 100: {why}; "
        f"topologySpreadConstraints by kubernetes.io/hostname counts as ScheduleAnyway: {why}"
    ]


def test_an_update_while_the_bind_is_in_flight_keeps_the_pod_relaxed(cluster: Driver) -> None:
    """Else its hard term would count against others until the watch shows the bind."""
    third = full_zones(cluster)
    bind_of(cluster.live(61))
    changed = web(cluster, "third")
    assert changed.spec.relaxed == ()
    placed = cluster.state.placed[third.uid].pod
    assert [one.name for one in placed.spec.relaxed] == ["podAntiAffinity by topology.kubernetes.io/zone"]
    cluster.fail_bind(third, "conflict")


def test_preemption_goes_before_a_fallback(cluster: Driver) -> None:
    for name, node in (("first", "a"), ("second", "b")):
        cluster.pod(name, labels={"app": "web"}, node=node, cpu="30", priority=0)
    cluster.node("c", labels={ZONE: "z1"})
    web(cluster, "third", 0, priority=10)
    told = cluster.cycle()
    assert "EvictVictim" in [type(one).__name__ for one in told]
    assert not binds(told)


def test_node_affinity_is_relaxed_where_an_annotation_alone_declares_it(cluster: Driver) -> None:
    """The kubelet checks that of the spec again, and would refuse the pod on the node that it does not match."""
    entry = json.dumps([{"rule": "nodeAffinity", "afterSeconds": 1}])
    ssd = affinity(node_required=[node_term("ssd")])
    annotated = {FALLBACK: entry, AFFINITY: json.dumps(ssd)}
    pod = cluster.pod("annotated", node_selector={"os": "linux"}, annotations=annotated)
    (fallback,) = pod.spec.fallbacks
    relaxed = relaxed_spec(pod.spec, (fallback,))
    assert relaxed.required_node_affinity.terms is None
    assert relaxed.required_node_affinity.node_selector == (("os", "linux"),)
    for added in ({FALLBACK: entry}, annotated):
        refused = cluster.pod("in-spec", affinity=ssd, annotations=added)
        assert refused.spec.fallbacks == ()
        assert "nodeAffinity in the spec is checked again by the kubelet" in str(
            refused.spec.annotation_problem
        )


def entries(*more: dict[str, Any]) -> str:
    """Return an annotation of entries that relax the rule by zone after a second, each but for what it says."""
    return json.dumps([{**BY_ZONE, "afterSeconds": 1, **each} for each in more])


NO_TERM = "no required term of"


@pytest.mark.parametrize(
    ("annotation", "problem"),
    [
        ("nonsense", "$: "),
        (entries({"rule": "podAffinity", "topologyKey": "z"}), f"{NO_TERM} podAffinity by z"),
        ('[{"rule": "nodeAffinity", "afterSeconds": 1}]', f"{NO_TERM} nodeAffinity"),
        (json.dumps([BY_ZONE]), "expected afterSeconds"),
        (
            entries({"afterNotTriggerScaleUp": True}),
            "$[0].afterNotTriggerScaleUp: no longer read, expected afterSeconds alone",
        ),
        (entries({"afterSeconds": -1}), "found -1, expected 0 to"),
        (entries({"weight": 0}), "found 0, exp"),
        (entries({"after": 1}), "unknown field"),
        (entries({"rule": "any"}), "$[0].rule: Invalid enum value 'any'"),
        (entries({}, {}), "$[1]: podAntiAffinity by topology.kubernetes.io/zone is"),
        (entries(*[{}] * 9), "more than 8 entries"),
        (entries({"matchLabels": {"app": "db"}}), f"{NO_TERM} podAntiAffinity by {ZONE} of app=db"),
    ],
)
def test_a_malformed_annotation_is_refused_with_its_path(
    cluster: Driver, annotation: str, problem: str
) -> None:
    """The pod stays pending with the problem in its message, as with every annotation."""
    pod = cluster.pod("p", labels={"app": "web"}, affinity=APART, annotations={FALLBACK: annotation})
    found = pod.spec.annotation_problem
    assert found is not None
    assert found.startswith(f"annotation {FALLBACK}: ")
    assert problem in found
    assert any(problem in note for note in events(cluster.cycle(), "FailedScheduling"))


def test_an_entry_with_labels_is_of_the_term_that_selects_these(cluster: Driver) -> None:
    annotations = {FALLBACK: entries({"matchLabels": {"app": "web"}})}
    pod = cluster.pod("p", labels={"app": "web"}, affinity=APART, annotations=annotations)
    assert [each.name for each in pod.spec.fallbacks] == [f"podAntiAffinity by {ZONE} of app=web"]


def test_a_pod_that_only_annotations_keep_pending_says_so_once(cluster: Driver) -> None:
    """Autoscalers see a pod that fits; the event and the number say why it does not."""
    declared = {AFFINITY: json.dumps(APART)}
    for name, node in (("first", "a"), ("second", "b")):
        cluster.pod(name, labels={"app": "web"}, annotations=declared, node=node)
    own = cluster.pod("own", labels={"app": "web"}, annotations=declared)
    assert len(events(cluster.cycle(), "KeptByAnnotations")) == 1
    plain = cluster.pod("plain", labels={"app": "web"})
    assert len(events(cluster.cycle(), "KeptByAnnotations")) == 1
    assert cluster.machine.n_kept_by_annotations == 2
    cluster.queue.activate_each((own.uid,), cluster.now_s)
    assert events(cluster.cycle(), "KeptByAnnotations") == []
    cluster.pod("big", cpu="64", annotations=declared)
    assert events(cluster.cycle(), "KeptByAnnotations") == []
    cluster.lose(plain)
    assert cluster.machine.n_kept_by_annotations == 1


def test_a_rule_of_the_spec_is_not_hidden(cluster: Driver) -> None:
    """Autoscalers see it, so nothing is said."""
    for name, node in (("first", "a"), ("second", "b")):
        cluster.pod(name, labels={"app": "web"}, affinity=APART, node=node)
    cluster.pod("third", labels={"app": "web"}, affinity=APART)
    assert events(cluster.cycle(), "KeptByAnnotations") == []
    assert cluster.machine.n_kept_by_annotations == 0


def test_a_pod_that_starts_to_fit_is_bound_hard(cluster: Driver) -> None:
    """Hard first: a zone that becomes free before the time is over is taken, without a mark."""
    third = full_zones(cluster)
    cluster.live(30)
    cluster.node("c", labels={ZONE: "z3"})
    bind = bind_of(cluster.live(5))
    assert (bind.pod.uid, bind.node_name) == (third.uid, "c")
    assert RELAXED not in bind.annotations
    cluster.handle(PodSeen(cluster.confirm(third, "c")))


def test_a_member_without_which_its_group_is_placed_is_relaxed_as_any_pod(cluster: Driver) -> None:
    for index in range(3):
        web(cluster, f"w-{index}", labels={"app": "web", GROUP: "train", MIN_COUNT: "2"})
    instructions = cluster.live(50)
    for bind in each_of(instructions, Bind):
        cluster.confirm(bind.pod, bind.node_name)
    relaxed = bind_of(cluster.live(20))
    assert RELAXED in relaxed.annotations


@pytest.mark.parametrize(
    ("enough", "kept_by"),
    [
        pytest.param([], [], id="nothing helps"),
        pytest.param(["a"], ["a"], id="one rule"),
        pytest.param(["a", "c"], ["a", "c"], id="each of two rules"),
        pytest.param(["a", "bc"], ["a"], id="a rule, and others together"),
        pytest.param(["ab"], ["ab"], id="two rules together"),
        pytest.param(["ab", "bc"], ["ab"], id="rules together in two ways"),
        pytest.param(["abc"], ["abc"], id="all rules together"),
    ],
)
def test_each_rule_without_which_a_pod_fits_keeps_it(enough: list[str], kept_by: list[str]) -> None:
    """A set of rules is enough if the pod fits without them."""
    rules = {key: Fallback("podAntiAffinity", key, (), 60, 100) for key in "abc"}
    asked: list[str] = []

    def fits_without(left_out: tuple[Fallback, ...]) -> bool:
        asked.append("".join(rule.topology_key for rule in left_out))
        return any(set(each) <= set(asked[-1]) for each in enough)

    sets = keeping_rules(tuple(rules.values()), fits_without)
    assert ["".join(rule.topology_key for rule in each) for each in sets] == kept_by
    assert len(asked) <= 2 * len(rules) + 1
