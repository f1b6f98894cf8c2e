"""Explanations of pods with claims: which claim, volume, class, pool or limit keeps which node out."""

from __future__ import annotations

from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.support import build
from tests.support.build import ZONE, Json
from tests.support.cases.volume_rows import disk, using, with_volumes
from tests.support.json_cluster import Cluster, zoned
from tests.support.storage_objects import (
    attachment,
    capacity,
    claim,
    csi_driver,
    csi_node,
    storage_class,
    volume,
)
from tests.tools.explain.told import case, check

BY_HAND = "kubernetes.io/no-provisioner"
A1, B1, C1 = zoned("a1 b1 c1")
#: Limits of the driver `d`.
TWO_OF_D, ONE_OF_D = csi_node("a1", d=2), csi_node("a1", d=1)


def in_zone(zone: str) -> list[Json]:
    return [build.node_term(f"{ZONE} in {zone}")]


def held(name: str, **of_volume: Any) -> list[Json]:
    """Return a claim with its volume."""
    return [volume(f"v-{name}", claimed_by=f"default/{name}", **of_volume), claim(name, volume=f"v-{name}")]


def near_web() -> Json:
    pod = using("c")
    pod["spec"]["affinity"] = build.affinity(required=[build.term(ZONE, build.selector("app=web"))])
    return pod


def namesake() -> Json:
    """Return a pod that uses a claim of the name in another namespace."""
    pod = using("c", name="namesake", on="a1")
    pod["metadata"] |= {"namespace": "blue", "uid": "uid-blue-namesake"}
    return pod


X, Y = (disk("gcePersistentDisk", pdName=name) for name in "xy")


@pytest.mark.parametrize(
    ("cluster", "pod", "kinds"),
    [
        case(
            "a volume in one zone and the pod to be near in another",
            zoned("a1 a2 b1"),
            near_web(),
            "RunPod",
            pods=[build.pod("web-0", labels={"app": "web"}, node="b1")],
            storage=held("c", terms=in_zone("a")),
        ),
        case("no volume", [A1], using("c"), storage=[claim("c", "s", volume="v")]),
        case(
            "nothing free",
            [A1],
            using("c"),
            storage=[storage_class("s", BY_HAND), claim("c", "s", request="10Gi")],
        ),
        case(
            "topologies",
            [A1],
            using("c"),
            storage=[storage_class("s", topologies=[{ZONE: ["x", "y"]}]), claim("c", "s")],
        ),
        case(
            "capacity",
            [A1],
            using("c"),
            storage=[
                storage_class("s"),
                csi_driver("d", tracks_capacity=True),
                claim("c", "s", request="10Gi"),
                capacity("p", "s", "5Gi", topology={}),
            ],
        ),
        case(
            "the node that was selected for it is gone",
            [A1, B1],
            using("c"),
            "UnselectNode",
            storage=[storage_class("s"), claim("c", "s", node="gone")],
        ),
        case("zone label", [A1], using("c"), storage=held("c", labels={ZONE: "x__y"})),
        case(
            "no node that reaches it is left",
            [A1, B1],
            using("c"),
            storage=held("c", terms=[build.node_term(f"{build.HOSTNAME} in gone")]),
        ),
        case("no class", [A1], using("c"), storage=[claim("c", "s")]),
        case("no class named", [A1], using("c"), storage=[claim("c", "")]),
        case(
            "nothing made yet",
            [A1],
            using("c"),
            storage=[storage_class("s", "d.example", mode="Immediate"), claim("c", "s")],
        ),
        case("not bound to it yet", [A1], using("c"), storage=[claim("c", "s", volume="v", bound=False)]),
        case(
            "nothing bound, and nothing is made",
            [A1],
            using("c"),
            storage=[storage_class("s", BY_HAND, mode="Immediate"), claim("c", "s")],
        ),
        case(
            "each unbound claim",
            [A1],
            using("c", "d", "e"),
            storage=[claim("c", "s"), claim("d", ""), volume("v"), claim("e", volume="v")],
        ),
        # An empty term of a volume's node affinity matches no node.
        case(
            "each claim whose volume keeps a node out",
            [A1, B1, C1],
            using("c", "d"),
            storage=[*held("c", terms=[{}, *in_zone("a"), *in_zone("x")]), *held("d", terms=in_zone("b"))],
        ),
        case(
            "each volume whose label keeps a node out",
            [A1, B1, C1],
            using("c", "d"),
            storage=[*held("c", labels={ZONE: "a"}), *held("d", labels={ZONE: "b"})],
        ),
        case(
            "two claims that want the same volume",
            [A1],
            using("c", "d"),
            storage=[storage_class("s", BY_HAND), volume("v", "s"), claim("c", "s"), claim("d", "s")],
        ),
        case(
            "as many pods leave as the driver lacks volumes",
            [A1],
            using("c", "d"),
            "RemovePod",
            pods=[using("theirs", name="other", on="a1")],
            storage=[*held("c"), *held("d"), *held("theirs"), TWO_OF_D],
        ),
        case(
            "a volume is detached once the last of its pods has left",
            [A1],
            using("c"),
            "RemovePod",
            pods=[using("d", name=name, on="a1") for name in ("first", "second")],
            storage=[*held("c"), *held("d"), ONE_OF_D],
        ),
        case(
            "a volume that is attached without a pod leaves nothing to suggest",
            [A1],
            using("c"),
            storage=[*held("c"), volume("w"), attachment("x", "w", "a1"), ONE_OF_D],
        ),
        case(
            "the pod that uses a claim alone, and none beside it",
            [A1, B1],
            using("c"),
            "RemovePod",
            pods=[using("c", name="other", on="a1"), using(name="beside", on="a1"), namesake()],
            storage=[volume("v", claimed_by="default/c"), claim("c", volume="v", modes=["ReadWriteOncePod"])],
        ),
        case(
            "the pods that hold a disk",
            [A1],
            with_volumes(X),
            "RemovePod",
            pods=[with_volumes(X, name="other", on="a1"), with_volumes(Y, name="beside", on="a1")],
        ),
    ],
)
def test_what_keeps_a_node_out_is_told_with_what_would_help(
    cluster: Cluster, pod: Json, kinds: str, snapshot: SnapshotAssertion
) -> None:
    check(cluster, pod, kinds, snapshot)
