"""The record of a decision that a bound pod carries."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from scheduler.daemon.assembly.profiles import build_profiles, build_queue
from scheduler.daemon.settings.loading import default_settings
from scheduler.engine.core.decide import ScheduleResult, decide, deciding
from scheduler.engine.core.decision_annotation import (
    RECORD_LIMIT_BYTES,
    DecisionRecord,
    decision_record,
    is_of_bind,
    read_record,
)
from scheduler.engine.core.machine import Machine
from scheduler.engine.core.node_scores import FilterResult, Refusal
from scheduler.engine.framework.interface import FilterPlugin, PodContext, RuleFilter
from scheduler.engine.framework.observer import Observer
from scheduler.engine.framework.status import Code, Status, failed, unschedulable
from scheduler.engine.model.annotations import DECISION_ANNOTATION
from scheduler.engine.model.nodes import decode_node
from scheduler.engine.model.stimuli import CycleDue, NodeSeen, PodSeen
from scheduler.engine.state.batches import finished
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.cluster_view import ClusterView
from tests.conformance.product import ProductSubject
from tests.support import build
from tests.support.driving import NAME
from tests.support.json_cluster import decoded


def placed(nodes: list[build.Json], pod: build.Json) -> tuple[ScheduleResult, ProductSubject]:
    """Return the decision about the pod on an empty cluster of these nodes."""
    subject = ProductSubject(None)
    for node in nodes:
        subject.apply(node)
    decision = decide(subject.cluster.pod(pod), subject.cluster.view(), subject.profile, random.Random(1))
    assert isinstance(decision, ScheduleResult)
    return decision, subject


def recorded(decided: tuple[ScheduleResult, ProductSubject], *more: list[str]) -> str:
    """Return the record of the decision."""
    return decision_record(decided[0], decided[1].cluster.state.nodes, *more)


def read(text: str) -> DecisionRecord:
    record = read_record(text)
    assert record is not None
    return record


def test_a_record_has_the_chosen_node_first_and_scores_that_add_up() -> None:
    nodes = [build.node(f"n{i}", allocatable={"cpu": str(i + 1)}) for i in range(6)]
    decided = placed(nodes, build.pod(cpu="500m"))
    record = read(recorded(decided))
    assert (record.evaluated, record.feasible) == (6, 6)
    assert record.top[0].node == decided[0].node_name
    assert len({ranked.node for ranked in record.top}) == 3
    assert [sum(ranked.scores.values()) for ranked in record.top] == [r.total for r in record.top]
    totals = [ranked.total for ranked in record.top]
    assert totals == sorted(totals, reverse=True)
    node_name = decided[0].node_name
    assert is_of_bind(record, node_name)
    assert not any(is_of_bind(record, name) for name in (record.top[1].node, ""))
    without_scores = msgspec.structs.replace(record, top=())
    assert [is_of_bind(without_scores, name) for name in (node_name, "")] == [True, False]


def test_a_record_names_relaxed_rules_and_evicted_pods_if_there_are_any() -> None:
    """Of evicted ones the first ten."""
    decided = placed([build.node("n")], build.pod())
    evicted = [f"default/victim-{index}" for index in range(11)]
    record = read(recorded(decided, ["rule"], evicted))
    assert (record.relaxed, record.evicted) == (("rule",), tuple(evicted[:10]))
    assert {"relaxed", "evicted"}.isdisjoint(json.loads(recorded(decided)))


class _Points(Observer):
    """Notes the points that are entered, the ones that are left, and the filters that are asked."""

    def __init__(self) -> None:
        self.entered: list[str] = []
        self.left: list[tuple[str, Code]] = []
        self.filters: list[str] = []

    def enter(self, point: str) -> None:
        self.entered.append(point)

    def leave(self, point: str, code: Code) -> None:
        self.left.append((point, code))

    def evaluated(self, plugin: str, point: str) -> None:
        if point == "Filter":
            self.filters.append(plugin)


class _Failing(FilterPlugin):
    """A plugin that cannot do its work."""

    name = "Failing"

    def prefilter(self, _context: PodContext, _view: ClusterView) -> Status:
        return failed("no answer")


@pytest.mark.parametrize(
    ("n_cpus", "fails", "left"),
    [
        pytest.param(
            "1",
            False,
            [(point, Code.SUCCESS) for point in ("PreFilter", "Filter", "PreScore", "Score")],
            id="it fits",
        ),
        pytest.param(
            "99",
            False,
            [("PreFilter", Code.SUCCESS), ("Filter", Code.SUCCESS), ("PostFilter", Code.UNSCHEDULABLE)],
            id="it fits nowhere",
        ),
        pytest.param("1", True, [("PreFilter", Code.ERROR)], id="a plugin fails"),
    ],
)
def test_a_decision_enters_and_leaves_the_points_of_upstream(
    n_cpus: str, fails: bool, left: list[tuple[str, Code]]
) -> None:
    _, subject = placed([build.node("a"), build.node("b")], build.pod())
    profile = subject.profile
    if fails:
        profile = replace(profile, filters=(*profile.filters, _Failing()))
    points, pod = _Points(), decoded(build.pod(cpu=n_cpus))
    finished(deciding(pod, subject.cluster.view(), profile, random.Random(1), points))
    assert points.entered == [point for point, _ in left]
    assert points.left == left


def test_no_filter_is_asked_of_nodes_that_are_all_refused() -> None:
    subject, points = ProductSubject(None), _Points()
    subject.apply(build.node("a", unschedulable=True))
    pod, view = decoded(build.pod()), subject.cluster.view()
    finished(deciding(pod, view, subject.profile, random.Random(1), points))
    assert points.filters == ["NodeUnschedulable"]


def test_a_record_names_no_refused_node() -> None:
    """Score arrays include refused nodes, which may have high scores."""
    nodes = [
        build.node("huge-but-cordoned", allocatable={"cpu": "500"}, unschedulable=True),
        build.node("small", allocatable={"cpu": "2"}),
        build.node("large", allocatable={"cpu": "4"}),
    ]
    decided = placed(nodes, build.pod(cpu="1"))
    record = read(recorded(decided))
    assert [ranked.node for ranked in record.top] == ["large", "small"]


def test_a_record_counts_nodes_by_their_first_reason() -> None:
    """A node that two filters refuse counts for the first one, as in the text of an event."""
    nodes = [
        build.node("free"),
        build.node("also-free"),
        build.node("tainted", taints=["a=b:NoSchedule"]),
        build.node("tainted-and-small", taints=["a=b:NoSchedule"], allocatable={"cpu": "1"}),
        build.node("small", allocatable={"cpu": "1"}),
        build.node("smaller", allocatable={"cpu": "1", "memory": "1Gi"}),
        build.node("closed", allocatable={"pods": "0"}),
    ]
    requests = {"cpu": "2", "memory": "2Gi"}
    decided = placed(nodes, build.pod(containers=[build.container(requests=requests)]))
    record = read(recorded(decided))
    assert record.rejected == {
        "node(s) had untolerated taint(s)": 2,
        "Insufficient cpu": 2,
        "Insufficient memory": 1,
        "Too many pods": 1,
    }
    assert record.feasible == 2


def test_a_record_does_not_depend_on_the_order_of_reasons() -> None:
    result, subject = placed([build.node("a"), build.node("b")], build.pod())
    everywhere = np.zeros(2, dtype=np.bool_)
    refusals = [
        Refusal("NodeResourcesFit", RuleFilter(2, (everywhere, unschedulable(reason))).statuses, ~everywhere)
        for reason in ("Too many pods", "Insufficient cpu")
    ]
    texts = set()
    for order in (refusals, refusals[::-1]):
        scores = replace(result.scores, filtered=FilterResult(refusals=order))
        texts.add(recorded((replace(result, scores=scores), subject)))
    assert len(texts) == 1
    assert '"rejected":{"Insufficient cpu":2,"Too many pods":2}' in texts.pop()


def test_a_single_feasible_node_is_not_scored() -> None:
    decided = placed([build.node("only")], build.pod())
    record = read(recorded(decided))
    assert [(ranked.node, ranked.total, ranked.scores) for ranked in record.top] == [("only", 0, {})]


@pytest.mark.parametrize("length", [1, 40, 100, 180, 253])
def test_a_record_never_exceeds_its_limit(length: int) -> None:
    """What does not fit is left out, the worst runner-up first."""
    nodes = [build.node(str(i) + "n" * (length - 1), hostname=f"h{i}") for i in range(5)]
    decided = placed(nodes, build.pod())
    text = recorded(decided)
    assert len(text.encode()) <= RECORD_LIMIT_BYTES
    record = read(text)
    assert record.feasible == 5
    assert not record.top or record.top[0].node == decided[0].node_name


@pytest.mark.parametrize(
    "text",
    [
        *("", "{}", "[]", '{"v":2,"evaluated":1,"feasible":1}', "\ud800", '{"v":1}'),
        pytest.param(
            json.dumps({"v": 1, "evaluated": 1, "feasible": 1, "rejected": {"x" * RECORD_LIMIT_BYTES: 1}}),
            id="longer than any of ours",
        ),
    ],
)
def test_an_annotation_of_another_format_is_no_record(text: str) -> None:
    """Any client may write the annotation."""
    assert read_record(text) is None


@pytest.mark.parametrize("n_more", [0, 1])
def test_the_longest_record_is_read(n_more: int) -> None:
    short = json.dumps({"v": 1, "evaluated": 1, "feasible": 1, "rejected": {"": 1}})
    text = short.replace('""', f'"{"x" * (RECORD_LIMIT_BYTES - len(short) + n_more)}"')
    assert (read_record(text) is None) == (n_more > 0)


@pytest.mark.parametrize("records", [True, False])
def test_binds_carry_the_record_if_the_setting_is_on(records: bool) -> None:
    state, settings = ClusterState(), default_settings()
    profiles = build_profiles(settings, ClusterView(state))
    machine = Machine(
        state=state,
        queue=build_queue(profiles, settings, max_in_unschedulable_s=300.0),
        profiles=profiles,
        rng=random.Random(1),
        records_decisions=records,
    )
    machine.handle(NodeSeen(decode_node(msgspec.json.encode(build.node("a")))), 1.0)
    machine.handle(PodSeen(decoded(build.pod(spec={"schedulerName": NAME}))), 1.0)
    (bind,) = machine.handle(CycleDue(), 1.0)
    annotations = getattr(bind, "annotations", None)
    assert annotations is not None
    assert list(annotations) == ([DECISION_ANNOTATION] if records else [])
    if records:
        assert [ranked.node for ranked in read(annotations[DECISION_ANNOTATION]).top] == ["a"]
