"""The product's merge of label keys against what a real API server stored."""

from __future__ import annotations

import copy
import gzip
import json
from pathlib import Path

import pytest

from scheduler.engine.syntax.match_label_keys import merged_affinity, merged_spread
from tests.support import build

RECORDED = Path(__file__).resolve().parents[2] / "data" / "admission.jsonl.gz"


def recorded() -> list[build.Json]:
    with gzip.open(RECORDED, "rt") as lines:
        return [json.loads(line) for line in lines]


def merged(pod: build.Json) -> tuple[object, object]:
    """Return affinity and spread constraints as the product merges them, None where the pod has none."""
    labels, spec = pod["metadata"].get("labels") or {}, pod["spec"]
    affinity, constraints = spec.get("affinity"), spec.get("topologySpreadConstraints")
    return (
        affinity and merged_affinity(affinity, labels),
        constraints and [merged_spread(constraint, labels) for constraint in constraints],
    )


def test_what_a_real_api_server_stored_is_what_the_product_merges() -> None:
    """Every pod of the recording that was accepted; the argument is left as it was."""
    accepted = [entry for entry in recorded() if "stored" in entry]
    assert len(accepted) >= 50
    for entry in accepted:
        before = copy.deepcopy(entry["pod"])
        affinity, constraints = merged(entry["pod"])
        assert entry["pod"] == before
        assert affinity == entry["stored"].get("affinity"), entry["name"]
        assert constraints == entry["stored"].get("topologySpreadConstraints"), entry["name"]


@pytest.mark.parametrize(
    ("gates", "expected"),
    [
        pytest.param({}, ({"app": ["web"]}, True), id="merged"),
        pytest.param({"merged": False}, (None, True), id="left to the scheduler"),
        pytest.param({"enabled": False}, (None, False), id="dropped"),
    ],
)
def test_gates_decide_what_becomes_of_a_spread_constraints_keys(
    gates: dict[str, bool], expected: tuple[object, bool]
) -> None:
    constraint = build.spread(build.ZONE, {}, match_label_keys=["app", "absent"])
    stored = merged_spread(constraint, {"app": "web"}, **gates)
    selector = stored["labelSelector"]
    assert isinstance(selector, dict)
    found = {one["key"]: one["values"] for one in selector.get("matchExpressions", ())} or None
    assert (found, "matchLabelKeys" in stored) == expected
