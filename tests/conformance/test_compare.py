"""A difference between a decision and the recorded one is a mismatch, whichever of the two has more."""

import copy

import pytest

from tests.conformance.compare import decision_mismatches
from tests.support.build import Json

_REFUSAL: Json = {"code": "Unschedulable", "reasons": ["r"]}
_WHOLE: Json = {
    "filter": {"InterPodAffinity": {"a": _REFUSAL, "c": _REFUSAL}},
    "feasible": ["b"],
    "score": {"TaintToleration": {"b": 100}, "ImageLocality": {"b": 0}},
    "total": {"b": 300},
}


def _without(path: str) -> Json:
    entry = copy.deepcopy(_WHOLE)
    *folders, last = path.split("/")
    place = entry
    for folder in folders:
        place = place[folder]
    del place[last]
    return entry


@pytest.mark.parametrize(
    "path",
    [
        "filter/InterPodAffinity",
        "filter/InterPodAffinity/a",
        "feasible",
        "score/TaintToleration",
        "score/TaintToleration/b",
        "total/b",
    ],
)
def test_every_part_of_a_decision_is_compared_both_ways(path: str):
    part = _without(path)
    assert decision_mismatches(_WHOLE, _WHOLE) == []
    assert len(decision_mismatches(_WHOLE, part)) == 1
    assert len(decision_mismatches(part, _WHOLE)) == 1


@pytest.mark.parametrize(
    ("change", "n_mismatches"),
    [
        pytest.param({"message": "0/1 nodes are available: 1 x."}, 0, id="the preemption part is not"),
        pytest.param({"message": "0/1 nodes are available: 1 y."}, 1, id="the message up to preemption"),
        pytest.param({"message": None}, 1, id="a missing message"),
        pytest.param({"prefilter": {"P": _REFUSAL}}, 1, id="a refusal of PreFilter"),
        pytest.param({"prefilterNodes": ["a"]}, 1, id="narrowed nodes"),
        pytest.param({"error": "e"}, 1, id="an error"),
    ],
)
def test_what_is_compared_besides(change: Json, n_mismatches: int):
    entry = {"message": "0/1 nodes are available: 1 x. preemption: 0/1 nodes are available: 1 z."}
    assert len(decision_mismatches(entry, {**entry, **change})) == n_mismatches


def test_the_order_of_reasons_is_left_open_but_not_their_number():
    def entry(*reasons: str) -> Json:
        return {"filter": {"NodeResourcesFit": {"a": {"code": "Unschedulable", "reasons": list(reasons)}}}}

    assert decision_mismatches(entry("x", "y"), entry("y", "x")) == []
    assert len(decision_mismatches(entry("x", "y"), entry("x", "y", "y"))) == 1
