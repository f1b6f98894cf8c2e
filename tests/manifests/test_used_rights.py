"""
What every process of the product asked of an embedded cluster during the whole suite, against what its manifests grant.

Each ran as its own ServiceAccount (tests/support/accounts.py), so a missing rule also fails whatever test needed it.
"""

import json

import pytest

from scheduler.devcluster.access.authentication import User
from scheduler.devcluster.access.rbac import Attributes
from tests.manifests.rights import Right, granted
from tests.support.accounts import COMPONENTS, RECORD, Component, Record

pytestmark = pytest.mark.last

#: Rights that no test needs, and why they are granted all the same: none.
UNUSED: dict[str, set[Right]] = {}


def superfluous(component: Component, used: set[Attributes]) -> list[Right]:
    """The rights in the component's roles by which nothing was ever allowed."""
    roles = [each for each in component.objects() if each["kind"] in ("Role", "ClusterRole")]
    return [right for right in granted(roles) if not any(_serves(right, wish) for wish in used)]


def _serves(right: Right, wish: Attributes) -> bool:
    what = (wish.group, wish.full_resource, wish.verb)
    return what == (right.group, right.resource, right.verb) and right.name in ("", wish.name)


@pytest.mark.parametrize("name", COMPONENTS)
def test_nothing_that_was_asked_for_was_refused(name: str) -> None:
    """In whatever part of the suite has run, in however many processes, of which none ended untold."""
    assert RECORD.unheard == set()
    assert RECORD.refused[COMPONENTS[name].user] == set()


@pytest.mark.usefixtures("whole_suite")
@pytest.mark.parametrize("name", COMPONENTS)
def test_nothing_is_granted_that_was_never_used(name: str) -> None:
    component = COMPONENTS[name]
    unused = set(superfluous(component, RECORD.granted[component.user]))
    assert unused == UNUSED.get(name, set())


def test_a_right_is_used_by_its_own_name_alone() -> None:
    """The comparison itself: other verbs, subresources and names do not count."""
    scheduler = COMPONENTS["scheduler"]
    lease = Attributes(
        "update", group="coordination.k8s.io", resource="leases", namespace="kube-system", name="x"
    )
    own = Attributes("update", group="coordination.k8s.io", resource="leases", name="affinity-scheduler")
    right = Right("coordination.k8s.io", "leases", "update", "affinity-scheduler")
    assert right in superfluous(scheduler, {lease})
    assert right not in superfluous(scheduler, {own})
    pods = Right("", "pods", "get")
    assert pods in superfluous(scheduler, {Attributes("get", resource="pods", subresource="status")})
    assert pods in superfluous(scheduler, {Attributes("list", resource="pods")})
    assert pods not in superfluous(scheduler, {Attributes("get", resource="pods", name="any")})


def test_a_record_tells_what_was_refused_from_what_was_granted() -> None:
    record, user = Record(), User("a", ())
    record.told(user, Attributes("get", resource="pods"), True)
    record.told(user, Attributes("delete", resource="pods"), False)
    assert record.granted == {"a": {Attributes("get", resource="pods")}}
    assert record.refused == {"a": {Attributes("delete", resource="pods")}}


def test_a_record_is_told_to_another_process_whole() -> None:
    """As plain types, and into whatever is known there."""
    here, there, user = Record(), Record(), User("a", ())
    named = Attributes("get", group="g", resource="pods", subresource="status", namespace="n", name="x")
    here.told(user, named, True)
    here.told(user, Attributes("get", path="/healthz"), False)
    there.told(User("b", ()), named, True)
    there.read(json.loads(json.dumps(here.written())))
    assert there.granted == {"a": {named}, "b": {named}}
    assert there.refused == {"a": {Attributes("get", path="/healthz")}}
