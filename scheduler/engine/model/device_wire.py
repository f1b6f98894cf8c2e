"""ResourceSlices, DeviceClasses and ResourceClaims as they are in JSON: only the fields that are read."""

from __future__ import annotations

import msgspec

from scheduler.engine.model.allocations import (
    Allocation,
    ClaimConfiguration,
    Consumer,
    DeviceConfiguration,
    DeviceStatus,
    DeviceToleration,
)
from scheduler.engine.model.wire import Metadata, NodeSelector, QuantityText, Taint, Wire


class Attribute(Wire, frozen=True):
    """spec.devices[].attributes of a slice."""

    string: str | None = None
    int_: int | None = msgspec.field(name="int", default=None)
    bool_: bool | None = msgspec.field(name="bool", default=None)
    version: str | None = None


class ValidRange(Wire, frozen=True):
    """validRange of a request policy."""

    min: QuantityText = None
    max: QuantityText = None
    step: QuantityText = None


class RequestPolicy(Wire, frozen=True):
    """requestPolicy of a capacity."""

    default: QuantityText = None
    valid_values: tuple[QuantityText, ...] | None = None
    valid_range: ValidRange | None = None


class Capacity(Wire, frozen=True):
    """spec.devices[].capacity of a slice."""

    value: QuantityText = None
    request_policy: RequestPolicy | None = None


class Counter(Wire, frozen=True):
    """A counter of a slice or of a device."""

    value: QuantityText = None


class CounterSet(Wire, frozen=True):
    """spec.sharedCounters[] of a slice."""

    name: str = ""
    counters: dict[str, Counter] | None = None


class CounterConsumption(Wire, frozen=True):
    """spec.devices[].consumesCounters[] of a slice."""

    counter_set: str = ""
    counters: dict[str, Counter] | None = None


class Device(Wire, frozen=True):
    """spec.devices[] of a slice."""

    name: str = ""
    attributes: dict[str, Attribute] | None = None
    capacity: dict[str, Capacity] | None = None
    consumes_counters: tuple[CounterConsumption, ...] | None = None
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: tuple[Taint, ...] | None = None
    binds_to_node: bool | None = None
    binding_conditions: tuple[str, ...] | None = None
    binding_failure_conditions: tuple[str, ...] | None = None
    allow_multiple_allocations: bool | None = None


class Pool(Wire, frozen=True):
    """spec.pool of a slice."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class SliceSpec(Wire, frozen=True):
    """spec of a slice."""

    driver: str = ""
    pool: Pool = Pool()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    devices: tuple[Device, ...] | None = None
    per_device_node_selection: bool | None = None
    shared_counters: tuple[CounterSet, ...] | None = None


class Slice(Wire, frozen=True):
    """A ResourceSlice."""

    metadata: Metadata
    spec: SliceSpec = SliceSpec()


class CelSelector(Wire, frozen=True):
    """cel of a selector."""

    expression: str = ""


class Selector(Wire, frozen=True):
    """selectors[] of a class or request."""

    cel: CelSelector | None = None


class ClassSpec(Wire, frozen=True):
    """spec of a class."""

    selectors: tuple[Selector, ...] | None = None
    config: tuple[DeviceConfiguration, ...] | None = None
    extended_resource_name: str | None = None


class Class(Wire, frozen=True):
    """A DeviceClass."""

    metadata: Metadata
    spec: ClassSpec = ClassSpec()


class CapacityRequests(Wire, frozen=True):
    """capacity of a request."""

    requests: dict[str, QuantityText] | None = None


class Query(Wire, frozen=True):
    """exactly of a request, or one of its alternatives, which alone have a name."""

    name: str = ""
    device_class_name: str = ""
    selectors: tuple[Selector, ...] | None = None
    allocation_mode: str = ""
    count: int = 0
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] | None = None
    capacity: CapacityRequests | None = None


class Request(Wire, frozen=True):
    """spec.devices.requests[] of a claim."""

    name: str = ""
    exactly: Query | None = None
    first_available: tuple[Query, ...] | None = None


class Constraint(Wire, frozen=True):
    """spec.devices.constraints[] of a claim."""

    requests: tuple[str, ...] | None = None
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaim(Wire, frozen=True):
    """spec.devices of a claim."""

    requests: tuple[Request, ...] | None = None
    constraints: tuple[Constraint, ...] | None = None
    config: tuple[ClaimConfiguration, ...] | None = None


class ClaimSpec(Wire, frozen=True):
    """spec of a claim."""

    devices: DeviceClaim = DeviceClaim()


class ClaimStatus(Wire, frozen=True):
    """status of a claim."""

    allocation: Allocation | None = None
    reserved_for: tuple[Consumer, ...] | None = None
    devices: tuple[DeviceStatus, ...] | None = None


class Claim(Wire, frozen=True):
    """A ResourceClaim."""

    metadata: Metadata
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()


class TaintSelector(Wire, frozen=True):
    """spec.deviceSelector of a DeviceTaintRule."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class TaintRuleSpec(Wire, frozen=True):
    """spec of a DeviceTaintRule."""

    device_selector: TaintSelector | None = None
    taint: Taint = Taint()


class TaintRule(Wire, frozen=True):
    """A DeviceTaintRule."""

    metadata: Metadata
    spec: TaintRuleSpec = TaintRuleSpec()
