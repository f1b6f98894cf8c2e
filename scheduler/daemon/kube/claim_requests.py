"""
Requests that write ResourceClaims.

Difference: where upstream sends a whole object with PUT, these patch it at the resourceVersion that was read, so that
fields which are not read stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from scheduler.daemon.kube.requests import JSON, MERGE, STRATEGIC_MERGE, Request, path_of
from scheduler.engine.model.allocations import Allocation, Consumer
from scheduler.engine.model.claim_writes import ContainerRequest
from scheduler.engine.model.device_requests import EXTENDED_RESOURCE_CLAIM, ResourceClaim
from scheduler.engine.model.pods import Pod

_API: Final = "/apis/resource.k8s.io/v1"


def get_resource_claim(claim: ResourceClaim) -> Request:
    """Return a request for the newest state of a claim."""
    return Request("GET", _path(claim), "get")


def set_finalizers(claim: ResourceClaim, finalizers: Sequence[str]) -> Request:
    """Return a request that replaces the finalizers; Conflict if the claim is not of this version."""
    body = {"metadata": {**_at_version(claim), "finalizers": finalizers}}
    return Request.writing("patch", _path(claim), body, MERGE)


def reserve_claim(
    claim: ResourceClaim, allocation: Allocation | None, consumers: Sequence[Consumer]
) -> Request:
    """Return a request that reserves the claim, with `allocation` if given; Conflict if it is not of this version."""
    status: dict[str, Any] = {"reservedFor": consumers}
    if allocation is not None:
        status["allocation"] = allocation
    body = {"metadata": _at_version(claim), "status": status}
    return Request.writing("patch", _path(claim, "status"), body, MERGE)


def deallocate_claim(claim: ResourceClaim) -> Request:
    """Return a request that takes the allocation from the claim; Conflict if it is not of this version."""
    status = {"allocation": None, "reservedFor": None, "devices": None}
    body = {"metadata": _at_version(claim), "status": status}
    return Request.writing("patch", _path(claim, "status"), body, MERGE)


def release_claim(claim: ResourceClaim, pod_uid: str) -> Request:
    """Return a request that takes one pod out of `reservedFor`, whatever else has changed."""
    body = {
        "metadata": {"uid": claim.uid},
        "status": {"reservedFor": [{"$patch": "delete", "uid": pod_uid}]},
    }
    return Request.writing("patch", _path(claim, "status"), body, STRATEGIC_MERGE)


def delete_resource_claim(claim: ResourceClaim) -> Request:
    """Return a request that deletes the claim with this uid; Conflict for another uid."""
    return Request.writing("delete", _path(claim), {"preconditions": {"uid": claim.uid}}, JSON)


def create_resource_claim(claim: ResourceClaim, pod: Pod) -> Request:
    """Return a request that creates the claim for the pod's extended resources, without its status."""
    requests = [
        {
            "name": request.name,
            "exactly": {
                "deviceClassName": query.class_name,
                "allocationMode": query.mode,
                "count": query.count,
            },
        }
        for request in claim.requests
        if (query := request.exactly) is not None
    ]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid, "controller": True}
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": claim.created_name,
            "namespace": pod.namespace,
            "annotations": {EXTENDED_RESOURCE_CLAIM: "true"},
            "ownerReferences": [owner],
        },
        "spec": {"devices": {"requests": requests}},
    }
    return Request.writing("create", path_of(_API, "resourceclaims", pod.namespace), body)


def patch_extended_claim_status(pod: Pod, served: tuple[str, Sequence[ContainerRequest]] | None) -> Request:
    """
    Return a request that tells in the pod's status which claim serves its extended resources, None if none does.

    `served`: the claim's name, and which request of it serves which container.
    """
    status: dict[str, Any] | None = None
    if served is not None:
        name, mappings = served
        told = [
            {
                "containerName": each.container_name,
                "resourceName": each.resource_name,
                "requestName": each.request_name,
            }
            for each in mappings
        ]
        status = {"resourceClaimName": name, "requestMappings": told}
    body = {"metadata": {"uid": pod.uid}, "status": {"extendedResourceClaimStatus": status}}
    path = path_of("/api/v1", "pods", pod.namespace, pod.name, "status")
    return Request.writing("patch", path, body, STRATEGIC_MERGE)


def _at_version(claim: ResourceClaim) -> Mapping[str, str]:
    return {"uid": claim.uid, "resourceVersion": claim.resource_version}


def _path(claim: ResourceClaim, subresource: str = "") -> str:
    return path_of(_API, "resourceclaims", claim.namespace, claim.name, subresource)
