"""
An out-of-tree plugin that is wrong fails the pod's cycle with a message that names it, and changes nothing by accident.
"""

import asyncio
import re
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
from syrupy.assertion import SnapshotAssertion

from scheduler.engine.framework.status import Code
from scheduler.sdk.plugin import (
    SKIP,
    Action,
    ClusterEventWithHint,
    FinalScores,
    NodeByNode,
    NodeStatuses,
    PluginExplanation,
    Pod,
    PodMatcher,
    PreFilterResult,
    Resource,
    RuleFilter,
    Status,
    StorageKind,
    failed,
    unresolvable,
    unschedulable,
)
from scheduler.sdk.testing import Cluster, make_node, make_pod
from tests.support.driving import Driver, kinds
from tests.support.messages import refusals

EVENTS = [ClusterEventWithHint(Resource.NODE, Action.ADD)]
RED = unschedulable("node(s) were red")
ZONE = "topology.kubernetes.io/zone"


def own(name: str = "Mine", **methods: Any) -> type[Any]:
    """Return a plugin's class with these methods, whose first argument is the plugin."""
    return type(name, (), {"name": name, "events_to_register": lambda _: EVENTS, **methods})


def cluster(*plugins: type[Any], alone: bool = True) -> Cluster:
    """Return three nodes in two zones, and a pod on the first."""
    made = Cluster(plugins=plugins, alone=alone)
    made.add(*(make_node(f"n{number}", labels={ZONE: "ab"[number % 2]}) for number in range(3)))
    return made.add(make_pod("running", node="n0"))


def _raise(*_: Any) -> Any:
    raise KeyError("team")


def _exit(*_: Any) -> Any:
    raise SystemExit(3)


def _cancel(*_: Any) -> Any:
    raise asyncio.CancelledError


class _Refusing:
    """Refuses every node with these statuses."""

    def __init__(self, statuses: NodeStatuses) -> None:
        self._statuses = statuses

    def mask(self) -> Any:
        return np.zeros(len(self._statuses.codes), np.bool_)

    def statuses(self) -> NodeStatuses:
        return self._statuses


def _told(message: str) -> str:
    """Return a message without the number of the line of this file."""
    return re.sub(r"\(test_guarding.py, line \d+\)", "(test_guarding.py, line N)", message)


#: Where it goes wrong, in upstream's words -> what the plugin does.
WRONG: dict[str, dict[str, dict[str, Any]]] = {
    'running PreFilter plugin "Mine": ': {
        "raises": {"prefilter": _raise},
        "exits": {"prefilter": _exit},
        "cancels": {"prefilter": _cancel},
        "returns nothing": {"prefilter": lambda *_: None},
        "says that it failed": {"prefilter": lambda *_: failed("no prices today")},
        "a reason that is no text": {"prefilter": lambda *_: unresolvable(cast(Any, 5))},
        "a name in place of names": {"prefilter": lambda *_: PreFilterResult(RuleFilter(3), cast(Any, "n1"))},
        "names without a filter": {
            "prefilter": lambda *_: PreFilterResult(cast(Any, None), frozenset({"n1"})),
        },
        "admits returns nothing": {"admits": lambda *_: None},
        "admits raises": {"admits": _raise},
    },
    'running "Mine" filter plugin: ': {
        "a mask of another length": {"prefilter": lambda *_: RuleFilter(3, (np.ones(2, np.bool_), RED))},
        "a mask of numbers": {"prefilter": lambda *_: RuleFilter(3, (cast(Any, np.ones(3)), RED))},
        "a rule whose status is no refusal": {
            "prefilter": lambda *_: RuleFilter(3, (np.zeros(3, np.bool_), failed("x"))),
        },
    },
    'running PreScore plugin "Mine": ': {"raises in PreScore": {"prescore": _raise}},
    'running Score plugins: plugin "Mine" failed with: ': {
        "a score above 100": {"prescore": lambda *_: FinalScores(np.array([0, 101, 0]))},
        "scores that are fractions": {"prescore": lambda *_: FinalScores(np.array([0.5, 1, 0]))},
    },
}


