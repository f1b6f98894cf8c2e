"""Explanations of pods with claims: which claim, volume, class, pool or limit keeps which node out."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.engine.model.changes import RemovePod
from tests.support import build
from tests.support.build import ZONE
from tests.support.cases.volume_rows import disk, using, with_volumes
from tests.support.json_cluster import Cluster, changes, groups, zoned
from tests.support.messages import refusals
from tests.support.storage_objects import (
    attachment,
    capacity,
    claim,
    csi_driver,
    csi_node,
    storage_class,
    volume,
)


def in_zone(zone: str) -> list[build.Json]:
    return [build.node_term(f"{ZONE} in {zone}")]


BOUND_IN_A = [
    volume("v", "s", terms=in_zone("a"), claimed_by="default/c", claim_uid="default-c"),
    claim("c", "s", volume="v"),
]


def test_a_volume_in_one_zone_and_the_pod_to_be_near_in_another_are_named_together() -> None:
    near = build.affinity(required=[build.term(ZONE, build.selector("app=web"))])
    running = build.pod("web-0", labels={"app": "web"}, node="b1")
    cluster = Cluster(zoned("a1 a2 b1"), [running], storage=BOUND_IN_A)
    subject = using("c")
    subject["spec"]["affinity"] = near
    answer = cluster.explain(subject)
    assert answer.notes == (
        "no node has both the volume of claim c (a) and a pod that it has to be near (b)",
    )
    assert groups(answer) == [
        (2, "InterPodAffinity", f"{ZONE}=a"),
        (1, "VolumeBinding", f"claim c: volume v is reached from {ZONE}=a"),
    ]
    assert ["RunPod"] in changes(answer)


@pytest.mark.parametrize(
    ("storage", "where"),
    [
        ([claim("c", "s", volume="v")], None),
        (
            [storage_class("s", "kubernetes.io/no-provisioner"), claim("c", "s", request="10Gi")],
            "claim c: no free volume of class s suits it (10Gi, ReadWriteOnce)",
        ),
        (
            [storage_class("s", topologies=[{ZONE: ["x", "y"]}]), claim("c", "s")],
            f"claim c: class s makes volumes for {ZONE} in (x,y)",
        ),
        (
            [
                storage_class("s"),
                csi_driver("d", tracks_capacity=True),
                claim("c", "s", request="10Gi"),
                capacity("p", "s", "5Gi", topology={}),
            ],
            "claim c: no pool of class s has 10Gi",
        ),
        (
            [storage_class("s"), claim("c", "s", node="gone")],
            "claim c: its volume is to be on node gone, which is gone",
        ),
        (
            [volume("v", "s", labels={ZONE: "x__y"}, claimed_by="default/c"), claim("c", "s", volume="v")],
            f"claim c: volume v is in {ZONE}=x|y",
        ),
    ],
    ids=["no volume", "nothing free", "topologies", "capacity", "selected", "zone label"],
)
def test_the_claim_and_its_volume_or_class_are_named(storage: list[Any], where: str | None) -> None:
    answer = Cluster(zoned("a1"), storage=storage).explain(using("c"))
    if where is None:
        assert refusals(answer.message) == '0/1 nodes are available: persistentvolume "v" not found.'
    else:
        assert [group.where for group in answer.groups] == [where]


@pytest.mark.parametrize(
    ("storage", "where"),
    [
        ([claim("c", "s")], "claim c: there is no class s"),
        ([claim("c", "")], "claim c: has no class that could make its volume"),
        (
            [storage_class("s", "d.example", mode="Immediate"), claim("c", "s")],
            "claim c: d.example has made no volume of class s for it",
        ),
        ([claim("c", "s", volume="v", bound=False)], "claim c: volume v is not bound to it yet"),
        (
            [storage_class("s", "kubernetes.io/no-provisioner", mode="Immediate"), claim("c", "s")],
            "claim c: no volume of class s is bound to it yet, and the class makes none",
        ),
    ],
)
def test_an_unbound_claim_is_named_with_the_reason(storage: list[Any], where: str) -> None:
    answer = Cluster(zoned("a1"), storage=storage).explain(using("c"))
    (group,) = answer.groups
    assert group.reason == "pod has unbound immediate PersistentVolumeClaims"
    assert group.where == where


def test_each_unbound_claim_is_named() -> None:
    storage = [claim("c", "s"), claim("d", ""), volume("v"), claim("e", volume="v")]
    (group,) = Cluster(zoned("a1"), storage=storage).explain(using("c", "d", "e")).groups
    assert group.where == "claim c: there is no class s; claim d: has no class that could make its volume"


def test_each_claim_whose_volume_keeps_a_node_out_is_named() -> None:
    """An empty term of a volume's node affinity matches no node."""
    storage = [
        volume("v", terms=[{}, *in_zone("a"), *in_zone("x")], claimed_by="default/c"),
        claim("c", volume="v"),
        volume("w", terms=in_zone("b"), claimed_by="default/d"),
        claim("d", volume="w"),
    ]
    answer = Cluster(zoned("a1 b1 c1"), storage=storage).explain(using("c", "d"))
    in_a = f"claim c: volume v is reached from {ZONE}=a or {ZONE}=x"
    in_b = f"claim d: volume w is reached from {ZONE}=b"
    assert sorted(group.where for group in answer.groups) == [in_a, f"{in_a}; {in_b}", in_b]


