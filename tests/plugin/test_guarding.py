"""A guest that is wrong fails the pod's cycle with a message that names it, and changes nothing by accident."""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

from scheduler.plugin import (
    SKIP,
    Action,
    ClusterEventWithHint,
    FinalScores,
    NodeByNode,
    NodeStatuses,
    PodMatcher,
    PreFilterResult,
    Resource,
    RuleFilter,
    Status,
    unresolvable,
    unschedulable,
)
from scheduler.testing import Cluster, make_node, make_pod

EVENTS = [ClusterEventWithHint(Resource.NODE, Action.ADD)]
RED = unschedulable("node(s) were red")
ZONE = "topology.kubernetes.io/zone"


def guest(name: str = "Mine", **methods: Any) -> type[Any]:
    """Return a plugin's class with these methods, whose first argument is the plugin."""
    return type(name, (), {"name": name, "events_to_register": lambda _: EVENTS, **methods})


def cluster(*plugins: type[Any], alone: bool = True) -> Cluster:
    """Return three nodes in two zones, and a pod on the first."""
    made = Cluster(plugins=plugins, alone=alone)
    made.add(*(make_node(f"n{number}", labels={ZONE: "ab"[number % 2]}) for number in range(3)))
    return made.add(make_pod("running", node="n0"))


def _raise(*_: Any) -> Any:
    raise KeyError("team")


class _Refusing:
    """Refuses every node with these statuses."""

    def __init__(self, statuses: NodeStatuses) -> None:
        self._statuses = statuses

    def mask(self) -> Any:
        return np.zeros(len(self._statuses.codes), np.bool_)

    def statuses(self) -> NodeStatuses:
        return self._statuses


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        pytest.param(
            {"prefilter": _raise},
            "running PreFilter plugin \"Mine\": KeyError: 'team' (test_guarding.py, line ",
            id="raises in PreFilter",
        ),
        pytest.param(
            {"prefilter": lambda *_: None},
            'running PreFilter plugin "Mine": TypeError: prefilter returned None, expected a RuleFilter, a status or '
            "SKIP",
            id="returns nothing",
        ),
        pytest.param(
            {"prefilter": lambda _, context, snapshot: RuleFilter(3, (np.ones(2, np.bool_), RED))},
            'running "Mine" filter plugin: TypeError: mask is bool of shape (2,), expected bool of shape (3,)',
            id="a mask of another length",
        ),
        pytest.param(
            {"prefilter": lambda _, context, snapshot: RuleFilter(3, (cast(Any, np.ones(3)), RED))},
            'running "Mine" filter plugin: TypeError: mask is float64 of shape (3,), expected bool of shape (3,)',
            id="a mask of numbers",
        ),
        pytest.param(
            {"prefilter": lambda *_: unresolvable(cast(Any, 5))},
            'running PreFilter plugin "Mine": TypeError: a status has reasons (5,), expected texts',
            id="a reason that is no text",
        ),
        pytest.param(
            {"prefilter": lambda *_: _Refusing(NodeStatuses(np.array([7, 7, 7]), [RED]))},
            'running "Mine" filter plugin: ValueError: codes up to 7 for 1 statuses',
            id="a status that does not exist",
        ),
        pytest.param(
            {"prescore": _raise},
            "running PreScore plugin \"Mine\": KeyError: 'team' (test_guarding.py, line ",
            id="raises in PreScore",
        ),
        pytest.param(
            {"prescore": lambda *_: FinalScores(np.array([0, 101, 0]))},
            'running Score plugins: plugin "Mine" failed with: ValueError: score 101, expected 0 to 100',
            id="a score above 100",
        ),
        pytest.param(
            {"prescore": lambda *_: FinalScores(np.array([0.5, 1, 0]))},
            'running Score plugins: plugin "Mine" failed with: TypeError: scores are float64 of shape (3,), expected '
            "integers of shape (3,)",
            id="scores that are fractions",
        ),
        pytest.param(
            {"admits": _raise},
            "running PreFilter plugin \"Mine\": KeyError: 'team' (test_guarding.py, line ",
            id="raises in PreEnqueue",
        ),
    ],
)
def test_a_guest_that_is_wrong_fails_the_cycle_and_is_named(methods: dict[str, Any], message: str):
    decision = cluster(guest(**methods)).decide(make_pod())
    assert (decision.node, decision.error) == (None, True)
    assert decision.message.startswith(message)


@pytest.mark.parametrize(
    ("verdict", "message"),
    [
        pytest.param("red", "TypeError: fits returned 'red', expected True, False or a status", id="a text"),
        pytest.param(None, "TypeError: fits returned None, expected True, False or a status", id="nothing"),
    ],
)
def test_a_node_by_node_rule_that_answers_neither_yes_nor_no_fails_the_cycle(verdict: Any, message: str):
    """A text would count as true: a rule that returns its reason would let every pod through."""

    class Mine(NodeByNode):
        name = "Mine"

        def fits(self, pod: Any, node: Any) -> Any:
            return verdict

    assert cluster(Mine).decide(make_pod()).message.startswith(f'running PreFilter plugin "Mine": {message}')


def test_a_score_that_is_no_whole_number_fails_the_cycle():
    class Mine(NodeByNode):
        name = "Mine"

        def score(self, pod: Any, node: Any) -> Any:
            return 0.5

    message = cluster(Mine).decide(make_pod()).message
    assert message.startswith(
        "running PreScore plugin \"Mine\": TypeError: 'float' object cannot be interpreted"
    )