@pytest.mark.parametrize(
    ("where", "methods"),
    [pytest.param(where, methods, id=name) for where, by in WRONG.items() for name, methods in by.items()],
)
def test_a_guest_that_is_wrong_fails_the_cycle_and_is_named(
    where: str, methods: dict[str, Any], snapshot: SnapshotAssertion
):
    decision = cluster(own(**methods)).decide(make_pod())
    assert (decision.node, decision.error, decision.message.startswith(where)) == (None, True, True)
    assert _told(decision.message) == snapshot


def _late(*_: Any) -> Any:
    raise KeyError("late")


@pytest.mark.parametrize(
    "statuses",
    [
        pytest.param(_late, id="raises"),
        pytest.param(lambda: None, id="nothing"),
        pytest.param(lambda: NodeStatuses(np.array([7, 7, 7]), [RED]), id="no status"),
        pytest.param(lambda: NodeStatuses(cast(Any, np.ones(3)), [RED]), id="fractions"),
        pytest.param(lambda: NodeStatuses(np.array([1]), [RED]), id="short"),
        pytest.param(lambda: NodeStatuses(np.array([1, 1, 1]), cast(Any, ["red"])), id="text"),
    ],
)
def test_reasons_that_fail_are_reasons(statuses: Any, snapshot: SnapshotAssertion):
    """The nodes are refused anyhow; also a record of a decision, or the page, may ask for the reasons later."""
    mine = _Refusing(NodeStatuses(np.array([1, 1, 1]), [RED]))
    mine.statuses = statuses  # type: ignore[method-assign]
    decision = cluster(own(prefilter=lambda *_: mine)).decide(make_pod())
    reason = decision.refused["n1"]
    assert reason.startswith('running "Mine" filter plugin: ')
    assert _told(reason) == snapshot
    assert decision.message.startswith(f"0/3 nodes are available: 3 {reason}")
    mine.mask = lambda: np.array([True, False, False])  # type: ignore[method-assign]
    decision = cluster(own(prefilter=lambda *_: mine)).decide(make_pod())
    assert (decision.node, decision.refused["n1"]) == ("n0", reason)


@pytest.mark.parametrize("result", [SKIP, Status(Code.SUCCESS, ())])
def test_success_is_nothing_to_do(result: Any):
    """At both points, as upstream has it."""
    decision = cluster(own(prefilter=lambda *_: result, prescore=lambda *_: result)).decide(make_pod())
    assert decision.node is not None


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (unschedulable(), "node(s) were refused by plugin Mine"),
        (unschedulable(""), "node(s) were refused by plugin Mine"),
        (unresolvable("it is Friday"), "it is Friday"),
    ],
)
def test_a_pod_that_is_rejected_as_a_whole_is_unschedulable(status: Status, reason: str):
    decision = cluster(own(prefilter=lambda *_: status)).decide(make_pod())
    assert (decision.message, decision.error) == (f"0/3 nodes are available: {reason}.", False)


class _RoomForTwo:
    """A trial at a row: at most two pods per node."""

    def __init__(self, n_pods: int) -> None:
        self.n_pods = n_pods

    def add_pod(self, pod: Pod) -> None:
        self.n_pods += 1

    def remove_pod(self, pod: Pod) -> None:
        self.n_pods -= 1

    def refusal(self) -> Status | None:
        return None if self.n_pods < 1 else RED


def _full(trial: Any) -> Any:
    def prefilter(_: Any, context: Any, view: Any) -> Any:
        mask = view.nodes.pod_count < 1
        return RuleFilter(view.n_rows, (mask, RED), trial=lambda row: trial(view.nodes.pod_count.item(row)))

    return prefilter


@pytest.mark.parametrize(("priority", "evicted"), [(0, False), (5, True)])
def test_preemption_asks_a_guest_what_it_says_without_some_pods(priority: int, evicted: bool):
    made = Cluster(plugins=[own(prefilter=_full(_RoomForTwo))]).add(make_node("n0"))
    message = made.add(make_pod("running", node="n0")).decide(make_pod("new", priority=priority)).message
    assert ("No preemption victims found" in message) is not evicted
    assert "0/1 nodes are available: 1 node(s) were red." in message


