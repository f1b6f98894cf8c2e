"""Pods are evicted for the devices of their claims, and their devices go to the pod that others left for."""

from __future__ import annotations

from random import Random
from typing import Any, NoReturn

import pytest

from scheduler.engine.core.decide import decide
from scheduler.engine.framework.diagnosis import FitError
from scheduler.engine.framework.status import Code
from scheduler.engine.model.instructions import Instruction, WriteObjects, WriteReservation
from scheduler.engine.model.pods import Pod
from scheduler.engine.plugins.dynamic_resources.trial import DeviceTrials
from scheduler.engine.state.cluster_view import ClusterView
from tests.engine.core.claim_cluster import ClaimCluster
from tests.engine.core.preempting import end_eviction, leave
from tests.engine.core.test_group_disruption import group_seen
from tests.support import build
from tests.support.device_documents import DRIVER, device_class, device_slice, resource_claim
from tests.support.driving import (
    NAME,
    attempt_of,
    bind_of,
    condition_of,
    each_of,
    evictions,
    kinds,
    settings_of,
)

_RELEASED = "preemption: not eligible due to devices that are being released on the nominated node."
_NO_DEVICES = "0/1 nodes are available: 1 cannot allocate all claims."


def _claim(cluster: ClaimCluster, *names: str, count: int = 1) -> None:
    for name in names:
        cluster.store(resource_claim(name, count))
    cluster.watch()


def _run(cluster: ClaimCluster, *claims: str, name: str, priority: int = 0, **spec: Any) -> Pod:
    """Return a pod that runs with the claims."""
    pod = cluster.using(*claims, name=name, priority=priority, **spec)
    instructions = cluster.cycle()
    if kinds(instructions) == ["WriteReservation"]:
        (reservation,) = instructions
        assert isinstance(reservation, WriteReservation)
        assert cluster.write(reservation) == []
        cluster.watch()
        instructions = cluster.cycle()
    return cluster.confirm(pod, bind_of(instructions).node_name)


def _release(cluster: ClaimCluster, *names: str) -> None:
    """Deallocate claims, as their controller does once their pods are gone; the watch shows it."""
    for name in names:
        cluster.store({**cluster.server.claims[f"default/{name}"], "status": {}})
    cluster.watch()


def _end(cluster: ClaimCluster, pod: Pod, victim: Pod) -> None:
    end_eviction(cluster, pod, victim)
    leave(cluster, victim)


def _bound(cluster: ClaimCluster, name: str, *released: str) -> str:
    """Return the node of the next pod, which is this one; some time after these claims have been released."""
    _release(cluster, *released)
    cluster.pass_time(20)
    asked = cluster.reserve()
    assert asked.pod.name == name
    cluster.write(asked)
    cluster.watch()
    return bind_of(cluster.cycle()).node_name


def _attempts(cluster: ClaimCluster) -> list[Instruction]:
    cluster.pass_time(20)
    return cluster.cycle()


def test_a_pod_is_evicted_for_its_device_and_the_other_waits_until_its_claim_is_released() -> None:
    cluster = ClaimCluster(1, ("a",))
    _claim(cluster, "c", "d")
    low = _run(cluster, "c", name="low")
    high = cluster.using("d", name="high", priority=9)
    instructions = cluster.cycle()
    assert evictions(instructions) == ["low"]
    assert condition_of(instructions).nominated_node_name == "a"
    assert condition_of(instructions).message == _NO_DEVICES
    _end(cluster, high, low)
    instructions = cluster.cycle()
    assert evictions(instructions) == []
    assert attempt_of(instructions).message.endswith(_RELEASED)
    assert cluster.state.nominated
    assert _attempts(cluster) == [], "nothing but the claim wakes it"
    assert _bound(cluster, "high", "c") == "a"
    cluster.confirm(high, "a")
    cluster.holds_nothing()


def test_without_the_setting_no_pod_is_evicted_as_upstream() -> None:
    cluster = ClaimCluster(1, ("a",), settings_of("DynamicResources", preemptForDevices=False))
    _claim(cluster, "c", "d")
    _run(cluster, "c", name="low")
    cluster.using("d", name="high", priority=9)
    instructions = cluster.cycle()
    assert evictions(instructions) == []
    assert attempt_of(instructions).message.endswith("1 Preemption is not helpful for scheduling.")


