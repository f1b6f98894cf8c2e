"""The devices of a shape's nodes, eight of each, and the template of the claims by which its pods ask for one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from tests.bench.templates import DEVICE_TEMPLATE, EXTENDED_RESOURCE, Devices
from tests.support import device_documents
from tests.support.build import Json

DEVICES_PER_NODE: Final = 8


def of_cluster(nodes: Iterable[Json], devices: Devices) -> list[Json]:
    """Return the class and the slices, as a driver would publish them; nothing if no pod asks for devices."""
    if not devices:
        return []
    names = [node["metadata"]["name"] for node in nodes]
    slices = [device_documents.device_slice(name, DEVICES_PER_NODE) for name in names]
    return [device_documents.device_class(extended_resource=EXTENDED_RESOURCE), *slices]


def claim_template(namespace: str) -> Json:
    """Return the template from which each pod gets a claim of one device."""
    return {
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": DEVICE_TEMPLATE, "namespace": namespace},
        "spec": {"spec": device_documents.resource_claim("any")["spec"]},
    }


def allocation_faults(claims: Iterable[Json], n_pods: int) -> list[str]:
    """Return one line for each device in two allocations, and one if `n_pods` pods have not a device each."""
    n_claims_by_device = Counter(
        (device["driver"], device["pool"], device["device"])
        for claim in claims
        for device in claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
    )
    twice = [f"{device} has {n} claims" for device, n in n_claims_by_device.items() if n > 1]
    n_devices = n_claims_by_device.total()
    return twice if n_devices == n_pods else [*twice, f"{n_devices} devices are allocated to {n_pods} pods"]
