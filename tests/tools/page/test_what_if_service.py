"""Questions are answered one at a time, a bounded number waits, and slices leave time to others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator

import pytest

from scheduler.daemon.loop.slices import in_pieces, in_slices
from scheduler.daemon.settings.loading import default_settings
from scheduler.engine.model.nodes import decode_node
from scheduler.engine.model.stimuli import PodSeen
from scheduler.engine.state.cluster import ClusterState
from scheduler.errors import SettingsError
from scheduler.tools.explain.simulation.loaded_cluster import LoadedCluster
from scheduler.tools.page.what_if import PodName, WhatIfRequest
from scheduler.tools.page.what_if_service import BusyError, WhatIfService
from tests.support.build import node, pod
from tests.support.device_documents import device_slice
from tests.support.driving import NAME, Driver, bind_of, condition_of
from tests.support.json_cluster import encoded


async def test_questions_wait_for_each_other_and_a_ninth_is_sent_away() -> None:
    service = WhatIfService(default_settings(), ClusterState(), now_s=time.monotonic)
    release, n_inside, most_inside = asyncio.Event(), 0, 0

    async def question() -> None:
        nonlocal n_inside, most_inside
        async with service.turn():
            n_inside += 1
            most_inside = max(most_inside, n_inside)
            await release.wait()
            n_inside -= 1

    async with asyncio.TaskGroup() as questions:
        for _ in range(8):
            questions.create_task(question())
        await asyncio.sleep(0)
        with pytest.raises(BusyError) as busy:
            async with service.turn():
                pass
        assert busy.value.retry_after_s >= 1
        release.set()
    assert (n_inside, most_inside) == (0, 1)


@pytest.mark.parametrize(("took_s", "pause_s"), [(0.5, 4.5), (2.0, 10.0)])
async def test_an_answer_is_followed_by_a_pause_of_nine_times_its_time(took_s: float, pause_s: float) -> None:
    now_s = 100.0
    service = WhatIfService(default_settings(), ClusterState(), now_s=lambda: now_s)
    async with service.turn():
        now_s += took_s
    assert service._paused_until_s == now_s + pause_s


async def test_work_in_slices_lets_others_run() -> None:
    """The value is the generator's; between two slices the event loop turns."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def work() -> Generator[None, None, str]:
        clock_s = 0.0
        for _ in range(50):
            clock_s += 0.001
            now.append(clock_s)
            yield
        return "done"

    now = [0.0]
    counting = asyncio.create_task(count())
    assert await in_slices(work(), ClusterState(), pause_factor=lambda: 1.0, now_s=lambda: now[-1]) == "done"
    assert turns > 20
    turns, now[:] = 0, [0.0]
    assert await in_pieces(work(), now_s=lambda: now[-1]) == "done"
    assert turns >= 9
    counting.cancel()


async def test_a_copy_knows_the_nodes_whose_kubelet_refuses_the_pod() -> None:
    """Also for further pods like it, for which no time passes."""
    driver = Driver()
    driver.node("only", allocatable={"cpu": "2", "pods": "9"})
    first = driver.confirm(driver.pod("first", cpu="1"), bind_of(driver.cycle()).node_name)
    failed = pod(first.name, uid=first.uid, node="only", cpu="1", spec={"schedulerName": NAME})
    failed["status"] = {"phase": "Failed", "reason": "OutOfcpu"}
    driver.handle(PodSeen(driver.decoded(failed)))
    second = driver.pod("second", cpu="1")
    message = condition_of(driver.cycle()).message
    assert message.startswith("0/1 nodes are available")
    service = WhatIfService(default_settings(), driver.state, now_s=lambda: driver.now_s)
    answer = await service.changes_for(second, [second])
    assert (answer.state, answer.message) == ("unschedulable", message)
    what_if = await service.answer(WhatIfRequest(like=PodName("default", "second")), second)
    assert what_if.then[0].n_placed == 0


async def test_a_node_to_drain_has_to_exist() -> None:
    service = WhatIfService(default_settings(), Driver().state, now_s=time.monotonic)
    with pytest.raises(SettingsError, match="drain: found gone, expected the name of a node"):
        await service.answer(WhatIfRequest(drain=("gone",)))


#: Two replicas of the class `%s`; of these, `high` is in the manifest.
WORKLOAD = """
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 9}
---
apiVersion: v1
kind: ReplicationController
metadata: {name: web}
spec:
  replicas: 2
  template: {spec: {priorityClassName: %s, containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}}
"""
#: A Job of three of the six members of a group.
HALF_OF_GROUP = """
apiVersion: batch/v1
kind: Job
metadata: {name: %s}
spec:
  parallelism: 3
  completions: 3
  template:
    metadata: {labels: {affinity-scheduler.io/pod-group: g, affinity-scheduler.io/pod-group-min-count: "6"}}
    spec:
      schedulerName: affinity-scheduler
      containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]
      resourceClaims: [{name: g, resourceClaimTemplateName: gpu}]
---
"""
#: In an earlier version of the API.
CLAIMED = """
{apiVersion: resource.k8s.io/v1beta1, kind: DeviceClass, metadata: {name: gpu}, spec: {}}
---
apiVersion: resource.k8s.io/v1beta1
kind: ResourceClaimTemplate
metadata: {name: gpu}
spec: {spec: {devices: {requests: [{name: r, deviceClassName: gpu}]}}}
"""


@pytest.mark.parametrize(
    ("priority_class", "n_placed", "told"),
    [
        pytest.param("high", 2, "read ReplicationController, PriorityClass", id="of the manifest"),
        pytest.param("system-node-critical", 2, "read ReplicationController, PriorityClass", id="built in"),
        pytest.param(
            "gold",
            0,
            "the page reads no PriorityClasses of the cluster: priority 0 is assumed, not gold's",
            id="unknown",
        ),
    ],
)
async def test_pods_have_the_priority_of_their_class(priority_class: str, n_placed: int, told: str) -> None:
    """The node is full of pods of lower priority, which are evicted for them."""
    driver = Driver()
    driver.node("n", allocatable={"cpu": "2", "pods": "9"})
    for name in ("a", "b"):
        driver.pod(name, node="n", priority=0, cpu="1")
    service = WhatIfService(default_settings(), driver.state, now_s=lambda: driver.now_s)
    answer = await service.answer(WhatIfRequest(manifest=WORKLOAD % priority_class))
    (simulation,) = answer.then
    assert (simulation.n_placed, simulation.n_evicted) == (n_placed, n_placed)
    assert told in answer.notes


async def test_the_manifests_of_a_group_are_placed_together() -> None:
    """As `simulate` has it: all six members are needed, and each finds its place and a device."""
    settings = default_settings()
    cluster = LoadedCluster(settings)
    cluster.state.nodes.upsert(decode_node(encoded(node("a", allocatable={"cpu": "6", "pods": "9"}))))
    slices = next(row for row in cluster.kinds if row.name == "ResourceSlice")
    cluster.create(slices, device_slice("a", 6))
    service = WhatIfService(settings, cluster.state, now_s=time.monotonic)
    manifest = HALF_OF_GROUP % "a" + HALF_OF_GROUP % "b" + CLAIMED
    answer = await service.answer(WhatIfRequest(manifest=manifest))
    assert [simulation.n_placed for simulation in answer.then] == [3, 3]
    assert answer.notes[0] == "read Job (2), DeviceClass, ResourceClaimTemplate"