@pytest.mark.parametrize("count", [1, 2])
def test_no_more_pods_than_needed_are_evicted_the_least_important_first(count: int) -> None:
    cluster = ClaimCluster(2, ("a",))
    _claim(cluster, "c", "d")
    _claim(cluster, "e", count=count)
    _run(cluster, "c", name="lower", priority=1)
    _run(cluster, "d", name="low", priority=2)
    cluster.using("e", name="high", priority=9)
    instructions = cluster.cycle()
    # Of two victims the last goes once the other is gone.
    assert evictions(instructions) == (["lower"] if count == 1 else ["low"])
    assert attempt_of(instructions).n_victims == count


def test_a_member_evicts_for_devices_by_the_priority_of_its_group() -> None:
    cluster = ClaimCluster(1, ("a",))
    _claim(cluster, "c", "d")
    cluster.handle(group_seen("g", priority=9))
    _run(cluster, "c", name="low", priority=5)
    cluster.using("d", name="member", schedulingGroup={"podGroupName": "g"})
    assert evictions(cluster.cycle()) == ["low"]


@pytest.mark.parametrize("is_answered", [True, False])
@pytest.mark.parametrize(
    ("change", "users"),
    [
        ({}, []),
        ({"devices": [{"driver": DRIVER, "pool": "a", "device": "gpu-0", "conditions": []}]}, []),
        ({"reservedFor": [{"resource": "pods", "name": "x", "uid": "x"}]}, ["x"]),
    ],
    ids=["alone", "as a driver tells of them", "shared"],
)
def test_a_pod_that_waits_for_its_devices_gives_them_up_for_another_unless_it_shares_them(
    change: dict[str, list[Any]], users: list[str], *, is_answered: bool
) -> None:
    """Its claim would stay allocated: no controller deallocates a claim that a scheduler releases."""
    cluster = ClaimCluster(0, ("a",))
    cluster.show(device_slice("a", 1, bindingConditions=["ready"]))
    _claim(cluster, "c", "d")
    low = cluster.using("c", name="low")
    answer = cluster.answer_to(cluster.reserve())
    if is_answered:
        cluster.handle(answer)
    cluster.watch()
    high = cluster.using("d", name="high", priority=9)
    told = cluster.cycle()
    claim = cluster.server.claims["default/c"]
    for field, added in change.items():
        claim["status"][field] = [*claim["status"].get(field, ()), *added]
        cluster.server.put(claim)
    if not is_answered:
        told += cluster.handle(answer)
    for undo in each_of(told, WriteObjects):
        cluster.write_all(undo)
    cluster.watch()
    status = cluster.server.claims["default/c"].get("status", {})
    assert [each["uid"] for each in status.get("reservedFor", ())] == users
    cluster.pass_time(20)
    reserved = [each.pod for each in each_of(cluster.cycles(), WriteReservation)]
    assert reserved == ([low] if users else [high])


def test_a_claim_that_a_pod_of_higher_priority_shares_is_not_released() -> None:
    cluster = ClaimCluster(1, ("a",))
    _claim(cluster, "shared", "d")
    _run(cluster, "shared", name="low")
    _run(cluster, "shared", name="higher", priority=10)
    cluster.using("d", name="high", priority=9)
    instructions = cluster.cycle()
    assert evictions(instructions) == []
    assert "1 cannot allocate all claims" in attempt_of(instructions).message.partition("preemption:")[2]


def test_nobody_is_evicted_for_devices_of_a_claim_that_a_nominated_pod_shares() -> None:
    cluster = ClaimCluster(1, ("a",))
    _claim(cluster, "shared", "d")
    _run(cluster, "shared", name="low")
    first = cluster.using("shared", name="first", priority=9, schedulingGates=[{"name": "hold"}])
    cluster.update(first, nominated_node_name="a")
    cluster.using("d", name="high", priority=9)
    assert evictions(cluster.cycle()) == []


def test_all_pods_of_a_shared_claim_leave_for_its_device() -> None:
    cluster = ClaimCluster(1, ("a",))
    _claim(cluster, "shared", "d")
    first, second = _run(cluster, "shared", name="first"), _run(cluster, "shared", name="second")
    high = cluster.using("d", name="high", priority=9)
    instructions = cluster.cycle()
    assert attempt_of(instructions).n_victims == 2
    gone = first if evictions(instructions) == ["first"] else second
    _end(cluster, high, gone)
    _end(cluster, high, second if gone is first else first)
    assert _bound(cluster, "high", "shared") == "a"


