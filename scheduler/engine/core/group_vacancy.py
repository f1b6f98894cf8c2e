"""
Pods that are out of the real state for a while, so that the places of a group are searched without them.

Everything is put back. Meanwhile nothing else may read or change the state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from scheduler.engine.framework.interface import FilterPlugin
from scheduler.engine.framework.post_filter import EvictionUnit
from scheduler.engine.model.device_requests import ResourceClaim
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.requests import filter_request
from scheduler.engine.state.batches import Pieces, batches
from scheduler.engine.state.cluster import ClusterState, PlacedPod
from scheduler.engine.state.cluster_view import ClusterView


class Vacancy:
    """
    Pods that are out of the state, and claims whose allocation is hidden, so that their devices count as free.

    A claim is hidden once no pod of it has a node: its controller releases it some time later. Claims are hidden only
    if a member needs devices, and never those of `members`.
    """

    def __init__(
        self, state: ClusterState, members: Sequence[Pod] = (), filters: Sequence[FilterPlugin] = ()
    ) -> None:
        self._state, self._view = state, ClusterView(state)
        needs_devices = any(_needs_devices(pod, self._view) for pod in members)
        self._filters = filters if needs_devices else ()
        self._own = {claim.key for pod in members for claim in state.devices.claims_of(pod)}
        self._freed: dict[str, ResourceClaim] = {}
        #: The unit of each pod that is out, by its UID.
        self._out: dict[str, EvictionUnit] = {}

    def __len__(self) -> int:
        return len(self._out)

    @property
    def units(self) -> list[EvictionUnit]:
        """Return the units that are out."""
        return [unit for uid, unit in self._out.items() if uid == unit[0].pod.uid]

    def is_out(self, placed: PlacedPod) -> bool:
        """Return whether the pod is out."""
        return placed.pod.uid in self._out

    def take_out(self, unit: EvictionUnit) -> None:
        """Take these pods off their nodes."""
        for placed in unit:
            uid = placed.pod.uid
            self._out[uid] = unit
            with self._state.groups.with_notes_kept(placed.pod):
                self._state.remove_pod(uid)
            self._free(self._state.devices.claims_of(placed.pod))

    def put_back(self, unit: EvictionUnit) -> None:
        """Put these pods back on their nodes; they have their claims again."""
        for placed in unit:
            del self._out[placed.pod.uid]
            for claim in list(self._state.devices.claims_of(placed.pod)):
                if (freed := self._freed.pop(claim.key, None)) is not None:
                    self._state.devices.show_allocation(freed)
            if placed.assumed:
                self._state.assume(placed.pod, placed.pod.node_name)
            else:
                self._state.upsert_pod(placed.pod)

    def put_all_back(self) -> Pieces[None]:
        """Put back every unit that is still out; yield after each."""
        for unit in self.units:
            self.put_back(unit)
            yield

    @contextmanager
    def without(self, pods: Iterable[PlacedPod]) -> Iterator[None]:
        """Have these pods out within the block."""
        unit = tuple(pods)
        self.take_out(unit)
        try:
            yield
        finally:
            self.put_back(unit)

    # Claims.

    def free_left_behind(self) -> Pieces[bool]:
        """Free the claims of pods that are gone; return whether there are any. O(claims)."""
        if self._filters:
            for few in batches(list(self._state.devices.claims())):
                self._free(few)
                yield
        return bool(self._freed)

    def has_freed(self, pod: Pod) -> bool:
        """Return whether a claim of the pod is free."""
        return any(claim.key in self._freed for claim in self._state.devices.claims_of(pod))

    def show_claims(self) -> None:
        """Let every claim count as before."""
        for claim in self._freed.values():
            self._state.devices.show_allocation(claim)
        self._freed.clear()

    def _free(self, claims: Iterable[ResourceClaim]) -> None:
        for claim in claims:
            if claim.allocation is None or claim.key in self._own:
                continue
            is_given_back = any(plugin.is_left_behind(claim, self._view) for plugin in self._filters)
            if is_given_back and self._state.devices.hide_allocation(claim):
                self._freed[claim.key] = claim


def _needs_devices(pod: Pod, view: ClusterView) -> bool:
    return bool(pod.spec.resource_claims) or any(map(view.state.devices.provides, filter_request(pod)))
