"""
Requests of the enforcer alone: evictions, and the ConfigMap in which it keeps what a restart must not lose. No IO.

Apart from `requests`, so that the scheduler's role can be compared with all that the scheduler can ask for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

import msgspec

from scheduler.errors import ServerFault
from scheduler.kube.requests import JSON, Request
from scheduler.model import nesting


class _Shape(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Camel-cased JSON without the fields left at their default."""


class _Meta(_Shape, frozen=True):
    name: str
    namespace: str
    resource_version: str = ""


class _Preconditions(_Shape, frozen=True):
    uid: str


class _DeleteOptions(_Shape, frozen=True):
    preconditions: _Preconditions


class _Eviction(_Shape, frozen=True):
    api_version: str
    kind: str
    metadata: _Meta
    delete_options: _DeleteOptions


class _ConfigMap(_Shape, frozen=True):
    api_version: str
    kind: str
    metadata: _Meta
    data: Mapping[str, str] = {}


def evict(namespace: str, name: str, uid: str) -> Request:
    """
    Evict the pod of this uid, and no other of its name: a deletion that PodDisruptionBudgets may forbid (429).

    Source: policy/v1 Eviction; pkg/registry/core/pod/storage/eviction.go (1.36).
    """
    eviction = _Eviction("policy/v1", "Eviction", _Meta(name, namespace), _DeleteOptions(_Preconditions(uid)))
    path = f"/api/v1/namespaces/{_escaped(namespace)}/pods/{_escaped(name)}/eviction"
    return Request("POST", path, "create", (), msgspec.json.encode(eviction), JSON)


def get_config_map(namespace: str, name: str) -> Request:
    """Read a ConfigMap; `responses.decode_config_map` decodes the answer."""
    return Request("GET", f"{_config_maps(namespace)}/{_escaped(name)}", "get")


def create_config_map(namespace: str, name: str, data: Mapping[str, str]) -> Request:
    """Create a ConfigMap; Conflict where there is one."""
    body = msgspec.json.encode(_ConfigMap("v1", "ConfigMap", _Meta(name, namespace), data))
    return Request("POST", _config_maps(namespace), "create", (), body, JSON)


def update_config_map(
    namespace: str, name: str, data: Mapping[str, str], *, resource_version: str
) -> Request:
    """Replace a ConfigMap if nobody changed it since it was at this version."""
    meta = _Meta(name, namespace, resource_version)
    body = msgspec.json.encode(_ConfigMap("v1", "ConfigMap", meta, data))
    return Request("PUT", f"{_config_maps(namespace)}/{_escaped(name)}", "update", (), body, JSON)


def _config_maps(namespace: str) -> str:
    return f"/api/v1/namespaces/{_escaped(namespace)}/configmaps"


def _escaped(name: str) -> str:
    return quote(name, safe="")


class _PodMeta(msgspec.Struct, frozen=True, rename="camel"):
    uid: str = ""
    deletion_timestamp: str | None = None


class _Pod(msgspec.Struct, frozen=True):
    metadata: _PodMeta


_POD: Final = msgspec.json.Decoder(_Pod)


def is_leaving(body: bytes, uid: str) -> bool | None:
    """
    Whether the pod is being deleted; None where it is another pod of that name. What settles a lost eviction.

    Raises:
        ServerFault: if the body is not a Pod.
    """
    try:
        found = nesting.read(_POD.decode, body).metadata
    except msgspec.DecodeError as error:
        raise ServerFault(200, "BadAnswer", f"not a Pod: {error}") from error
    return None if found.uid != uid else found.deletion_timestamp is not None
