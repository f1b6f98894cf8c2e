"""
Requests that only the enforcer sends: evictions, and annotations of pods. No IO.

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


def annotate_pod(
    namespace: str, name: str, uid: str, resource_version: str, annotations: Mapping[str, str]
) -> Request:
    """Return a request that annotates the pod with this uid; Conflict if it is not of this version."""
    metadata = {"uid": uid, "resourceVersion": resource_version, "annotations": annotations}
    path = f"/api/v1/namespaces/{escaped(namespace)}/pods/{escaped(name)}"
    return Request.writing("patch", path, {"metadata": metadata}, MERGE)
