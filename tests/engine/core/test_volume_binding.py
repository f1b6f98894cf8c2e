"""From Reserve to Bind: what is written, what is waited for, and how each wait ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from scheduler.engine.model.instructions import Instruction, WriteReservation
from scheduler.engine.model.nodes import decode_node
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import (
    BindFailed,
    NodeGone,
    NodeSeen,
    ObjectSeen,
    PodGone,
    PodSeen,
    TimePassed,
)
from scheduler.engine.model.volumes import PersistentVolume, PersistentVolumeClaim, StorageKind
from tests.engine.core.volume_cluster import VolumeCluster
from tests.support import build
from tests.support.driving import attempt_of, bind_of, condition_of, kinds
from tests.support.storage_objects import claim, volume
from tests.support.volume_server import CONFLICT, promises, selections

ON_A = [build.node_term(f"{build.HOSTNAME} in a")]


def _with_claim() -> tuple[VolumeCluster, Pod]:
    """Return a cluster with a pod that uses claim c, whose volume is not made yet."""
    cluster = VolumeCluster()
    cluster.apply(claim("c", "made"))
    return cluster, cluster.waits("c")


def failure(instructions: list[Instruction]) -> str:
    """Return the message of the one attempt, which failed with an error."""
    attempt = attempt_of(instructions)
    assert attempt.result == "error"
    condition = condition_of(instructions)
    assert (condition.reason, condition.message) == ("SchedulerError", attempt.message)
    return attempt.message.removeprefix('running PreBind plugin "VolumeBinding": ')


def test_a_claim_is_provisioned_on_the_node_before_its_pod_is_bound() -> None:
    cluster, pod = _with_claim()
    asked = cluster.reserve()
    assert asked.node_name in "ab" and [one.obj.key for one in selections(asked)] == ["default/c"]
    assert cluster.machine.n_binding == 1
    assert cluster.write(asked) == []
    assert cluster.machine.n_binding == 0
    assert cluster.watch() == [] and not cluster.machine.has_work()
    cluster.server.provision("default/c")
    assert cluster.watch() == []
    assert cluster.machine.has_work()
    bind = bind_of(cluster.cycle())
    assert bind.node_name == asked.node_name
    assert cluster.machine.n_binding == 1
    cluster.confirm(pod, bind.node_name)
    cluster.holds_nothing()


def test_bound_claims_need_no_writes() -> None:
    cluster = VolumeCluster()
    cluster.apply(volume("v", claimed_by="default/c", phase="Bound"), claim("c", volume="v"))
    cluster.waits("c")
    assert kinds(cluster.cycle()) == ["Bind"]


def test_a_pod_is_woken_by_its_own_claim_alone() -> None:
    cluster = VolumeCluster()
    cluster.waits("c")
    assert 'persistentvolumeclaim "c" not found' in condition_of(cluster.cycle()).message
    cluster.now_s += 60
    cluster.apply(claim("other", "made"))
    assert not cluster.machine.has_work()
    cluster.apply(claim("c", "made"))
    assert cluster.reserve().pod.name == "p"


def test_pods_that_share_a_claim_share_its_promise() -> None:
    cluster = VolumeCluster()
    cluster.apply(volume("v", "local"), claim("c", "local"))
    for name in ("p", "q"):
        cluster.waits("c", name=name)
    first, second = cluster.reserve(), cluster.reserve()
    assert promises(first)[0].obj.key == promises(second)[0].obj.key == "v"
    assert cluster.write(first) == []
    assert failure(cluster.write(second)) == CONFLICT
    cluster.server.control()
    assert cluster.watch() == []
    assert bind_of(cluster.cycle()).pod.name == "p"
    cluster.pass_time(5.0)
    assert bind_of(cluster.cycle()).pod.name == "q"
    cluster.audit()


def test_a_volume_that_was_not_written_is_free_again_and_wakes_others() -> None:
    cluster = VolumeCluster()
    cluster.apply(volume("v", "local"), claim("c", "local"), claim("d", "local"))
    cluster.waits("c", name="p")
    asked = cluster.reserve()
    cluster.waits("d", name="q")
    condition_of(cluster.cycle())
    assert failure(cluster.write(asked, 0)) == "no answer"
    cluster.pass_time(20.0)
    assert cluster.machine.has_work()
    assert promises(cluster.reserve())[0].obj.key == "v"
    cluster.audit()


def test_a_stale_view_of_the_written_object_ends_nothing() -> None:
    cluster, _ = _with_claim()
    before = cluster.server.claim("default/c")
    assert before is not None
    assert cluster.write(cluster.reserve()) == []
    assert cluster.handle(ObjectSeen(before)) == []
    assert cluster.watch() == []
    cluster.server.provision("default/c")
    cluster.watch()
    assert kinds(cluster.cycle()) == ["Bind"]


def test_a_node_that_somebody_else_selected_counts_before_what_is_assumed() -> None:
    cluster, _ = _with_claim()
    (other,) = {"a", "b"} - {cluster.reserve().node_name}
    cluster.apply(claim("c", "made", node=other))
    counted = cluster.state.volumes.claim("default/c")
    assert counted is not None and counted.selected_node == other


def _claim(cluster: VolumeCluster) -> PersistentVolumeClaim:
    found = cluster.server.claim("default/c")
    assert found is not None
    return found


def _volume(cluster: VolumeCluster) -> PersistentVolume:
    found = cluster.server.volume("v")
    assert found is not None
    return found


def _delete_claim(cluster: VolumeCluster) -> None:
    cluster.server.delete(StorageKind.CLAIM, "default/c")


def _recreate_claim(cluster: VolumeCluster) -> None:
    again = claim("c", "made")
    again["metadata"]["uid"] = "another"
    cluster.server.apply(again)


def _elsewhere(cluster: VolumeCluster) -> None:
    found = _claim(cluster)
    document = volume("far", "made", claimed_by="default/c", claim_uid=found.uid, phase="Bound")
    document["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [build.node_term("nowhere")]}}
    cluster.server.apply(document)
    cluster.server.touch(replace(found, volume_name="far"))


NOT_FOUND = 'could not find v1.PersistentVolumeClaim "default/c"'
UNFOUND_CLAIM = f"failed to check provisioning pvc: {NOT_FOUND}"
NO_MATCH = 'node affinity doesn\'t match node "a": no matching NodeSelectorTerms'
_RELABELLED = decode_node(json.dumps(build.node("a", hostname="other")).encode())
#: What happens to a pod that waits; what follows at once, or after a watch.
HAPPENS: dict[str, Callable[[VolumeCluster], object]] = {
    "its claim is deleted": _delete_claim,
    "its claim is recreated": _recreate_claim,
    "its provisioner gives up": lambda cluster: cluster.server.provision("default/c", fails=True),
    "its claim is bound to a volume elsewhere": _elsewhere,
    "its volume is deleted": lambda cluster: cluster.server.delete(StorageKind.VOLUME, "v"),
    "its volume is reset": lambda cluster: cluster.server.touch(replace(_volume(cluster), claim=None)),
    "its claim takes another volume": lambda cluster: cluster.server.touch(
        replace(_claim(cluster), volume_name="w")
    ),
    "its node is relabelled": lambda cluster: cluster.handle(NodeSeen(_RELABELLED)),
}


@pytest.mark.parametrize(
    ("storage", "happens", "message"),
    [
        ("made", "its claim is deleted", UNFOUND_CLAIM),
        ("made", "its claim is recreated", UNFOUND_CLAIM),
        ("made", "its provisioner gives up", 'provisioning failed for PVC "c"'),
        ("made", "its claim is bound to a volume elsewhere", f'pv "far" {NO_MATCH}'),
        ("local", "its claim is deleted", f"failed to check binding: {NOT_FOUND}"),
        ("local", "its volume is deleted", 'failed to check binding: could not find v1.PersistentVolume "v"'),
        ("local", "its volume is reset", 'ClaimRef got reset for pv "v"'),
        (
            "local",
            "its claim takes another volume",
            'persistentvolumeclaim "c" is bound to persistentvolume "w"',
        ),
        ("local", "its node is relabelled", f'pv "v" {NO_MATCH}'),
    ],
)
def test_a_wait_for_a_volume_fails(storage: str, happens: str, message: str) -> None:
    """Whether it is to be provisioned, or promised by a local one that exists."""
    cluster = VolumeCluster()
    cluster.lose_node("b")
    cluster.apply(volume("v", "local", terms=ON_A), claim("c", storage))
    cluster.waits("c")
    assert cluster.write(cluster.reserve()) == []
    assert not cluster.machine.has_work(), "what was written is not seen yet"
    assert cluster.watch() == []
    told = HAPPENS[happens](cluster)
    assert failure(told if isinstance(told, list) else cluster.watch()) == f"binding volumes: {message}"
    cluster.holds_nothing()
    assert cluster.queue.depths()["backoff"] == 1


def test_a_wait_ends_with_its_node_and_its_pod() -> None:
    cluster = VolumeCluster()
    cluster.apply(*(claim(name, "made") for name in "cde"))
    pods = {name: cluster.waits(name, name=name) for name in "cde"}
    nodes = {}
    for _ in pods:
        asked = cluster.reserve()
        nodes[asked.pod.name] = asked.node_name
        assert cluster.write(asked) == []
    cluster.watch()
    deleted = replace(pods["c"], terminating=True, resource_version=cluster.next_version())
    found = failure(cluster.handle(PodSeen(deleted)))
    assert found == 'binding volumes: pod "c" is being deleted'
    bound = replace(pods["d"], node_name="b", resource_version=cluster.next_version())
    found = failure(cluster.handle(PodSeen(bound)))
    assert found == 'binding volumes: pod d is already assigned to node "b"'
    cluster.audit()

    gone = nodes["e"]
    found = failure(cluster.handle(NodeGone(gone)))
    assert found == f'binding volumes: failed to get node "{gone}": node "{gone}" not found'
    cluster.node(gone)
    cluster.pass_time(20.0)
    while cluster.machine.has_work():
        for instruction in cluster.cycle():
            if isinstance(instruction, WriteReservation):
                assert cluster.write(instruction) == []
    found = failure(cluster.handle(PodGone(pods["e"].uid)))
    assert found == 'binding volumes: pod does not exist any more: pod "e" not found'
    cluster.holds_nothing()


def test_a_wait_ends_with_its_time() -> None:
    cluster, _ = _with_claim()
    cluster.write(cluster.reserve())
    cluster.watch()
    assert cluster.machine.next_wake_s(cluster.now_s) == cluster.now_s + 600.0
    cluster.pass_time(599.0)
    assert cluster.machine.n_binding == 0 and cluster.state.n_assumed == 1

    cluster.now_s += 1.0
    assert failure(cluster.handle(TimePassed())) == "binding volumes: context deadline exceeded"
    cluster.holds_nothing()


def test_a_ready_pod_whose_claim_vanishes_is_not_bound() -> None:
    cluster, _ = _with_claim()
    cluster.write(cluster.reserve())
    cluster.server.provision("default/c")
    cluster.watch()
    assert cluster.machine.has_work()
    _delete_claim(cluster)
    assert failure(cluster.watch()) == f"binding volumes: {UNFOUND_CLAIM}"
    assert not cluster.machine.has_work()
    cluster.holds_nothing()


def test_a_failed_bind_leaves_the_volumes_bound() -> None:
    cluster, pod = _with_claim()
    cluster.write(cluster.reserve())
    cluster.server.provision("default/c")
    cluster.watch()
    node_name = bind_of(cluster.cycle()).node_name
    assert attempt_of(cluster.handle(BindFailed(pod.uid, "no"))).message == (
        'running Bind plugin "DefaultBinder": no'
    )
    cluster.holds_nothing()
    cluster.pass_time(20.0)
    assert bind_of(cluster.cycle()).node_name in "ab" and node_name in "ab"


@pytest.mark.parametrize("n_written", [0, 1, 2])
def test_a_new_machine_carries_on(n_written: int) -> None:
    """A machine that died after this number of writes leaves only what the server has."""
    cluster = VolumeCluster()
    cluster.apply(volume("v", "local", terms=ON_A), claim("c", "local"), claim("d", "made"))
    cluster.waits("c", "d")
    asked = cluster.reserve()
    cluster.server.write(asked, n_written)
    successor = VolumeCluster(cluster.server)
    pod = successor.waits("c", "d")
    again = successor.reserve()
    assert again.node_name == asked.node_name == "a"
    assert [one.obj.key for one in promises(again)] == ["v"]
    assert [one.obj.key for one in selections(again)] == ["default/d"]
    assert successor.write(again) == []
    successor.server.control()
    successor.server.provision("default/d")
    successor.watch()
    successor.confirm(pod, bind_of(successor.cycle()).node_name)
    successor.holds_nothing()


def test_pods_that_wait_hold_nobody_up() -> None:
    """They are no binds in flight, and a stimulus looks only at the pods that it is about."""
    cluster = VolumeCluster()
    for name in ("a", "b"):
        cluster.node(name, allocatable={"pods": "2000"})
    for number in range(100):
        cluster.apply(claim(f"c{number}", "made"))
        cluster.waits(f"c{number}", name=f"p{number}")
        cluster.write(cluster.reserve())
        cluster.watch()
    assert cluster.machine.n_binding == 0
    looked_at: list[str] = []
    reservations = cluster.machine._reservations
    check = reservations._problem
    reservations._problem = lambda bind: looked_at.append(bind.pod.uid) or check(bind)  # type: ignore[method-assign,func-returns-value]
    cluster.apply(claim("other", "made"), volume("w", "made"))
    cluster.pod("free")
    assert kinds(cluster.cycle()) == ["Bind"]
    assert looked_at == []
    cluster.server.provision("default/c50")
    assert cluster.watch() == []
    assert set(looked_at) == {"uid-default-p50"}
    assert bind_of(cluster.cycle()).pod.name == "p50"


@pytest.mark.parametrize("is_gone_meanwhile", [True, False])
def test_a_pod_that_lost_its_place_before_its_writes_were_answered_is_put_back(
    is_gone_meanwhile: bool,
) -> None:
    """A watch that lags shows it unassigned again after it was shown on a node, or gone."""
    cluster, pod = _with_claim()
    asked = cluster.reserve()
    if is_gone_meanwhile:
        cluster.handle(PodGone(pod.uid))
    else:
        cluster.update(pod, node_name="b")
    cluster.update(pod)
    told = cluster.write(asked)
    cluster.server.provision("default/c")
    told += cluster.watch()
    assert failure(told) == 'binding volumes: pod "p" does not count on node "a" any more'
    cluster.holds_nothing()
    cluster.pass_time(20)
    assert bind_of(cluster.cycle()).pod.uid == pod.uid
