"""
What is done for a pod with claims that fits nowhere: an allocation that keeps it from all nodes is given up.

Source: plugins/dynamicresources/dynamicresources.go, PostFilter (kubernetes 1.36). Difference: the message says that a
write is completed which is about to be made.
"""

from __future__ import annotations

from typing import Final

from scheduler.engine.framework.diagnosis import PostFiltered
from scheduler.engine.framework.interface import Rng
from scheduler.engine.framework.status import unschedulable
from scheduler.engine.model.claim_writes import ClaimDeallocation, ClaimDeletion
from scheduler.engine.plugins.dynamic_resources.filtering import DeviceFilter

NO_CLAIMS: Final = PostFiltered(unschedulable("no new claims to deallocate"))
_STILL_UNSCHEDULABLE: Final = PostFiltered(unschedulable("still not schedulable"))


def post_filtered(device_filter: DeviceFilter | None, rng: Rng) -> PostFiltered:
    """Return the deallocation of one claim that no other pod needs, or of the claim for extended resources."""
    if device_filter is None:
        return NO_CLAIMS
    uid, special = device_filter.pod.uid, device_filter.claims.special
    freeable = [
        claim
        for claim in device_filter.unavailable()
        if claim is not special and all(each.uid == uid for each in claim.reserved_for)
    ]
    if freeable:
        claim = freeable[rng.randrange(len(freeable))]
        status = unschedulable("deallocation of ResourceClaim completed")
        return PostFiltered(status, writes=(ClaimDeallocation(claim),))
    if special is not None and special.resource_version:
        status = unschedulable("deletion of ResourceClaim completed")
        return PostFiltered(status, writes=(ClaimDeletion(special),))
    return _STILL_UNSCHEDULABLE
