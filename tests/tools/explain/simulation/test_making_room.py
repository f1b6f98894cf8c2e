"""Pods that find room only once others leave: which of them `simulate` places, and whom it evicts for that."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from scheduler.daemon.settings.loading import default_settings, parse_settings
from scheduler.engine.model.instructions import Bind
from scheduler.engine.model.pod_groups import GroupKey, GroupKind, PodGroup
from scheduler.engine.model.semantics import DEFAULT_SEMANTICS, Gate, semantics_of
from scheduler.engine.model.stimuli import PodGroupSeen, PodSeen
from scheduler.tools.explain.answers import explain_pod
from scheduler.tools.explain.scenarios import simulate_copies, simulate_drain
from scheduler.tools.explain.simulation.loaded_cluster import LoadedCluster
from tests.support import build
from tests.support.build import Json
from tests.support.driving import NAME, Driver, each_of
from tests.support.json_cluster import Cluster, decoded, loaded, zoned

#: Before Kubernetes 1.33: a pod that others were evicted for waits until its backoff is over.
WAITS = semantics_of(DEFAULT_SEMANTICS.version, {Gate.SCHEDULER_POP_FROM_BACKOFF_Q: False})
GROUPED: Any = {"schedulingGroup": {"podGroupName": "g"}}


def on(node: str, name: str, cpu: str = "1", priority: int = 0, *, ends: bool = False, **spec: Any) -> Json:
    """Return a pod that runs on the node, or ends there."""
    spec = {"schedulerName": NAME, "priority": priority, **spec}
    owner = build.owned_by("ReplicaSet", "web")
    return build.pod(
        name,
        labels={"app": name},
        node=node,
        cpu=cpu,
        terminating=ends,
        owner=owner,
        phase="Running",
        spec=spec,
    )


def of_group(**fields: Any) -> PodGroup:
    return PodGroup(GroupKey(GroupKind.KUBERNETES, "default", "g"), 1, **fields)


def case(
    id_: str, pods: list[Json], placed: int, evicted: str = "", group: PodGroup | None = None, **spec: Any
) -> Any:
    return pytest.param(pods, spec, group, placed, evicted.split(), id=id_)


TWO = zoned("a1 b1", allocatable={"cpu": "2", "pods": "9"})
#: Once its last peer has left, the pod is its own: it may go to any zone.
NEAR = build.affinity(required=[build.term(build.ZONE, build.selector("app=peer"))])
ENDING = on("a1", "ending", "2", 5, ends=True)


def test_copies_of_a_nominated_pod_are_not_nominated() -> None:
    """The other node is emptier than the one that it is nominated to."""
    cluster = LoadedCluster(default_settings(), Cluster(TWO, [on("a1", "runs")]).state())
    nominated = build.pod("p", cpu="1", spec={"schedulerName": NAME})
    nominated["status"]["nominatedNodeName"] = "a1"
    answer = simulate_copies(cluster, decoded(nominated), 1, random.Random(1))
    assert [share.node for share in answer.nodes] == ["b1"]


@pytest.mark.parametrize("waits", [False, True], ids=["at once", "after a backoff"])
@pytest.mark.parametrize(
    ("pods", "spec", "group", "placed", "evicted"),
    [
        case("pods of lower priority end", [ENDING], 1),
        case("one of its own priority does not", [on("a1", "ending", "2", 9, ends=True)], 0),
        case("not for a pod that never preempts", [ENDING], 0, preemptionPolicy="Never"),
        case("others are evicted", [on("a1", "low1"), on("a1", "low2")], 1, "low1 low2"),
        case("others end and are evicted", [on("a1", "e", ends=True), on("a1", "low")], 1, "low"),
        case(
            "a group has a priority of its own",
            [ENDING],
            1,
            "",
            of_group(api_version="v1alpha2", priority=9),
            priority=0,
            **GROUPED,
        ),
        case(
            "as which its members end",
            [on("a1", "ending", "2", ends=True, **GROUPED), on("b1", "runs", **GROUPED)],
            0,
            "",
            of_group(priority=9),
        ),
        case(
            "a victim is spared",
            [on("a1", "peer", priority=1), on("a1", "low")],
            1,
            "peer",
            affinity=NEAR,
            nodeSelector={},
        ),
        case(
            "a group is evicted whole",
            [on("a1", "m1", "2", **GROUPED), on("b1", "m2", **GROUPED), on("b1", "stays", priority=9)],
            1,
            "m1 m2",
            of_group(is_disrupted_whole=True),
        ),
    ],
)
def test_a_pod_is_placed_once_others_leave(
    pods: list[Json], spec: Json, group: PodGroup | None, placed: int, evicted: list[str], *, waits: bool
) -> None:
    settings = default_settings()
    settings = replace(settings, semantics=WAITS) if waits else settings
    cluster = LoadedCluster(settings, Cluster(TWO, pods).state())
    cluster.now_s = 1000.0
    if group is not None:
        cluster.apply(PodGroupSeen(group))
    high = build.pod(
        "high",
        labels={"app": "peer"},
        cpu="2",
        node_selector={build.ZONE: "a"},
        spec={"schedulerName": NAME, "priority": 9, **spec},
    )
    answer = simulate_copies(cluster, decoded(high), 1, random.Random(1))
    assert (answer.n_placed, sorted(victim.name for victim in answer.victims)) == (placed, evicted)


def test_pods_end_for_the_highest_priority_that_waits() -> None:
    """Beside it waits a pod of low priority, which fits nowhere."""
    pods = [on("b1", "high", "2", 9), on("b1", "low", "3"), ENDING]
    cluster = LoadedCluster(default_settings(), Cluster(TWO, pods).state())
    answer = simulate_drain(cluster, ["b1"], None, random.Random(1))
    assert {each.pod: each.to for each in answer.leaving} == {"high": "a1", "low": ""}


@pytest.mark.parametrize(
    ("of", "asked_of", "counts"), [(NAME, NAME, True), ("other", NAME, False), ("other", "other", True)]
)
def test_a_nomination_counts_for_pods_of_its_scheduler(of: str, asked_of: str, *, counts: bool) -> None:
    """As in the machine, which binds the new pod beside one that another scheduler nominated."""
    nominated = build.pod("nominated", cpu="2", spec={"schedulerName": of})
    nominated["status"]["nominatedNodeName"] = "a1"
    new = decoded(build.pod("new", cpu="1", spec={"schedulerName": asked_of}))
    state, driver = loaded({"kind": "Node", **TWO[0]}, {"kind": "Pod", **nominated}), Driver()
    driver.node("a1", allocatable={"cpu": "2", "pods": "9"})
    for pod in (decoded(nominated), new):
        driver.handle(PodSeen(pod))
    if asked_of == NAME:
        assert ("new" in [bind.pod.name for bind in each_of(driver.cycle(), Bind)]) != counts
    answer = explain_pod(state, new, None)
    assert (answer.state == "schedulable") != counts
    assert simulate_copies(state, new, 1, random.Random(1)).n_placed == (not counts)


def test_a_pod_that_its_group_ranks_above_a_nominated_one_evicts_beside_it() -> None:
    """It has a lower priority itself, so that the nomination counts, in the dry run as in the filters."""
    nominated = build.pod("nominated", cpu="1", spec={"schedulerName": NAME, "priority": 2})
    nominated["status"]["nominatedNodeName"] = "a1"
    member = decoded(build.pod("m", cpu="1", spec={"schedulerName": NAME, **GROUPED}))
    pods = [nominated, on("a1", "low")]
    cluster = loaded({"kind": "Node", **TWO[0]}, *({"kind": "Pod", **pod} for pod in pods))
    cluster.apply(PodGroupSeen(of_group(priority=5)))
    answer = simulate_copies(cluster, member, 1, random.Random(1))
    assert [victim.name for victim in answer.victims] == ["low"]


def test_a_drain_ends_though_pods_evict_each_other_for_ever() -> None:
    """A member of a group that evicts with a high priority and is evicted with a low one, and a pod between them."""
    pods = [on("b1", "member", "2", **GROUPED), on("a1", "other", "2", 5)]
    cluster = LoadedCluster(default_settings(), Cluster(TWO, pods).state())
    cluster.apply(PodGroupSeen(of_group(api_version="v1alpha2", priority=9)))
    answer = simulate_drain(cluster, ["b1"], None, random.Random(1))
    assert answer.leaving[0].to == "a1"
    assert answer.notes[-1].endswith("there is no other place for 1 of them: default/other")


IN = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["e", "m1", "m2"]}]}
KEPT = {"kind": "PodDisruptionBudget", **build.disruption_budget("kept", IN, 0)}


@pytest.mark.parametrize(
    ("pods", "note"),
    [
        ([on("a1", "e", "2", ends=True)], "room comes free on node a1, where these pods end: default/e"),
        (
            [on("a1", "e", ends=True), on("a1", "low")],
            "preemption makes room on node a1: it evicts default/low (priority 0); these end already: default/e",
        ),
        (
            [on("a1", name, **GROUPED) for name in ("m1", "m2")],
            "preemption makes room on node a1: it evicts default/m1 (priority 0), default/m2 (priority 0), "
            "against a PodDisruptionBudget for 2 of them",
        ),
    ],
)
def test_an_explanation_names_the_pods_that_are_evicted_and_counts_those_that_a_budget_keeps(
    pods: list[Json], note: str
) -> None:
    """Neither a pod that ends already; the members of a group, which are evicted together, each by itself."""
    cluster = loaded({"kind": "Node", **TWO[0]}, *({"kind": "Pod", **pod} for pod in pods), KEPT)
    cluster.apply(PodGroupSeen(of_group(is_disrupted_whole=True)))
    new = decoded(build.pod("new", cpu="2", spec={"schedulerName": NAME, "priority": 9}))
    assert explain_pod(cluster, new, None).notes[0] == note


def test_an_explanation_knows_the_budgets_even_if_no_profile_preempts() -> None:
    """They say which pods may leave, whoever evicts them."""
    config = build.configuration()
    config["profiles"][0]["plugins"] = {"postFilter": {"disabled": [{"name": "*"}]}}
    settings = parse_settings(json.dumps(config), "test")
    cluster = loaded(
        {"kind": "Node", **TWO[0]}, {"kind": "Pod", **on("a1", "e", "2")}, KEPT, settings=settings
    )
    answer = explain_pod(cluster, decoded(build.pod("new", cpu="2")), None)
    assert answer.notes[-1] == "PodDisruptionBudget default/kept refuses the eviction of default/e now"


def test_a_budget_of_all_pods_of_a_namespace_is_broken_too() -> None:
    """Preemption leaves it out, as upstream, but the disruption controller counts it."""
    every = {"kind": "PodDisruptionBudget", **build.disruption_budget("every", {}, 0)}
    cluster = loaded({"kind": "Node", **TWO[0]}, {"kind": "Pod", **on("a1", "low", "2")}, every)
    new = decoded(build.pod("new", cpu="2", spec={"schedulerName": NAME, "priority": 9}))
    assert explain_pod(cluster, new, None).notes[0] == (
        "preemption makes room on node a1: it evicts default/low (priority 0), "
        "against a PodDisruptionBudget for 1 of them"
    )
    answer = simulate_copies(cluster, new, 1, random.Random(1))
    assert [victim.budget for victim in answer.victims] == ["every"]
