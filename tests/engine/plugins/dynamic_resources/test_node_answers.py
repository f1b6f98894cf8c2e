"""Answers that are kept while devices, slices and nodes change equal answers that are worked out anew."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.engine.model.device_requests import ResourceClaim
from scheduler.engine.model.devices import ResourceSlice
from scheduler.engine.plugins.dynamic_resources.allocator import DEFAULT_STEPS, Allocator
from scheduler.engine.plugins.dynamic_resources.answers import Answer, AuditWindow, NotAllocated
from scheduler.engine.plugins.dynamic_resources.node_answers import NodeAnswers, Question, form_of
from scheduler.engine.plugins.dynamic_resources.pool_index import PoolIndex
from scheduler.engine.plugins.dynamic_resources.pools import NodePools
from scheduler.engine.plugins.dynamic_resources.selection import ExpressionResults, SelectorResults
from scheduler.engine.state.batches import finished
from scheduler.engine.state.change_log import LatestChanges
from tests.conformance.product import LiveCluster
from tests.engine.plugins.dynamic_resources.clusters import node_of, published, slice_of
from tests.engine.plugins.dynamic_resources.device_clusters import CLUSTERS, NODES, Cluster
from tests.engine.plugins.dynamic_resources.test_allocator import expensive, request
from tests.support import build

Json = dict[str, Any]


class _Life:
    """A cluster that changes, with an index and answers that are kept."""

    def __init__(self, cluster: Cluster) -> None:
        self.slices, classes, self.claims = cluster
        self.cluster = LiveCluster()
        self.devices = self.cluster.state.devices
        for each in classes:
            self.apply("DeviceClass", each)
        for name in NODES:
            self.label(name, "z")
        self.index = PoolIndex(self.devices)
        self.answers = NodeAnswers()
        self.results = SelectorResults()
        # The form of the first claim is asked for again and again; the others come and go.
        self.asked = self.claim(self.claims[0])

    def apply(self, kind: str, raw: Json) -> None:
        """Create or replace an object."""
        meta = {"uid": raw["metadata"]["name"], "resourceVersion": "1", **raw["metadata"]}
        self.cluster.apply({**raw, "kind": kind, "metadata": meta})

    def label(self, name: str, zone: str) -> None:
        """Set the label of a node."""
        self.cluster.apply(build.node(name, labels={"zone": zone}, hostname=None))

    def claim(self, raw: Json) -> ResourceClaim:
        """Store a claim without an allocation, and return it."""
        self.apply("ResourceClaim", raw)
        claim = self.devices.claim(f"default/{raw['metadata']['name']}")
        assert claim is not None
        return claim

    def allocate(self, raw: Json, node: str) -> None:
        """Give a claim its devices on a node, if it gets some there."""
        claim = self.claim(raw)
        self.index.refresh()
        allocated = self.allocator(self.index).allocate(node_of(node, {"zone": "z"}), [claim])
        if not isinstance(allocated, NotAllocated):
            self.devices.upsert(replace(claim, allocation=allocated[0]))

    def allocator(self, index: PoolIndex, n_steps: int = DEFAULT_STEPS) -> Allocator:
        """Return the allocator of a cycle."""
        devices = self.devices
        return Allocator(
            index, devices.allocated, devices.classes, self.results, seed="seed", n_steps=n_steps
        )

    def ask(self) -> bool:
        """Ask for what is kept in a cycle of one step. Return whether a search has to go on."""
        self.index.refresh()
        view, allocator = self.cluster.view(), self.allocator(self.index, n_steps=1)
        finished(self.answers.ask(view.alive, Question([self.asked], allocator, view)))
        return Answer.POSTPONED in self.answers.answers

    def check(self) -> None:
        """Compare what is kept with a look at everything."""
        self.index.refresh()
        fresh_index = PoolIndex(self.devices)
        fresh_index.refresh()
        assert self.index.same_as(fresh_index)
        view = self.cluster.view()
        fresh = NodeAnswers()
        kept = Question([self.asked], self.allocator(self.index), view)
        finished(self.answers.ask(view.alive, kept))
        finished(fresh.ask(view.alive, Question([self.asked], self.allocator(fresh_index), view)))
        assert answers_of(self.answers) == answers_of(fresh)
        assert self.answers.same_as(NodeAnswers())


def answers_of(answers: NodeAnswers) -> Json:
    """Return the answers and scores by row."""
    return {"answers": answers.answers.tolist(), "scores": answers.scores.tolist()}


@settings(max_examples=50, deadline=None)
@given(cluster=CLUSTERS, data=st.data())
def test_kept_answers_equal_fresh_ones(cluster: Cluster, data: st.DataObject) -> None:
    """After each change of slices, allocations or labels the kept answers are those of a look at everything."""
    life = _Life(cluster)
    for raw in life.slices:
        life.apply("ResourceSlice", raw)
    life.check()
    for _ in range(data.draw(st.integers(1, 12))):
        raw = data.draw(st.sampled_from(life.slices))
        claim, node = data.draw(st.sampled_from(life.claims)), data.draw(st.sampled_from(NODES))
        match data.draw(st.integers(0, 5)):
            case 0:
                newer = json.loads(json.dumps(raw))
                newer["spec"]["pool"]["generation"] += 1
                life.apply("ResourceSlice", newer)
            case 1:
                life.apply("ResourceSlice", raw)
            case 2:
                life.cluster.delete("ResourceSlice", None, raw["metadata"]["name"])
            case 3:
                life.label(node, data.draw(st.sampled_from("zy")))
            case 4:
                life.claim(claim)
            case _:
                life.allocate(claim, node)
        life.check()


def _life(devices: list[Json], count: int, **of_claim: Any) -> _Life:
    """Return a life with the devices on one node, and a claim of so many of them."""
    name = "a.example.com"
    pool = {"name": "node-0", "generation": 1, "resourceSliceCount": 1}
    slices = [
        {
            "metadata": {"name": "s"},
            "spec": {"driver": name, "nodeName": "node-0", "pool": pool, "devices": devices},
        }
    ]
    exactly = {"deviceClassName": "any", "allocationMode": "ExactCount", "count": count}
    claim = {
        "metadata": {"name": "c", "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}], **of_claim}},
    }
    life = _Life((slices, [{"metadata": {"name": "any"}, "spec": {}}], [claim]))
    life.apply("ResourceSlice", slices[0])
    return life


def test_devices_behind_the_first_ones_are_found_where_a_constraint_keeps_these_apart() -> None:
    """The first device has no second one of its NUMA node, the others have."""
    devices = [{"name": f"d{each}", "attributes": {"numa": {"int": min(each, 1)}}} for each in range(3)]
    life = _life(devices, 2, constraints=[{"matchAttribute": "a.example.com/numa"}])
    life.check()
    assert Answer.DEVICES in life.answers.answers


def test_a_search_that_goes_on_begins_anew_where_a_device_was_taken_in_between() -> None:
    """The last two devices are the only ones of one NUMA node; one of them is taken after any number of cycles."""
    devices = [{"name": f"d{each}", "attributes": {"numa": {"int": min(each, 4)}}} for each in range(6)]
    constraints = [{"matchAttribute": "a.example.com/numa"}]
    query = {"deviceClassName": "any", "allocationMode": "ExactCount", "count": 1}
    query["selectors"] = [{"cel": {"expression": 'device.attributes["a.example.com"].numa == 4'}}]
    taker = {
        "metadata": {"name": "taker", "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": query}]}},
    }
    n_cycles = 1
    while True:
        life = _life(devices, 2, constraints=constraints)
        if not [life.ask() for _ in range(n_cycles)][-1]:
            break
        life.allocate(taker, "node-0")
        while life.ask():
            pass
        assert Answer.DEVICES not in life.answers.answers
        life.check()
        n_cycles += 1
    assert n_cycles > 5
    assert Answer.DEVICES in life.answers.answers


def test_a_long_search_is_forgotten_when_its_class_has_another_configuration() -> None:
    """The configuration is part of what a search returns."""
    devices = [{"name": f"d{each}", "attributes": {"numa": {"int": min(each, 4)}}} for each in range(6)]
    life = _life(devices, 2, constraints=[{"matchAttribute": "a.example.com/numa"}])
    while life.ask():
        pass
    node = node_of("node-0", {"zone": "z"})
    pools = life.index.pools(node)
    assert isinstance(pools, NodePools)
    assert life.answers.long_search(node, pools) is not None
    config = [{"opaque": {"driver": "a.example.com", "parameters": {}}}]
    life.apply("DeviceClass", {"metadata": {"name": "any"}, "spec": {"config": config}})
    life.ask()
    assert life.answers.long_search(node, pools) is None


def test_a_selector_of_an_unknown_kind_is_an_error_where_no_device_is_selected_anyway() -> None:
    """The search looks at the request before it looks at devices."""
    exactly = {"deviceClassName": "any", "allocationMode": "ExactCount", "count": 1, "selectors": [{}]}
    life = _life([], 1, requests=[{"name": "r", "exactly": exactly}])
    life.check()
    assert Answer.ERROR in life.answers.answers


_TERM = {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}
_TWO_TERMS = {"nodeSelector": {"nodeSelectorTerms": [_TERM, _TERM]}}


@pytest.mark.parametrize(
    ("fabric", "answer"),
    [
        (_TWO_TERMS | {"devices": [{"name": "d"}]}, Answer.ERROR),
        ({"perDeviceNodeSelection": True, "devices": [{"name": "d"} | _TWO_TERMS]}, Answer.ERROR),
        (_TWO_TERMS | {"devices": [{"name": "d", "bindsToNode": True}]}, Answer.DEVICES),
    ],
    ids=["of a slice", "of a device", "of a device that binds to the node"],
)
def test_devices_with_two_terms_of_nodes_are_an_error_once_they_are_taken(
    fabric: Json, answer: Answer
) -> None:
    """An allocation can name the nodes of a single term. Source: createNodeSelector (kubernetes 1.36)."""
    life = _life([], 1)
    spec = {"driver": "b.example.com", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}}
    life.apply("ResourceSlice", {"metadata": {"name": "fabric"}, "spec": spec | fabric})
    life.check()
    assert life.answers.answers.tolist() == [answer] * len(NODES)


def test_a_search_goes_on_where_all_was_spent_that_may_be_evaluated() -> None:
    """It turns back before it evaluates: the second and the third device are the only pair; the others are the rest."""
    numbers = (0, 1, 1, 2, 3, 4, 5)
    devices = [{"name": f"d{i}", "attributes": {"numa": {"int": n}}} for i, n in enumerate(numbers)]
    requests = [request("pair", 2), request("others", 5, expensive())]
    constraints = [{"matchAttribute": "a.example.com/numa", "requests": ["pair"]}]
    life = _life(devices, 1, requests=requests, constraints=constraints)
    n_cycles = 1
    while life.ask():
        n_cycles += 1
        assert n_cycles < 20
    assert n_cycles > 5
    assert Answer.DEVICES in life.answers.answers
    life.check()


def test_a_pod_on_a_node_changes_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer of a row is kept while pods come and go there: no search begins."""
    life = _life([{"name": "d"}], 1)
    life.check()
    life.cluster.apply(build.pod("p", node="node-0"))
    monkeypatch.setattr(Allocator, "begin", None)
    assert not life.ask()


