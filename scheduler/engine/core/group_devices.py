"""Facts about members' claims, for the search for the places of a group, and the claims of pods that leave for it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence

from scheduler.engine.framework.interface import FilterPlugin
from scheduler.engine.model.device_requests import EXACT_COUNT, DeviceQuery, ResourceClaim
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.requests import filter_request
from scheduler.engine.state.batches import Pieces, batches
from scheduler.engine.state.cluster import ClusterState
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
    them apart or one keeps all together. O(devices of the cluster) if a copy takes several devices.
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


class FreedClaims:
    """
    The claims whose pods have left in thought, or for good, and whose devices therefore count as free for a group.

    Their controller releases a claim some time after its pods are gone. `members`: their own claims stay theirs.
    """

    def __init__(self, members: Sequence[Pod], filters: Sequence[FilterPlugin], state: ClusterState) -> None:
        self._devices, self._view = state.devices, ClusterView(state)
        needs_devices = any(_needs_devices(pod, self._view) for pod in members)
        self._filters = filters if needs_devices else ()
        self._own = {claim.key for pod in members for claim in state.devices.claims_of(pod)}
        self._freed: dict[str, ResourceClaim] = {}

    def __len__(self) -> int:
        """Return the number of claims."""
        return len(self._freed)

    def free(self, claims: Iterable[ResourceClaim]) -> None:
        """Free the claims that have no pod any more; none if no member needs devices."""
        for claim in claims:
            if claim.allocation is None or claim.key in self._own:
                continue
            is_given_back = any(plugin.gives_back(claim, self._view) for plugin in self._filters)
            if is_given_back and self._devices.hide_allocation(claim):
                self._freed[claim.key] = claim

    def free_left_behind(self) -> Pieces[None]:
        """Free the claims of pods that are gone. O(claims)."""
        if self._filters:
            for few in batches(list(self._devices.claims())):
                self.free(few)
                yield

    def has_of(self, pod: Pod) -> bool:
        """Return whether a claim of the pod is free."""
        return any(claim.key in self._freed for claim in self._devices.claims_of(pod))

    def take_back(self, pod: Pod) -> None:
        """Let the pod, which returns, have its claims again."""
        for claim in list(self._devices.claims_of(pod)):
            if (freed := self._freed.pop(claim.key, None)) is not None:
                self._devices.show_allocation(freed)

    def take_all_back(self) -> None:
        """Let every claim count as before."""
        for claim in self._freed.values():
            self._devices.show_allocation(claim)
        self._freed.clear()


def _needs_devices(pod: Pod, view: ClusterView) -> bool:
    if not view.devices.is_served:
        return False
    return bool(pod.spec.resource_claims) or any(map(view.state.devices.provides, filter_request(pod)))


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
    """Return whether several claims may share a device."""
    slices = view.devices.slices()
    return any(device.allow_multiple_allocations for each in slices for device in each.devices)
