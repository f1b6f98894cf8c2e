"""The roles grant exactly what the program asks for: compared with every request that it can build."""

from tests.manifests.files import BASE, named, resources
from tests.manifests.rights import LEASE, Right, all_requests, granted, needed

OBJECTS = resources(BASE)


def test_every_request_is_granted_and_nothing_is_granted_that_is_never_asked_for():
    roles = (*named(OBJECTS, "ClusterRole").values(), *named(OBJECTS, "Role").values())
    rights = list(granted(roles))
    assert sorted(rights) == sorted({needed(request) for request in all_requests()})
    assert len(rights) == len(set(rights)), "a right is granted twice"


def test_only_the_lease_is_granted_in_one_namespace_and_by_name():
    (role,) = named(OBJECTS, "Role").values()
    assert set(granted([role])) == {
        Right("coordination.k8s.io", "leases", "create"),
        Right("coordination.k8s.io", "leases", "get", LEASE),
        Right("coordination.k8s.io", "leases", "update", LEASE),
    }


def test_the_requests_that_are_compared_are_all_kinds_there_are():
    """A builder or a watched kind that introspection misses would be missed in the comparison, too."""
    rights = {needed(request) for request in all_requests()}
    assert {right.resource for right in rights} == {
        *("nodes", "namespaces", "pods", "pods/binding", "pods/status", "events", "leases"),
        *("services", "replicationcontrollers", "replicasets", "statefulsets"),
        *("tokenreviews", "subjectaccessreviews"),
    }
    assert {right.verb for right in rights} == {"list", "watch", "get", "create", "update", "patch"}
