"""
Requests that only the enforcer sends: evictions, and the ConfigMap that holds its state across restarts. No IO.

They are not in `requests`, because a test compares the scheduler's role with the requests in that module.
"""

from __future__ import annotations

from collections.abc import Mapping

from scheduler.daemon.kube.requests import MERGE, Request, escaped


def evict_pod(namespace: str, name: str, uid: str) -> Request:
    """
    Return a request that evicts the pod with this uid, and no other pod of that name.

    A PodDisruptionBudget may forbid it (429).

    Source: policy/v1 Eviction; pkg/registry/core/pod/storage/eviction.go (1.36).
    """
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
        "deleteOptions": {"preconditions": {"uid": uid}},
    }
    path = f"/api/v1/namespaces/{escaped(namespace)}/pods/{escaped(name)}/eviction"
    return Request.writing("create", path, eviction)


def get_config_map(namespace: str, name: str) -> Request:
    """Return a request for a ConfigMap; `responses.decode_config_map` decodes the response."""
    return Request("GET", f"{_config_maps_path(namespace)}/{escaped(name)}", "get")


def create_config_map(namespace: str, name: str, data: Mapping[str, str]) -> Request:
    """Return a request that creates a ConfigMap; Conflict if it exists."""
    body = _config_map({"name": name, "namespace": namespace}, data)
    return Request.writing("create", _config_maps_path(namespace), body)


def update_config_map(
    namespace: str, name: str, data: Mapping[str, str], *, resource_version: str
) -> Request:
    """Return a request that replaces a ConfigMap; Conflict if it is no longer at this version."""
    metadata = {"name": name, "namespace": namespace, "resourceVersion": resource_version}
    path = f"{_config_maps_path(namespace)}/{escaped(name)}"
    return Request.writing("update", path, _config_map(metadata, data))


def _config_map(metadata: Mapping[str, str], data: Mapping[str, str]) -> Mapping[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def _config_maps_path(namespace: str) -> str:
    return f"/api/v1/namespaces/{escaped(namespace)}/configmaps"


def annotate_pod(
    namespace: str, name: str, uid: str, resource_version: str, annotations: Mapping[str, str]
) -> Request:
    """Return a request that annotates the pod with this uid; Conflict if it is not of this version."""
    metadata = {"uid": uid, "resourceVersion": resource_version, "annotations": annotations}
    path = f"/api/v1/namespaces/{escaped(namespace)}/pods/{escaped(name)}"
    return Request.writing("patch", path, {"metadata": metadata}, MERGE)
