"""The merge and validation of label keys, against what a real API server answered."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.recorded_admission import admission_answer

_RECORDED = Path(__file__).parents[3] / "data" / "admission.jsonl.gz"
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
