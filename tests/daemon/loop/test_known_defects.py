"""A defect of the emulated version has one line, of the first pod that meets it."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from scheduler.daemon.loop.attempt_log import DefectLog
from scheduler.daemon.metrics.logs import configure
from scheduler.engine.model.disruption_budgets import decode_disruption_budget
from scheduler.engine.model.gated_fields import reason_without_effect
from scheduler.engine.model.instructions import Attempted
from scheduler.engine.model.pod_decoder import PodDecoder
from scheduler.engine.model.semantics import Gate, Version, semantics_of
from scheduler.engine.state.cluster import ClusterState
from tests.support import build

Json = dict[str, Any]


def lines_of(*constraints: Json, budget: Json | None = None, victims: int = 1) -> list[Json]:
    """Return the lines of two attempts of a pod that evicts others of its namespace, beside a budget."""
    stream, state = io.StringIO(), ClusterState()
    document = build.disruption_budget("b", budget, 0)
    state.budgets.upsert(decode_disruption_budget(json.dumps(document).encode()))
    log = DefectLog(configure(verbosity=0, form="json", stream=stream), state, semantics_of(Version(1, 34)))
    pod = PodDecoder().decode(
        json.dumps(build.pod("p", spec={"topologySpreadConstraints": [*constraints]})).encode()
    )
    evicted = (("default", "v"),) * victims
    for _ in range(2):
        log.write(Attempted(pod, "unschedulable", 0.0, 1, 0.0, False, 1, 1, "why", victims=evicted))
    return [json.loads(line) for line in stream.getvalue().splitlines()]


SPREAD = "a topology spread constraint with an empty labelSelector has no effect"
BUDGET = "preemption does not respect a PodDisruptionBudget with an empty selector, which selects all pods"


def test_an_empty_selector_of_a_constraint_is_logged_once() -> None:
    (line,) = lines_of(build.spread(build.ZONE, {}), build.spread(build.HOSTNAME, {}))
    assert line == {
        **line,
        "msg": "Defect of the emulated version",
        "pod": "default/p",
        "defect": SPREAD,
        "emulated": "1.34",
        "mendedIn": "1.38",
    }


FINE = {
    "no selector": build.spread(build.ZONE, None),
    "a selector": build.spread(build.ZONE, build.selector("app=web")),
    "label keys beside an empty one": build.spread(build.ZONE, {}, match_label_keys=["app"]),
}


@pytest.mark.parametrize("constraint", FINE.values(), ids=FINE)
def test_other_constraints_are_not_logged(constraint: Json) -> None:
    assert lines_of(constraint) == []


@pytest.mark.parametrize(
    ("budget", "victims", "defects"),
    [({}, 2, [BUDGET]), ({}, 0, []), (None, 1, []), (build.selector("app=web"), 1, [])],
    ids=["met", "no victim", "no selector", "a selector"],
)
def test_an_empty_selector_of_a_budget_is_logged_once_a_pod_evicts_beside_it(
    budget: Json | None, victims: int, defects: list[str]
) -> None:
    assert [line["defect"] for line in lines_of(budget=budget, victims=victims)] == defects


@pytest.mark.parametrize(
    ("minor", "spec", "reasons"),
    [
        (34, {"resources": {"requests": {"cpu": "1"}}}, []),
        (
            36,
            {"tolerations": [{"key": "k", "operator": "Gt", "value": "1"}]},
            [
                "the operators Lt and Gt of tolerations: no effect in Kubernetes 1.36, "
                "needs the feature gate TaintTolerationComparisonOperators"
            ],
        ),
    ],
)
def test_a_field_that_the_version_does_not_read_is_logged_once(
    minor: int, spec: Json, reasons: list[str]
) -> None:
    stream, semantics = io.StringIO(), semantics_of(Version(1, minor))
    log = DefectLog(configure(verbosity=0, form="json", stream=stream), ClusterState(), semantics)
    decoder = PodDecoder(semantics)
    for name in ("p", "q"):
        pod = decoder.decode(json.dumps(build.pod(name, spec=spec)).encode())
        log.write(Attempted(pod, "unschedulable", 0.0, 1, 0.0, False, 1, 1, "why"))
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line["msg"], line["pod"], line["reason"]) for line in lines] == [
        ("Field without effect", "default/p", reason) for reason in reasons
    ]


def test_a_field_whose_gate_is_switched_off_is_told_so() -> None:
    gate = Gate.MATCH_LABEL_KEYS_IN_POD_TOPOLOGY_SPREAD
    semantics = semantics_of(Version(1, 36), {gate: False})
    constraint = build.spread(build.ZONE, {}, match_label_keys=["app"])
    pod = PodDecoder(semantics).decode(json.dumps(build.pod("p", spread=[constraint])).encode())
    assert pod.spec.without_effect == (gate,)
    reason = reason_without_effect("it", gate, semantics)
    assert reason == "it: no effect, the feature gate MatchLabelKeysInPodTopologySpread is off"