def test_a_claim_of_something_that_is_no_pod_is_never_released() -> None:
    cluster = ClaimCluster(1, ("a",))
    _claim(cluster, "c", "d")
    low = _run(cluster, "c", name="low")
    claim = cluster.server.claims["default/c"]
    other = {"apiGroup": "example.com", "resource": "jobs", "name": "j", "uid": "job"}
    claim["status"]["reservedFor"].append(other)
    cluster.apply(claim)
    cluster.using("d", name="high", priority=9)
    assert evictions(cluster.cycle()) == []
    assert low.uid in cluster.state.placed


def test_a_device_that_comes_free_is_kept_for_the_pod_that_others_left_for() -> None:
    cluster = ClaimCluster(1, ("a",))
    _claim(cluster, "c", "d", "e")
    low = _run(cluster, "c", name="low")
    high = cluster.using("d", name="high", priority=9)
    cluster.cycle()
    _end(cluster, high, low)
    cluster.cycle()
    _release(cluster, "c")
    # It is tried before the other, whose backoff is not over.
    cluster.using("e", name="middle", priority=5)
    instructions = cluster.cycle()
    assert attempt_of(instructions).pod.name == "middle"
    assert attempt_of(instructions).message.startswith(_NO_DEVICES)
    assert _bound(cluster, "high") == "a"


@pytest.mark.parametrize(
    "change", [None, {}, {"node_name": "elsewhere"}], ids=["gone", "taken back", "bound"]
)
def test_a_device_that_a_nominated_pod_does_not_take_goes_to_the_pod_that_it_kept_out(
    change: dict[str, str] | None,
) -> None:
    cluster = ClaimCluster(1, ("a",))
    _claim(cluster, "c", "d")
    high = cluster.using("c", name="high", priority=9, schedulingGates=[{"name": "hold"}])
    high = cluster.update(high, nominated_node_name="a")
    cluster.using("d", name="low")
    assert attempt_of(cluster.cycle()).message.startswith(_NO_DEVICES)
    if change is None:
        cluster.lose(high)
    else:
        cluster.update(high, nominated_node_name="", **change)
    assert _bound(cluster, "low") == "a"


def test_a_pod_that_waits_for_a_device_evicts_no_other_after_a_restart() -> None:
    cluster = ClaimCluster(1, ("a", "b"))
    _claim(cluster, "c", "d", "e")
    # Of a pod that is gone, whose claim is not released yet.
    first = cluster.using("c", name="first")
    asked = cluster.reserve()
    cluster.write(asked)
    cluster.watch()
    node = bind_of(cluster.cycle()).node_name
    cluster.lose(cluster.confirm(first, node))
    _run(cluster, "d", name="other")
    cluster.update(cluster.using("e", name="high", priority=9), nominated_node_name=node)
    instructions = cluster.cycle()
    assert evictions(instructions) == []
    assert attempt_of(instructions).message.endswith(_RELEASED)
    assert _bound(cluster, "high", "c") == node


def test_a_pod_without_a_nomination_evicts_nobody_from_a_node_that_is_about_to_have_a_device() -> None:
    cluster = ClaimCluster(2, ("a",))
    _claim(cluster, "c", "d", "e")
    gone = _run(cluster, "c", name="gone")
    _run(cluster, "d", name="low")
    cluster.lose(gone)
    cluster.using("e", name="high", priority=9)
    instructions = cluster.cycle()
    assert evictions(instructions) == []
    assert attempt_of(instructions).result == "unschedulable"
    assert _bound(cluster, "high", "c") == "a"


def test_an_extended_resource_is_taken_from_a_pod_of_lower_priority() -> None:
    cluster = ClaimCluster(1, ("a",))
    cluster.show(device_class(extended_resource="example.com/gpu"))
    container = build.container(requests={"example.com/gpu": "1"})
    low = cluster.pod("low", containers=[container])
    asked = cluster.reserve()
    cluster.write(asked)
    cluster.watch()
    low = cluster.confirm(low, bind_of(cluster.cycle()).node_name)
    high = cluster.pod("high", containers=[container], priority=9)
    assert evictions(cluster.cycle()) == ["low"]
    _end(cluster, high, low)
    cluster.cycle()
    (key,) = cluster.server.claims
    assert _bound(cluster, "high", key.partition("/")[2]) == "a"


