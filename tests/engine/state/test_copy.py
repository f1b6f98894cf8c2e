"""A copy of the state has everything that decisions read, and changes on its own."""

from __future__ import annotations

import random
from typing import Any, Final

import pytest

from scheduler.daemon.assembly.profiles import build_profiles
from scheduler.daemon.settings.loading import default_settings
from scheduler.engine.core.decide import decide
from scheduler.engine.framework.diagnosis import FitError
from scheduler.engine.framework.kinds import KINDS
from scheduler.engine.model.group_topology import Topology
from scheduler.engine.model.kueue import KueueKind, KueueObject
from scheduler.engine.model.pod_groups import COSCHEDULING_GROUP, GroupKey, GroupKind, PodGroup
from scheduler.engine.model.stimuli import ObjectSeen, PodGroupSeen, PodSeen
from scheduler.engine.model.volumes import StorageKind
from scheduler.engine.state.assumed_objects import StoredObjects
from scheduler.engine.state.audit import differences
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.cluster_view import ClusterView
from tests.support import build
from tests.support.driving import NAME, Driver, bind_of
from tests.support.json_cluster import encoded
from tests.support.storage_objects import claim, storage_class
from tests.tools.explain.random_clusters import random_cluster

#: Attributes that a copy of the state takes over, each by its own copy method.
TAKEN_OVER: Final = frozenset(
    {"workloads", "kubelet_refusals", "budgets", "groups", "hierarchies", "held_for_evictions"}
)
#: Attributes that a copy computes from the nodes, namespaces, volumes and pods that are added to it.
_COUNTED: Final = frozenset(
    {
        *("nodes", "label_sets", "terms", "pods", "disks", "volumes", "devices", "nominated"),
        *("placed", "_on_row", "n_assumed"),
    }
)
#: Attributes that a copy computes when they are needed, and its configuration.
_DERIVED: Final = frozenset({"log", "derived", "counts", "_usage_by_spec", "_options", "is_provisional"})

GANG = GroupKey(GroupKind.COSCHEDULING, "default", "gang")


@pytest.fixture
def full() -> Driver:
    """Return a machine whose state has something of everything."""
    driver = Driver()
    driver.namespace("default", team="core")
    for name in ("a", "b", "c"):
        driver.node(name, allocatable={"cpu": "2", "pods": "9"})
    driver.handle(ObjectSeen(KINDS["Service"].decode(encoded(build.service("web", {"app": "web"})))))
    budget = {"metadata": {"namespace": "default", "name": "kept"}, "spec": {"selector": {}}}
    driver.handle(ObjectSeen(KINDS["PodDisruptionBudget"].decode(encoded(budget))))
    driver.handle(ObjectSeen(KueueObject(KueueKind.TOPOLOGY, "room", ("example.com/rack",))))
    driver.handle(PodGroupSeen(PodGroup(GANG, 1, topology=Topology(("zone",)))))
    driver.state.groups.note_whole(GANG, 1)
    released = GroupKey(GroupKind.COSCHEDULING, "default", "released")
    driver.handle(PodGroupSeen(PodGroup(released, 2)))
    driver.state.groups.release(released)
    driver.pod("member", labels={COSCHEDULING_GROUP: "gang"}, node="a")
    driver.pod("low", cpu="1", node="b", priority=-5)
    for document in (storage_class("late"), claim("data", "late")):
        kind = StorageKind(document["kind"])
        driver.handle(ObjectSeen(KINDS[kind].decode(encoded(document))))
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    document = build.pod("db", spec={"schedulerName": NAME, "volumes": volumes})
    driver.handle(PodSeen(driver.decoded(document)))
    driver.cycle()
    driver.state.nominate(driver.pod("waits", priority=3, gates=("later",)), "c")
    driver.state.held_for_evictions["somebody"] = "a sibling"
    refuse(driver, "refused")
    return driver


def refuse(driver: Driver, name: str) -> str:
    """Bind a pod of one CPU, and let its node's kubelet refuse it; return the node."""
    seen = driver.pod(name, cpu="1")
    node_name = bind_of(driver.cycle()).node_name
    bound = driver.confirm(seen, node_name)
    document = build.pod(name, uid=bound.uid, node=node_name, cpu="1", spec={"schedulerName": NAME})
    document["status"] = {"phase": "Failed", "reason": "OutOfcpu"}
    driver.handle(PodSeen(driver.decoded(document)))
    return node_name


