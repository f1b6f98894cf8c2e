"""
The devices of one node while pods leave it in thought, and nominated pods come: for preemption, beyond upstream.

A claim is released once every pod that it is reserved for has left. The claims of nominated pods get devices first.

Difference: upstream's dry run never returns a victim's devices (KEP-5690 is open).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from scheduler.engine.framework.interface import PreFilterExtensions
from scheduler.engine.framework.status import Status, failed, unschedulable
from scheduler.engine.model.allocations import Consumer
from scheduler.engine.model.device_requests import ResourceClaim
from scheduler.engine.model.nodes import Node
from scheduler.engine.model.pods import Pod
from scheduler.engine.plugins.dynamic_resources.allocator import Allocator
from scheduler.engine.plugins.dynamic_resources.answers import Answer, NotAllocated
from scheduler.engine.plugins.dynamic_resources.claims import resolved, unknown_class
from scheduler.engine.plugins.dynamic_resources.extended_resources import (
    Variant,
    Variants,
    extended_request,
    special_claim,
)
from scheduler.engine.plugins.dynamic_resources.pools import NodePools
from scheduler.engine.state.allocated_devices import AllocatedDevices
from scheduler.engine.state.cluster_view import ClusterView

_POD: Final = ("", "pods")


def has_no_pod(claim: ResourceClaim, view: ClusterView, left: Collection[str] = ()) -> bool:
    """Return whether all pods that a claim is reserved for have left or are in `left`; False if there are none."""

    def has_left(consumer: Consumer) -> bool:
        if (consumer.api_group, consumer.resource) != _POD:
            return False
        return consumer.uid in left or consumer.uid not in view.state.placed

    return bool(claim.reserved_for) and all(map(has_left, claim.reserved_for))


class DeviceTrials:
    """The trials of one pod's claims, which share the cycle's budget; a search that ends at the limit is a refusal."""

    def __init__(self, own: Sequence[ResourceClaim], allocator: Allocator, view: ClusterView) -> None:
        """`own`: all claims of the pod; what they hold stays theirs."""
        self._own = {claim.uid for claim in own}
        self._allocator, self._view = allocator, view
        self._holders: dict[NodePools, Mapping[str, ResourceClaim]] = {}
        self._answers: dict[tuple[int, frozenset[str], tuple[str, ...]], Status | None] = {}

    def _holders_of(self, pools: NodePools) -> Mapping[str, ResourceClaim]:
        """Return by key the claims that have devices of the pools. O(devices of the pools) where not yet known."""
        if pools not in self._holders:
            devices = self._view.devices
            keys = dict.fromkeys(
                key
                for pool in pools.pools
                for each in (*pool.slices, *pool.slices_elsewhere)
                for device in each.devices
                for key in devices.allocated.claims_of(each.device_id(device))
            )
            claims = {key: devices.claim(key) for key in keys}
            self._holders[pools] = {key: claim for key, claim in claims.items() if claim is not None}
        return self._holders[pools]

    def refusal(self, trial: DeviceTrial, left: set[str], nominated: Iterable[Pod]) -> Status | None:
        """Return why the pod's claims get no devices on the row beside those of the nominated pods, without `left`."""
        # A pod that counts on no node has left, or ended: the claim's controller will release the claim. For a moment
        # that is wrong for a pod that another scheduler is about to bind.
        released = frozenset(
            key
            for key, claim in self._holders_of(trial.pools).items()
            if claim.uid not in self._own and has_no_pod(claim, self._view, left)
        )
        pods = sorted(nominated, key=lambda pod: pod.uid)
        question = trial.row, released, tuple(pod.uid for pod in pods)
        if question not in self._answers:
            self._answers[question] = self._search(trial, released, pods)
        return self._answers[question]

    def _search(self, trial: DeviceTrial, released: frozenset[str], pods: Iterable[Pod]) -> Status | None:
        allocated = AllocatedDevices()
        for key, claim in self._holders_of(trial.pools).items():
            if key not in released and claim.allocation is not None:
                allocated.count(claim.allocation, key, 1)
        before = {
            claim.uid: claim
            for pod in pods
            for claim in self._unallocated(pod, trial.node, released)
            if claim.uid not in self._own
        }
        claims = (*before.values(), *trial.claims)
        search = self._allocator.beside(allocated).search(trial.node, trial.pools, claims)
        if not isinstance(search, NotAllocated):
            return None
        return failed(search.text) if search.answer is Answer.ERROR else unschedulable(search.text)

    def _unallocated(self, pod: Pod, node: Node, released: frozenset[str]) -> tuple[ResourceClaim, ...]:
        """Return the claims of another pod that need devices on the node once others are released, as far as known."""
        devices = self._view.devices
        of_user = resolved(pod, devices.claim)
        if isinstance(of_user, str):
            return ()
        unallocated = tuple(
            claim
            for claim in of_user
            if (claim.allocation is None or claim.key in released) and unknown_class(claim, devices) is None
        )
        request = extended_request(pod) if devices.extended_resources else {}
        special = special_claim(pod, request, devices)
        if special is None:
            return unallocated
        variant = Variants(pod, special, request, devices).at(node, is_only_claim=not of_user)
        return (*unallocated, variant.claim) if isinstance(variant, Variant) else unallocated


@dataclass(slots=True, eq=False)
class DeviceTrial(PreFilterExtensions):
    """The trial of one row, for the claims that need devices there. `has_devices`: whether there are some as it is."""

    trials: DeviceTrials
    row: int
    node: Node
    pools: NodePools
    claims: Sequence[ResourceClaim]
    has_devices: bool
    _left: set[str] = field(default_factory=set)
    _joined: dict[str, Pod] = field(default_factory=dict)

    def count(self, pod: Pod, delta: int) -> None:
        """Give devices to the claims of a pod that comes first; release the claims that only a pod that leaves has."""
        if delta < 0 and self._joined.pop(pod.uid, None) is None:
            self._left.add(pod.uid)
        elif delta > 0 and pod.uid in self._left:
            self._left.remove(pod.uid)
        elif delta > 0:
            self._joined[pod.uid] = pod

    def refusal(self) -> Status | None:
        """Return why there are no devices for the claims."""
        if self.has_devices and not self._joined:
            # A claim that is released takes no device away. A search might end at the limit here.
            return None
        return self.trials.refusal(self, self._left, self._joined.values())
