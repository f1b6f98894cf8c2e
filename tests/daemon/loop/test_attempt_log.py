"""A pod that is retried without end fills no log; what the emulated version does not do has one line."""

from __future__ import annotations

import io
import json
from typing import Any, NamedTuple

import pytest
from syrupy.assertion import SnapshotAssertion

from scheduler.daemon.loop.attempt_log import AttemptLog, DefectLog
from scheduler.daemon.metrics.logs import configure
from scheduler.engine.framework.kinds import KINDS
from scheduler.engine.model.instructions import Attempted
from scheduler.engine.model.pod_decoder import PodDecoder
from scheduler.engine.model.semantics import Gate, Semantics, Version, semantics_of
from scheduler.engine.state.cluster import ClusterState
from tests.support import build

Json = dict[str, Any]


def lines_of(steps: list[tuple[float, str, int]]) -> list[Json]:
    """Return the lines after a number of attempts with each result, each after some seconds."""
    stream, now_s = io.StringIO(), 1000.0
    log = AttemptLog(configure(verbosity=2, form="json", stream=stream), lambda: now_s)
    pod = PodDecoder().decode(json.dumps(build.pod("p")).encode())
    for after_s, result, times in steps:
        now_s += after_s
        attempt = Attempted(pod, result, 0.0, 1, 0.0, False, 1, 1, "why")  # type: ignore[arg-type]  # one of three
        for _ in range(times):
            log.write(attempt)
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_failures_beyond_the_rate_are_counted_with_the_next_line() -> None:
    lines = lines_of([(0.0, "unschedulable", 5000), (1.0, "error", 30)])
    assert len(lines) == 2000 + 1 + 20
    assert lines[2000] == {**lines[2000], "msg": "Failed attempts were not logged: too many", "n": 3000}
    assert lines[-1]["msg"] == "Error scheduling pod; retrying"


def test_every_success_is_logged() -> None:
    assert len(lines_of([(0.0, "scheduled", 3000)])) == 3000


class Met(NamedTuple):
    """What pods meet: their spec, the selector of a budget, the pods that they evict, and the version."""

    spec: Json
    n_lines: int
    budget: Json | None = None
    n_victims: int = 1
    semantics: Semantics = semantics_of(Version(1, 34))


def spread(*constraints: Json) -> Json:
    return {"topologySpreadConstraints": [*constraints]}


WITH_KEYS = spread(build.spread(build.ZONE, {}, match_label_keys=["app"]))
KEYS_OFF = semantics_of(Version(1, 36), {Gate.MATCH_LABEL_KEYS_IN_POD_TOPOLOGY_SPREAD: False})
COMPARED = {"tolerations": [{"key": "k", "operator": "Gt", "value": "1"}]}
MET = {
    "empty selectors of constraints": Met(
        spread(build.spread(build.ZONE, {}), build.spread(build.HOSTNAME, {})), 1
    ),
    "no selector": Met(spread(build.spread(build.ZONE, None)), 0),
    "a selector": Met(spread(build.spread(build.ZONE, build.selector("app=web"))), 0),
    "label keys beside an empty one": Met(WITH_KEYS, 0),
    "victims beside an empty selector of a budget": Met({}, 1, {}, 2),
    "no victim beside an empty selector of a budget": Met({}, 0, {}, 0),
    "a budget without a selector": Met({}, 0),
    "a budget with a selector": Met({}, 0, build.selector("app=web")),
    "a field that the version reads": Met({"resources": {"requests": {"cpu": "1"}}}, 0),
    "a field that needs a gate": Met(COMPARED, 1, semantics=semantics_of(Version(1, 36))),
    "a field whose gate is switched off": Met(WITH_KEYS, 1, semantics=KEYS_OFF),
}


@pytest.mark.parametrize("met", MET.values(), ids=MET)
def test_a_defect_and_a_field_without_effect_are_logged_once(met: Met, snapshot: SnapshotAssertion) -> None:
    """Of two attempts of two pods."""
    stream, state = io.StringIO(), ClusterState()
    document = build.disruption_budget("b", met.budget, 0)
    state.budgets.upsert(KINDS["PodDisruptionBudget"].decode(json.dumps(document).encode()))
    log = DefectLog(configure(verbosity=0, form="json", stream=stream), state, met.semantics)
    decoder, victims = PodDecoder(met.semantics), (("default", "v"),) * met.n_victims
    for name in ("p", "q", "p", "q"):
        pod = decoder.decode(json.dumps(build.pod(name, spec=met.spec)).encode())
        log.write(Attempted(pod, "unschedulable", 0.0, 1, 0.0, False, 1, 1, "why", victims=victims))
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["pod"] for line in lines] == ["default/p"] * met.n_lines
    assert [{**line, "ts": 0, "caller": ""} for line in lines] == snapshot
