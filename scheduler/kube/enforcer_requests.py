"""
Requests that only the enforcer sends: evictions, and the ConfigMap that holds its state across restarts. No IO.

They are not in `requests`, because a test compares the scheduler's role with the requests in that module.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from scheduler.errors import ServerFault
from scheduler.kube.requests import JSON, Request, RequestBody, escaped
from scheduler.model import nesting


class _Meta(RequestBody, frozen=True):
    name: str
    namespace: str
    resource_version: str = ""


class _Preconditions(RequestBody, frozen=True):
    uid: str


class _DeleteOptions(RequestBody, frozen=True):
    preconditions: _Preconditions


class _Eviction(RequestBody, frozen=True):
    api_version: str
    kind: str
    metadata: _Meta
    delete_options: _DeleteOptions


class _ConfigMap(RequestBody, frozen=True):
    api_version: str
    kind: str
    metadata: _Meta
    data: Mapping[str, str] = {}


def evict_pod(namespace: str, name: str, uid: str) -> Request:
    """
    Return a request that evicts the pod with this uid, and no other pod of that name.

    A PodDisruptionBudget may forbid it (429).

    Source: policy/v1 Eviction; pkg/registry/core/pod/storage/eviction.go (1.36).
    """
    eviction = _Eviction("policy/v1", "Eviction", _Meta(name, namespace), _DeleteOptions(_Preconditions(uid)))
    path = f"/api/v1/namespaces/{escaped(namespace)}/pods/{escaped(name)}/eviction"
    return Request("POST", path, "create", (), msgspec.json.encode(eviction), JSON)


def get_config_map(namespace: str, name: str) -> Request:
    """Return a request for a ConfigMap; `responses.decode_config_map` decodes the response."""
    return Request("GET", f"{_config_maps_path(namespace)}/{escaped(name)}", "get")


def create_config_map(namespace: str, name: str, data: Mapping[str, str]) -> Request:
    """Return a request that creates a ConfigMap; Conflict if it exists."""
    body = msgspec.json.encode(_ConfigMap("v1", "ConfigMap", _Meta(name, namespace), data))
    return Request("POST", _config_maps_path(namespace), "create", (), body, JSON)


def update_config_map(
    namespace: str, name: str, data: Mapping[str, str], *, resource_version: str
) -> Request:
    """Return a request that replaces a ConfigMap; Conflict if it is no longer at this version."""
    meta = _Meta(name, namespace, resource_version)
    body = msgspec.json.encode(_ConfigMap("v1", "ConfigMap", meta, data))
    return Request("PUT", f"{_config_maps_path(namespace)}/{escaped(name)}", "update", (), body, JSON)


def _config_maps_path(namespace: str) -> str:
    return f"/api/v1/namespaces/{escaped(namespace)}/configmaps"


class _PodMeta(msgspec.Struct, frozen=True, rename="camel"):
    uid: str = ""
    deletion_timestamp: str | None = None


class _Pod(msgspec.Struct, frozen=True):
    metadata: _PodMeta


_POD: Final = msgspec.json.Decoder(_Pod)


def is_terminating(body: bytes, uid: str) -> bool | None:
    """
    Return True if the pod has a deletion timestamp, None if the pod of that name has another uid.

    Raises:
        ServerFault: if the body is not a Pod.
    """
    try:
        found = nesting.read(_POD.decode, body).metadata
    except msgspec.DecodeError as error:
        raise ServerFault(200, "BadAnswer", f"not a Pod: {error}") from error
    return None if found.uid != uid else found.deletion_timestamp is not None
