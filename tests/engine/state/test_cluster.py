"""What a state knows of amounts, resources, namespaces and assumed pods."""

from __future__ import annotations

import json

import pytest

from scheduler.engine.model.nodes import Namespace, decode_node
from scheduler.engine.state.audit import differences
from scheduler.engine.state.batches import finished
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.errors import InvariantViolation
from tests.support import build
from tests.support.driving import Driver


def test_cpu_and_memory_alone_count_a_default_where_a_pod_requests_none() -> None:
    driver = Driver()
    driver.node("n1")
    driver.pod("asks", node="n1", containers=[build.container(requests={"ephemeral-storage": "5"})])
    amounts = {}
    for resource in ("cpu", "memory", "ephemeral-storage"):
        used = driver.state.nodes.use(resource, 0, with_defaults=True)
        amounts[resource] = used and used[0]
    assert amounts == {"cpu": 100, "memory": 200 << 20, "ephemeral-storage": 5}


def test_anti_affinity_by_annotation_is_told_while_a_pod_that_declares_it_is_placed() -> None:
    driver = Driver()
    driver.namespace("default")
    driver.node("n1")
    view = ClusterView(driver.state)
    asked = build.affinity(anti_required=[build.term(build.ZONE, build.selector("app=web"))])
    told = [view.state.terms.n_by_annotation]
    pod = driver.pod("apart", node="n1", annotations={"affinity-scheduler.io/affinity": json.dumps(asked)})
    told.append(view.state.terms.n_by_annotation)
    driver.lose(pod)
    assert [*told, view.state.terms.n_by_annotation] == [False, True, False]


def test_a_node_with_other_annotations_has_changed() -> None:
    """Rules of the user's read them."""
    state, versions = ClusterState(), []
    for owner in ("us", "us", "them"):
        document = build.node("n")
        document["metadata"]["annotations"] = {"owner": owner}
        state.nodes.upsert(decode_node(json.dumps(document).encode(), ("owner",)))
        versions.append(state.log.version)
    assert (versions[0] == versions[1], state.log.changed_after(versions[1], 1).tolist()) == (True, [True])


def test_a_resource_that_no_node_has_any_more_loses_its_column() -> None:
    """What pods request of it is known still."""
    driver = Driver()
    driver.node("n1", allocatable={"cpu": "2", "example.com/gpu": "4"})
    driver.pod("p", node="n1", containers=[build.container(requests={"example.com/gpu": "3"})])
    nodes = driver.state.nodes
    known = [nodes.resource_names()]
    for room in ({"cpu": "2"}, {"cpu": "2", "example.com/gpu": "4"}):
        driver.node("n1", allocatable=room)
        finished(driver.state.sweeping())
        known.append(nodes.resource_names())
        assert nodes.requested_at("example.com/gpu", 0) == 3
        assert differences(driver.state) == []
    assert [set(each) - set(known[1]) for each in known] == [{"example.com/gpu"}, set(), {"example.com/gpu"}]


def test_a_namespace_is_known_with_its_labels_while_it_is_there() -> None:
    """Whether a term by annotation counts in other namespaces follows from them."""
    state = ClusterState()
    across = build.term(build.ZONE, build.selector("app=web"), namespaces=["other"])
    asked = build.affinity(anti_required=[across, build.term(build.ZONE, build.selector("app=web"))])
    document = build.pod("p", node="n1", annotations={"affinity-scheduler.io/affinity": json.dumps(asked)})
    state.upsert_pod(Driver().decoded(document))
    marked = {"affinity-scheduler.io/annotation-reach": "cluster"}
    for labels, reached in (({}, ["default"]), (marked, ["default", "other"]), ({}, ["default"])):
        state.relabel_namespace("default", labels)
        assert state.namespace("default") == Namespace("default", "", labels)
        named = [term.key.matcher.named_namespaces() for term in state.terms]
        assert sorted(name for names in named for name in names or ()) == reached
        assert differences(state) == []
    state.relabel_namespace("default", None)
    assert state.namespace("default") is None


def test_only_an_assumed_pod_is_updated_as_one() -> None:
    driver = Driver()
    driver.node("n1")
    placed = driver.pod("placed", node="n1")
    unknown = driver.decoded(build.pod("unknown"))
    for pod in (placed, unknown):
        with pytest.raises(InvariantViolation, match=f"uid {pod.uid} is not assumed"):
            driver.state.update_assumed(pod)
