"""Builders of API objects: valid by default, only what matters is spelled out."""

from collections.abc import Iterable
from typing import TypeVar

from scheduler.sandbox.devcluster.controllers.actions import Action, Create, Delete, Update
from scheduler.sandbox.devcluster.controllers.ownership import controller_ref
from scheduler.sandbox.devcluster.kinds import JsonObject, Kind
from scheduler.sandbox.devcluster.timestamps import rfc3339

T = TypeVar("T")

#: The time of every test of a plan, seconds since 1970.
NOW_S = 1_800_000_000.0
LABELS = {"app": "web"}


def meta(name: str, **fields: object) -> JsonObject:
    """Return the metadata of a stored object."""
    return {
        "name": name,
        "namespace": "default",
        "uid": f"uid-{name}",
        "resourceVersion": "1",
        "generation": 1,
        "creationTimestamp": rfc3339(NOW_S - 100),
        **fields,
    }


def template(image: str = "web:1") -> JsonObject:
    """Return a pod template that differs by its image."""
    return {"metadata": {"labels": dict(LABELS)}, "spec": {"containers": [{"name": "c", "image": image}]}}


def deployment(
    replicas: int = 3, *, image: str = "web:1", status: JsonObject | None = None, **spec: object
) -> JsonObject:
    """Return a Deployment as the server stores it, defaults filled in."""
    defaults: JsonObject = {
        "replicas": replicas,
        "selector": {"matchLabels": dict(LABELS)},
        "template": template(image),
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
        "progressDeadlineSeconds": 600,
        "revisionHistoryLimit": 10,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": meta("web"),
        "spec": {**defaults, **spec},
        "status": status or {},
    }


def rolling(surge: int | str, unavailable: int | str) -> JsonObject:
    """Return a RollingUpdate strategy."""
    return {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}


def pod(
    name: str,
    owner: JsonObject | None = None,
    *,
    node: str = "",
    phase: str = "Pending",
    ready_for_s: float | None = None,
    deleted: bool = False,
    labels: dict[str, str] | None = None,
    age_s: float = 100,
    **metadata: object,
) -> JsonObject:
    """Return a pod; `ready_for_s` makes it ready since that many seconds."""
    told = meta(
        name,
        labels=LABELS if labels is None else labels,
        creationTimestamp=rfc3339(NOW_S - age_s),
        **metadata,
    )
    if owner is not None:
        told["ownerReferences"] = [controller_ref(owner)]
    if deleted:
        told["deletionTimestamp"] = rfc3339(NOW_S)
    status: JsonObject = {"phase": phase}
    if ready_for_s is not None:
        since = rfc3339(NOW_S - ready_for_s)
        status["conditions"] = [{"type": "Ready", "status": "True", "lastTransitionTime": since}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": told,
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "web:1"}]},
        "status": status,
    }


def of(actions: Iterable[Action], action_type: type[T], kind: Kind | None = None) -> list[T]:
    found = [each for each in actions if isinstance(each, action_type)]
    writes = (Create, Update, Delete)
    return [each for each in found if kind is None or (isinstance(each, writes) and each.kind is kind)]


def status_after(actions: Iterable[Action], kind: Kind | None = None) -> JsonObject:
    """Return the status that the actions write last."""
    written = [one for one in of(actions, Update, kind) if one.subresource == "status"]
    status: JsonObject = written[-1].obj["status"]
    return status
