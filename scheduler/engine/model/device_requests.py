"""ResourceClaims, and the devices that they request. Source: api/resource/v1/types.go (kubernetes 1.36)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from sys import intern
from typing import Annotated, Final, get_args

import msgspec

from scheduler.engine.model.allocations import (
    Allocation,
    ClaimConfiguration,
    Consumer,
    DeviceStatus,
    DeviceToleration,
    allocation_of_its_own,
    with_own_parameters,
)
from scheduler.engine.model.devices import (
    Amount,
    DeviceClass,
    DeviceKind,
    DeviceTaintRule,
    Expressions,
    Interned,
    ResourceSlice,
)
from scheduler.engine.model.json_fields import (
    UNREAD,
    At,
    NamespacedKey,
    Reader,
    ResourceVersion,
    Terminating,
    Uid,
    annotation,
)
from scheduler.engine.model.wire import OwnerReference, Wire

EXACT_COUNT: Final = "ExactCount"
ALL: Final = "All"

#: Keeps a claim while its devices are allocated.
CLAIM_FINALIZER: Final = "resource.kubernetes.io/delete-protection"
#: On the claim that a scheduler creates for a pod's extended resources.
EXTENDED_RESOURCE_CLAIM: Final = "resource.kubernetes.io/extended-resource-claim"
#: The name of that claim before it is created.
SPECIAL_NAME: Final = "<extended-resources>"


@dataclass(frozen=True, slots=True)
class DeviceQuery:
    """
    Which devices are requested, and how many: `exactly` of a request, or one of its alternatives.

    Attributes:
        mode: ExactCount or All; an API server of a later version may know others.
        capacity: requested amounts by the name of the capacity.
    """

    name: Interned
    class_name: Annotated[Interned, At("deviceClassName")]
    selectors: Expressions = ()
    mode: Annotated[Interned, At("allocationMode")] = EXACT_COUNT
    count: int = 1
    admin_access: bool = False
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: Annotated[Mapping[str, Amount], At("capacity.requests")] = field(
        default_factory=dict, hash=False
    )


_EXACTLY: Final = Reader(DeviceQuery, name=UNREAD)
_ALTERNATIVE: Final = Reader(DeviceQuery, admin_access=UNREAD)


def _named(name: str, raw: msgspec.Struct | None) -> DeviceQuery | None:
    return None if raw is None else _EXACTLY.make(raw, name=intern(name))


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """One request: exactly one query, or the first of several that is available; neither if its type is unknown."""

    name: str
    exactly: Annotated[
        DeviceQuery | None, At("name", ("exactly",), of=(str, _EXACTLY.struct | None), parse=_named)
    ]
    first_available: Annotated[
        tuple[DeviceQuery, ...], At(of=tuple[_ALTERNATIVE.struct, ...], parse=_ALTERNATIVE.each)
    ] = ()


class DeviceConstraint(Wire, frozen=True):
    """A rule for the devices of these requests, of all if it names none. At most one of its attributes is set."""

    requests: frozenset[str] = frozenset()
    match_attribute: str | None = None
    distinct_attribute: str | None = None


@dataclass(frozen=True, slots=True)
class ResourceClaim:
    """
    One claim at one resourceVersion.

    Attributes:
        is_special: whether a scheduler created it for a pod's extended resources, or is about to create it.
        created_name: the name of a claim that is to be created; empty for all others.
    """

    key: NamespacedKey
    uid: Uid
    resource_version: ResourceVersion = field(compare=False)
    owners: Annotated[tuple[OwnerReference, ...], At("metadata.ownerReferences")]
    is_special: Annotated[bool, At(annotation(EXTENDED_RESOURCE_CLAIM), of=str, parse="true".__eq__)]
    finalizers: Annotated[tuple[str, ...], At("metadata.finalizers")]
    terminating: Terminating
    requests: Annotated[tuple[DeviceRequest, ...], At("spec.devices.requests")]
    constraints: Annotated[tuple[DeviceConstraint, ...], At("spec.devices.constraints")]
    config: Annotated[
        tuple[Annotated[ClaimConfiguration, At(parse=with_own_parameters)], ...], At("spec.devices.config")
    ] = field(hash=False)
    allocation: Annotated[Allocation | None, At("status.allocation", parse=allocation_of_its_own)] = field(
        default=None, hash=False
    )
    reserved_for: Annotated[tuple[Consumer, ...], At("status.reservedFor")] = ()
    devices: Annotated[tuple[DeviceStatus, ...], At("status.devices")] = ()
    created_name: Annotated[str, UNREAD] = ""

    kind = DeviceKind.CLAIM

    @property
    def namespace(self) -> str:
        """The claim's namespace."""
        return self.key.partition("/")[0]

    @property
    def name(self) -> str:
        """The claim's name."""
        return self.key.partition("/")[2]

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that controls the claim, if one does."""
        return next((owner for owner in self.owners if owner.controller), None)


DeviceObject = ResourceSlice | DeviceClass | ResourceClaim | DeviceTaintRule
DEVICES: Final = {each.kind: Reader(each) for each in get_args(DeviceObject)}


def special_key(namespace: str, pod_uid: str) -> str:
    """Return the key by which the claim for a pod's extended resources counts until it is created."""
    return f"{namespace}/{SPECIAL_NAME} {pod_uid}"
