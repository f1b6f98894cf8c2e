"""Terms of placed pods: which select a label set, and which give way to a pod that relaxed an equal one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.engine.model.pods import PodSpec
from scheduler.engine.model.terms import AffinityTerm
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.syntax.selectors import NOTHING, Requirement, Selector
from tests.support import build
from tests.support.driving import Driver

_DEFAULT = frozenset({"default"})


def anti(app: str, **fields: int | str | bool) -> AffinityTerm:
    """Return anti-affinity with pods of the app, which gives way to pods that relax it."""
    selector = Selector((Requirement("app", "In", (app,)),))
    term = AffinityTerm(selector, _DEFAULT, NOTHING, build.ZONE, yields=True)
    return replace(term, **fields)  # type: ignore[arg-type]


def state_with(*terms: AffinityTerm) -> ClusterState:
    """Return a state with a pod of app web that declares these terms."""
    state = ClusterState()
    pod = Driver().decoded(build.pod("p", labels={"app": "web"}, node="n"))
    affinity = replace(pod.spec.affinity, required_anti=terms)
    state.upsert_pod(replace(pod, spec=replace(pod.spec, affinity=affinity)))
    return state


def relaxing(*terms: AffinityTerm, ignores_annotations: bool = False) -> PodSpec:
    spec = Driver().decoded(build.pod("asks")).spec
    return replace(spec, relaxed_anti=terms, ignores_annotations=ignores_annotations)


@pytest.mark.parametrize(
    "term",
    [
        pytest.param(anti("web"), id="of its own app"),
        pytest.param(anti("db"), id="of another app"),
        pytest.param(anti("web", max_pods=3), id="with a limit, of its own app"),
        pytest.param(anti("db", max_pods=3), id="with a limit, of another app"),
    ],
)
def test_a_term_gives_way_to_a_pod_that_relaxed_an_equal_one(term: AffinityTerm) -> None:
    terms = state_with(term).terms
    (declared,) = terms
    other = anti("db", max_pods=9)
    asking = relaxing(other, term)
    assert list(terms.yielding_to(asking)) == [declared]
    assert terms.gives_way(declared.key, asking)
    for apart in (relaxing(other), relaxing(replace(term, topology_key="rack")), relaxing()):
        assert list(terms.yielding_to(apart)) == []
        assert not terms.gives_way(declared.key, apart)


def test_a_term_that_does_not_yield_gives_way_to_none() -> None:
    term = anti("web", yields=False)
    terms = state_with(term).terms
    (declared,) = terms
    assert not terms.gives_way(declared.key, relaxing(term))


@pytest.mark.parametrize("by_annotation", [True, False])
def test_a_term_by_annotation_gives_way_to_a_pod_that_ignores_annotations(*, by_annotation: bool) -> None:
    terms = state_with(anti("web", by_annotation=by_annotation)).terms
    (declared,) = terms
    assert terms.gives_way(declared.key, relaxing(ignores_annotations=True)) is by_annotation
    assert not terms.gives_way(declared.key, relaxing())


def test_all_terms_that_select_a_pod_are_found_once() -> None:
    """With a limit and without."""
    state = state_with(anti("web"), anti("web", max_pods=3), anti("db"), anti("db", max_pods=2))
    of_db = state.label_sets.of("default", {"app": "db"})
    assert [term.key.max_pods for term in state.terms.selecting(of_db)] == [1, 2]
