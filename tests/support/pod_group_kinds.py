"""CustomResourceDefinitions of PodGroups, for servers that have no such kind of their own."""

from __future__ import annotations

from tests.support.build import Json

KUBERNETES, COSCHEDULING = "scheduling.k8s.io/v1alpha2", "scheduling.x-k8s.io/v1alpha1"


def definition(api_version: str) -> Json:
    """Return the definition of PodGroup with any fields, and a status of its own."""
    group, version = api_version.split("/")
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"podgroups.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {
                "plural": "podgroups",
                "singular": "podgroup",
                "kind": "PodGroup",
                "listKind": "PodGroupList",
            },
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": free},
                    "subresources": {"status": {}},
                }
            ],
        },
    }


def group(api_version: str, name: str, spec: Json) -> Json:
    """Return the PodGroup."""
    return {"apiVersion": api_version, "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}
