"""
The stand-in for a driver of GPUs: the class and the slices that one publishes. No device stands behind them.

Names of class, driver and attributes are those of NVIDIA's driver (k8s-dra-driver-gpu 25.8), so that manifests written
for it find devices here; `fabric` alone is ours: the GPUs that a fast interconnect joins.
"""

from __future__ import annotations

from typing import Final
from uuid import NAMESPACE_DNS, uuid5

from scheduler.sandbox.devcluster.kinds import DEVICE_CLASS, NODE, RESOURCE_SLICE, JsonObject
from scheduler.sandbox.devcluster.storage.store import ObjectStore

DRIVER: Final = "gpu.nvidia.com"
#: Pods that ask for this resource get a GPU of the class without naming a claim.
EXTENDED_RESOURCE: Final = "nvidia.com/gpu"
_SELECTOR: Final = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'"
#: GPUs that one PCIe root, and one NUMA node, of these machines have.
_GPUS_PER_ROOT: Final = 2
_GPUS_PER_NUMA_NODE: Final = 4
_MEMORY: Final = "80Gi"


def add_gpus(store: ObjectStore, *, per_node: int, per_fabric: int) -> None:
    """
    Create the device class, and a slice with `per_node` GPUs for every node.

    GPUs are numbered over all nodes, and each `per_fabric` of them in turn are joined: 2 of a node's 4 GPUs, or those
    of two nodes if a fabric has more than a node. 0 joins none.
    """
    spec = {"selectors": [{"cel": {"expression": _SELECTOR}}], "extendedResourceName": EXTENDED_RESOURCE}
    store.create(DEVICE_CLASS, "", {"metadata": {"name": DRIVER}, "spec": spec})
    for number, node in enumerate(store.list(NODE)[0]):
        store.create(RESOURCE_SLICE, "", _slice(node, number * per_node, per_node, per_fabric))


def _slice(node: JsonObject, first: int, per_node: int, per_fabric: int) -> JsonObject:
    name = node["metadata"]["name"]
    owner = {
        "apiVersion": "v1",
        "kind": "Node",
        "name": name,
        "uid": node["metadata"]["uid"],
        "controller": True,
    }
    devices = [
        _gpu(name, index, (first + index) // per_fabric if per_fabric else None) for index in range(per_node)
    ]
    return {
        "metadata": {"generateName": f"{name}-{DRIVER}-", "ownerReferences": [owner]},
        "spec": {
            "driver": DRIVER,
            "nodeName": name,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        },
    }


def _gpu(node_name: str, index: int, fabric: int | None) -> JsonObject:
    attributes: JsonObject = {
        "type": {"string": "gpu"},
        "uuid": {"string": f"GPU-{uuid5(NAMESPACE_DNS, f'{index}.{node_name}')}"},
        "productName": {"string": "NVIDIA H100 80GB HBM3"},
        "brand": {"string": "Nvidia"},
        "architecture": {"string": "Hopper"},
        "cudaComputeCapability": {"version": "9.0.0"},
        "driverVersion": {"version": "580.82.7"},
        "cudaDriverVersion": {"version": "13.0.0"},
        "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{index // _GPUS_PER_ROOT:02x}"},
        "numaNode": {"int": index // _GPUS_PER_NUMA_NODE},
    }
    if fabric is not None:
        attributes["fabric"] = {"string": f"fabric-{fabric}"}
    return {
        "name": f"gpu-{index}",
        "attributes": attributes,
        "capacity": {"memory": {"value": _MEMORY}},
    }
