"""
ResourceClaims, and the devices that they request, as the scheduler reads them.

Source: api/resource/v1/types.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from scheduler.engine.model.allocations import (
    Allocation,
    ClaimConfiguration,
    Consumer,
    DeviceStatus,
    DeviceToleration,
)
from scheduler.engine.model.devices import DeviceKind
from scheduler.engine.model.wire import OwnerReference
from scheduler.engine.syntax.quantity_format import FormattedQuantity

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
        name: of the request or of the alternative.
        selectors: CEL expressions; None for a selector of a kind that this version does not know.
        mode: ExactCount or All; an API server of a later version may know others.
        capacity: requested amounts by the name of the capacity.
        problem: why it cannot be served, as a feature gate is off; empty if it can.
    """

    name: str
    class_name: str
    selectors: tuple[str | None, ...] = ()
    mode: str = EXACT_COUNT
    count: int = 1
    admin_access: bool = False
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: Mapping[str, FormattedQuantity] = field(default_factory=dict, hash=False)
    problem: str = ""


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """
    One request: exactly one query, or the first of several that is available; neither if its type is unknown.

    `problem`: as of a query.
    """

    name: str
    exactly: DeviceQuery | None
    first_available: tuple[DeviceQuery, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class DeviceConstraint:
    """A rule for the devices of these requests; for all of them without a name. One attribute is set, or neither."""

    requests: frozenset[str]
    match_attribute: str | None
    distinct_attribute: str | None


@dataclass(frozen=True, slots=True)
class ResourceClaim:
    """
    One claim at one resourceVersion.

    Attributes:
        key: `namespace/name`.
        created_name: the name of a claim that is to be created; empty for all others.
        allocation: None while no devices are allocated.
    """

    key: str
    uid: str
    resource_version: str = field(compare=False)
    owners: tuple[OwnerReference, ...]
    annotations: Mapping[str, str] = field(hash=False)
    finalizers: tuple[str, ...]
    terminating: bool
    requests: tuple[DeviceRequest, ...]
    constraints: tuple[DeviceConstraint, ...]
    config: tuple[ClaimConfiguration, ...] = field(hash=False)
    allocation: Allocation | None = field(default=None, hash=False)
    reserved_for: tuple[Consumer, ...] = ()
    devices: tuple[DeviceStatus, ...] = ()
    created_name: str = ""

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
    def is_special(self) -> bool:
        """Whether a scheduler created the claim for a pod's extended resources, or is about to create it."""
        return self.annotations.get(EXTENDED_RESOURCE_CLAIM) == "true"

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that controls the claim, if one does."""
        return next((owner for owner in self.owners if owner.controller), None)


def special_key(namespace: str, pod_uid: str) -> str:
    """Return the key by which the claim for a pod's extended resources counts until it is created."""
    return f"{namespace}/{SPECIAL_NAME} {pod_uid}"