def test_a_trial_that_raises_fails_the_cycle():
    made = Cluster(plugins=[own(prefilter=_full(_late))]).add(make_node("n0"))
    decision = made.add(make_pod("running", node="n0")).decide(make_pod("new", priority=5))
    assert decision.error
    assert decision.message.startswith("running \"Mine\" filter plugin: KeyError: 'late'")


def _explaining(explain: Any) -> Cluster:
    mine = own(prefilter=lambda _, context, view: RuleFilter(3, (np.zeros(3, np.bool_), RED)))
    mine.explain = explain
    return cluster(mine)


@pytest.mark.parametrize(
    "explain",
    [
        pytest.param(_late, id="raises"),
        pytest.param(_exit, id="ends the process"),
        pytest.param(lambda *_: None, id="nothing"),
        pytest.param(lambda *_: PluginExplanation(where=_late), id="where raises"),
        pytest.param(lambda *_: PluginExplanation(where=lambda rows: ["x"]), id="one"),
        pytest.param(lambda *_: PluginExplanation(proposals=_late), id="proposals raise"),
    ],
)
def test_an_explanation_that_fails_says_so(explain: Any, snapshot: SnapshotAssertion):
    explained = str(_explaining(explain).explain(make_pod()))
    (note,) = (line for line in explained.splitlines() if "plugin Mine does not explain it: " in line)
    assert _told(note) == snapshot
    assert "node(s) were red" in explained


def test_a_guest_explains_its_refusals():
    explanation = PluginExplanation(where=lambda rows: ["on the left"] * len(rows))
    assert "on the left" in str(_explaining(lambda *_: explanation).explain(make_pod()))


def test_a_guest_explains_why_it_rejects_the_pod():
    for explain, text in (
        (lambda *_: "until Monday", "until Monday"),
        (_late, "does not explain it: KeyError"),
    ):
        mine = own(prefilter=lambda *_: unresolvable("it is Friday"), explain_rejection=explain)
        assert text in str(cluster(mine).explain(make_pod()))


@pytest.mark.parametrize(("method", "answer"), [("fits", "red"), ("fits", None), ("score", 0.5)])
def test_a_node_by_node_rule_with_an_answer_of_another_type_fails_the_cycle(
    method: str, answer: Any, snapshot: SnapshotAssertion
):
    """A text would count as true: a rule that returns its reason would let every pod through."""
    mine = type("Mine", (NodeByNode,), {"name": "Mine", method: lambda *_: answer})
    decision = cluster(mine).decide(make_pod())
    assert decision.error
    assert _told(decision.message) == snapshot


def test_a_refused_node_without_a_reason_gets_one():
    class Silent:
        def mask(self) -> Any:
            return np.array([True, False, False])

        def statuses(self) -> Any:
            return RuleFilter(3, (np.array([True, False, True]), Status(RED.code, ()))).statuses()

    decision = cluster(own(prefilter=lambda *_: Silent())).decide(make_pod())
    reason = "node(s) were refused by plugin Mine"
    assert decision.refused == {"n1": reason, "n2": reason}


def test_a_guest_may_name_the_only_nodes():
    """In any collection."""

    def prefilter(_: Any, context: Any, view: Any) -> Any:
        return PreFilterResult(RuleFilter(view.n_rows), cast(Any, names))

    names = ["n2"]
    assert cluster(own(prefilter=prefilter)).decide(make_pod()).feasible == ("n2",)
    names.clear()
    message = cluster(own(prefilter=prefilter)).decide(make_pod()).message
    assert message == "0/3 nodes are available: node(s) didn't satisfy plugin Mine."


def test_a_guest_is_not_asked_about_pods_without_its_label():
    mine = own(prefilter=_raise, only_pods_with_label="team")
    assert cluster(mine).decide(make_pod()).node is not None
    assert cluster(mine).decide(make_pod(labels={"team": "a"})).error


