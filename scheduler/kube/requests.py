"""
Requests to the API server as values: built here, sent by `client`. No IO.

Bodies have the shape of kube-scheduler 1.36's where it sends the same request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal
from urllib.parse import quote, urlencode

import msgspec

#: The client's page size in client-go (`defaultPageSize`, tools/pager 1.36).
PAGE_LIMIT: Final = 500

JSON: Final = "application/json"
STRATEGIC_MERGE: Final = "application/strategic-merge-patch+json"
MERGE: Final = "application/merge-patch+json"

#: The Kubernetes verb of a request, for metrics and logs.
Verb = Literal["list", "watch", "get", "create", "update", "patch", "delete"]


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request. `path` is escaped and starts with a slash; `query` is sent in this order."""

    method: str
    path: str
    verb: Verb
    query: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    content_type: str = ""

    @property
    def target(self) -> str:
        """The request target: path and query."""
        return f"{self.path}?{urlencode(self.query, quote_via=quote)}" if self.query else self.path


@dataclass(frozen=True, slots=True)
class Resource:
    """A collection to list and watch: its path, such as `/api/v1/pods`, and a selector."""

    path: str
    field_selector: str = ""

    def query(self, *more: tuple[str, str]) -> tuple[tuple[str, str], ...]:
        """Return the selector, then `more`; parameters without a value are left out."""
        return tuple(
            (name, value) for name, value in (("fieldSelector", self.field_selector), *more) if value
        )


def list_page(resource: Resource, *, continue_token: str = "", limit: int = PAGE_LIMIT) -> Request:
    """Return a request for one page of the newest state, since it names no resourceVersion."""
    query = resource.query(("limit", str(limit)), ("continue", continue_token))
    return Request("GET", resource.path, "list", query)


def watch(resource: Resource, *, resource_version: str, timeout_s: int) -> Request:
    """Return a watch of all changes after `resource_version`, with bookmarks; the server ends it after `timeout_s`."""
    query = resource.query(
        ("watch", "true"),
        ("allowWatchBookmarks", "true"),
        ("resourceVersion", resource_version),
        ("timeoutSeconds", str(timeout_s)),
    )
    return Request("GET", resource.path, "watch", query)


def watch_list(resource: Resource, *, timeout_s: int) -> Request:
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
    return Request("GET", _pod_path(namespace, name), "get")


def find_pod(namespace: str, name: str) -> Request:
    """Return a list of only this pod, newest state: it needs no right but to list, as the reflector does."""
    query = (("fieldSelector", f"metadata.name={name}"),)
    return Request("GET", f"/api/v1/namespaces/{escaped(namespace)}/pods", "list", query)


