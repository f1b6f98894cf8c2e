"""The roles have exactly the rights for the requests that the program can build."""

from tests.support.manifest_files import BASE, named, resources
from tests.support.rights import LEASE, Right, all_requests, granted, needed

OBJECTS = resources(BASE)


def test_only_the_lease_is_granted_by_name_in_one_namespace():
    (role,) = named(OBJECTS, "Role").values()
    assert set(granted([role])) == {
        Right("coordination.k8s.io", "leases", "create"),
        Right("coordination.k8s.io", "leases", "get", LEASE),
        Right("coordination.k8s.io", "leases", "update", LEASE),
        Right("coordination.k8s.io", "leases", "watch", LEASE),
    }


def test_every_request_builder_is_compared():
    """Introspection finds every builder and every watched kind."""
    rights = {needed(request) for request in all_requests()}
    assert {right.resource for right in rights} == {
        *("nodes", "namespaces", "pods", "pods/binding", "pods/status", "events", "leases"),
        *("services", "replicationcontrollers", "replicasets", "statefulsets"),
        *("persistentvolumes", "persistentvolumeclaims", "storageclasses", "volumeattachments"),
        *("csinodes", "csidrivers", "csistoragecapacities", "podgroups", "podgroups/status"),
        *("topologies", "resourceflavors"),
        *("deviceclasses", "resourceslices", "resourceclaims", "resourceclaims/status", "devicetaintrules"),
        *("tokenreviews", "subjectaccessreviews", "poddisruptionbudgets"),
    }
    verbs = {"list", "watch", "get", "create", "update", "patch", "delete"}
    assert {right.verb for right in rights} == verbs
