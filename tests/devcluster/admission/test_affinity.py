"""The merge and validation of label keys, against what a real API server answered."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.recorded_admission import admission_answer

_RECORDED = Path(__file__).parents[2] / "data" / "admission.jsonl.gz"
#: The recording server timed out on these: its answer says nothing of the pod.
_TIMED_OUT = 504


def _records() -> Iterator[dict[str, Any]]:
    with gzip.open(_RECORDED, "rt") as lines:
        yield from map(json.loads, lines)


def test_every_recorded_answer_is_given_word_for_word():
    compared, mismatches = 0, []
    for record in _records():
        expected = {key: record[key] for key in ("stored", "refused") if key in record}
        if expected.get("refused", {}).get("code") == _TIMED_OUT:
            continue
        compared += 1
        if admission_answer(record["pod"]) != expected:
            mismatches.append(record["name"])
    assert mismatches == []
    assert compared >= 290


def test_the_pod_itself_is_left_alone():
    for record in _records():
        before = json.dumps(record["pod"])
        admission_answer(record["pod"])
        assert json.dumps(record["pod"]) == before


def _pod(labels: dict[str, str], **term: Any) -> dict[str, Any]:
    affinity = {
        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "z", **term}]}
    }
    return {"metadata": {"name": "p", "labels": labels}, "spec": {"affinity": affinity}}


@pytest.mark.parametrize(
    ("labels", "term", "expressions"),
    [
        pytest.param(
            {"a": "1"},
            {"labelSelector": {}, "matchLabelKeys": ["b", "a"]},
            [{"key": "a", "operator": "In", "values": ["1"]}],
            id="absent keys are passed over",
        ),
        pytest.param(
            {"a": ""},
            {"labelSelector": {}, "matchLabelKeys": ["a"]},
            [{"key": "a", "operator": "In", "values": [""]}],
            id="an empty value is a value",
        ),
        pytest.param(
            {"a": "1", "b": "2"},
            {
                "labelSelector": {"matchExpressions": [{"key": "c", "operator": "Exists"}]},
                "matchLabelKeys": ["a"],
                "mismatchLabelKeys": ["b"],
            },
            [
                {"key": "c", "operator": "Exists"},
                {"key": "a", "operator": "In", "values": ["1"]},
                {"key": "b", "operator": "NotIn", "values": ["2"]},
            ],
            id="the user's expressions first, then matches, then mismatches",
        ),
        pytest.param(
            {"a": "1"},
            {
                "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
                "mismatchLabelKeys": ["a"],
            },
            [{"key": "a", "operator": "Exists"}, {"key": "a", "operator": "NotIn", "values": ["1"]}],
            id="a mismatched key may be selected too",
        ),
    ],
)
def test_keys_are_merged_in_order(labels, term, expressions):
    affinity = admission_answer(_pod(labels, **term))["stored"]["affinity"]
    (merged,) = affinity["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert merged["labelSelector"]["matchExpressions"] == expressions


def test_a_key_selected_by_the_user_is_refused_only_where_the_pod_has_it():
    term = {"labelSelector": {"matchLabels": {"a": "1"}}, "matchLabelKeys": ["a"]}
    assert admission_answer(_pod({"a": "1"}, **term))["refused"]["causes"] == [
        {
            "reason": "FieldValueInvalid",
            "message": 'Invalid value: "a": exists in both matchLabelKeys and labelSelector',
            "field": "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0][0]",
        }
    ]
    assert "stored" in admission_answer(_pod({"b": "1"}, **term))