@pytest.mark.parametrize(("n_values", "n_windows"), [(150, 3), (128, 2)])
def test_an_audit_comes_to_every_value_again_and_again(n_values: int, n_windows: int) -> None:
    window, values = AuditWindow(), range(n_values)
    for _ in range(3):
        seen = [value for _ in range(n_windows) for value in window.of(values)]
        assert seen == list(values)
    assert list(window.of(values[:5])) == list(window.of(values[:5])) == [0, 1, 2, 3, 4]


def test_an_audit_finds_an_answer_that_a_search_does_not_give() -> None:
    life = _life([{"name": "d"}], 1)
    life.check()
    row = life.cluster.view().nodes.row_by_name["node-0"]
    assert life.answers.answers[row] == Answer.DEVICES
    life.answers.answers[row] = Answer.NO_DEVICES
    assert not life.answers.same_as(NodeAnswers())


def test_answers_are_right_after_a_node_left() -> None:
    life = _life([{"name": "d"}], 1)
    life.check()
    row = life.cluster.view().nodes.row_by_name["node-0"]
    life.cluster.delete("Node", None, "node-0")
    life.check()
    assert life.answers.answers[row] == Answer.UNKNOWN


def test_claims_of_one_form_differ_in_names_alone() -> None:
    life = _life([], 1)
    classes = dict(life.devices.classes)
    form = form_of([life.asked], classes)
    assert form == form_of([replace(life.asked, key="default/other", uid="other")], dict(classes))
    assert form != form_of([replace(life.asked, requests=())], classes)
    assert form != form_of([life.asked], {"any": replace(classes["any"], selectors=("false",))})
    assert form != form_of([life.asked], {})


