"""
Requests to the API server as values: built here, sent by `client`. No IO.

Bodies have the shape of kube-scheduler 1.36's where it sends the same request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal
from urllib.parse import quote, urlencode

import msgspec

#: The client's page size in client-go (`defaultPageSize`, tools/pager 1.36).
PAGE_LIMIT: Final = 500

_CORE: Final = "/api/v1"
_EVENTS: Final = "/apis/events.k8s.io/v1"
_LEASES: Final = "/apis/coordination.k8s.io/v1"

JSON: Final = "application/json"
STRATEGIC_MERGE: Final = "application/strategic-merge-patch+json"
MERGE: Final = "application/merge-patch+json"

#: The Kubernetes verb of a request, for metrics and logs.
Verb = Literal["list", "watch", "get", "create", "update", "patch", "delete"]

_METHOD_BY_VERB: Final[Mapping[Verb, str]] = {
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
}


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request. `path` is escaped and starts with a slash; `query` is sent in this order."""

    method: str
    path: str
    verb: Verb
    query: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    content_type: str = ""

    @classmethod
    def writing(cls, verb: Verb, path: str, body: object, content_type: str = JSON) -> Request:
        """Return a request with a body, which is encoded as JSON."""
        return cls(_METHOD_BY_VERB[verb], path, verb, (), msgspec.json.encode(body), content_type)

    @property
    def target(self) -> str:
        """The request target: path and query."""
        return f"{self.path}?{urlencode(self.query, quote_via=quote)}" if self.query else self.path


@dataclass(frozen=True, slots=True)
class WatchPath:
    """A collection to list and watch: its path, such as `/api/v1/pods`, and a selector."""

    path: str
    field_selector: str = ""

    def query(self, *more: tuple[str, str]) -> tuple[tuple[str, str], ...]:
        """Return the selector, then `more`; parameters without a value are left out."""
        return tuple(
            (name, value) for name, value in (("fieldSelector", self.field_selector), *more) if value
        )


#: The version of the server, which needs no right beyond a user's.
SERVER_VERSION: Final = Request("GET", "/version", "get")


def list_page(resource: WatchPath, *, continue_token: str = "", limit: int = PAGE_LIMIT) -> Request:
    """Return a request for one page of the newest state, since it names no resourceVersion."""
    query = resource.query(("limit", str(limit)), ("continue", continue_token))
    return Request("GET", resource.path, "list", query)


def watch(resource: WatchPath, *, resource_version: str, timeout_s: int) -> Request:
    """Return a watch of all changes after `resource_version`, with bookmarks; the server ends it after `timeout_s`."""
    query = resource.query(
        ("watch", "true"),
        ("allowWatchBookmarks", "true"),
        ("resourceVersion", resource_version),
        ("timeoutSeconds", str(timeout_s)),
    )
    return Request("GET", resource.path, "watch", query)


def watch_list(resource: WatchPath, *, timeout_s: int) -> Request:
    """
    Return a watch that begins with the newest state: ADDED events up to a marked bookmark, then all changes.

    Source: KEP-3157; client-go tools/cache/reflector.go, watchList (1.36), without reuse of an old version.
    """
    query = resource.query(
        ("watch", "true"),
        ("allowWatchBookmarks", "true"),
        ("sendInitialEvents", "true"),
        ("resourceVersionMatch", "NotOlderThan"),
        ("timeoutSeconds", str(timeout_s)),
    )
    return Request("GET", resource.path, "watch", query)


def get_pod(namespace: str, name: str) -> Request:
    """Return a request for the newest state of one pod."""
    return Request("GET", path_of(_CORE, "pods", namespace, name), "get")


def find_pod(namespace: str, name: str) -> Request:
    """Return a list of only this pod, newest state: it needs no right but to list, as the reflector does."""
    query = (("fieldSelector", f"metadata.name={name}"),)
    return Request("GET", path_of(_CORE, "pods", namespace), "list", query)


def bind(
    *, namespace: str, name: str, uid: str, node_name: str, annotations: Mapping[str, str] | None = None
) -> Request:
    """
    Return a request that binds the pod with this uid, and no other, to a node, and merges the annotations.

    Source: plugins/defaultbinder/default_binder.go, Bind (1.36).
    """
    metadata = {"name": name, "namespace": namespace, "uid": uid}
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {**metadata, "annotations": annotations} if annotations else metadata,
        "target": {"kind": "Node", "name": node_name},
    }
    return Request.writing("create", path_of(_CORE, "pods", namespace, name, "binding"), body)


