"""Facts about members' claims, for the search for the places of a group."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from scheduler.engine.model.device_requests import EXACT_COUNT, DeviceQuery, ResourceClaim
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.requests import filter_request
from scheduler.engine.state.cluster_view import ClusterView


def claim_forms(pod: Pod, view: ClusterView) -> Hashable:
    """Return what tells the claims of members apart that were made from templates of one name."""
    if not pod.spec.resource_claims:
        return ()
    return tuple((claim.requests, claim.constraints, claim.allocation is None) for claim in _made(pod, view))


def is_first_fit_best(pod: Pod, view: ClusterView) -> bool:
    """
    Return whether as many copies of the pod get devices as there can be, whichever free devices each copy takes.

    True if every copy takes devices of one query, no two nodes reach the same of them, and constraints keep none of
    them apart or one keeps all together.
    """
    provided = [
        name for name, amount in filter_request(pod).items() if amount and view.state.devices.provides(name)
    ]
    if not pod.spec.resource_claims and not provided:
        return True
    claims = list(_made(pod, view))
    if (
        len(claims) < len(pod.spec.resource_claims)
        or len(claims) + len(provided) > 1
        or view.devices.shared()
    ):
        return False
    if provided:
        return not _has_shareable(view) or filter_request(pod)[provided[0]] == 1
    (claim,) = claims
    query = _only_query(claim)
    return query is not None and (query.count == 1 or not _has_shareable(view))


def _made(pod: Pod, view: ClusterView) -> Iterator[ResourceClaim]:
    """Yield the claims that were made for the pod from templates."""
    for _, name in pod.generated_claims:
        claim = None if name is None else view.devices.claim(f"{pod.namespace}/{name}")
        if claim is not None:
            yield claim


def _only_query(claim: ResourceClaim) -> DeviceQuery | None:
    """Return the query of a claim with one request; None if it may take devices that another one needs more."""
    query = claim.requests[0].exactly if len(claim.requests) == 1 else None
    if query is None or query.mode != EXACT_COUNT or query.admin_access:
        return None
    is_simple = len(claim.constraints) <= 1 and all(each.match_attribute for each in claim.constraints)
    return query if is_simple else None


def _has_shareable(view: ClusterView) -> bool:
    slices = view.devices.slices()
    return any(device.allow_multiple_allocations for each in slices for device in each.devices)
