"""The world answers each instruction of its machine, and what it says is what the machine does."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from scheduler.daemon.assembly.profiles import new_state
from scheduler.daemon.settings.loading import default_settings
from scheduler.engine.framework.kinds import KINDS
from scheduler.engine.model.fallback import FALLBACK
from scheduler.engine.model.nodes import decode_node
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import NodeSeen, PodSeen
from scheduler.engine.state.audit import differences
from scheduler.engine.state.batches import UNITS_PER_STEP
from scheduler.tools.explain.simulation.loaded_cluster import LoadedCluster
from scheduler.tools.explain.simulation.replicas import place_replicas
from scheduler.tools.explain.simulation.world import World
from tests.support import build
from tests.support.build import Json
from tests.support.driving import NAME
from tests.support.json_cluster import Cluster, decoded, encoded, zoned
from tests.support.storage_objects import claim, storage_class, volume


def world_of(cluster: Cluster, seed: int = 1) -> World:
    """Return a world with the cluster's objects but its pending pods."""
    settings = default_settings()
    return LoadedCluster(settings, cluster.state(new_state(settings))).world(random.Random(seed))


def pending(name: str, *, cpu: str = "1", priority: int = 0, **more: Any) -> Pod:
    spec = {"schedulerName": NAME, "priority": priority}
    return decoded(build.pod(name, cpu=cpu, spec=spec, **more))


def running(name: str, node: str, *, cpu: str = "1", priority: int = 0, **more: Any) -> Json:
    return build.pod(name, node=node, cpu=cpu, spec={"priority": priority}, **more)


def test_an_event_that_wakes_more_pods_than_one_step_moves_helps_all_of_them() -> None:
    """Each cycle binds a pod: none is spent while pods are still to be woken."""
    world = world_of(Cluster(zoned("a1", allocatable={"cpu": "1", "pods": "9"})))
    n_pods = 2 * UNITS_PER_STEP
    for number in range(n_pods):
        world.process(PodSeen(pending(f"waits-{number}")))
    world.run()
    assert world.queue.depths()["unschedulable"] == n_pods - 1
    world.process(NodeSeen(decode_node(encoded(build.node("a2", allocatable={"cpu": "900", "pods": "900"})))))
    assert not world.queue.has_backlog
    world.run()
    assert not world.unbound
    assert differences(world.state) == []


def test_victims_are_gone_and_their_budget_counts_them() -> None:
    """The second pod takes the place of one that the budget does not allow to go any more."""
    pods = [running(f"low{n}", f"a{n}", labels={"app": "low"}) for n in (1, 2)]
    world = world_of(Cluster(zoned("a1 a2", allocatable={"cpu": "1", "pods": "9"}), pods))
    budget = build.disruption_budget("kept", build.selector("app=low"), 1)
    world.state.budgets.upsert(KINDS["PodDisruptionBudget"].decode(encoded(budget)))
    placed = place_replicas([pending(f"high{n}", priority=9) for n in (1, 2)], world)
    assert [(one.name, one.budget) for one in placed.victims] in (
        [("low1", ""), ("low2", "kept")],
        [("low2", ""), ("low1", "kept")],
    )
    assert {pod.name for pod, _ in placed.pods} == {"high1", "high2"}
    assert [one.disruptions_allowed for one in world.state.budgets.within("default")] == [0]


def test_a_claim_is_bound_before_its_pod_and_a_volume_is_made_for_another() -> None:
    """The second pod shares the claim, and has to go where the volume was made."""
    storage = [
        storage_class("late"),
        storage_class("local", "kubernetes.io/no-provisioner"),
        claim("data", "late"),
        claim("disk", "local"),
        volume("pv", "local", terms=[build.node_term(f"{build.ZONE} in b")]),
    ]
    world = world_of(Cluster(zoned("a1 b1"), storage=storage))
    for name, claims in (("db", ("data",)), ("too", ("data",)), ("file", ("disk",))):
        volumes = [{"name": key, "persistentVolumeClaim": {"claimName": key}} for key in claims]
        pod = build.pod(name, spec={"schedulerName": NAME, "volumes": volumes})
        world.process(PodSeen(decoded(pod)))
    world.run()
    on = {placed.pod.name: world.node_of(uid) for uid, placed in world.state.placed.items()}
    assert on["db"] == on["too"]
    assert on["file"] == "b1"
    assert all(found is not None and found.is_bound for found in map(world.state.volumes.claim, _CLAIMS))
    assert differences(world.state) == []


_CLAIMS = ("default/data", "default/disk")


@pytest.mark.parametrize(
    ("after_s", "limit_s", "node"), [(300, 400.0, "a1"), (300, 200.0, ""), (5, 5.0, "a1")]
)
def test_the_clock_of_a_rule_runs_in_virtual_time(after_s: int, limit_s: float, node: str) -> None:
    rule = {"rule": "podAntiAffinity", "topologyKey": build.ZONE, "afterSeconds": after_s, "weight": 50}
    apart = build.affinity(anti_required=[build.term(build.ZONE, build.selector("app=web"))])
    more: Json = {"labels": {"app": "web"}, "affinity": apart, "annotations": {FALLBACK: json.dumps([rule])}}
    world = world_of(Cluster(zoned("a1"), [build.pod("first", node="a1", labels={"app": "web"})]))
    second = pending("second", **more)
    world.process(PodSeen(second))
    world.run(limit_s)
    assert world.node_of(second.uid) == node
    assert world.now_s <= limit_s
