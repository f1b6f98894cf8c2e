"""Builders of objects for the plans of controllers: valid by default, only what matters is spelled out."""

from collections.abc import Iterable
from typing import TypeVar

from scheduler.sandbox.devcluster.controllers.actions import Action, Create, Delete, Update
from scheduler.sandbox.devcluster.controllers.objects import controller_ref, key_of
from scheduler.sandbox.devcluster.controllers.planning import PLANS
from scheduler.sandbox.devcluster.kinds import POD, JsonObject, Kind
from scheduler.sandbox.devcluster.parts import rfc3339
from scheduler.sandbox.devcluster.storage.store import ObjectStore

T = TypeVar("T")

#: The time of every object, seconds since 1970.
NOW_S = 1_800_000_000.0
LABELS = {"app": "web"}


def template(image: str = "web:1") -> JsonObject:
    """Return a pod template that differs by its image."""
    return {"metadata": {"labels": dict(LABELS)}, "spec": {"containers": [{"name": "c", "image": image}]}}


def _metadata(name: str, **fields: object) -> JsonObject:
    born = rfc3339(NOW_S - 100)
    own = {
        "name": name,
        "namespace": "default",
        "uid": f"uid-{name}",
        "generation": 1,
        "creationTimestamp": born,
    }
    return {**own, **fields}


def owner(kind: str, spec: JsonObject) -> JsonObject:
    """Return an object that has a plan, named w."""
    return {"apiVersion": "v1", "kind": kind, "metadata": _metadata("w"), "spec": spec}


def pod(
    name: str,
    owner: JsonObject | None = None,
    *,
    node: str = "",
    phase: str = "Pending",
    ready: bool = False,
    deleted: bool = False,
    labels: dict[str, str] | None = None,
    age_s: float = 100,
    annotations: dict[str, str] | None = None,
) -> JsonObject:
    """Return a pod with the labels of `template`, unless it has others."""
    metadata = _metadata(
        name,
        labels=LABELS if labels is None else labels,
        annotations=annotations or {},
        creationTimestamp=rfc3339(NOW_S - age_s),
        ownerReferences=[controller_ref(owner)] if owner else [],
        **({"deletionTimestamp": rfc3339(NOW_S)} if deleted else {}),
    )
    status: JsonObject = {"phase": phase}
    if ready:
        status["conditions"] = [{"type": "Ready", "status": "True"}]
    spec = {"nodeName": node, "containers": [{"name": "c", "image": "web:1"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def planned(
    kind: Kind,
    obj: JsonObject,
    pods: Iterable[JsonObject] = (),
    *,
    beside: Iterable[tuple[Kind, JsonObject]] = (),
) -> list[Action]:
    """Return the plan of an object in a cluster with these pods, and these objects of other kinds."""
    store = ObjectStore()
    for of_kind, one in ((kind, obj), *((POD, pod) for pod in pods), *beside):
        store.rewrite(of_kind, one)
    return [*PLANS[kind](store.get(kind, *key_of(obj)), store)]


def of(actions: Iterable[Action], action_type: type[T], kind: Kind | None = None) -> list[T]:
    found = [each for each in actions if isinstance(each, action_type)]
    writes = (Create, Update, Delete)
    return [each for each in found if kind is None or (isinstance(each, writes) and each.kind is kind)]


def status_after(actions: Iterable[Action]) -> JsonObject:
    """Return the status that the actions write last."""
    written = [one for one in of(actions, Update) if one.subresource == "status"]
    status: JsonObject = written[-1].obj["status"]
    return status
