"""Claims that do not exist yet, as their pods would find them."""

from __future__ import annotations

import json

import pytest

from scheduler.engine.framework.kinds import KINDS
from scheduler.engine.model.volumes import PersistentVolume, PersistentVolumeClaim, StorageKind
from scheduler.engine.state.cluster import ClusterState
from scheduler.tools.explain.simulation.new_claims import add_claim, default_class, new_claim
from tests.support.build import ZONE, Json, node_term
from tests.support.storage_objects import claim, storage_class, volume

IMMEDIATE = storage_class("s", mode="Immediate")
BY_HAND = storage_class("s", "kubernetes.io/no-provisioner", mode="Immediate")


def state(*objects: Json) -> ClusterState:
    made = ClusterState()
    for obj in objects:
        made.volumes.upsert(KINDS[obj["kind"]].decode(json.dumps(obj).encode()))
    return made


def decoded(document: Json) -> PersistentVolumeClaim:
    found = KINDS[StorageKind.CLAIM].decode(json.dumps(document).encode())
    assert isinstance(found, PersistentVolumeClaim)
    return found


def as_default(storage: Json, created: str) -> Json:
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"}
    storage["metadata"] |= {"annotations": annotations, "creationTimestamp": created}
    return storage


def test_the_newest_default_class_counts_and_the_first_of_equals() -> None:
    classes = [
        as_default(storage_class("c"), "2026-01-02T00:00:00Z"),
        as_default(storage_class("b"), "2026-01-02T00:00:00Z"),
        as_default(storage_class("a"), "2026-01-01T00:00:00Z"),
        storage_class("d"),
    ]
    made = state(*classes).volumes
    assert default_class(made) == "b"
    for name, asked, given in (("says-nothing", None, "b"), ("says-none", "", "")):
        add_claim(made, claim(name, asked))
        found = made.claim(f"default/{name}")
        assert found is not None and found.class_name == given
    assert default_class(state(storage_class("d")).volumes) == ""


def test_a_claim_of_a_document_has_an_identity_as_if_it_were_created() -> None:
    """Without it a volume would not be its own."""
    made = state(storage_class("s"))
    document = claim("c", "s")
    del document["metadata"]["uid"]
    assert add_claim(made.volumes, document) == ""
    found = made.volumes.claim("default/c")
    assert found is not None
    assert found.uid == "not-created/default/c"


def test_a_claim_that_waits_for_its_pod_is_left_alone() -> None:
    waits = decoded(claim("c", "s"))
    assert new_claim(waits, state(storage_class("s"), volume("v", "s")).volumes) == ((waits,), "")


def test_a_provisioner_makes_the_volume_where_its_class_allows_it() -> None:
    allowed = storage_class("s", mode="Immediate", topologies=[{ZONE: ["a"]}])
    (made, bound), assumption = new_claim(decoded(claim("c", "s")), state(allowed).volumes)
    assert isinstance(made, PersistentVolume)
    assert isinstance(bound, PersistentVolumeClaim)
    assert bound.is_bound
    assert made.is_for(bound)
    assert made.source.topology is not None
    assert "class s makes volumes before pods are placed" in assumption
    everywhere = new_claim(decoded(claim("c", "s")), state(IMMEDIATE).volumes)[0][0]
    assert isinstance(everywhere, PersistentVolume)
    assert everywhere.source.topology is None


@pytest.mark.parametrize(
    ("volumes", "chosen"),
    [
        ([volume("large", "s", capacity="5Gi"), volume("small", "s", capacity="2Gi")], "small"),
        ([volume("taken", "s", claimed_by="default/other")], None),
        ([volume("block", "s", volumeMode="Block")], None),
        ([volume("shared", "s", modes=["ReadWriteMany"])], None),
        ([volume("tiny", "s", capacity="1Ki")], None),
        (
            [volume("free", "s"), volume("mine", "s", claimed_by="default/c", terms=[node_term("x in y")])],
            "mine",
        ),
    ],
)
def test_an_existing_volume_is_taken_as_the_controller_would(volumes: list[Json], chosen: str | None) -> None:
    (*_, made), assumption = new_claim(decoded(claim("c", "s")), state(BY_HAND, *volumes).volumes)
    assert isinstance(made, PersistentVolumeClaim)
    assert (made.volume_name, assumption) == (chosen or "", "")