def test_an_audit_finds_a_result_that_an_evaluation_does_not_give() -> None:
    results, fresh = ExpressionResults("true"), ExpressionResults("true")
    device = _slice("own", nodeName="node-0", devices=[{"name": "d"}]).devices[0]
    results.by_driver["a.example.com"][device] = True
    assert results.same_as(fresh)
    results.by_driver["a.example.com"][device] = False
    assert not results.same_as(fresh)


_COUNTERS = [{"name": "s", "counters": {"c": {"value": "1"}}}]
_POOL = {"name": "pool", "generation": 1, "resourceSliceCount": 1}


def _slice(name: str, **spec: Any) -> ResourceSlice:
    return slice_of(name, {"driver": "a.example.com", "pool": _POOL} | spec)


@pytest.mark.parametrize(
    ("asked", "changed"),
    [
        pytest.param([], _slice("other", nodeName="node-1", devices=[{"name": "e"}]), id="on another node"),
        pytest.param(
            ["node-0"],
            _slice("own", nodeName="node-0", devices=[{"name": "e"}]),
            id="with another device on a node that was asked about",
        ),
        pytest.param(
            [],
            _slice("other", allNodes=True, sharedCounters=_COUNTERS, pool={**_POOL, "resourceSliceCount": 3}),
            id="that makes the pool incomplete elsewhere",
        ),
    ],
)
def test_an_audit_finds_a_slice_that_came_without_a_note(asked: list[str], changed: ResourceSlice) -> None:
    devices = published([_slice("own", nodeName="node-0", devices=[{"name": "d"}])])
    index = PoolIndex(devices)
    index.refresh()
    devices.changes = LatestChanges()
    for name in asked:
        index.pools(node_of(name, {}))
    assert index.same_as(index)
    devices.upsert(changed)
    assert not index.same_as(index)
