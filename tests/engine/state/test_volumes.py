"""Room for volumes, disks that pods may not share, and users of claims, as all of them come and go."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.engine.model.disks import GCE_PD, Disk, migrated_terms
from scheduler.engine.model.terms import NodeRequirement, NodeTerm
from tests.conformance.product import ProductSubject
from tests.support import build, storage_objects
from tests.support.build import Json
from tests.support.cases.volume_rows import disk, using, with_volumes

EBS = "ebs.csi.aws.com"


@pytest.fixture
def subject() -> ProductSubject:
    """Return two nodes that attach three volumes of driver d, and a class of this driver."""
    made = ProductSubject(None)
    for name in ("n", "m"):
        made.apply(build.node(name))
        made.apply(storage_objects.csi_node(name, d=3))
    made.apply(storage_objects.storage_class("late"))
    return made


def room(subject: ProductSubject, driver: str = "d") -> list[int]:
    """Return how many volumes nodes n and m can attach."""
    assert subject.differences() == []
    return [int(n) for n in subject.cluster.view().volume_room(driver)]


def test_what_is_attached_takes_room_until_it_is_gone(subject: ProductSubject) -> None:
    subject.apply(storage_objects.volume("v"))
    assert room(subject) == [3, 3]
    subject.apply(storage_objects.attachment("at", "v", "n"))
    assert room(subject) == [2, 3]
    subject.apply(storage_objects.claim("c", volume="v"))
    subject.apply(using("c", on="n"))
    assert room(subject) == [2, 3], "one volume, used and attached"
    subject.delete("VolumeAttachment", None, "at")
    assert room(subject) == [2, 3]
    subject.delete("Pod", "default", "p")
    assert room(subject) == [3, 3]


def test_a_claim_without_a_volume_takes_room_of_its_class_s_driver(subject: ProductSubject) -> None:
    for name, storage_class in (("waits", "late"), ("without", None), ("none", "no-provisioner")):
        subject.apply(storage_objects.claim(name, storage_class))
    subject.apply(storage_objects.storage_class("no-provisioner", ""))
    subject.apply(using("waits", on="n"))
    assert room(subject) == [2, 3]
    for name in ("without", "none"):
        subject.apply(using(name, name=f"with-{name}", on="m"))
        assert room(subject) == [2, 3]
    subject.apply(storage_objects.csi_node("n", d=9))
    assert room(subject) == [8, 3], "the limit of a node changes"
    subject.apply(storage_objects.volume("v", source={"nfs": {"server": "s", "path": "/"}}))
    subject.apply(storage_objects.claim("waits", "late", volume="v"))
    assert room(subject) == [9, 3], "the volume that it got is not of a driver"


def test_a_disk_that_a_pod_names_itself_takes_room_of_the_driver_that_it_was_migrated_to(
    subject: ProductSubject,
) -> None:
    limits: dict[str, Any] = {EBS: 2}
    subject.apply(storage_objects.csi_node("n", **limits))
    same = (disk("awsElasticBlockStore", volumeID=name) for name in ("vol-1", "aws://z/vol-1"))
    pod = with_volumes(*same, disk("nfs", path="/"), on="n")
    subject.apply(pod)
    assert room(subject, EBS)[0] == 1


def test_the_zone_in_a_label_of_a_migrated_disk_joins_each_of_its_terms() -> None:
    own = NodeRequirement(build.HOSTNAME, "In", ("n",))
    zone = NodeRequirement("topology.gke.io/zone", "In", ("a",))
    for terms, found in (((NodeTerm((own,), ()),), (own, zone)), (None, (zone,))):
        assert migrated_terms(GCE_PD, terms, {build.ZONE: "a"}) == (NodeTerm(found, ()),)


def test_nodes_have_the_drivers_that_they_say_last(subject: ProductSubject) -> None:
    view = subject.cluster.view()
    assert view.has_driver("d").tolist() == [True, True]
    subject.apply(storage_objects.csi_node("m", other=1))
    assert view.has_driver("d").tolist() == [True, False]
    assert view.has_driver("other").tolist() == [False, True]
    assert room(subject) == [3, room(subject, "unknown")[1]]


def test_a_disk_that_one_pod_may_use_closes_the_nodes_with_such_a_pod(subject: ProductSubject) -> None:
    """Two pods were forced onto one node; while one of them is left, the node stays closed."""
    mine, other = (Disk("kubernetes.io/aws-ebs", name) for name in ("vol-1", "vol-2"))
    source = disk("awsElasticBlockStore", volumeID="vol-1")
    state, view = subject.cluster.state, subject.cluster.view()
    for name in ("one", "two"):
        subject.apply(with_volumes(source, disk("nfs", path="/"), name=name, on="m"))
        assert subject.differences() == []
        assert (view.state.disks.conflicting_rows([mine]), view.state.disks.conflicting_rows([other])) == (
            {1},
            set(),
        )
    for name, left in (("one", {1}), ("two", set[int]())):
        subject.delete("Pod", "default", name)
        assert subject.differences() == []
        assert view.state.disks.conflicting_rows([mine]) == left
    assert state.disks.on_rows() == {}


def test_a_claim_is_used_by_the_pods_that_name_it_while_their_node_is_there(
    subject: ProductSubject,
) -> None:
    view = subject.cluster.view()
    claims: dict[str, Json] = {name: storage_objects.claim(name, "late") for name in ("c", "d")}
    for each in claims.values():
        subject.apply(each)
    subject.apply(using("c", on="n"))

    def used() -> list[bool]:
        known = [view.volumes.claim(f"default/{name}") for name in claims]
        return [each is not None and view.is_claim_used(each) for each in known]

    assert used() == [True, False]
    subject.delete("Node", None, "n")
    assert used() == [False, False]
