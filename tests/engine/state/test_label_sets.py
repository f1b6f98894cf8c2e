"""Which label sets a selector selects, and how long a label set is kept."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from scheduler.engine.model.pod_decoder import PodDecoder
from scheduler.engine.model.pods import Pod
from scheduler.engine.state.audit import differences
from scheduler.engine.state.batches import finished
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.label_sets import LabelSets
from scheduler.engine.state.matching import NamespaceRule, PodMatcher
from scheduler.engine.syntax.selectors import EVERYTHING, NOTHING, Requirement, Selector
from tests.support import build

DEFAULT = NamespaceRule(frozenset({"default"}), NOTHING)
ANNOTATION = "affinity-scheduler.io/affinity"


def _asks(*requirements: Requirement) -> PodMatcher:
    return PodMatcher(((DEFAULT, Selector(requirements)),))


def _by_app(app: str) -> PodMatcher:
    return _asks(Requirement("app", "In", (app,)))


def _pod(name: str, labels: dict[str, str], *, limit: int = 1) -> Pod:
    term = {**build.term("zone", build.selector("app=a")), "maxPodsPerDomain": limit}
    asked = {ANNOTATION: json.dumps(build.affinity(anti_required=[term]))} if limit > 1 else {}
    return PodDecoder().decode(
        json.dumps(build.pod(name, labels=labels, node="n", annotations=asked)).encode()
    )


RULES = {
    "everywhere": NamespaceRule(frozenset(), EVERYTHING),
    "named": NamespaceRule(frozenset({"ns-1", "ns-9"}), NOTHING),
    "named or selected": NamespaceRule(frozenset({"ns-0"}), Selector((Requirement("team", "In", ("t1",)),))),
    "selected by an absent label": NamespaceRule(
        frozenset(), Selector((Requirement("team", "DoesNotExist"),))
    ),
}
REQUIREMENTS = (
    (),
    (Requirement("app", "In", ("a1", "a2", "zz")),),
    (Requirement("app", "NotIn", ("a1", "a2")), Requirement("tier", "Exists")),
    (Requirement("tier", "DoesNotExist"),),
    (Requirement("tier", "In", ("0",)), Requirement("app", "NotIn", ("a3",))),
    (Requirement("tier", "In", ("0",)), Requirement("app", "In", ("a2", "a3"))),
    (Requirement("nobody", "Exists"),),
    (Requirement("nobody", "In", ("x",)),),
    (Requirement("nobody", "NotIn", ("x",)), Requirement("nobody", "DoesNotExist")),
)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_label_sets_selected_by_index_are_those_that_match_one_by_one(rule: NamespaceRule) -> None:
    """Every operator, with and without a required label, on labels that no pod has too."""
    label_sets = LabelSets()
    for number in range(30):
        labels = {"app": f"a{number % 5}", **({"tier": str(number % 3)} if number % 2 else {})}
        label_sets.of(f"ns-{number % 4}", labels)
    for number in range(3):
        label_sets.namespace_labels[f"ns-{number}"] = {"team": f"t{number % 2}"}
    matchers = [
        PodMatcher(((rule, selector),), exempt)
        for selector in (*map(Selector, REQUIREMENTS), NOTHING)
        for exempt in (frozenset[str](), frozenset({"ns-1"}))
    ]
    matchers.append(PodMatcher(((RULES["everywhere"], Selector(REQUIREMENTS[1])), (rule, EVERYTHING))))
    for matcher in matchers:
        selected = label_sets.selected(matcher)
        for one in label_sets:
            assert selected[one.number] == label_sets.matches(matcher, one), (matcher, one)


def test_an_unused_label_set_outlives_two_sweeps_and_its_number_is_given_out_again() -> None:
    state = ClusterState()
    pod = _pod("p", {"app": "a"})
    state.upsert_pod(pod)
    label_set = state.label_sets.of("default", {"app": "a"})
    for _ in range(5):
        finished(state.sweeping())
    assert list(state.label_sets) == [label_set]
    state.remove_pod(pod.uid)
    assert state.label_sets.of("default", {"app": "a"}) is label_set
    for _ in range(2):
        finished(state.sweeping())
        assert list(state.label_sets) == [label_set]
    finished(state.sweeping())
    assert list(state.label_sets) == []
    state.upsert_pod(_pod("q", {"app": "b"}))
    assert state.label_sets.of("default", {"app": "b"}).number == label_set.number
    assert state.counts.selected(_by_app("a")).by_row.tolist() == [0]
    assert state.counts.selected(_by_app("b")).by_row.tolist() == [1]


def test_a_sweep_drops_a_bounded_number_at_once_and_what_is_used_meanwhile_stays() -> None:
    state = ClusterState()
    for number in range(1300):
        state.label_sets.of("default", {"job": str(number)})
    finished(state.sweeping())
    finished(state.sweeping())
    left = []
    for _ in state.sweeping():
        left.append(len(state.label_sets))
        state.label_sets.of("default", {"job": "1299"})
    assert left == [801, 301]
    assert [dict(one.labels) for one in state.label_sets] == [{"job": "1299"}]


def test_memory_is_bounded_while_label_sets_come_and_go() -> None:
    """As pods of jobs do, whose labels carry the job's UID."""
    state = ClusterState()
    for number in range(500):
        pod = _pod("p", {"job": str(number)})
        state.upsert_pod(pod)
        state.remove_pod(pod.uid)
        finished(state.sweeping())
    assert len(list(state.label_sets)) <= 3
    assert state.label_sets.n_numbers <= 5


def test_a_bind_that_adds_a_label_changes_only_the_counts_that_read_it() -> None:
    """So with the topology labels that the API server adds to every pod (PodTopologyLabelsAdmission)."""
    state = ClusterState()
    by_app, zoned = _by_app("a"), _asks(Requirement("zone", "Exists"))
    pod = _pod("p", {"app": "a"})
    state.assume(pod, "n")
    before = [state.counts.selected(one).version for one in (by_app, zoned)]
    state.upsert_pod(replace(pod, labels={"app": "a", "zone": "z"}))
    state.upsert_pod(replace(pod, labels={"app": "a", "zone": "z", "rack": "r"}))
    counts = [state.counts.selected(one) for one in (by_app, zoned)]
    assert [one.by_row.tolist() for one in counts] == [[1], [1]]
    assert state.n_assumed == 0
    assert counts[1].version > before[1]


@pytest.mark.parametrize("limit", [1, 3])
def test_whether_a_limit_counts_its_own_pod_follows_the_labels(limit: int) -> None:
    state = ClusterState()
    pod = _pod("p", {"app": "a"}, limit=limit)
    for app in ("a", "b", "a"):
        state.upsert_pod(replace(pod, labels={"app": app}))
        assert state.terms.n_limiting == int(limit > 1)
        assert [term.key.selects_itself for term in state.terms] == ([app == "a"] if limit > 1 else [])
        assert differences(state) == []
