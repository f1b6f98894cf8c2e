"""Preemption and pods that wait for their volumes: as victims, and as the pod that others are evicted for."""

from __future__ import annotations

from scheduler.engine.model.instructions import EmitEvent, Instruction, PatchCondition
from scheduler.engine.model.volumes import StorageKind
from tests.engine.core.preempting import end_eviction, leave, sized_pod
from tests.engine.core.volume_cluster import VolumeCluster
from tests.support.driving import bind_of, each_of, evictions
from tests.support.storage_objects import claim


def _cluster() -> VolumeCluster:
    """Return a cluster of one node with room for one pod, and claim c, whose volume is not made yet."""
    cluster = VolumeCluster(nodes=())
    cluster.node("a", allocatable={"cpu": "1"})
    cluster.apply(claim("c", "made"))
    return cluster


def _notes(told: list[Instruction], reason: str) -> list[tuple[str, str]]:
    return [(one.pod.name, one.note) for one in told if isinstance(one, EmitEvent) and one.reason == reason]


def test_a_victim_that_waits_for_its_volumes_is_released_without_a_call() -> None:
    cluster = _cluster()
    low = cluster.waits("c", name="low", cpu="1", priority=0)
    cluster.write(cluster.reserve())
    cluster.watch()
    high = sized_pod(cluster, "high", 9)
    told = cluster.cycle()
    assert evictions(told) == []
    note = f"Preempted by pod {high.uid} on node a (in kube-scheduler memory)."
    assert _notes(told, "Preempted") == [("low", note)]
    assert [note for name, note in _notes(told, "FailedScheduling") if name == "low"] == [
        'running PreBind plugin "VolumeBinding": preempted by DefaultPreemption'
    ]
    assert [one.nominated_node_name for one in each_of(told, PatchCondition)] == ["a", ""]
    assert cluster.state.n_assumed == 0
    assert not cluster.state.volumes._assumptions
    assert not cluster.state.held_for_evictions
    cluster.pass_time(20)
    assert bind_of(cluster.cycle()).pod.uid == high.uid
    # The victim is there still, and tried again.
    assert cluster.queue.get(low.uid) is not None
    cluster.audit()


def test_the_nomination_of_a_preemptor_ends_while_its_volumes_are_made() -> None:
    """Assumed, it counts on its node; upstream writes the node as its nomination, a documented difference."""
    cluster = _cluster()
    low = sized_pod(cluster, "low", 0, node="a")
    high = cluster.waits("c", name="high", cpu="1", priority=9)
    assert evictions(cluster.cycle()) == ["low"]
    end_eviction(cluster, high, low)
    shown = cluster.update(high, nominated_node_name="a")
    leave(cluster, low)
    asked = cluster.reserve()
    assert (asked.node_name, cluster.state.n_assumed) == ("a", 1)
    assert not cluster.state.nominated
    cluster.write(asked)
    cluster.watch()
    # A watch shows it again, nominated: it does not count twice.
    cluster.update(shown)
    assert not cluster.state.nominated
    cluster.server.provision("default/c")
    cluster.watch()
    assert bind_of(cluster.cycle()).node_name == "a"
    assert cluster.machine.preemptions.wasted == {}
    cluster.audit()


def test_nobody_is_evicted_for_a_pod_whose_claim_is_gone_by_now() -> None:
    cluster = _cluster()
    low = sized_pod(cluster, "low", 0, node="a")
    high = cluster.waits("c", name="high", cpu="1", priority=9)
    assert evictions(cluster.cycle()) == ["low"]
    assert cluster.needs_eviction(high.uid, low.uid)
    cluster.server.delete(StorageKind.CLAIM, "default/c")
    cluster.watch()
    assert not cluster.needs_eviction(high.uid, low.uid)


def test_a_preemptor_whose_volumes_fail_is_nominated_no_more() -> None:
    cluster = _cluster()
    high = cluster.waits("c", name="high", cpu="1", priority=9, nominated="a")
    asked = cluster.reserve()
    cluster.write(asked)
    cluster.server.delete(StorageKind.CLAIM, "default/c")
    told = cluster.watch()
    assert [one.nominated_node_name for one in each_of(told, PatchCondition)] == [""]
    assert not cluster.state.nominated
    assert cluster.queue.get(high.uid) is not None


def test_an_answer_to_writes_of_a_reservation_that_has_ended_is_not_taken_for_the_next_one() -> None:
    cluster = _cluster()
    cluster.waits("c", name="low", cpu="1", priority=0)
    first = cluster.reserve()
    high = sized_pod(cluster, "high", 9)
    cluster.cycle()
    leave(cluster, high)
    second = cluster.reserve()
    assert cluster.machine.n_binding == 1
    cluster.handle(cluster.server.write(first, 0))
    assert cluster.machine.n_binding == 1
    cluster.write(second)
    assert cluster.machine.n_binding == 0
    cluster.server.provision("default/c")
    cluster.watch()
    assert bind_of(cluster.cycle()).node_name == "a"
    assert cluster.machine.n_binding == 1
    cluster.audit()