def contents(value: Any) -> Any:
    """Return the value with the attributes of our own mutable objects in place of these."""
    if type(value).__module__.startswith("scheduler.engine.state.") and hasattr(value, "__dict__"):
        return {name: contents(inner) for name, inner in vars(value).items()}
    if isinstance(value, dict):
        return {key: contents(inner) for key, inner in value.items()}
    return value


def holders(objects: StoredObjects) -> dict[tuple[str, str], frozenset[str]]:
    """Return the UIDs of the pods of each assumed object."""
    return {key: frozenset(assumption.holders) for key, assumption in objects._assumptions.items()}


def test_everything_is_copied(full: Driver) -> None:
    """Kubelets' refusals, nominations, evictions under way, groups, budgets, and what is assumed of volumes."""
    state = full.state
    copy = state.copy()
    assert differences(copy) == []
    before, after = contents(vars(state)), contents(vars(copy))
    for name in TAKEN_OVER - {"groups"}:
        assert before[name] == after[name], name
        assert before[name], name
    for name in ("_objects", "_served", "_whole", "_released", "_placed"):
        assert before["groups"][name] == after["groups"][name], name
        assert before["groups"][name], name
    assert list(state.nominated.by_node()) != []
    assert [(node, list(pods)) for node, pods in state.nominated.by_node()] == [
        (node, list(pods)) for node, pods in copy.nominated.by_node()
    ]
    assert holders(state.volumes) == holders(copy.volumes) != {}
    assert [*state.volumes.objects()] == [*copy.volumes.objects()]
    assert {uid: (one.pod, one.assumed) for uid, one in state.placed.items()} == {
        uid: (one.pod, one.assumed) for uid, one in copy.placed.items()
    }
    assert (state.n_assumed, state.nodes.nodes) == (copy.n_assumed, copy.nodes.nodes)
    assert state.label_sets.namespace_labels == copy.label_sets.namespace_labels


def test_a_copy_changes_on_its_own(full: Driver) -> None:
    before = contents(vars(full.state.copy()))
    copy = full.state.copy()
    copy.groups.release(GANG)
    copy.budgets.remove("PodDisruptionBudget", "default/kept")
    copy.workloads.remove("Service", "default/web")
    copy.kubelet_refusals.forget_node("a")
    copy.kubelet_refusals.expire(1e9)
    copy.held_for_evictions.clear()
    for uid in list(copy.placed):
        copy.remove_pod(uid)
    for node in ("a", "b", "c"):
        copy.nodes.remove(node)
    left = (*copy.budgets, *copy.placed, *copy.held_for_evictions)
    assert (left, len(copy.kubelet_refusals._exclusions), copy.workloads.seen("Service", "default/web")) == (
        (),
        0,
        None,
    )
    after = contents(vars(full.state.copy()))
    for name in TAKEN_OVER:
        assert before[name] == after[name], name
    assert differences(full.state) == []


def test_a_new_attribute_of_the_state_needs_a_rule_for_its_copy() -> None:
    assert vars(ClusterState()).keys() == TAKEN_OVER | _COUNTED | _DERIVED


def test_a_copy_decides_as_the_state_does_where_kubelets_refuse_pods() -> None:
    driver = Driver()
    driver.node("only", allocatable={"cpu": "2", "pods": "9"})
    refuse(driver, "first")
    second = driver.pod("second", cpu="1")
    for view in (ClusterView(driver.state), ClusterView(driver.state.copy())):
        profile = build_profiles(default_settings(), view)[NAME]
        decision = decide(second, view, profile, random.Random(1))
        assert isinstance(decision, FitError)
        assert decision.message().startswith("0/1 nodes are available")


@pytest.mark.parametrize("seed", range(5))
def test_the_counts_of_a_copy_are_a_recount(seed: int) -> None:
    cluster, _ = random_cluster(seed)
    state = cluster.state()
    copy = state.copy()
    assert differences(copy) == []
    assert sorted(copy.placed) == sorted(state.placed)
