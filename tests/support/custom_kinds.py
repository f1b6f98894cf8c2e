"""CustomResourceDefinitions of kinds that other projects bring: PodGroups, Kueue's two, and PodMetrics."""

from __future__ import annotations

from scheduler.sandbox.devcluster.kinds import Kind
from scheduler.sandbox.devcluster.storage.store import ObjectStore
from tests.support.build import Json

KUBERNETES, COSCHEDULING = "scheduling.k8s.io/v1alpha2", "scheduling.x-k8s.io/v1alpha1"
KUEUE = "kueue.x-k8s.io"
USAGE = "metrics.k8s.io/v1beta1"


def definition(api_version: str) -> Json:
    """Return the definition of PodGroup with any fields, and a status of its own."""
    group, version = api_version.split("/")
    return _definition(group, "PodGroup", "podgroups", "Namespaced", version)


def topology_definition() -> Json:
    """Return the definition of Topology in both versions that Kueue serves."""
    return _definition(KUEUE, "Topology", "topologies", "Cluster", "v1beta2", "v1beta1")


def flavor_definition() -> Json:
    """Return the definition of ResourceFlavor in both versions that Kueue serves."""
    return _definition(KUEUE, "ResourceFlavor", "resourceflavors", "Cluster", "v1beta2", "v1beta1")


def usage_definition() -> Json:
    """Return the definition of PodMetrics, which a metrics server serves."""
    group, version = USAGE.split("/")
    return _definition(group, "PodMetrics", "pods", "Namespaced", version)


def kind_at(store: ObjectStore, api_version: str, plural: str) -> Kind:
    """Return the kind that a definition in the store defines."""
    group, version = api_version.split("/")
    found = store.kinds.at(group, version, plural)
    assert found is not None
    return found


def _definition(group: str, kind: str, plural: str, scope: str, *versions: str) -> Json:
    """Return the definition; objects are stored in the first version."""
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": group,
            "scope": scope,
            "names": names,
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": version == versions[0],
                    "schema": {"openAPIV3Schema": free},
                    "subresources": {"status": {}},
                }
                for version in versions
            ],
        },
    }


def group(api_version: str, name: str, spec: Json) -> Json:
    """Return the PodGroup."""
    return {"apiVersion": api_version, "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}


def topology(name: str, *levels: str) -> Json:
    """Return the Topology with these levels, from the outside in."""
    spec = {"levels": [{"nodeLabel": key} for key in levels]}
    return {"apiVersion": f"{KUEUE}/v1beta2", "kind": "Topology", "metadata": {"name": name}, "spec": spec}


def flavor(name: str, topology_name: str, **node_labels: str) -> Json:
    """Return the ResourceFlavor of the nodes with these labels, whose levels the Topology names."""
    spec = {"nodeLabels": node_labels, "topologyName": topology_name}
    return {
        "apiVersion": f"{KUEUE}/v1beta2",
        "kind": "ResourceFlavor",
        "metadata": {"name": name},
        "spec": spec,
    }