def test_a_pod_refused_while_a_created_claim_counts_twice_is_woken_once_it_counts_once() -> None:
    """The watch shows the claim, which shares a device, before the answer."""
    cluster = ClaimCluster(1, ("a",))
    cluster.show(device_class(extended_resource="example.com/gpu"))
    capacity = {"memory": {"value": "2Gi", "requestPolicy": {"default": "1Gi"}}}
    cluster.show(device_slice("a", 1, allowMultipleAllocations=True, capacity=capacity))
    container = build.container(requests={"example.com/gpu": "1"})
    cluster.pod("first", containers=[container])
    answer = cluster.answer_to(cluster.reserve())
    cluster.watch()
    cluster.pod("second", containers=[container])
    assert attempt_of(cluster.cycle()).message.startswith(_NO_DEVICES)
    cluster.handle(answer)
    assert bind_of(cluster.cycle()).pod.name == "first"
    cluster.pass_time(20)
    assert cluster.reserve().pod.name == "second"


def test_a_resource_that_a_node_offers_itself_is_taken_there_though_a_class_provides_it() -> None:
    cluster = ClaimCluster(1, ("a",))
    cluster.show(device_class(extended_resource="example.com/gpu"))
    cluster.node("a", allocatable={"example.com/gpu": "1"})
    container = build.container(requests={"example.com/gpu": "1"})
    cluster.pod("low", node="a", containers=[container])
    cluster.pod("high", containers=[container], priority=9)
    assert evictions(cluster.cycle()) == ["low"]


def test_a_node_that_offers_none_of_a_resource_any_more_has_its_devices() -> None:
    """A kubelet whose device plugin is gone says 0."""
    cluster = ClaimCluster(1, ("a",))
    cluster.show(device_class(extended_resource="example.com/gpu"))
    cluster.node("a", allocatable={"example.com/gpu": "0"})
    cluster.pod("p", containers=[build.container(requests={"example.com/gpu": "1"})])
    assert _bound(cluster, "p") == "a"


def test_a_node_whose_pods_have_no_devices_loses_none_of_them() -> None:
    cluster = ClaimCluster(1, ("a",))
    _claim(cluster, "d", count=2)
    cluster.pod("low", node="a")
    cluster.using("d", name="high", priority=9)
    instructions = cluster.cycle()
    assert evictions(instructions) == []
    assert attempt_of(instructions).message.endswith(f"preemption: {_NO_DEVICES}")


@pytest.mark.parametrize("is_on", [True, False])
def test_the_refusal_of_a_node_may_be_mended_only_if_pods_are_evicted_for_devices(is_on: bool) -> None:
    cluster = ClaimCluster(1, ("a", "b"), settings_of("DynamicResources", preemptForDevices=is_on))
    _claim(cluster, "d", "e")
    _claim(cluster, "c", count=2)
    low = _run(cluster, "d", name="low")
    _run(cluster, "e", name="high", priority=9)
    pod = cluster.using("c", name="p", priority=5)
    error = decide(pod, ClusterView(cluster.state), cluster.profiles[NAME], Random(0))
    assert isinstance(error, FitError)
    codes = {cluster.state.nodes.name_of(row): error.code_at(row) for row in (0, 1)}
    low_node = cluster.node_of(low.uid)
    assert [codes.pop(low_node) is Code.UNSCHEDULABLE, *codes.values()] == [
        is_on,
        Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
    ]


def test_where_there_are_devices_no_search_decides_whether_pods_are_evicted_for_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A search for the trial might end at the limit of the cycle, which the search before did not reach."""

    def never(*_: object) -> NoReturn:
        raise AssertionError

    monkeypatch.setattr(DeviceTrials, "_search", never)
    cluster = ClaimCluster(2, ("a",))
    _claim(cluster, "c", "d")
    spec: dict[str, Any] = {"containers": [build.container(requests={"cpu": "20"})]}
    _run(cluster, "c", name="low", **spec)
    cluster.using("d", name="high", priority=9, **spec)
    assert evictions(cluster.cycle()) == ["low"]