WEB = PodMatcher.of({})
ARRAYS: dict[str, Callable[[Any], Any]] = {
    "alive": lambda s: s.alive,
    "matching": lambda s: s.eligible((ZONE,)),
    "tolerated": lambda s: s.tolerated(()),
    "untolerated": lambda s: s.n_untolerated_taints((), ("NoSchedule",)),
    "column": lambda s: s.column(ZONE).ids,
    "pods per node": lambda s: s.pods_per_node(WEB),
    "selected": lambda s: s.selected(WEB).by_row,
    "pods by domain": lambda s: s.pods_by_domain(WEB, ZONE).amounts,
    "all of a resource": lambda s: s.nodes.use("cpu", slice(None))[0],
    "taints": lambda s: s.nodes.taint_set,
    "ids of domains": lambda s: s.pods_by_domain(WEB, ZONE).ids,
    "per row": lambda s: s.per_row("k", lambda rows: 1, np.int64),
    "per node": lambda s: s.per_node("n", lambda: np.ones(s.n_rows)),
    "per image": lambda s: s.per_image("i", lambda: np.ones(s.n_rows, np.int16)),
    "lower priorities": lambda s: s.has_lower(5),
    "asked nodes": lambda s: s.per_asked_node("q", lambda node: 1, s.alive),
    "volume room": lambda s: s.volume_room("csi.example.com"),
    "allocatable": lambda s: s.nodes.allocatable("cpu"),
    "requested": lambda s: s.nodes.requested("cpu"),
    "pod count": lambda s: s.nodes.pod_count,
    "cordoned": lambda s: s.nodes.unschedulable,
    "non-zero": lambda s: s.nodes.non_zero,
}


@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS)
def test_a_guest_cannot_write_to_an_array(array: Callable[[Any], Any]):
    """Twice: also when the array is kept from the first time."""

    def prefilter(_: Any, context: Any, view: Any) -> Any:
        array(view)[...] = 0
        return SKIP

    mine = cluster(own(prefilter=prefilter))
    for _ in range(2):
        assert "ValueError: assignment destination is read-only" in mine.decide(make_pod()).message
    assert mine.differences == []


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda c, s: c.pod.labels.update(a="b"), id="the pod's labels"),
        pytest.param(lambda c, s: c.pod.spec.containers[0].requests.clear(), id="the pod's requests"),
        pytest.param(lambda c, s: c.label_set.labels.pop("a"), id="the labels of a label set"),
        pytest.param(lambda c, s: s.view_at(0).pods[0].labels.update(a="b"), id="labels of a running pod"),
        pytest.param(lambda c, s: setattr(s.view_at(0).pods[0], "priority", 1), id="a running pod"),
        pytest.param(lambda c, s: s.state.usage_of(c.pod).requested.clear(), id="the usage of a pod"),
        pytest.param(lambda c, s: s.namespace_labels("default").clear(), id="the labels of a namespace"),
        pytest.param(
            lambda c, s: s.state.kubelet_refusals.excluded_nodes(c.pod.spec).clear(),
            id="the refusals of kubelets",
        ),
        pytest.param(lambda c, s: s.state.terms.selecting(c.label_set), id="terms of running pods"),
        pytest.param(lambda c, s: s.state.counts.term_sums(None, c.label_set, None), id="sums of terms"),
        pytest.param(lambda c, s: s.topology_rows(), id="rows of volumes"),
        pytest.param(lambda c, s: s.volumes.remove(StorageKind.CLAIM, "default/c"), id="volumes"),
        pytest.param(lambda c, s: s.node_at(0).labels.update(a="b"), id="a node's labels"),
        pytest.param(lambda c, s: s.node_at(0).allocatable.update(cpu=1), id="a node's amounts"),
        pytest.param(lambda c, s: s.view_at(0).labels.update(a="b"), id="the labels of a view"),
        pytest.param(lambda c, s: s.nodes.row_by_name.clear(), id="the nodes by name"),
        pytest.param(lambda c, s: s.nodes.images.clear(), id="the images"),
        pytest.param(lambda c, s: s.nodes.remove("n0"), id="the nodes"),
        pytest.param(lambda c, s: s.column(ZONE).set(0, "x"), id="a label"),
        pytest.param(lambda c, s: s.nodes.ports.clear(), id="host ports"),
        pytest.param(lambda c, s: s.nodes.count_usage(0, s.state.usage_of(c.pod), 1), id="usage of a node"),
        pytest.param(lambda c, s: s.devices.remove("ResourceClaim", "default/c"), id="devices"),
        pytest.param(lambda c, s: s.state.remove_pod("running"), id="the state behind the view"),
        pytest.param(lambda c, s: s.state.budgets.remove("", "default/b"), id="budgets"),
        pytest.param(lambda c, s: s.state.workloads.remove("Service", "default/s"), id="services"),
        pytest.param(lambda c, s: s.state.hierarchies.remove("", "room"), id="levels of machine rooms"),
        pytest.param(lambda c, s: s.state.groups.serve("g"), id="kinds of groups"),
        pytest.param(lambda c, s: s.state.groups.release("g"), id="groups"),
        pytest.param(lambda c, s: s.state.terms.remove(("t",), 0), id="terms"),
    ],
)
def test_a_guest_cannot_change_an_object(change: Callable[[Any, Any], Any]):
    def prefilter(_: Any, context: Any, view: Any) -> Any:
        change(context, view)
        return SKIP

    mine = cluster(own(prefilter=prefilter))
    assert re.search("(Attribute|Type|FrozenInstance)Error: ", mine.decide(make_pod()).message)
    assert mine.differences == []


