"""The content of a new cluster: nodes over zones, the namespaces that every cluster has, a default storage class."""

from collections.abc import Mapping, Sequence
from typing import Final

from scheduler.sandbox.devcluster.admission.volumes import IS_DEFAULT_CLASS
from scheduler.sandbox.devcluster.kinds import (
    CSI_DRIVER,
    CSI_NODE,
    NAMESPACE,
    NODE,
    SERVICE_ACCOUNT,
    STORAGE_CLASS,
    JsonObject,
)
from scheduler.sandbox.devcluster.storage.store import ObjectStore
from scheduler.sandbox.devcluster.versions import DEFAULT_MINOR

NAMESPACES: Final = ("default", "kube-system", "kube-public", "kube-node-lease")
#: The storage class that claims get by default, and its driver, which no process stands behind.
DEFAULT_CLASS: Final = "standard"
DRIVER: Final = "csi.devcluster.affinity-scheduler.io"
#: Volumes that can be attached to a node: what the drivers of large clouds allow.
_MAX_VOLUMES: Final = 39
_REGION: Final = "region-1"
_LETTERS: Final = 26
#: Room of a node.
NODE_AMOUNTS: Final = {"cpu": "4", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi"}


def zone_name(index: int) -> str:
    """Return the name of the zone at `index` >= 0: zone-a to zone-z, then zone-aa and so on."""
    name = ""
    number = index + 1
    while number > 0:
        number, letter = divmod(number - 1, _LETTERS)
        name = chr(ord("a") + letter) + name
    return f"zone-{name}"


def node(name: str, zone: str, now: str, minor: int = DEFAULT_MINOR) -> JsonObject:
    """Return a ready node with room for 4 CPUs, 32Gi of memory and 110 pods. `now` is RFC 3339, `minor` its version."""
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "topology.kubernetes.io/zone": zone,
        "topology.kubernetes.io/region": _REGION,
    }
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "message": "the embedded cluster's stand-in for a kubelet is ready",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {},
        "status": {
            "capacity": dict(NODE_AMOUNTS),
            "allocatable": dict(NODE_AMOUNTS),
            "conditions": [ready],
            "nodeInfo": {"kubeletVersion": f"v1.{minor}.0"},
        },
    }


def add_storage(store: ObjectStore) -> None:
    """Create a default storage class with its driver, and the CSINode of every node, on which the driver runs."""
    store.create(CSI_DRIVER, "", {"metadata": {"name": DRIVER}, "spec": {"attachRequired": False}})
    storage_class = {
        "metadata": {"name": DEFAULT_CLASS, "annotations": {IS_DEFAULT_CLASS: "true"}},
        "provisioner": DRIVER,
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    store.create(STORAGE_CLASS, "", storage_class)
    zonal = {"topologyKeys": ["topology.kubernetes.io/zone"], "allocatable": {"count": _MAX_VOLUMES}}
    for one in store.list(NODE)[0]:
        name = one["metadata"]["name"]
        drivers = [{"name": DRIVER, "nodeID": name, **zonal}]
        store.create(CSI_NODE, "", {"metadata": {"name": name}, "spec": {"drivers": drivers}})


def populate(
    store: ObjectStore,
    *,
    nodes: int,
    zones: int,
    labels: Mapping[str, Sequence[str]] | None = None,
    resources: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """
    Create the usual namespaces with their default service accounts, and `nodes` nodes spread over zones.

    `labels` are further labels of the nodes, `resources` what they have room for besides `NODE_AMOUNTS`, or in place of
    it; of several values, each node has the one after that of the node before.
    """
    for name in NAMESPACES:
        store.create(NAMESPACE, "", {"metadata": {"name": name}})
        store.create(SERVICE_ACCOUNT, name, {"metadata": {"name": "default"}})
    for index in range(nodes):
        made = node(f"node-{index + 1:04d}", zone_name(index % zones), store.now(), store.minor)
        made["metadata"]["labels"] |= _in_turn(labels, index)
        for amounts in ("capacity", "allocatable"):
            made["status"][amounts] |= _in_turn(resources, index)
        store.create(NODE, "", made)


def _in_turn(values_by_key: Mapping[str, Sequence[str]] | None, index: int) -> dict[str, str]:
    return {key: values[index % len(values)] for key, values in (values_by_key or {}).items()}