def test_a_refused_node_without_a_reason_gets_one():
    """The message has a reason for every node, whatever the guest says."""

    class Silent:
        def mask(self) -> Any:
            return np.array([True, False, False])

        def statuses(self) -> Any:
            return RuleFilter(3, (np.array([True, False, True]), Status(RED.code, ()))).statuses()

    decision = cluster(guest(prefilter=lambda *_: Silent())).decide(make_pod())
    reason = "node(s) were refused by plugin Mine"
    assert decision.refused == {"n1": reason, "n2": reason}


def test_a_pod_that_a_guest_rejects_as_a_whole_is_unschedulable():
    decision = cluster(guest(prefilter=lambda *_: unresolvable("it is Friday"))).decide(make_pod())
    assert (decision.message, decision.error) == ("0/3 nodes are available: it is Friday.", False)


def test_a_guest_may_name_the_only_nodes():
    """In any collection."""

    def prefilter(_: Any, context: Any, snapshot: Any) -> Any:
        return PreFilterResult(RuleFilter(snapshot.n_rows), cast(Any, ["n2"]))

    assert cluster(guest(prefilter=prefilter)).decide(make_pod()).feasible == ("n2",)


def test_a_guest_is_not_asked_about_pods_without_its_label():
    mine = guest(prefilter=_raise, only_pods_with_label="team")
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
    "ids of domains": lambda s: s.pods_by_domain(WEB, ZONE).ids,
    "per row": lambda s: s.per_row("k", lambda rows: 1, np.int64),
    "scores per row": lambda s: s.scores_per_row("s", lambda rows: 1),
    "per node": lambda s: s.per_node("n", lambda: np.ones(s.n_rows)),
    "per image": lambda s: s.per_image("i", lambda: np.ones(s.n_rows, np.int16)),
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

    def prefilter(_: Any, context: Any, snapshot: Any) -> Any:
        array(snapshot)[...] = 0
        return SKIP

    mine = cluster(guest(prefilter=prefilter))
    for _ in range(2):
        assert "ValueError: assignment destination is read-only" in mine.decide(make_pod()).message
    assert mine.differences == []


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda c, s: c.pod.labels.update(a="b"), id="the pod's labels"),
        pytest.param(lambda c, s: s.node_at(0).labels.update(a="b"), id="a node's labels"),
        pytest.param(lambda c, s: s.node_at(0).allocatable.update(cpu=1), id="a node's amounts"),
        pytest.param(lambda c, s: s.view_at(0).labels.update(a="b"), id="the labels of a view"),
        pytest.param(lambda c, s: s.nodes.row_by_name.clear(), id="the nodes by name"),
        pytest.param(lambda c, s: s.nodes.images.clear(), id="the images"),
        pytest.param(lambda c, s: s.nodes.remove("n0"), id="the nodes"),
        pytest.param(lambda c, s: s.column(ZONE).set(0, "x"), id="a label"),
    ],
)
def test_a_guest_cannot_change_an_object(change: Callable[[Any, Any], Any]):
    def prefilter(_: Any, context: Any, snapshot: Any) -> Any:
        change(context, snapshot)
        return SKIP

    mine = cluster(guest(prefilter=prefilter))
    assert "AttributeError" in mine.decide(make_pod()).message
    assert mine.differences == []


def test_a_guest_cannot_write_to_the_feasible_nodes():
    def prescore(_: Any, context: Any, snapshot: Any, feasible: Any) -> Any:
        feasible.mask[:] = True
        return SKIP

    assert "read-only" in cluster(guest(prescore=prescore)).decide(make_pod()).message


def test_what_a_guest_computes_differently_each_time_does_not_stop_the_audit():
    """Values of guests are not ours to audit; a formula that raises there would end the process."""
    answers = iter(range(100))

    def prefilter(_: Any, context: Any, snapshot: Any) -> Any:
        snapshot.per_row("drawn", lambda rows: next(answers), np.int64)
        return SKIP

    mine = cluster(guest(prefilter=prefilter))
    mine.decide(make_pod())
    assert mine.differences == []


def test_two_guests_may_use_the_same_key():
    def filtered(limit: int) -> Any:
        def prefilter(_: Any, context: Any, snapshot: Any) -> Any:
            values = snapshot.per_row("limit", lambda rows: limit, np.int64)
            return RuleFilter(snapshot.n_rows, (values > 1, unschedulable(f"node(s) had {limit}")))

        return prefilter

    made = cluster(guest("One", prefilter=filtered(1)), guest("Two", prefilter=filtered(2)))
    assert set(made.decide(make_pod()).refused.values()) == {"node(s) had 1"}


def test_a_hint_that_raises_wakes_the_pod():
    """In doubt the pod is tried."""
    events = [ClusterEventWithHint(Resource.NODE, Action.ADD, _raise)]
    mine = guest(prefilter=lambda *_: SKIP)
    mine.events_to_register = lambda _: events
    made = cluster(mine)
    (profile,) = made.profiles.values()
    (registered,) = next(
        one for one in profile.enqueue_extensions() if one.name == "Mine"
    ).events_to_register()
    assert registered.hint is not None
    assert registered.hint(None, None, None).name == "QUEUE"