def test_a_guest_cannot_write_to_the_feasible_nodes():
    def prescore(_: Any, context: Any, view: Any, feasible: Any) -> Any:
        feasible.mask[:] = True
        return SKIP

    assert "read-only" in cluster(own(prescore=prescore)).decide(make_pod()).message


def test_what_a_guest_computes_differently_each_time_does_not_stop_the_audit():
    """Values of out_of_tree are not ours to audit; a formula that raises there would end the process."""
    answers = iter(range(100))

    def prefilter(_: Any, context: Any, view: Any) -> Any:
        view.per_row("drawn", lambda rows: next(answers), np.int64)
        return SKIP

    mine = cluster(own(prefilter=prefilter))
    mine.decide(make_pod())
    assert mine.differences == []


def test_two_guests_may_use_the_same_key():
    def filtered(limit: int) -> Any:
        def prefilter(_: Any, context: Any, view: Any) -> Any:
            values = view.per_row("limit", lambda rows: limit, np.int64)
            return RuleFilter(view.n_rows, (values > 1, unschedulable(f"node(s) had {limit}")))

        return prefilter

    made = cluster(own("One", prefilter=filtered(1)), own("Two", prefilter=filtered(2)))
    assert set(made.decide(make_pod()).refused.values()) == {"node(s) had 1"}


def test_a_hint_that_raises_wakes_the_pod():
    """In doubt the pod is tried."""
    events = [ClusterEventWithHint(Resource.NODE, Action.ADD, _raise)]
    mine = own(prefilter=lambda *_: SKIP)
    mine.events_to_register = lambda _: events
    made = cluster(mine)
    (profile,) = made.profiles.values()
    (registered,) = next(
        one for one in profile.rejecting_plugins() if one.name == "Mine"
    ).events_to_register()
    assert registered.hint is not None
    assert registered.hint(None, None, None).name == "QUEUE"


class Approved:
    """Admits pods with the label `approved`."""

    name = "Approved"

    def events_to_register(self) -> Any:
        return [ClusterEventWithHint(Resource.POD, Action.UPDATE_POD_LABEL)]

    def admits(self, pod: Any) -> bool:
        return "approved" in pod.labels


def test_a_pod_is_tried_once_the_guest_admits_it():
    """A decision, which knows no queue, says that it is not admitted."""
    made = Cluster(plugins=[Approved]).add(make_node("a"))
    driver = Driver(settings=made.settings)
    driver.node("a")
    driver.pod("web")
    assert driver.cycle() == []
    assert driver.queue.depths()["gated"] == 1
    driver.pod("web", labels={"approved": "yes"})
    assert kinds(driver.cycle()) == ["Bind"]
    told = refusals(made.decide(make_pod()).message)
    assert told == "0/1 nodes are available: pod is not admitted by plugin Approved."
    assert made.decide(make_pod(labels={"approved": "yes"})).node == "a"
