"""Objects that stories make themselves: nodes, and what a storage driver says of itself."""

from __future__ import annotations

from typing import Final

from scheduler.demo.objects import JsonObject

ZONE: Final = "topology.kubernetes.io/zone"
#: The default class of the embedded cluster, and its driver.
_CLASS: Final = "standard"
_DRIVER: Final = "csi.devcluster.affinity-scheduler.io"


def ready_node(name: str, zone: str) -> JsonObject:
    """Return a node as its kubelet would announce it, of the size of the ready-made ones."""
    amounts = {"cpu": "4", "memory": "32Gi", "pods": "110"}
    labels = {"kubernetes.io/hostname": name, ZONE: zone}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "added by the demo"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]},
    }


def storage_driver() -> JsonObject:
    """Return the driver of the embedded cluster's default class, which tells how much room it has."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": _DRIVER},
        "spec": {"storageCapacity": True},
    }


def capacity(zone: str, room: str) -> JsonObject:
    """Return the room for volumes of the default class in a zone, as its driver would write it."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIStorageCapacity",
        "metadata": {"name": zone, "namespace": "default"},
        "storageClassName": _CLASS,
        "nodeTopology": {"matchLabels": {ZONE: zone}},
        "capacity": room,
    }