class ConditionPatch(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """
    A condition of a pod to patch, or one of a PodGroup.

    `last_transition_time` is None if the status of a pod's did not change. `observed_generation` is the generation of
    the object that it is about, None if unknown.
    """

    type: str
    status: str
    reason: str
    message: str
    last_transition_time: str | None = None
    observed_generation: int | None = None


def patch_pod_status(
    *,
    namespace: str,
    name: str,
    uid: str,
    condition: ConditionPatch | None,
    nominated_node_name: str | None = None,
) -> Request:
    """
    Return a request that merges one condition by its type, and the nomination: None leaves it, '' clears it.

    No resourceVersion precondition, as upstream; no `$setElementOrder`, which one element does not need. Source:
    pkg/scheduler/util/utils.go, PatchPodStatus (1.36). Difference: the patch contains the uid, so that a pod recreated
    under the same name does not get its predecessor's condition; the server then returns 422.
    """
    status: dict[str, Any] = {"conditions": [condition]} if condition else {}
    if nominated_node_name is not None:
        status["nominatedNodeName"] = nominated_node_name or None
    body = {"metadata": {"uid": uid}, "status": status}
    path = path_of(_CORE, "pods", namespace, name, "status")
    return Request.writing("patch", path, body, STRATEGIC_MERGE)


def patch_pod_group_status(
    *,
    namespace: str,
    name: str,
    api_version: str,
    resource_version: str,
    conditions: tuple[ConditionPatch, ...],
) -> Request:
    """
    Return a request that replaces the conditions of a PodGroup of scheduling.k8s.io; Conflict for another version.

    Source: pkg/scheduler/schedule_one_podgroup.go (1.36), which sends a strategic merge patch.
    """
    path = path_of(f"/apis/scheduling.k8s.io/{api_version}", "podgroups", namespace, name, "status")
    body = {"metadata": {"resourceVersion": resource_version}, "status": {"conditions": conditions}}
    return Request.writing("patch", path, body, MERGE)


def delete_pod(namespace: str, name: str, uid: str) -> Request:
    """Return a request that deletes the pod with this uid, with its own grace; Conflict for another uid."""
    return Request.writing("delete", path_of(_CORE, "pods", namespace, name), {"preconditions": {"uid": uid}})


class VolumeClaimRef(msgspec.Struct, frozen=True, rename="camel"):
    """spec.claimRef of a volume."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    kind: str = "PersistentVolumeClaim"
    api_version: str = "v1"


def promise_volume(
    name: str, *, resource_version: str, claim: VolumeClaimRef, annotations: Mapping[str, str]
) -> Request:
    """
    Return a request that lets a PersistentVolume refer to the claim; Conflict if the volume is not of this version.

    Difference: upstream sends the whole object with PUT; fields that are not sent stay as they are.
    """
    body = {"metadata": _at_version(resource_version, annotations), "spec": {"claimRef": claim}}
    return Request.writing("patch", path_of(_CORE, "persistentvolumes", name=name), body, MERGE)


def annotate_claim(
    namespace: str, name: str, *, resource_version: str, annotations: Mapping[str, str]
) -> Request:
    """Return a request that annotates a PersistentVolumeClaim; Conflict if it is not of this version."""
    body = {"metadata": _at_version(resource_version, annotations)}
    return Request.writing("patch", path_of(_CORE, "persistentvolumeclaims", namespace, name), body, MERGE)


def _at_version(resource_version: str, annotations: Mapping[str, str]) -> Mapping[str, object]:
    """Return metadata that adds the annotations to an object of this version."""
    metadata = {"resourceVersion": resource_version}
    return {**metadata, "annotations": annotations} if annotations else metadata


def get_volume(name: str) -> Request:
    """Return a request for the newest state of one PersistentVolume."""
    return Request("GET", path_of(_CORE, "persistentvolumes", name=name), "get")


def get_claim(namespace: str, name: str) -> Request:
    """Return a request for the newest state of one PersistentVolumeClaim."""
    return Request("GET", path_of(_CORE, "persistentvolumeclaims", namespace, name), "get")


def create_event(namespace: str, body: object) -> Request:
    """Return a request that creates an events.k8s.io/v1 Event."""
    return Request.writing("create", path_of(_EVENTS, "events", namespace), body)


def patch_event(namespace: str, name: str, body: object) -> Request:
    """Return a patch of the series of an Event, its only mutable part."""
    return Request.writing("patch", path_of(_EVENTS, "events", namespace, name), body, STRATEGIC_MERGE)


class LeaseSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """spec of a coordination.k8s.io/v1 Lease. Times are `micro_time` text; an empty holder means released."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


def get_lease(namespace: str, name: str) -> Request:
    """Return a request for a Lease; `responses.decode_lease` decodes the response."""
    return Request("GET", path_of(_LEASES, "leases", namespace, name), "get")


def watch_lease(namespace: str, name: str, *, timeout_s: int) -> Request:
    """Return a watch of one Lease that begins with its newest state; the server ends it after `timeout_s`."""
    resource = WatchPath(path_of(_LEASES, "leases", namespace), f"metadata.name={name}")
    return watch(resource, resource_version="", timeout_s=timeout_s)


def create_lease(namespace: str, name: str, spec: LeaseSpec) -> Request:
    """Return a request that creates a Lease; Conflict if another candidate was faster."""
    lease = _lease({"name": name, "namespace": namespace}, spec)
    return Request.writing("create", path_of(_LEASES, "leases", namespace), lease)


def update_lease(namespace: str, name: str, spec: LeaseSpec, *, metadata: msgspec.Raw) -> Request:
    """
    Return a request that replaces a Lease's spec; Conflict if it has changed since it was read.

    `metadata` is sent back as read: its resourceVersion is the precondition, and its labels stay.
    """
    return Request.writing("update", path_of(_LEASES, "leases", namespace, name), _lease(metadata, spec))


def _lease(metadata: object, spec: LeaseSpec) -> Mapping[str, object]:
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


def second_time(epoch_s: float) -> str:
    """Return a metav1.Time: RFC 3339, UTC, whole seconds."""
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_time(epoch_s: float) -> str:
    """Return a metav1.MicroTime: RFC 3339, UTC, always six decimals."""
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def seconds_of(timestamp: str) -> float | None:
    """Return the seconds since the epoch of an RFC 3339 time; None if it is none."""
    try:
        parsed = datetime.fromisoformat(timestamp)
    except ValueError:
        return None
    return parsed.replace(tzinfo=parsed.tzinfo or UTC).timestamp()


def escaped(name: str) -> str:
    """Return the name escaped as one path segment."""
    return quote(name, safe="")


def path_of(api: str, plural: str, namespace: str = "", name: str = "", subresource: str = "") -> str:
    """Return the path of a collection of an API, such as `/api/v1`, or of an object or a subresource in it."""
    path = f"{api}/namespaces/{escaped(namespace)}/{plural}" if namespace else f"{api}/{plural}"
    return "/".join((path, *(part for part in (escaped(name), subresource) if part)))