def test_each_volume_whose_label_keeps_a_node_out_is_named() -> None:
    storage = [
        volume("v", labels={ZONE: "a"}, claimed_by="default/c"),
        claim("c", volume="v"),
        volume("w", labels={ZONE: "b"}, claimed_by="default/d"),
        claim("d", volume="w"),
    ]
    answer = Cluster(zoned("a1 b1 c1"), storage=storage).explain(using("c", "d"))
    in_a, in_b = f"claim c: volume v is in {ZONE}=a", f"claim d: volume w is in {ZONE}=b"
    assert {where: plugin for _, plugin, where in groups(answer)} == dict.fromkeys(
        (in_a, in_b, f"{in_a}; {in_b}"), "VolumeZone"
    )


def test_two_claims_that_want_the_same_volume_are_told_together() -> None:
    storage = [
        storage_class("s", "kubernetes.io/no-provisioner"),
        volume("v", "s"),
        claim("c", "s"),
        claim("d", "s"),
    ]
    answer = Cluster(zoned("a1"), storage=storage).explain(using("c", "d"))
    assert [group.where for group in answer.groups] == ["no free volume for each of its claims"]


def test_as_many_pods_leave_as_the_driver_lacks_volumes() -> None:
    named = ("c", "d", "theirs")
    storage = [each for name in named for each in (volume(f"v-{name}"), claim(name, volume=f"v-{name}"))]
    running = using("theirs", name="other", on="a1")
    answer = Cluster(zoned("a1"), [running], storage=[*storage, csi_node("a1", d=2)]).explain(using("c", "d"))
    assert groups(answer) == [(1, "NodeVolumeLimits", "needs 2 more of driver d, at most 1 can be attached")]
    assert changes(answer) == [["RemovePod"]]


def test_a_volume_is_detached_once_the_last_of_its_pods_has_left() -> None:
    storage = [each for name in "cd" for each in (volume(f"v-{name}"), claim(name, volume=f"v-{name}"))]
    running = [using("d", name=name, on="a1") for name in ("first", "second")]
    answer = Cluster(zoned("a1"), running, storage=[*storage, csi_node("a1", d=1)]).explain(using("c"))
    assert [each.texts for each in answer.suggestions] == [
        ("pod default/first leaves node a1", "pod default/second leaves node a1")
    ]


def test_a_volume_that_is_attached_without_a_pod_leaves_nothing_to_suggest() -> None:
    storage = [
        volume("mine", claimed_by="default/c"),
        claim("c", volume="mine"),
        volume("w"),
        attachment("x", "w", "a1"),
        csi_node("a1", d=1),
    ]
    assert changes(Cluster(zoned("a1"), storage=storage).explain(using("c"))) == []


def test_the_pod_that_uses_a_claim_alone_is_named_and_may_leave() -> None:
    """Not the pods beside it, nor one that uses a claim of the name in another namespace."""
    namesake = using("c", name="namesake", on="a1")
    namesake["metadata"] |= {"namespace": "blue", "uid": "uid-blue-namesake"}
    running = [using("c", name="other", on="a1"), using(name="beside", on="a1"), namesake]
    storage = [volume("v", claimed_by="default/c"), claim("c", volume="v", modes=["ReadWriteOncePod"])]
    answer = Cluster(zoned("a1 b1"), running, storage=storage).explain(using("c"))
    assert groups(answer) == [(2, "VolumeRestrictions", "in use by default/other on a1")]
    assert [suggestion.changes for suggestion in answer.suggestions] == [
        (RemovePod("default", "other", "a1", "uid-default-other"),)
    ]


def test_the_pods_that_hold_a_disk_may_leave() -> None:
    writes = with_volumes(disk("gcePersistentDisk", pdName="x"), name="other", on="a1")
    beside = with_volumes(disk("gcePersistentDisk", pdName="y"), name="beside", on="a1")
    answer = Cluster(zoned("a1"), [writes, beside]).explain(
        with_volumes(disk("gcePersistentDisk", pdName="x"))
    )
    assert groups(answer) == [(1, "VolumeRestrictions", "in use by default/other")]
    assert [suggestion.changes for suggestion in answer.suggestions] == [
        (RemovePod("default", "other", "a1", "uid-default-other"),)
    ]


def test_a_pod_whose_volume_is_being_made_says_so() -> None:
    storage = [storage_class("s"), claim("c", "s", node="a1")]
    answer = Cluster(zoned("a1 b1"), storage=storage).explain(using("c"))
    assert answer.state == "schedulable"
    assert answer.notes == ("claim c waits for its volume on node a1",)
