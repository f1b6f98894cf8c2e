"""The store in-process: what listeners see, how much history it keeps, and which objects are deleted together."""

import pytest

from scheduler.sandbox.devcluster.bootstrap import populate, zone_name
from scheduler.sandbox.devcluster.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    NAMESPACE,
    POD,
    REPLICA_SET,
    JsonObject,
    Kind,
)
from scheduler.sandbox.devcluster.storage.history import Follower
from scheduler.sandbox.devcluster.storage.store import ObjectStore


@pytest.fixture
def store() -> ObjectStore:
    made = ObjectStore(capacity=4)
    populate(made, nodes=0, zones=1)
    return made


def _map(store: ObjectStore, name: str, **metadata: object) -> JsonObject:
    return store.create(CONFIG_MAP, "default", {"metadata": {"name": name, **metadata}})


def _pod(store: ObjectStore, name: str, *, node: str = "", **metadata: object) -> JsonObject:
    spec: JsonObject = {"containers": [{"name": "c", "image": "i"}]} | ({"nodeName": node} if node else {})
    return store.create(POD, "default", {"metadata": {"name": name, **metadata}, "spec": spec})


def _taken(reader: Follower) -> list[tuple[str, str]]:
    return [(change.type, change.revision.obj["metadata"]["name"]) for change in reader.take()]


def _owner(obj: JsonObject, *, controller: bool = True) -> JsonObject:
    metadata = obj["metadata"]
    return {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": controller,
    }


def test_stored_objects_are_copies_of_the_callers(store):
    mine = {"metadata": {"name": "a"}, "data": {"k": "v"}}
    stored = store.create(CONFIG_MAP, "default", mine)
    mine["data"]["k"] = "changed"
    assert stored["data"] == store.get(CONFIG_MAP, "default", "a")["data"] == {"k": "v"}


def test_the_past_stays_bounded(store):
    for index in range(100):
        store.patch(NAMESPACE, "", "default", {"metadata": {"labels": {"n": str(index)}}})
    reader = store.history.reader(NAMESPACE, store.resource_version - 4)
    assert len(_taken(reader)) == 4


# -- deleted together ----------------------------------------------------------------------------------------


def _template() -> JsonObject:
    return {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


def _workload(store: ObjectStore, kind: Kind, name: str, owner: JsonObject | None = None) -> JsonObject:
    metadata: JsonObject = {"name": name} | ({"ownerReferences": [_owner(owner)]} if owner else {})
    spec = {"selector": {"matchLabels": {"app": "a"}}, "template": _template()}
    return store.create(kind, "default", {"metadata": metadata, "spec": spec})


def test_dependents_of_a_deleted_object_go_too(store):
    replica_set = _workload(store, REPLICA_SET, "rs", _workload(store, DEPLOYMENT, "d"))
    _pod(store, "loose", ownerReferences=[_owner(replica_set)])
    _pod(store, "bound", node="n", ownerReferences=[_owner(replica_set)])
    store.delete(DEPLOYMENT, "default", "d")
    assert store.find(REPLICA_SET, "default", "rs") is None
    assert store.find(POD, "default", "loose") is None
    assert store.get(POD, "default", "bound")["metadata"]["deletionTimestamp"]


def test_an_object_with_another_living_owner_stays(store):
    one, two = (_map(store, name) for name in ("one", "two"))
    owners = [_owner(one), _owner(two, controller=False)]
    _map(store, "owned", ownerReferences=owners)
    store.delete(CONFIG_MAP, "default", "one")
    assert store.find(CONFIG_MAP, "default", "owned") is not None
    store.delete(CONFIG_MAP, "default", "two")
    assert store.find(CONFIG_MAP, "default", "owned") is None


def test_a_deleted_namespace_takes_its_content_and_ends_with_the_last_pod(store):
    _map(store, "a")
    _pod(store, "bound", node="n")
    deletion = store.delete(NAMESPACE, "", "default")
    assert not deletion.gone
    assert store.get(NAMESPACE, "", "default")["status"]["phase"] == "Terminating"
    assert store.find(CONFIG_MAP, "default", "a") is None
    store.delete(POD, "default", "bound", grace_period_s=0)
    assert store.find(NAMESPACE, "", "default") is None


# -- ready-made clusters -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("index", "name"), [(0, "zone-a"), (25, "zone-z"), (26, "zone-aa"), (27, "zone-ab"), (701, "zone-zz")]
)
def test_zone_names_go_on_after_z(index, name):
    assert zone_name(index) == name
