"""
Requests that only the enforcer sends: evictions, and annotations of pods. No IO.

They are not in `requests`, because a test compares the scheduler's role with the requests in that module.
"""

from __future__ import annotations

from collections.abc import Mapping

from scheduler.daemon.kube.requests import MERGE, Request, escaped
from scheduler.engine.model.pods import Pod


def evict_pod(pod: Pod) -> Request:
    """
    Return a request that evicts this pod, and no other of its name. A PodDisruptionBudget may forbid it (429).

    Source: policy/v1 Eviction; pkg/registry/core/pod/storage/eviction.go (1.36).
    """
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": {"preconditions": {"uid": pod.uid}},
    }
    return Request.writing("create", f"{_path(pod)}/eviction", eviction)


def annotate_pod(pod: Pod, annotations: Mapping[str, str]) -> Request:
    """Return a request that annotates this pod; Conflict if it is not of this version any more."""
    metadata = {"uid": pod.uid, "resourceVersion": pod.resource_version, "annotations": annotations}
    return Request.writing("patch", _path(pod), {"metadata": metadata}, MERGE)


def _path(pod: Pod) -> str:
    return f"/api/v1/namespaces/{escaped(pod.namespace)}/pods/{escaped(pod.name)}"
