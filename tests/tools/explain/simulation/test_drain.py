"""Draining nodes of a copy of the cluster: which pods leave, when, and for where."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.engine.framework.kinds import KINDS
from scheduler.engine.model.disruption_budgets import DisruptionBudget
from scheduler.engine.model.fallback import FALLBACK, RELAXED
from scheduler.engine.model.pods import DEFAULT_SCHEDULER_NAME, Resize
from scheduler.engine.model.terms import CORDON_TAINT_KEY
from scheduler.engine.state.audit import differences
from scheduler.engine.state.cluster import ClusterState
from scheduler.tools.explain.scenarios import simulate_drain
from scheduler.tools.explain.simulation.drain import Drain, Move, Stay, empty_nodes, move_pods
from scheduler.tools.explain.simulation.loaded_cluster import LoadedCluster
from tests.support import build
from tests.support.device_documents import DRIVER, device_class, device_slice, resource_claim, using_claims
from tests.support.json_cluster import SETTINGS, Cluster, encoded, zoned
from tests.support.storage_objects import claim, storage_class, volume


def web(name: str, node: str, *, cpu: str = "1", owner: str = "ReplicaSet", **more: Any) -> build.Json:
    version = "v1" if owner == "Node" else "apps/v1"
    controller = build.owned_by(owner, "web", api_version=version) if owner else None
    more = {"labels": {"app": "web"}, "owner": controller, "phase": "Running", **more}
    return build.pod(name, node=node, cpu=cpu, **more)


def budget(allowed: int, name: str = "web", app: str = "web") -> DisruptionBudget:
    document = build.disruption_budget(name, build.selector(f"app={app}"), allowed)
    found: DisruptionBudget = KINDS["PodDisruptionBudget"].decode(encoded(document))
    return found


def drained(
    state: ClusterState, *names: str, budgets: list[DisruptionBudget] | None = None, stays: bool = True
) -> tuple[dict[str, tuple[int, str, str]], list[tuple[Stay, str]], list[Move]]:
    """Return round, new node and holding budget by pod; the pods without a replacement; and the moves."""
    leaving, staying = empty_nodes(state, names, stays=stays)
    world = LoadedCluster(SETTINGS, state).world(random.Random(1), [DEFAULT_SCHEDULER_NAME])
    moves = move_pods(leaving, world, budgets or [])
    assert differences(state) == []
    found = {pod.name: (shown.round, shown.to, shown.held_by) for pod, _, shown in moves}
    return found, [(why, pod.name) for why, pod in staying], moves


def simulated(cluster: Cluster, *budgets: DisruptionBudget) -> Drain:
    state = cluster.state()
    for each in budgets:
        state.budgets.upsert(each)
    return simulate_drain(LoadedCluster(SETTINGS, state), ["a1"], None, random.Random(1))


URGENT: build.Json = {"labels": {"app": "urgent"}, "spec": {"priority": 9}}


def unplaced(moves: list[Move]) -> dict[str, str]:
    """Return why pods that left have no place, by their UIDs."""
    return {pod.uid: shown.message for pod, _, shown in moves if shown.is_homeless}


def test_pods_leave_as_with_kubectl_drain() -> None:
    """DaemonSet and static pods stay; a pod without a controller and a terminating one are not made anew."""
    cluster = Cluster(
        zoned("a1 b1"),
        [
            web("r", "a1"),
            web("d", "a1", owner="DaemonSet"),
            web("s", "a1", owner="Node"),
            web("bare", "a1", owner=""),
            web("t", "a1", terminating=True),
            web("other", "b1"),
        ],
    )
    state = cluster.state()
    found, staying, _ = drained(state, "a1")
    assert found == {"r": (1, "b1", "")}
    assert sorted(staying) == [
        (Stay.DAEMON_SET, "d"),
        (Stay.NO_CONTROLLER, "bare"),
        (Stay.STATIC, "s"),
        (Stay.TERMINATING, "t"),
    ]
    on_a1 = {p.pod.name for p in state.placed_on(state.nodes.row_by_name["a1"])}
    assert on_a1 == {"d", "s", "bare"}
    node = state.node("a1")
    assert node is not None
    assert node.unschedulable
    assert [taint.key for taint in node.taints] == [CORDON_TAINT_KEY]


def test_a_budget_lets_pods_go_one_after_another() -> None:
    """Each replacement that is placed gives the disruption back; one that finds no place keeps it."""
    pods = [web(f"w{n}", "a1", cpu="2") for n in range(3)]
    roomy = Cluster(zoned("a1 b1 c1", allocatable={"cpu": "8", "pods": "9"}), pods)
    found, _, moves = drained(roomy.state(), "a1", budgets=[budget(1)])
    assert [found[name][0] for name in ("w0", "w1", "w2")] == [1, 2, 3]
    narrow = Cluster(
        zoned("a1", allocatable={"cpu": "8", "pods": "9"})
        + zoned("b1", allocatable={"cpu": "2", "pods": "9"}),
        pods,
    )
    found, _, moves = drained(narrow.state(), "a1", budgets=[budget(1)])
    assert found == {"w0": (1, "b1", ""), "w1": (2, "", ""), "w2": (0, "", "default/web")}
    (message,) = unplaced(moves).values()
    assert message.startswith("0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable.")


@pytest.mark.parametrize(
    ("budgets", "phase", "expected"),
    [
        ([budget(0)], "Running", (0, "", "default/web")),
        ([budget(0)], "Pending", (1, "b1", "")),
        ([budget(1), budget(1, "too")], "Running", (0, "", "default/too and default/web")),
        ([budget(0, app="other")], "Running", (1, "b1", "")),
    ],
)
def test_budgets_count_as_the_eviction_api_counts_them(
    budgets: list[DisruptionBudget], phase: str, expected: tuple[int, str, str]
) -> None:
    pod = web("w", "a1")
    pod["status"]["phase"] = phase
    found, _, _ = drained(Cluster(zoned("a1 b1"), [pod]).state(), "a1", budgets=budgets)
    assert found == {"w": expected}


def test_a_pod_is_tried_again_once_others_have_moved() -> None:
    """The urgent pod may not be in the zone of b-pods, and the second of these leaves the zone in the second round."""
    away = build.affinity(anti_required=[build.term(build.ZONE, build.selector("app=b"))])
    urgent = web("urgent", "a1", affinity=away, node_selector={build.ZONE: "b"}, spec={"priority": 9})
    others = [web(f"b{n}", "b1", node_selector={build.ZONE: "c"}) for n in range(2)]
    for pod in others:
        pod["metadata"]["labels"] = {"app": "b"}
    state = Cluster(zoned("a1 b1 b2 c1"), [urgent, *others]).state()
    found, _, _ = drained(state, "a1", "b1", budgets=[budget(1, app="b")])
    assert found == {"urgent": (1, "b2", ""), "b0": (1, "c1", ""), "b1": (2, "c1", "")}


def test_pods_of_lower_priority_make_room_and_are_made_anew_elsewhere() -> None:
    """The urgent pod is let to b1 alone; of the pods there one finds room on c1, and the other none."""
    urgent = web("urgent", "a1", cpu="2", node_selector={build.ZONE: "b"}, spec={"priority": 9})
    lower = [web(f"low{n}", "b1") for n in range(2)]
    nodes = zoned("a1 b1", allocatable={"cpu": "2", "pods": "9"}) + zoned(
        "c1", allocatable={"cpu": "1", "pods": "9"}
    )
    cluster = Cluster(nodes, [urgent, *lower])
    state = cluster.state()
    found, _, _ = drained(state, "a1")
    assert found == {"urgent": (1, "b1", "")}
    assert sorted((p.pod.name, p.pod.node_name) for p in state.placed.values() if p.pod.name != "urgent") in (
        [("low0", "c1")],
        [("low1", "c1")],
    )
    (note,) = simulated(cluster).notes[1:]
    start = "2 pods of lower priority would be evicted for these; there is no other place for 1 of them: default/low"
    assert note.startswith(start)


def test_a_pod_without_a_place_counts_in_its_budget_however_it_left() -> None:
    """The urgent pod evicts the one of b1, which has no other place: the drained node keeps its last one."""
    urgent = web("urgent", "a1", cpu="2", node_selector={build.ZONE: "b"}, **URGENT)
    pods = [urgent, web("w0", "a1"), web("w1", "a1"), web("low", "b1", cpu="2")]
    cluster = Cluster(zoned("a1 b1 c1", allocatable={"cpu": "2", "pods": "9"}), pods)
    answer = simulated(cluster, budget(1))
    assert [(one.pod, one.round, one.to, one.held_by) for one in answer.leaving] == [
        ("urgent", 1, "b1", ""),
        ("w0", 1, "c1", ""),
        ("w1", 0, "", "default/web"),
    ]


def test_preemption_spares_pods_of_a_budget_that_the_drain_has_used_up() -> None:
    """Else it would evict the pod of the lowest priority."""
    batch = web("batch", "b2", labels={"app": "batch"}, spec={"priority": 1})
    urgent = web("urgent", "a1", node_selector={build.ZONE: "b"}, **URGENT)
    pods = [urgent, web("w0", "a1", node_selector={build.ZONE: "c"}), web("low", "b1"), batch]
    cluster = Cluster(zoned("a1 b1 b2", allocatable={"cpu": "1", "pods": "9"}), pods)
    answer = simulated(cluster, budget(1))
    assert [(one.pod, one.to) for one in answer.leaving] == [("urgent", "b2"), ("w0", "")]


def test_what_would_help_leads_to_no_drained_node() -> None:
    """Neither by making the node schedulable again nor by tolerating its cordon; room elsewhere helps."""
    cluster = Cluster(zoned("a1 b1", allocatable={"cpu": "1", "pods": "9"}), [web("w", "a1"), web("v", "b1")])
    answer = simulated(cluster)
    assert answer.next is not None
    assert {suggestion.node for suggestion in answer.next.suggestions} == {"b1"}


def test_a_pod_stays_with_its_volume() -> None:
    """Bound to zone a, it finds no place when the zone is gone, and one in the zone when only its node is."""
    pod = web("db", "a1", owner="StatefulSet")
    pod["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    in_zone = [build.node_term(f"{build.ZONE} in a")]
    storage = [
        claim("data", volume="pv", bound=True),
        volume("pv", terms=in_zone, claimed_by="default/data", claim_uid="default-data", phase="Bound"),
    ]
    cluster = Cluster(zoned("a1 a2 b1"), [pod], storage=storage)
    found, _, moves = drained(cluster.state(), "a1")
    assert (found["db"][1], unplaced(moves)) == ("a2", {})
    found, _, moves = drained(cluster.state(), "a1", "a2", stays=False)
    assert found["db"][1] == ""
    (message,) = unplaced(moves).values()
    assert message.startswith(
        "0/1 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity."
    )


def test_an_ephemeral_volume_is_made_anew_where_its_pod_goes() -> None:
    """Its old volume, which only a1 reaches, is deleted with the old pod; the new one is reached from the new node."""
    pod = web("db", "a1")
    pod["spec"]["volumes"] = [{"name": "v", "ephemeral": {}}]
    on_a1 = [build.node_term(f"{build.ZONE} in a")]
    key, uid = "default/db-v", "default-db-v"
    storage = [
        storage_class("late"),
        claim("db-v", "late", volume="pv", owner=pod["metadata"]["uid"]),
        volume("pv", "late", terms=on_a1, claimed_by=key, claim_uid=uid, phase="Bound"),
    ]
    state = Cluster(zoned("a1 b1"), [pod], storage=storage).state()
    assert drained(state, "a1")[0]["db"][1] == "b1"
    renewed = state.volumes.claim(key)
    assert renewed is not None
    assert (renewed.is_bound, renewed.selected_node, state.volumes.volume("pv")) == (True, "b1", None)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["a1", "a2", "b1", "c1"]), st.integers(1, 3)), max_size=12),
    st.integers(0, 3),
)
def test_every_pod_is_accounted_for(pods: list[tuple[str, int]], allowed: int) -> None:
    """Placed elsewhere, without a place, or held; and never more away at once than the budget allows."""
    objects = [web(f"w{n}", node, cpu=str(cpu)) for n, (node, cpu) in enumerate(pods)]
    state = Cluster(zoned("a1 a2 b1 c1", allocatable={"cpu": "9", "pods": "9"}), objects).state()
    left = {f"w{n}" for n, (node, _) in enumerate(pods) if node.startswith("a")}
    found, _, moves = drained(state, "a1", "a2", budgets=[budget(allowed)])
    assert set(found) == left
    assert all(
        (bool(to), bool(held), round_ == 0)
        in {(True, False, False), (False, False, False), (False, True, True)}
        for round_, to, held in found.values()
    )
    assert all(not to.startswith("a") for _, to, _ in found.values())
    assert len(unplaced(moves)) <= allowed
    rounds = [round_ for round_, _, _ in found.values() if round_]
    assert all(rounds.count(round_) <= allowed for round_ in rounds)
    placed = {p.pod.name for p in state.placed.values()}
    assert placed == {f"w{n}" for n in range(len(pods))} - {
        u.removeprefix("uid-default-") for u in unplaced(moves)
    }


def test_a_replacement_has_no_trace_of_its_node() -> None:
    state = Cluster(zoned("a1"), [web("w", "a1")]).state()
    (placed,) = state.placed.values()
    pod = replace(placed.pod, resize=Resize({}, None, {}, infeasible=False)).recreated()
    assert (pod.node_name, pod.phase, pod.resize, pod.labels) == ("", "Pending", None, {"app": "web"})


@pytest.mark.parametrize("is_templates", [False, True])
def test_the_devices_of_a_pod_are_free_and_its_replacement_takes_others(is_templates: bool) -> None:
    """A claim made from a template is made anew with the pod; one of a name is released by its last pod."""
    pod = web("w", "a1", spec=using_claims("c"))
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a1"]}]}
    results = [{"request": "r", "driver": DRIVER, "pool": "a1", "device": "gpu-0"}]
    made = resource_claim(
        "c",
        allocation={"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [term]}},
        reservedFor=[{"resource": "pods", "name": "w", "uid": pod["metadata"]["uid"]}],
    )
    if is_templates:
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "w", "controller": True}
        made["metadata"]["ownerReferences"] = [{**owner, "uid": pod["metadata"]["uid"]}]
    devices = [device_class(), device_slice("a1", 1), device_slice("b1", 1), made]
    state = Cluster(zoned("a1 b1"), [pod], devices=devices).state()
    found, _, _ = drained(state, "a1")
    assert found == {"w": (1, "b1", "")}
    assert [str(device) for device in state.devices.allocated.dedicated] == [f"{DRIVER}/b1/gpu-0"]


def quorum(name: str, node: str, **annotations: str) -> build.Json:
    """Return a replica with a zone of its own, unless that keeps it pending for 15 s."""
    rule = {"rule": "podAntiAffinity", "topologyKey": build.ZONE, "afterSeconds": 15}
    annotations = {FALLBACK: json.dumps([rule])} | annotations
    apart = build.affinity(anti_required=[build.term(build.ZONE, build.selector("app=web"))])
    return web(name, node, affinity=apart, annotations=annotations)


@pytest.mark.parametrize("was_relaxed", [False, True])
def test_a_replacement_waits_for_its_fallback_whatever_its_predecessor_had_waited(
    *, was_relaxed: bool
) -> None:
    pods = [quorum("w0", "a1"), quorum("w1", "b1")]
    if was_relaxed:
        name = f"podAntiAffinity by {build.ZONE}"
        pods[0]["metadata"]["annotations"][RELAXED] = json.dumps([{"rule": name, "why": "it waited"}])
    cluster = Cluster(zoned("a1 b1 b2"), pods)
    answer = simulated(cluster)
    assert (answer.n_placed, answer.leaving[0].to, answer.next) == (1, "b2", None)
    assert answer.notes[-1] == (
        f"1 pod fits only once podAntiAffinity by {build.ZONE} counts as preferred with weight 100, after 15 s: "
        "default/w0"
    )


def test_a_replacement_keeps_a_rule_with_a_fallback_where_it_can() -> None:
    answer = simulated(Cluster(zoned("a1 b1 c1"), [quorum("w0", "a1"), quorum("w1", "b1")]))
    assert answer.leaving[0].to == "c1"
    assert not any("only once" in note for note in answer.notes)
