"""Groups in explanations and simulations: as the machine places them."""

from __future__ import annotations

import random
from typing import Any, Final

import pytest

from scheduler.daemon.settings.loading import default_settings
from scheduler.engine.framework.kinds import KINDS
from scheduler.engine.model.instructions import Bind
from scheduler.engine.model.nodes import decode_node
from scheduler.engine.model.pod_groups import GROUP, MIN_COUNT
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import NodeSeen, PodGroupSeen, PodSeen, Stimulus
from scheduler.tools.explain.answers import explain_pod
from scheduler.tools.explain.formats.manifests import parse_manifest
from scheduler.tools.explain.scenarios import simulate_manifests
from scheduler.tools.explain.simulation.loaded_cluster import LoadedCluster
from scheduler.tools.explain.simulation.replicas import Simulation
from tests.support import build
from tests.support.build import Json
from tests.support.custom_kinds import KUBERNETES, group
from tests.support.driving import NAME, Driver, each_of
from tests.support.json_cluster import decoded, encoded
from tests.support.workloads import workload

ANOTHER: Final = (
    "pod group default/train runs already, with 3 members: the answer is about another group like it, "
    "default/train-3"
)


def node(name: str, cpu: str) -> NodeSeen:
    return NodeSeen(decode_node(encoded(build.node(name, allocatable={"cpu": cpu, "pods": "20"}))))


def pod(name: str, *, cpu: str = "1", priority: int = 0, **more: Any) -> Pod:
    spec = {"schedulerName": NAME, "priority": priority, **more.pop("spec", {})}
    return decoded(build.pod(name, cpu=cpu, spec=spec, **more))


def of_train(name: str, **more: Any) -> Pod:
    return pod(name, spec={"schedulingGroup": {"podGroupName": "train"}}, **more)


def placed_once(min_count: int) -> PodGroupSeen:
    """Return a PodGroup whose status says that it was placed."""
    document = group(KUBERNETES, "train", {"schedulingPolicy": {"gang": {"minCount": min_count}}})
    document["metadata"]["namespace"] = "default"
    document["status"] = {"conditions": [{"type": "PodGroupScheduled", "status": "True"}]}
    return PodGroupSeen(KINDS["PodGroup.v1alpha2.scheduling.k8s.io"].decode(encoded(document)))


def loaded(*seen: Stimulus) -> LoadedCluster:
    cluster = LoadedCluster(default_settings())
    for stimulus in seen:
        cluster.apply(stimulus)
    return cluster


def test_a_member_that_was_created_anew_is_placed_with_a_group_that_lost_another() -> None:
    """Of a whole group of four two run, one has gone for good, and one is new: the machine binds it at once."""
    new = of_train("new")
    seen: tuple[Stimulus, ...] = (
        node("n", "8"),
        placed_once(4),
        *(PodSeen(of_train(f"m{n}", node="n")) for n in (0, 1)),
        PodSeen(new),
    )
    driver = Driver()
    for stimulus in seen:
        driver.handle(stimulus)
    assert [type(one) for one in each_of(driver.cycle(), Bind)] == [Bind]
    answer = explain_pod(loaded(*seen), new, None)
    assert (answer.state, answer.message) == (
        "schedulable",
        "fits with 1 pod of its group; n would be chosen now",
    )


def test_a_group_without_enough_members_waits_in_the_words_of_its_condition() -> None:
    seen = (node("n", "8"), PodSeen(pod("m0", labels={GROUP: "small", MIN_COUNT: "3"})))
    cluster = loaded(*seen)
    (member,) = cluster.pods.values()
    answer = explain_pod(cluster, member, None)
    assert answer.message == (
        "pod group default/small waits until 3 of its pods exist that may be placed (minCount)"
    )
    assert cluster.state.placed.get(member.uid) is None


def test_an_explanation_names_the_pods_that_are_evicted_for_a_group() -> None:
    members = [pod(f"m{n}", priority=9, labels={GROUP: "small", MIN_COUNT: "2"}) for n in range(2)]
    lower = [PodSeen(pod(f"low{n}", node="n")) for n in range(2)]
    answer = explain_pod(loaded(node("n", "2"), *lower, *map(PodSeen, members)), members[0], None)
    assert answer.state == "unschedulable"
    assert answer.message.startswith("pod group default/small needs 2 places")
    (note,) = [note for note in answer.notes if note.startswith("preemption makes room for its group")]
    assert {name.strip() for name in note.partition("evicts ")[2].split(",")} == {
        "default/low0",
        "default/low1",
    }


