"""
ResourceClaims, ResourceSlices, DeviceClasses and DeviceTaintRules, and which devices are allocated.

A claim counts as watches show it, as it was written since, or with the allocation that is about to be written.
Slices have the taints of rules. A cluster without resource.k8s.io/v1 costs nothing here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, NamedTuple

from scheduler.engine.model.allocations import Allocation
from scheduler.engine.model.device_requests import DeviceObject, ResourceClaim
from scheduler.engine.model.devices import (
    NEEDED_KINDS,
    DeviceClass,
    DeviceId,
    DeviceKind,
    DeviceTaintRule,
    PoolId,
    ResourceSlice,
)
from scheduler.engine.model.object_writes import StoredObject
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.resource_versions import is_older
from scheduler.engine.state.allocated_devices import AllocatedDevices
from scheduler.engine.state.assumed_objects import StoredObjects
from scheduler.engine.state.batches import batches
from scheduler.engine.state.change_log import LatestChanges
from scheduler.engine.state.extended_resources import ExtendedResources
from scheduler.engine.state.partitioned_dict import PartitionedDict
from scheduler.engine.state.rule_guard import not_for_rules
from scheduler.engine.state.slice_taints import SliceTaints
from scheduler.engine.state.sparse_dicts import add_count, set_entry

#: Stands for the place of claims that a list shows as allocated: their order is unknown.
_LISTED: Final = 0

_NO_SLICES: Final[Mapping[str, ResourceSlice]] = {}


class DeviceChange(NamedTuple):
    """A change of a pool: of its slices, or of what is allocated of its devices."""

    pool: PoolId
    of_slices: bool


class Devices(StoredObjects):
    """
    Everything known of devices. Exactly one writer: ClusterState.

    Attributes:
        is_served: whether the API server has resource.k8s.io/v1, and all objects have been seen.
        changes: the pools that changed lately; `classes_version`: of the last change of a class.
        n_allocated_twice: claims that were shown with a device that another claim had.
        epoch_s: the time of day, in seconds since 1970, as of the last cycle.
    """

    def __init__(self) -> None:
        self._served: set[DeviceKind] = set()
        self.is_served = False
        self.changes = LatestChanges[DeviceChange]()
        self.classes_version = 0
        self.epoch_s = 0.0
        self._claims: PartitionedDict[ResourceClaim] = PartitionedDict()
        self._slices: dict[str, ResourceSlice] = {}
        self._taints = SliceTaints()
        #: The classes by name.
        self.classes: dict[str, DeviceClass] = {}
        super().__init__(
            {
                DeviceKind.TAINT_RULE: self._taints.rules,
                DeviceKind.CLASS: self.classes,
                DeviceKind.SLICE: self._slices,
                DeviceKind.CLAIM: self._claims,
            }
        )
        self._of_pool: dict[PoolId, dict[str, ResourceSlice]] = {}
        #: Slices without shared counters, by nodeName; and all other slices.
        self._on_node: dict[str, dict[str, ResourceSlice]] = {}
        self._shared: dict[str, ResourceSlice] = {}
        #: By driver: the devices in all slices.
        self._n_published: dict[str, int] = {}
        #: UID of a pod -> keys of the claims that a scheduler created for its extended resources.
        self._extended_claims: dict[str, dict[str, bool]] = {}
        #: Key of a claim that is shown as allocated -> its place in the order of allocations. A watch shows claims in
        #: the order of their changes; a list does not.
        self._allocated_at: dict[str, int] = {}
        self._n_allocations = 0
        #: The kinds that are being listed.
        self._listing: set[DeviceKind] = set()
        self.n_allocated_twice = 0
        self.extended_resources = ExtendedResources()
        self.allocated = AllocatedDevices()

    @not_for_rules
    def begin_list(self, kind: DeviceKind) -> None:
        """Note that a list begins to show the objects of this kind, in no order; `serve` ends it."""
        self._listing.add(kind)

    @not_for_rules
    def serve(self, *kinds: DeviceKind) -> None:
        """Note that a list has shown all objects of these kinds, the first one or a later one."""
        self._listing.difference_update(kinds)
        if DeviceKind.CLAIM in kinds:
            self._allocated_at = dict.fromkeys(self._allocated_at, _LISTED)
        self._served.update(kinds)
        self.is_served = self._served >= NEEDED_KINDS

    @not_for_rules
    def unserve(self, kind: DeviceKind) -> None:
        """Note that the API server does not have this kind any more."""
        self._served.discard(kind)
        self.is_served = self._served >= NEEDED_KINDS

    # Questions of plugins.

    def claim(self, key: str) -> ResourceClaim | None:
        """Return the claim of `namespace/name`, None if it is not known."""
        return self._claims.get(key)

    def claims(self) -> Iterator[ResourceClaim]:
        """Return all claims."""
        return self._claims.values()

    def is_pending(self, key: str) -> bool:
        """Return whether the claim counts as allocated, and the allocation is not written yet."""
        assumption = self._assumptions.get((DeviceKind.CLAIM, key))
        return assumption is not None and not assumption.version

    def pending_for(self, key: str) -> Collection[str]:
        """Return the UIDs of the pods for which the claim's allocation is being written."""
        assumption = self._assumptions.get((DeviceKind.CLAIM, key))
        return () if assumption is None else assumption.holders

    def is_shown(self, key: str, version: str) -> bool:
        """
        Return whether watches show this version of the claim, and so everything written before.

        False while a list is under way: it may show a claim before others that were allocated earlier.
        """
        shown = self.seen(DeviceKind.CLAIM, key)
        if DeviceKind.CLAIM in self._listing:
            return False
        return shown is not None and not is_older(shown.resource_version, version)

    def earlier_claim(self, claim: ResourceClaim) -> str | None:
        """
        Return the key of another claim that has a device of the claim, unless that was allocated later.

        The API server accepts two claims with one device, as two schedulers may write them. If a list
        has shown both, either may be the earlier: neither version nor time of a claim tells when it was allocated.
        """
        own = self._allocated_at.get(claim.key, self._n_allocations)
        return next((other for other, at in self._rivals(claim) if at <= own), None)

    def _rivals(self, claim: ResourceClaim) -> Iterator[tuple[str, int]]:
        """Yield the other claims that watches show with a device that the claim has for itself, and since when."""
        results = () if claim.allocation is None else claim.allocation.devices.results
        for result in results:
            if result.admin_access or result.share_id is not None:
                continue
            for other in self.allocated.owners(DeviceId(result.driver, result.pool, result.device)):
                if other != claim.key and other in self._allocated_at:
                    yield other, self._allocated_at[other]

    def extended_claim(self, pod_uid: str) -> ResourceClaim | None:
        """Return the claim that a scheduler created for the pod's extended resources, None if there is none."""
        keys = self._extended_claims.get(pod_uid)
        return self._claims.get(min(keys)) if keys else None

    def claims_of(self, pod: Pod) -> Iterator[ResourceClaim]:
        """Yield the claims of the pod that are known."""
        generated = dict(pod.generated_claims)
        names = dict.fromkeys(
            each.claim_name or generated.get(each.name) for each in pod.spec.resource_claims
        )
        known = [self._claims.get(f"{pod.namespace}/{name}") for name in names if name]
        yield from filter(None, (*known, self.extended_claim(pod.uid)))

    def provides(self, resource: str) -> bool:
        """Return whether a class provides the extended resource."""
        return self.is_served and self.extended_resources.class_of(resource) is not None

    @property
    def taint_rules(self) -> Mapping[str, DeviceTaintRule]:
        """The rules that taint devices, by name."""
        return self._taints.rules

    def slices(self) -> Collection[ResourceSlice]:
        """Return all slices."""
        return self._slices.values()

    def on_node(self, name: str) -> Collection[ResourceSlice]:
        """Return the slices with this nodeName and without shared counters."""
        return self._on_node.get(name, _NO_SLICES).values()

    def shared(self) -> Collection[ResourceSlice]:
        """Return the other slices: those without a nodeName, and those with shared counters."""
        return self._shared.values()

    def of_pool(self, pool: PoolId) -> Collection[ResourceSlice]:
        """Return all slices of the pool, of any generation and node."""
        return self._of_pool.get(pool, _NO_SLICES).values()

    def pools(self) -> list[PoolId]:
        """Return the pools of all slices."""
        return list(self._of_pool)

    def n_by_driver(self) -> Iterator[tuple[str, int, int]]:
        """Yield each driver, how many of its devices no claim has, and how many claims have. O(drivers)."""
        n_allocated = self.allocated.n_by_driver
        for driver in sorted(self._n_published.keys() | n_allocated.keys()):
            in_use = n_allocated.get(driver, 0)
            # A claim may have a device that its driver no longer publishes.
            yield driver, max(0, self._n_published.get(driver, 0) - in_use), in_use

    def seen(self, kind: str, key: str) -> Any | None:  # noqa: ANN401 - the kind names the type
        """Return the object as watches show it, whatever is assumed of it and without the taints of rules."""
        obj = super().seen(kind, key)
        return self._taints.published(obj) if isinstance(obj, ResourceSlice) else obj

    # Changes, from ClusterState.

    @not_for_rules
    def upsert(self, obj: DeviceObject) -> None:
        """Take over the object that a watch shows. O(1), of a claim O(its devices)."""
        if isinstance(obj, ResourceClaim):
            self._note_allocation(obj)
        super().upsert(obj)

    @not_for_rules
    def remove(self, kind: str, key: str) -> None:
        """Forget the object, if it is known."""
        if kind == DeviceKind.CLAIM:
            self._allocated_at.pop(key, None)
        super().remove(kind, key)

    @not_for_rules
    def settle(
        self, obj: StoredObject, version: str, holder: str
    ) -> tuple[StoredObject, StoredObject] | None:
        """
        Do what `StoredObjects.settle` does, but for an object that is being created: it counts until its pod is done.

        Pods may wait until a claim's allocation ends: that counts as a change even if its devices stay the same.
        """
        if not obj.resource_version:
            return None
        was_pending = self.is_pending(obj.key)
        super().settle(obj, version, holder)
        counted = self.get(obj.kind, obj.key)
        return (obj, counted) if was_pending and counted is not None else None

    @not_for_rules
    def forget(self, obj: StoredObject, holder: str) -> tuple[StoredObject, StoredObject] | None:
        """Do what `StoredObjects.forget` does."""
        ended = super().forget(obj, holder)
        if ended is not None and not ended[1].resource_version:
            # An object that was to be created is not known to the API server by this key.
            self._set(obj.kind, obj.key, None)
        return ended

    @not_for_rules
    def hide_allocation(self, claim: ResourceClaim) -> bool:
        """Let the claim count as not allocated. If it is being written, change nothing and return False."""
        if (claim.kind, claim.key) in self._assumptions:
            return False
        self._set(claim.kind, claim.key, replace(claim, allocation=None, reserved_for=()))
        return True

    @not_for_rules
    def show_allocation(self, claim: ResourceClaim) -> None:
        """Undo `hide_allocation`."""
        self._set(claim.kind, claim.key, claim)

    @contextmanager
    def order_kept(self) -> Iterator[None]:
        """Restore the order of allocations after the block, in which claims lose theirs and get them back."""
        before = dict(self._allocated_at), self._n_allocations, self.n_allocated_twice
        try:
            yield
        finally:
            self._allocated_at, self._n_allocations, self.n_allocated_twice = before

    def _note_allocation(self, shown: ResourceClaim) -> None:
        if shown.allocation is None:
            self._allocated_at.pop(shown.key, None)
        elif shown.key not in self._allocated_at:
            self._n_allocations += 1
            self._allocated_at[shown.key] = self._n_allocations
            self.n_allocated_twice += any(True for _ in self._rivals(shown))

    def _set(self, kind: str, key: str, new: Any | None) -> None:  # noqa: ANN401 - the kind names the type
        objects = self._by_kind[kind]
        old = objects.get(key)
        if isinstance(new, ResourceSlice):
            new = self._taints.applied(new)
        elif kind == DeviceKind.SLICE:
            self._taints.forget(key)
        if old is not None:
            self._index(old, enters=False)
        if new is not None:
            objects[key] = new
            self._index(new, enters=True)
            if isinstance(new, DeviceClass):
                self.extended_resources.upsert(old, new)
        elif old is not None:
            del objects[key]
            if isinstance(old, DeviceClass):
                self.extended_resources.remove(old)
        if kind == DeviceKind.TAINT_RULE:
            self._apply_rules([rule for rule in (old, new) if isinstance(rule, DeviceTaintRule)])

    def _apply_rules(self, changed: Collection[DeviceTaintRule]) -> None:
        """Give the slices of these rules their taints. O(slices), since rules hardly ever change."""
        for before in list(self._slices.values()):
            if any(rule.selects(before.driver, before.pool) for rule in changed):
                after = self._taints.applied(self._taints.published(before))
                if after is not before:
                    self._index(before, enters=False)
                    self._slices[before.key] = after
                    self._index(after, enters=True)

    def _index(self, obj: DeviceObject, *, enters: bool) -> None:
        """Add the known object to the indexes of its kind if it `enters`, else remove it."""
        match obj:
            case ResourceClaim():
                if obj.allocation is not None:
                    self.allocated.count(obj.allocation, obj.key, 1 if enters else -1)
                    self._note(obj.allocation)
                for uid in _pods_extended_by(obj):
                    set_entry(self._extended_claims, uid, obj.key, enters or None)
            case ResourceSlice():
                its = obj if enters else None
                set_entry(self._of_pool, obj.pool_id, obj.key, its)
                if obj.node_name and not obj.shared_counters:
                    set_entry(self._on_node, obj.node_name, obj.key, its)
                elif enters:
                    self._shared[obj.key] = obj
                else:
                    del self._shared[obj.key]
                if obj.devices:
                    n_devices = len(obj.devices)
                    add_count(self._n_published, obj.driver, n_devices if enters else -n_devices)
                self.changes.append(DeviceChange(obj.pool_id, of_slices=True))
            case DeviceClass():
                self.classes_version += 1

    def _note(self, allocation: Allocation) -> None:
        for result in allocation.devices.results:
            self.changes.append(DeviceChange(PoolId(result.driver, result.pool), of_slices=False))

    def copy_pieces(self, copy: Devices) -> Iterator[None]:
        """Add all objects, and what is assumed of them, to the empty `copy`; yield after every few of them."""
        copy.serve(*self._served)
        copy.epoch_s = self.epoch_s
        copy._assume_as(self)
        copy._allocated_at, copy._n_allocations = dict(self._allocated_at), self._n_allocations
        self._taints.share_with(copy._taints)
        for few in batches(list(self.objects())):
            for obj in few:
                copy._set(obj.kind, obj.key, obj)
            yield
        copy.extended_resources = self.extended_resources.copy()

    # For the audit.

    def objects(self) -> Iterator[DeviceObject]:
        """Return every object, as it counts, but slices as they were published."""
        for obj in super().objects():
            yield self._taints.published(obj) if isinstance(obj, ResourceSlice) else obj

    def differences(self) -> Iterator[str]:
        """Yield where what is counted differs from a recount. O(objects)."""
        fresh = Devices()
        self._taints.share_with(fresh._taints)
        for obj in self.objects():
            fresh._set(obj.kind, obj.key, obj)
        if self.allocated.content() != fresh.allocated.content():
            yield f"devices {self.allocated.content()} allocated, {fresh.allocated.content()} recounted"
        indexes, recounted = (
            (
                each._slices,
                each._of_pool,
                each._on_node,
                each._shared,
                each._extended_claims,
                each._n_published,
            )
            for each in (self, fresh)
        )
        if indexes != recounted:
            yield "slices by pool or node, their devices, or claims for extended resources, differ from a recount"
        yield from self.wrongly_assumed()


def _pods_extended_by(claim: ResourceClaim) -> Iterator[str]:
    """Yield the UIDs of the pods for whose extended resources the claim was created; one at most, usually none."""
    if claim.resource_version and claim.is_special:
        yield from dict.fromkeys(owner.uid for owner in claim.owners if owner.controller)
