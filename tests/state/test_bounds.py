"""What is kept for questions that pods ask is bounded, however many they ask; the answers stay right."""

from __future__ import annotations

import json
from dataclasses import dataclass

from scheduler.state.row_counts import RowCounts
from scheduler.state.selection import LabelSet
from scheduler.state.sums import MAX_KEPT, MAX_KEPT_TERMS, KeptSums

from scheduler.model.labels import EVERYTHING, NOTHING, Requirement, Selector
from scheduler.model.pod_decoder import PodDecoder
from scheduler.state.audit import differences
from scheduler.state.cluster import ClusterState
from scheduler.state.matching import NamespaceRule, PodMatcher
from tests.support import build

DEFAULT = NamespaceRule(frozenset({"default"}), NOTHING)


def _asks(*requirements: Requirement) -> PodMatcher:
    return PodMatcher(((DEFAULT, Selector(requirements)),))


def _by_app(app: str) -> PodMatcher:
    return _asks(Requirement("app", "In", (app,)))


def _with_pods(state: ClusterState, n_pods: int) -> None:
    decoder = PodDecoder()
    beside = build.affinity(preferred=[(1, build.term("zone", build.selector("app=a0")))])
    for number in range(n_pods):
        document = build.pod(f"p{number}", labels={"app": f"a{number}"}, node="n", affinity=beside)
        state.upsert_pod(decoder.decode(json.dumps(document).encode()))


def test_of_many_questions_the_last_are_kept_and_each_is_answered() -> None:
    """One that was forgotten is counted anew; one that running pods ask stays."""
    state = ClusterState(max_counted=3)
    _with_pods(state, 10)
    for number in range(10):
        assert state.selections.counted(_by_app(f"a{number}")).total == 1
        assert state.selections.counted_live(_by_app(f"a{number}")).total == 1
    kept = [one.matcher for one in state.selections.selections()]
    assert kept == [_by_app("a0"), _by_app("a7"), _by_app("a8"), _by_app("a9")]
    assert state.selections.counted(_by_app("a2")).total == 1
    assert state.selections.counted(_by_app("a0")).total == 1
    assert differences(state) == []


def test_what_was_asked_last_is_forgotten_last() -> None:
    state = ClusterState(max_counted=2)
    _with_pods(state, 4)
    for app in ("a1", "a2", "a1", "a3"):
        state.selections.counted(_by_app(app))
    assert state.selections.find(_by_app("a1")) is not None
    assert state.selections.find(_by_app("a2")) is None


def test_who_relies_on_every_selection_keeps_every_one() -> None:
    state = ClusterState(max_counted=None)
    _with_pods(state, 10)
    for number in range(10):
        state.selections.counted(_by_app(f"a{number}"))
    assert all(state.selections.find(_by_app(f"a{number}")) for number in range(10))


def test_sums_are_kept_for_a_bounded_number_of_label_sets() -> None:
    """Pods of stateful sets and indexed jobs have a label set each, 40 KB of sums each at 5,000 nodes."""
    state = ClusterState()
    kept: KeptSums[LabelSet] = KeptSums()
    label_sets = [state.selections.label_set("default", {"index": str(n)}) for n in range(MAX_KEPT + 100)]
    for label_set in label_sets:
        kept.of(label_set, state.nodes.column, (), 0)
    assert len(kept) == MAX_KEPT


def test_sums_of_thousands_of_terms_are_kept_for_fewer_label_sets() -> None:
    """Running pods may declare thousands of terms that select everybody: memory is terms times label sets."""

    @dataclass(eq=False)
    class Term:
        topology_key: str
        counts: RowCounts

    state = ClusterState()
    kept: KeptSums[LabelSet] = KeptSums()
    terms = [(Term("zone", RowCounts()), 1) for _ in range(MAX_KEPT_TERMS // 10)]
    for number in range(15):
        label_set = state.selections.label_set("default", {"index": str(number)})
        kept.of(label_set, state.nodes.column, terms, 0)
    assert len(kept) == 10
    assert kept.n_terms <= MAX_KEPT_TERMS


def test_selecting_by_postings_says_what_matching_says() -> None:
    """Every operator, anchored or not, over named and selected namespaces, on keys that nobody has too."""
    state = ClusterState()
    for number in range(30):
        labels = {"app": f"a{number % 5}", **({"tier": str(number % 3)} if number % 2 else {})}
        state.selections.label_set(f"ns-{number % 4}", labels)
    for number in range(4):
        state.selections.relabel_namespace(f"ns-{number}", {"team": f"t{number % 2}"})
    rules = [
        NamespaceRule(frozenset(), EVERYTHING),
        NamespaceRule(frozenset({"ns-1", "ns-9"}), NOTHING),
        NamespaceRule(frozenset({"ns-0"}), Selector((Requirement("team", "In", ("t1",)),))),
        NamespaceRule(frozenset(), Selector((Requirement("team", "DoesNotExist"),))),
    ]
    wanted = [
        (),
        (Requirement("app", "In", ("a1", "a2", "zz")),),
        (Requirement("app", "NotIn", ("a1", "a2")), Requirement("tier", "Exists")),
        (Requirement("tier", "DoesNotExist"),),
        (Requirement("tier", "In", ("0",)), Requirement("app", "NotIn", ("a3",))),
        (Requirement("nobody", "Exists"),),
        (Requirement("nobody", "In", ("x",)),),
        (Requirement("nobody", "NotIn", ("x",)), Requirement("nobody", "DoesNotExist")),
    ]
    selectors = [*map(Selector, wanted), NOTHING]
    exempts = [frozenset[str](), frozenset({"ns-1"})]
    matchers = [
        PodMatcher(((rule, one),), exempt) for rule in rules for one in selectors for exempt in exempts
    ]
    matchers += [PodMatcher(((rules[0], selectors[1]), (rules[2], selectors[2])))]
    for matcher in matchers:
        found = state.selections.selection(matcher).label_sets
        labels_of = state.selections.namespace_labels
        assert set(found) == {
            one
            for one in state.selections.label_sets()
            if matcher.matches(one.namespace, one.labels, labels_of.get(one.namespace))
        }
