"""explain knows of kubelets that refused such a pod, from the failed pods that are left in the cluster."""

from __future__ import annotations

import msgspec

from scheduler.cli.asking.sources import Asked
from scheduler.cli.asking.world import World
from scheduler.cli.explain import explain_asked
from scheduler.settings.loading import default_settings
from tests.support import build

ONE_CPU = [build.container(requests={"cpu": "1"})]
SPEC = {"schedulerName": "affinity-scheduler"}


def _world(*documents: build.Json) -> World:
    world = World(default_settings())
    by_kind = {watched.kind: watched for watched in world.kinds}
    for document in documents:
        raw = msgspec.Raw(msgspec.json.encode(document))
        world.see(world.decoded(by_kind[document["kind"]], raw))
    return world


def _failed(name: str, node: str, reason: str, containers: list[build.Json] = ONE_CPU) -> build.Json:
    document = build.pod(name, node=node, containers=containers, spec=SPEC, phase="Failed")
    document["status"]["reason"] = reason
    return document


def test_it_names_the_nodes_and_what_their_kubelets_said() -> None:
    world = _world(
        build.node("a"),
        build.node("b"),
        _failed("gone", "b", "OutOfcpu"),
        _failed("evicted", "a", "Evicted"),
        _failed("another", "a", "OutOfcpu", [build.container(requests={"cpu": "2"})]),
        build.pod("p", containers=ONE_CPU, spec=SPEC),
    )
    answer = explain_asked(world, Asked("default", "p"))
    assert answer is not None
    (note,) = answer.notes
    assert note.startswith("pods of the same spec were refused by the kubelet of b (OutOfcpu); ")


def test_without_failed_pods_it_says_nothing_of_them() -> None:
    world = _world(build.node("a"), build.pod("p", containers=ONE_CPU, spec=SPEC))
    answer = explain_asked(world, Asked("default", "p"))
    assert answer is not None
    assert answer.notes == ()