def test_pods_that_a_member_would_evict_on_its_own_are_not_named() -> None:
    """The group of two has no places however many leave."""
    members = [pod(f"m{n}", priority=9, labels={GROUP: "small", MIN_COUNT: "2"}) for n in range(2)]
    cluster = loaded(node("n", "1"), PodSeen(pod("low", node="n")), *map(PodSeen, members))
    answer = explain_pod(cluster, members[0], None)
    assert "no pods of lower priority were found whose eviction makes room" in answer.message
    assert not any("it evicts" in note for note in answer.notes)


def job(priority: int) -> Json:
    """Return a StatefulSet whose three pods are a group."""
    labels = {"app": "train", GROUP: "train", MIN_COUNT: "3"}
    spec = {"schedulerName": NAME, "priority": priority}
    return workload("StatefulSet", "train", build.pod(cpu="1", labels=labels, spec=spec), 3)


def simulated(cluster: LoadedCluster, document: Json, n_replicas: int | None = None) -> Simulation:
    manifest = parse_manifest(document, namespace="default", semantics=cluster.settings.semantics)
    (simulation,) = simulate_manifests(cluster, [manifest], n_replicas, random.Random(1))
    return simulation


def test_members_of_a_simulated_group_evict_pods() -> None:
    """A node of four CPUs has three pods of lower priority: two of them make room, and no further group has any."""
    lower = [PodSeen(pod(f"low{n}", node="n")) for n in range(3)]
    simulation = simulated(loaded(node("n", "4"), *lower), job(9))
    assert (simulation.n_placed, simulation.n_evicted) == (3, 2)
    assert {victim.priority for victim in simulation.victims} == {0}
    assert simulation.n_more_groups == 0
    low = simulated(loaded(node("n", "4"), *lower), job(0))
    assert (low.n_placed, low.n_evicted, low.n_more_groups) == (0, 0, None)
    assert low.notes[0].startswith("pod group default/train needs 3 places: 1 found")


def test_further_groups_are_those_that_fit_without_evictions() -> None:
    cluster = loaded(node("n", "10"), *(PodSeen(pod(f"low{n}", node="n")) for n in range(2)))
    simulation = simulated(cluster, job(9))
    assert (simulation.n_placed, simulation.n_evicted, simulation.n_more_groups) == (3, 0, 1)
    assert simulation.notes[-1] == (
        "1 more group like default/train fits; the next does not: 1 pod of lower priority would be evicted for it"
    )
    assert len(cluster.state.placed) == 5


def other_group(*, is_own: bool) -> Pod:
    """Return the one member of a group train-2, on the node that it fills."""
    if is_own:
        return pod("other", node="far", labels={GROUP: "train-2", MIN_COUNT: "1"})
    return pod("other", node="far", spec={"schedulingGroup": {"podGroupName": "train-2"}})


def gang_job() -> Json:
    """Return a StatefulSet whose three pods are in a PodGroup."""
    spec = {"schedulerName": NAME, "schedulingGroup": {"podGroupName": "train"}}
    return workload("StatefulSet", "train", build.pod(cpu="1", labels={"app": "train"}, spec=spec), 3)


@pytest.mark.parametrize("is_own", [True, False], ids=["annotations", "PodGroup"])
@pytest.mark.parametrize(
    ("cpu", "n_replicas", "n_placed", "notes"),
    [
        pytest.param(
            "5", None, 0, (ANOTHER, "pod group default/train-3 needs 3 places: 2 found"), id="too few"
        ),
        pytest.param(
            "9", None, 3, (ANOTHER, "1 more group like default/train fits; the next does not"), id="room"
        ),
        pytest.param(
            "4",
            1,
            1,
            ("pod group default/train runs already, with 3 members: the replicas join it",),
            id="--replicas",
        ),
    ],
)
def test_beside_a_group_that_runs_another_one_is_simulated(
    cpu: str, n_replicas: int | None, n_placed: int, notes: tuple[str, ...], *, is_own: bool
) -> None:
    """Its pods would join the group that runs, which needs no further members. A group train-2 runs elsewhere."""
    labels = {"app": "train", **({GROUP: "train", MIN_COUNT: "3"} if is_own else {})}
    new_pod = pod if is_own else of_train
    cluster = loaded(
        node("n", cpu),
        node("far", "1"),
        *(() if is_own else (placed_once(3),)),
        *(PodSeen(new_pod(f"train-{n}", node="n", labels=labels)) for n in range(3)),
        PodSeen(other_group(is_own=is_own)),
    )
    simulation = simulated(cluster, job(0) if is_own else gang_job(), n_replicas)
    assert (simulation.name, simulation.n_running, simulation.n_placed) == ("train", 3, n_placed)
    assert len(simulation.notes) >= len(notes)
    assert all(map(str.startswith, simulation.notes, notes))