class RequestBody(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Camel-cased JSON without fields at their default."""


class _BindingMeta(RequestBody, frozen=True):
    name: str
    namespace: str
    uid: str
    annotations: Mapping[str, str] = {}


class _Target(RequestBody, frozen=True, omit_defaults=False):
    kind: str
    name: str


class _Binding(RequestBody, frozen=True, omit_defaults=False):
    api_version: str
    kind: str
    metadata: _BindingMeta
    target: _Target


def bind(
    *, namespace: str, name: str, uid: str, node_name: str, annotations: Mapping[str, str] | None = None
) -> Request:
    """
    Return a request that binds the pod with this uid, and no other pod of that name, to a node.

    The annotations are merged into the pod's.

    Source: plugins/defaultbinder/default_binder.go, Bind (1.36).
    """
    meta = _BindingMeta(name, namespace, uid, annotations or {})
    body = msgspec.json.encode(_Binding("v1", "Binding", meta, _Target("Node", node_name)))
    return Request("POST", _pod_path(namespace, name, "binding"), "create", (), body, JSON)


class PodCondition(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """
    A condition to patch. `last_transition_time` is None if the status did not change.

    `observed_generation` is the generation of the pod that did not fit, 0 if unknown.
    """

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    observed_generation: int = 0


class _Status(RequestBody, frozen=True):
    conditions: tuple[PodCondition, ...] = ()
    nominated_node_name: str | msgspec.UnsetType | None = msgspec.UNSET


class _UidMeta(RequestBody, frozen=True):
    uid: str


class _StatusPatch(RequestBody, frozen=True, omit_defaults=False):
    metadata: _UidMeta
    status: _Status


def patch_pod_status(
    *,
    namespace: str,
    name: str,
    uid: str,
    condition: PodCondition | None,
    nominated_node_name: str | None = None,
) -> Request:
    """
    Return a request that merges one condition by its type, and the nomination: None leaves it, '' clears it.

    No resourceVersion precondition, as upstream; no `$setElementOrder`, which one element does not need. Source:
    pkg/scheduler/util/utils.go, PatchPodStatus (1.36). Difference: the patch contains the uid, so that a pod recreated
    under the same name does not get its predecessor's condition; the server then returns 422.
    """
    nominated = msgspec.UNSET if nominated_node_name is None else nominated_node_name or None
    status = _Status((condition,) if condition else (), nominated)
    body = msgspec.json.encode(_StatusPatch(_UidMeta(uid), status))
    return Request("PATCH", _pod_path(namespace, name, "status"), "patch", (), body, STRATEGIC_MERGE)


class GroupCondition(RequestBody, frozen=True):
    """status.conditions[] of a PodGroup."""

    type: str
    status: str
    reason: str
    message: str
    last_transition_time: str | None = None
    observed_generation: int | None = None


class _GroupStatus(RequestBody, frozen=True, omit_defaults=False):
    conditions: tuple[GroupCondition, ...]


class _GroupVersionMeta(RequestBody, frozen=True):
    resource_version: str


class _GroupStatusPatch(RequestBody, frozen=True):
    metadata: _GroupVersionMeta
    status: _GroupStatus


def patch_pod_group_status(
    *,
    namespace: str,
    name: str,
    api_version: str,
    resource_version: str,
    conditions: tuple[GroupCondition, ...],
) -> Request:
    """
    Return a request that replaces the conditions of a PodGroup of scheduling.k8s.io; Conflict for another version.

    Source: pkg/scheduler/schedule_one_podgroup.go (1.36), which sends a strategic merge patch.
    """
    path = f"/apis/scheduling.k8s.io/{api_version}/namespaces/{quote(namespace, safe='')}/podgroups"
    body = msgspec.json.encode(
        _GroupStatusPatch(_GroupVersionMeta(resource_version), _GroupStatus(conditions))
    )
    return Request("PATCH", f"{path}/{quote(name, safe='')}/status", "patch", (), body, MERGE)


class _Preconditions(RequestBody, frozen=True):
    uid: str


class _DeleteOptions(RequestBody, frozen=True):
    preconditions: _Preconditions


def delete_pod(namespace: str, name: str, uid: str) -> Request:
    """Return a request that deletes the pod with this uid, with its own grace; Conflict for another uid."""
    body = msgspec.json.encode(_DeleteOptions(_Preconditions(uid)))
    return Request("DELETE", _pod_path(namespace, name), "delete", (), body, JSON)


class ClaimReference(RequestBody, frozen=True, omit_defaults=False):
    """spec.claimRef of a volume."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    kind: str = "PersistentVolumeClaim"
    api_version: str = "v1"


class _VersionMeta(RequestBody, frozen=True):
    resource_version: str
    annotations: Mapping[str, str] = {}


class _VolumeSpec(RequestBody, frozen=True):
    claim_ref: ClaimReference


class _VolumePatch(RequestBody, frozen=True):
    metadata: _VersionMeta
    spec: _VolumeSpec


class _ClaimPatch(RequestBody, frozen=True):
    metadata: _VersionMeta


def promise_volume(
    name: str, *, resource_version: str, claim: ClaimReference, annotations: Mapping[str, str]
) -> Request:
    """
    Return a request that lets a PersistentVolume refer to the claim; Conflict if the volume is not of this version.

    Difference: upstream sends the whole object with PUT; fields that are not sent stay as they are.
    """
    patch = _VolumePatch(_VersionMeta(resource_version, annotations), _VolumeSpec(claim))
    return Request("PATCH", _volume_path(name), "patch", (), msgspec.json.encode(patch), MERGE)


def annotate_claim(
    namespace: str, name: str, *, resource_version: str, annotations: Mapping[str, str]
) -> Request:
    """Return a request that annotates a PersistentVolumeClaim; Conflict if it is not of this version."""
    body = msgspec.json.encode(_ClaimPatch(_VersionMeta(resource_version, annotations)))
    return Request("PATCH", _claim_path(namespace, name), "patch", (), body, MERGE)


def get_volume(name: str) -> Request:
    """Return a request for the newest state of one PersistentVolume."""
    return Request("GET", _volume_path(name), "get")


def get_claim(namespace: str, name: str) -> Request:
    """Return a request for the newest state of one PersistentVolumeClaim."""
    return Request("GET", _claim_path(namespace, name), "get")


def create_event(namespace: str, body: bytes) -> Request:
    """Return a request that creates an events.k8s.io/v1 Event."""
    return Request("POST", _events_path(namespace), "create", (), body, JSON)


def patch_event(namespace: str, name: str, body: bytes) -> Request:
    """Return a patch of the series of an Event, its only mutable part."""
    path = f"{_events_path(namespace)}/{escaped(name)}"
    return Request("PATCH", path, "patch", (), body, STRATEGIC_MERGE)


class LeaseSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """spec of a coordination.k8s.io/v1 Lease. Times are `micro_time` text; an empty holder means released."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _NewLeaseMeta(RequestBody, frozen=True):
    name: str
    namespace: str


class _Lease(RequestBody, frozen=True, omit_defaults=False):
    api_version: str
    kind: str
    metadata: _NewLeaseMeta | msgspec.Raw
    spec: LeaseSpec


def get_lease(namespace: str, name: str) -> Request:
    """Return a request for a Lease; `responses.decode_lease` decodes the response."""
    return Request("GET", f"{_leases_path(namespace)}/{escaped(name)}", "get")


def create_lease(namespace: str, name: str, spec: LeaseSpec) -> Request:
    """Return a request that creates a Lease; Conflict if another candidate was faster."""
    lease = _Lease("coordination.k8s.io/v1", "Lease", _NewLeaseMeta(name, namespace), spec)
    return Request("POST", _leases_path(namespace), "create", (), msgspec.json.encode(lease), JSON)


def update_lease(namespace: str, name: str, spec: LeaseSpec, *, metadata: msgspec.Raw) -> Request:
    """
    Return a request that replaces a Lease's spec; Conflict if it has changed since it was read.

    `metadata` is sent back as read: its resourceVersion is the precondition, and its labels stay.
    """
    lease = _Lease("coordination.k8s.io/v1", "Lease", metadata, spec)
    path = f"{_leases_path(namespace)}/{escaped(name)}"
    return Request("PUT", path, "update", (), msgspec.json.encode(lease), JSON)


def second_time(epoch_s: float) -> str:
    """Return a metav1.Time: RFC 3339, UTC, whole seconds."""
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_time(epoch_s: float) -> str:
    """Return a metav1.MicroTime: RFC 3339, UTC, always six decimals."""
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def escaped(name: str) -> str:
    """Return the name escaped as one path segment."""
    return quote(name, safe="")


def _pod_path(namespace: str, name: str, subresource: str = "") -> str:
    path = f"/api/v1/namespaces/{escaped(namespace)}/pods/{escaped(name)}"
    return f"{path}/{subresource}" if subresource else path


def _volume_path(name: str) -> str:
    return f"/api/v1/persistentvolumes/{escaped(name)}"


def _claim_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{escaped(namespace)}/persistentvolumeclaims/{escaped(name)}"


def _events_path(namespace: str) -> str:
    return f"/apis/events.k8s.io/v1/namespaces/{escaped(namespace)}/events"


def _leases_path(namespace: str) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{escaped(namespace)}/leases"
