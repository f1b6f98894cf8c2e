"""
The world of the simulator and a live scheduler give the same answers to the same pods.

The live one is the daemon's loop against the embedded API server, with a virtual clock. Pods come one after the other,
and the world begins each time with what the API server has.
"""

from __future__ import annotations

import asyncio
import copy
import json
import random
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.daemon.assembly.profiles import new_state
from scheduler.daemon.settings.loading import default_settings
from scheduler.engine.model.annotations import DECISION_ANNOTATION
from scheduler.engine.model.instructions import Bind, Instruction
from scheduler.engine.model.stimuli import PodSeen, Stimulus
from scheduler.sandbox.devcluster.kinds import JsonObject
from scheduler.tools.explain.simulation.loaded_cluster import LoadedCluster
from tests.proof.chaos.instance import OURS, few_instances, living
from tests.proof.chaos.journal import Journal, node_of
from tests.proof.chaos.run import repeatable
from tests.proof.chaos.venue import EMBEDDED, Setting
from tests.proof.chaos.virtual import run_virtually
from tests.support.driving import each_of
from tests.support.json_cluster import Cluster, decoded
from tests.tools.explain.random_clusters import random_cluster, random_pod

#: Pods of a run, and the seconds that each is given.
_N_PODS, _SETTLED_S = 6, 3.0
_SETTINGS = default_settings()


@dataclass(frozen=True)
class Answer:
    """Why a pod waits, or how its node was chosen. Which of equal nodes it is, is drawn by chance."""

    message: str
    evaluated: int = 0
    feasible: int = 0
    totals: tuple[int, ...] = ()
    rejected: str = ""


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_pods_go_where_the_simulator_says(seed: int) -> None:
    with repeatable(seed):
        asked = run_virtually(_live(seed))
    assert [live for live, _ in asked] == [simulated for _, simulated in asked]


async def _live(seed: int) -> list[tuple[Answer, Answer]]:
    """Return the answers of the live scheduler and of the world to each pod."""
    chance = random.Random(seed)
    cluster, subject = random_cluster(seed)
    answers = []
    journal = Journal(asyncio.get_running_loop().time)
    async with EMBEDDED.opened(journal, Setting()) as opened:
        objects = opened.server.objects
        for kind, given in (
            ("Namespace", cluster.namespaces),
            ("Node", cluster.nodes),
            ("Pod", cluster.pods),
        ):
            for obj in given:
                if obj["metadata"]["name"] not in {one["metadata"]["name"] for one in objects(kind)}:
                    await opened.server.create(kind, _new(obj))
        async with living(few_instances(opened.port, journal, opened.holder, elected=False)):
            await asyncio.sleep(_SETTLED_S)
            pods = [subject, *(random_pod(chance, f"r{n}", "default", OURS) for n in range(_N_PODS - 1))]
            for pod in pods:
                pod["spec"]["schedulerName"] = OURS
                world = Cluster(objects("Node"), objects("Pod"), objects("Namespace"))
                await opened.server.create("Pod", _new(pod))
                created = _named(objects("Pod"), pod)
                await asyncio.sleep(_SETTLED_S)
                answers.append((_answer(_named(objects("Pod"), pod)), _simulated(world, created, seed)))
    return answers


def _new(obj: JsonObject) -> JsonObject:
    made = copy.deepcopy(obj)
    made["metadata"].pop("uid", None)
    made["metadata"].pop("deletionTimestamp", None)
    return made


def _named(pods: list[JsonObject], pod: JsonObject) -> JsonObject:
    names = (pod["metadata"]["namespace"], pod["metadata"]["name"])
    return next(one for one in pods if (one["metadata"]["namespace"], one["metadata"]["name"]) == names)


def _answer(pod: JsonObject) -> Answer:
    if node_of(pod):
        return _decided(pod["metadata"]["annotations"])
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return Answer(next(one["message"] for one in conditions if one["type"] == "PodScheduled"))


def _decided(annotations: Any) -> Answer:
    record = json.loads(annotations[DECISION_ANNOTATION])
    totals = tuple(one["total"] for one in record["top"])
    return Answer(
        "",
        record["evaluated"],
        record["feasible"],
        totals,
        json.dumps(record.get("rejected"), sort_keys=True),
    )


def _simulated(cluster: Cluster, pod: JsonObject, seed: int) -> Answer:
    world = LoadedCluster(_SETTINGS, cluster.state(new_state(_SETTINGS))).world(random.Random(seed), [OURS])
    # The simulator needs no records; here they say how each node was chosen.
    world.machine._annotations = replace(world.machine._annotations, records_decisions=True)
    binds: list[Bind] = []
    handle = world.handle

    def heard(stimulus: Stimulus) -> list[Instruction]:
        instructions = handle(stimulus)
        binds.extend(each_of(instructions, Bind))
        return instructions

    world.handle = heard  # type: ignore[method-assign]  # an ear, not a replacement
    subject = decoded(pod)
    world.process(PodSeen(subject))
    world.run()
    if world.node_of(subject.uid):
        (bind,) = binds
        return _decided(bind.annotations)
    return Answer(world.message_of(subject.uid))
