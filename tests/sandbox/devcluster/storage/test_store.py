"""The store in-process: what listeners see, how much history it keeps, and which objects are deleted together."""

import pytest

from scheduler.sandbox.devcluster.bootstrap import populate, zone_name
from scheduler.sandbox.devcluster.controllers.objects import controller_ref
from scheduler.sandbox.devcluster.kinds import CONFIG_MAP, DEPLOYMENT, NAMESPACE, POD, REPLICA_SET, JsonObject
from scheduler.sandbox.devcluster.storage.store import ObjectStore
from tests.support import build
from tests.support.workloads import workload


@pytest.fixture
def store() -> ObjectStore:
    made = ObjectStore(capacity=4)
    populate(made, nodes=0, zones=1)
    return made


def _map(store: ObjectStore, name: str, **metadata: object) -> JsonObject:
    return store.create(CONFIG_MAP, "default", {"metadata": {"name": name, **metadata}})


def test_stored_objects_are_copies_of_the_callers(store):
    mine = {"metadata": {"name": "a"}, "data": {"k": "v"}}
    stored = store.create(CONFIG_MAP, "default", mine)
    mine["data"]["k"] = "changed"
    assert stored["data"] == store.get(CONFIG_MAP, "default", "a")["data"] == {"k": "v"}


def test_the_past_stays_bounded(store):
    for index in range(100):
        store.patch(NAMESPACE, "", "default", {"metadata": {"labels": {"n": str(index)}}})
    assert len(store.history.reader(NAMESPACE, store.resource_version - 4).take()) == 4


# -- deleted together ----------------------------------------------------------------------------------------


def test_dependents_of_a_deleted_object_go_too(store):
    made = workload("Deployment", "d", build.pod(labels={"app": "a"}))
    deployment = store.create(DEPLOYMENT, "default", made)
    made = workload("ReplicaSet", "rs", build.pod(labels={"app": "a"}))
    made["metadata"]["ownerReferences"] = [controller_ref(deployment)]
    replica_set = store.create(REPLICA_SET, "default", made)
    for name, node in (("loose", None), ("bound", "n")):
        pod = build.pod(name, node=node, owner=controller_ref(replica_set))
        store.create(POD, "default", pod)
    store.delete(DEPLOYMENT, "default", "d")
    assert store.find(REPLICA_SET, "default", "rs") is None
    assert store.find(POD, "default", "loose") is None
    assert store.get(POD, "default", "bound")["metadata"]["deletionTimestamp"]


def test_an_object_with_another_living_owner_stays(store):
    one, two = (_map(store, name) for name in ("one", "two"))
    owners = [controller_ref(one), {**controller_ref(two), "controller": False}]
    _map(store, "owned", ownerReferences=owners)
    store.delete(CONFIG_MAP, "default", "one")
    assert store.find(CONFIG_MAP, "default", "owned") is not None
    store.delete(CONFIG_MAP, "default", "two")
    assert store.find(CONFIG_MAP, "default", "owned") is None


def test_a_deleted_namespace_takes_its_content_and_ends_with_the_last_pod(store):
    _map(store, "a")
    store.create(POD, "default", build.pod("bound", node="n"))
    deletion = store.delete(NAMESPACE, "", "default")
    assert not deletion.gone
    assert store.get(NAMESPACE, "", "default")["status"]["phase"] == "Terminating"
    assert store.find(CONFIG_MAP, "default", "a") is None
    store.delete(POD, "default", "bound", grace_period_s=0)
    assert store.find(NAMESPACE, "", "default") is None


# -- ready-made clusters -------------------------------------------------------------------------------------


def test_zone_names_go_on_after_z():
    names = [zone_name(index) for index in (0, 25, 26, 27, 701)]
    assert names == ["zone-a", "zone-z", "zone-aa", "zone-ab", "zone-zz"]
