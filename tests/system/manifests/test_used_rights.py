"""
Compares all requests to embedded clusters in the whole suite with the rights in the manifests.

Each process runs as its own ServiceAccount (tests/support/accounts.py), so a missing right also fails the test that
needs it.
"""

import pytest

from scheduler.sandbox.devcluster.access.rbac import Attributes
from tests.support.accounts import COMPONENTS, RECORD, Component
from tests.support.rights import Right, granted

pytestmark = pytest.mark.last

#: Rights that are granted although no test uses them on a cluster: the first kind is listed by watches here; the pod of
#: an eviction is read once its answer is lost, which tests/tools/enforcer/test_evictor.py tries with a scripted server.
UNUSED = {
    "scheduler": {Right("resource.k8s.io", "devicetaintrules", "list", "")},
    "enforcer": {Right("", "pods", "get", "")},
}


def superfluous(component: Component, used: set[Attributes]) -> list[Right]:
    """Return the rights in the component's roles that allowed no request."""
    roles = [each for each in component.objects() if each["kind"] in ("Role", "ClusterRole")]
    return [right for right in granted(roles) if not any(_serves(right, wish) for wish in used)]


def _serves(right: Right, wish: Attributes) -> bool:
    what = (wish.group, wish.full_resource, wish.verb)
    return what == (right.group, right.resource, right.verb) and right.name in ("", wish.name)


@pytest.mark.parametrize("name", COMPONENTS)
def test_no_request_was_refused(name: str) -> None:
    """In the part of the suite that ran, in all of its processes."""
    assert RECORD.missing == set()
    assert RECORD.refused[COMPONENTS[name].user] == set()


@pytest.mark.usefixtures("whole_suite")
@pytest.mark.parametrize("name", COMPONENTS)
def test_every_granted_right_was_used(name: str) -> None:
    component = COMPONENTS[name]
    unused = set(superfluous(component, RECORD.granted[component.user]))
    assert unused == UNUSED.get(name, set())
