"""Pods with claims between Reserve and Bind: written, waited for, undone, and woken."""

import pytest

from scheduler.daemon.settings.loading import default_settings
from scheduler.engine.model.devices import NEEDED_KINDS, DeviceKind
from scheduler.engine.model.instructions import (
    Attempted,
    Bind,
    DevicesAwaited,
    Instruction,
    WriteObjects,
    WriteReservation,
)
from scheduler.engine.model.pod_groups import GROUP, MIN_COUNT
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.semantics import Version, semantics_of
from scheduler.engine.model.stimuli import DevicesRelisted, DevicesServed, PodSeen
from scheduler.engine.plugins.dynamic_resources.claims import resolved
from tests.engine.core.claim_cluster import ClaimCluster
from tests.support import build
from tests.support.device_documents import DRIVER, device_class, device_slice, resource_claim, selecting_claim
from tests.support.driving import attempt_of, bind_of, each_of, event_of, only


def _reserved(cluster: ClaimCluster, name: str) -> list[str]:
    status = cluster.server.claims[f"default/{name}"].get("status", {})
    return [each["name"] for each in status.get("reservedFor", [])]


def _with_claim() -> tuple[ClaimCluster, Pod]:
    """Return a cluster of one device with a pod that uses claim c, which the machine knows."""
    cluster = ClaimCluster(1, ("a",))
    cluster.apply(resource_claim("c"))
    return cluster, cluster.using("c")


def test_a_claim_is_allocated_and_reserved_before_its_pod_is_bound() -> None:
    cluster, pod = _with_claim()
    asked = cluster.reserve()
    assert cluster.server.writes == []
    assert cluster.write(asked) == []
    assert cluster.server.writes == ["update default/c", "update default/c status"]
    assert _reserved(cluster, "c") == ["p"]
    assert not cluster.machine.has_work()
    instructions = [*cluster.watch(), *cluster.cycle()]
    assert bind_of(instructions).node_name == "a"
    assert not each_of(instructions, DevicesAwaited), "no wait is reported of devices without conditions"
    cluster.confirm(pod, "a")
    cluster.holds_nothing()


def test_devices_count_from_reserve_on_and_a_failed_write_gives_them_back() -> None:
    cluster, _ = _with_claim()
    asked = cluster.reserve()
    cluster.apply(resource_claim("d"))
    cluster.using("d", name="q")
    assert "cannot allocate all claims" in attempt_of(cluster.cycle()).message
    del cluster.server.claims["default/c"]
    assert attempt_of(cluster.write(asked)).message.startswith('running PreBind plugin "DynamicResources": ')
    cluster.now_s += 30
    cluster.watch()
    assert cluster.reserve().pod.name == "q"


def test_pods_that_were_rejected_before_devices_were_served_are_tried_once_they_are() -> None:
    """As on a cluster whose administrator grants the right to read devices later."""
    cluster = ClaimCluster(2, ("a",), is_served=False)
    cluster.apply(resource_claim("c"))
    cluster.show(device_class("gpu", "example.com/gpu"))
    cluster.using("c")
    cluster.using(name="q", containers=[build.container(requests={"example.com/gpu": "1"})])
    assert "affinity-scheduler reads no resource.k8s.io/v1 here" in attempt_of(cluster.cycle()).message
    assert "Insufficient example.com/gpu" in attempt_of(cluster.cycle()).message
    for kind in sorted(NEEDED_KINDS):
        cluster.handle(DevicesServed(kind))
    assert sorted(cluster.reserve().pod.name for _ in "pq") == ["p", "q"]


def test_while_a_kind_of_devices_is_turned_off_no_pod_gets_any() -> None:
    """Without claims, all devices would look free."""
    cluster = ClaimCluster(2, ("a",))
    cluster.apply(resource_claim("c"))
    cluster.handle(DevicesServed(DeviceKind.CLAIM, is_served=False))
    cluster.using("c")
    assert "affinity-scheduler reads no resource.k8s.io/v1 here" in attempt_of(cluster.cycle()).message
    cluster.handle(DevicesServed(DeviceKind.CLAIM))
    assert cluster.reserve().pod.name == "p"


def _allocated(name: str, by: str = "other", **more: str) -> build.Json:
    """Return a claim to which another process gave the only device of node a, for a pod of the name."""
    result = {"request": "r", "driver": DRIVER, "pool": "a", "device": "gpu-0"}
    consumer = {"resource": "pods", "name": by, "uid": f"uid-default-{by}"}
    return resource_claim(name, allocation={"devices": {"results": [result]}, **more}, reservedFor=[consumer])


def test_a_claim_that_is_not_needed_hides_none_behind_it() -> None:
    cluster = ClaimCluster(1)
    cluster.apply(resource_claim("c"))
    entries = [{"name": "n", "resourceClaimTemplateName": "t"}, {"name": "r", "resourceClaimName": "c"}]
    document = build.pod("p", spec={"resourceClaims": entries})
    document["status"]["resourceClaimStatuses"] = [{"name": "n"}]
    found = resolved(cluster.decoded(document), cluster.state.devices.claim)
    assert [claim.key for claim in found if not isinstance(claim, str)] == ["default/c"]


def _is_given_up(cluster: ClaimCluster) -> bool:
    """Return whether the next attempt finds that claim c is unavailable, and gives its allocation up."""
    instructions = cluster.cycle()
    assert ". deallocation of ResourceClaim completed, " in attempt_of(instructions).message
    assert cluster.write_all(only(instructions, WriteObjects)) == []
    return "allocation" not in cluster.server.claims["default/c"]["status"]


def test_of_two_claims_with_one_device_the_later_is_given_up_after_a_restart_too() -> None:
    """The driver has written into the status of the first one since, which has the newer version now."""
    cluster = ClaimCluster(1, ("a",), is_served=False)
    cluster.store(_allocated("later", "q", allocationTimestamp="2026-01-01T00:00:05Z"))
    cluster.apply(_allocated("first", "p", allocationTimestamp="2026-01-01T00:00:00Z"))
    cluster.serve_devices()
    cluster.using("first", nodeName="a")
    cluster.using("later", name="q")
    assert "1 resourceclaim not available on the node" in attempt_of(cluster.cycle()).message


def test_a_shared_claim_wakes_its_other_pods_once_it_is_written() -> None:
    cluster, _ = _with_claim()
    asked = cluster.reserve()
    cluster.using("c", name="q")
    message = attempt_of(cluster.cycle()).message
    assert "resource claim default/c is in the process of being allocated" in message
    cluster.write(asked)
    cluster.watch()
    cluster.now_s += 30
    bind_of(cluster.cycle())
    second = cluster.reserve()
    assert (second.pod.name, second.writes[0].value) == ("q", None)
    cluster.write(second)
    assert _reserved(cluster, "c") == ["p", "q"]


def test_a_failed_bind_takes_the_pod_out_of_its_claim() -> None:
    cluster, pod = _with_claim()
    cluster.write(cluster.reserve())
    cluster.watch()
    bind_of(cluster.cycle())
    undo = only(cluster.fail_bind(pod, "refused"), WriteObjects)
    assert cluster.write_all(undo) == []
    assert _reserved(cluster, "c") == []
    cluster.watch()
    cluster.holds_nothing()
    cluster.now_s += 30
    # The claim stays allocated: the pod joins it, on the same node.
    again = cluster.reserve()
    assert again.writes[0].value is None


def test_an_answer_about_a_claim_that_was_replaced_ends_no_assumption_of_the_next_one() -> None:
    cluster, _ = _with_claim()
    answer = cluster.answer_to(cluster.reserve())
    del cluster.server.claims["default/c"]
    cluster.collect()
    cluster.apply(resource_claim("c"))
    cluster.using("c", name="q")
    assert cluster.reserve().pod.name == "q"
    message = "claim default/c is not reserved for pod default/p any more"
    assert (
        attempt_of(cluster.handle(answer)).message == f'running PreBind plugin "DynamicResources": {message}'
    )
    cluster.apply(resource_claim("d"))
    cluster.using("d", name="r")
    assert "cannot allocate all claims" in attempt_of(cluster.cycle()).message


def test_writes_of_a_pod_that_is_gone_are_undone_once_they_are_answered() -> None:
    cluster, pod = _with_claim()
    asked = cluster.reserve()
    answer = cluster.answer_to(asked)
    cluster.lose(pod)
    cluster.pass_time(1.0)
    instructions = cluster.handle(answer)
    assert cluster.write_all(only(instructions, WriteObjects)) == []
    assert _reserved(cluster, "c") == []
    cluster.watch()
    cluster.audit()


@pytest.mark.parametrize("lost", [1, 2])
def test_a_restart_between_two_writes_goes_on_where_they_ended(lost: int) -> None:
    """The next process knows nothing but what is stored: it allocates, or joins the claim that is allocated."""
    cluster, pod = _with_claim()
    asked = cluster.reserve()
    cluster.server.loses = lambda number: number >= lost
    cluster.answer_to(asked)
    after = ClaimCluster(1, ("a",), server=cluster.server)
    after.server.loses = lambda _: False
    after.server.writes.clear()
    after.collect()
    after.watch()
    after.handle(PodSeen(pod))
    after.write(after.reserve())
    after.watch()
    assert after.server.writes == (["update default/c status"] if lost == 1 else [])
    assert bind_of(after.cycle()).node_name == "a"
    assert _reserved(after, "c") == ["p"]


CONDITIONS = {"bindingConditions": ["ready"], "bindingFailureConditions": ["broken"]}


def _waiting(**of_device: list[str]) -> tuple[ClaimCluster, Pod, list[Instruction]]:
    """Return a cluster with a pod whose claim is written and not shown, and what followed its writes."""
    cluster = ClaimCluster(0, ("a",))
    cluster.show(device_slice("a", 1, **of_device))
    cluster.apply(resource_claim("c"))
    pod = cluster.using("c")
    return cluster, pod, cluster.write(cluster.reserve())


def _set_condition(cluster: ClaimCluster, condition: str) -> list[Instruction]:
    cluster.watch()
    claim = cluster.server.claims["default/c"]
    device = {"driver": DRIVER, "pool": "a", "device": "gpu-0"}
    devices = [{**device, "conditions": [{"type": condition, "status": "True"}]}]
    cluster.store({**claim, "status": {**claim["status"], "devices": devices}})
    return cluster.watch()


@pytest.mark.parametrize(("condition", "status"), [("ready", "success"), ("broken", "failure")])
def test_the_end_of_a_wait_for_binding_conditions_is_reported_with_its_seconds(
    condition: str, status: str
) -> None:
    cluster, pod, _ = _waiting(**CONDITIONS)
    cluster.now_s += 3.0
    instructions = [*_set_condition(cluster, condition), *cluster.cycle()]
    reports = each_of(instructions, DevicesAwaited)
    assert reports == [DevicesAwaited(pod, status, 3.0, ((DRIVER, True),))]  # type: ignore[arg-type]
    assert [each.node_name for each in each_of(instructions, Bind)] == (["a"] if status == "success" else [])


def test_binding_conditions_hold_a_pod_until_the_driver_sets_them() -> None:
    cluster, _, told = _waiting(**CONDITIONS)
    event = event_of(told)
    assert (event.type, event.reason, event.action) == ("Normal", "BindingConditionsPending", "Scheduling")
    assert event.note == "waiting for binding conditions for device on node a"
    assert not cluster.machine.has_work()
    instructions = _set_condition(cluster, "broken")
    assert "device binding failed: claim=c" in attempt_of(instructions).message
    assert cluster.write_all(only(instructions, WriteObjects)) == []
    assert _reserved(cluster, "c") == []
    cluster.watch()
    cluster.now_s += 30
    assert _is_given_up(cluster)


@pytest.mark.parametrize(
    ("namespace", "holder"), [("default", "claim default/theirs"), ("other", "a claim of another namespace")]
)
def test_of_two_claims_with_one_device_the_later_is_given_up(namespace: str, holder: str) -> None:
    """Two schedulers decide at once, and the API server accepts both: the watch shows whose write came first."""
    cluster, _ = _with_claim()
    asked = cluster.reserve()
    theirs = _allocated("theirs")
    theirs["metadata"]["namespace"] = namespace
    cluster.server.put(theirs)
    instructions = cluster.write(asked)
    assert instructions == []
    instructions = cluster.watch()
    assert (
        f"claim default/c has a device that was allocated to {holder} before"
        in attempt_of(instructions).message
    )
    assert cluster.state.devices.n_allocated_twice == 1
    assert cluster.write_all(only(instructions, WriteObjects)) == []
    cluster.watch()
    cluster.now_s += 30
    assert _is_given_up(cluster)


def test_of_two_claims_with_one_device_the_earlier_stays() -> None:
    cluster, _ = _with_claim()
    cluster.write(cluster.reserve())
    cluster.apply(_allocated("theirs"))
    assert bind_of(cluster.cycle()).node_name == "a"


@pytest.mark.parametrize("order", [("c", "theirs"), ("theirs", "c")])
def test_of_two_claims_that_a_list_shows_with_one_device_ours_is_given_up(order: tuple[str, str]) -> None:
    """After a restart neither version nor time of a claim tells which of the two was allocated first."""
    cluster = ClaimCluster(is_served=False)
    for name in order:
        cluster.store(_allocated(name, by="p" if name == "c" else "other"))
    cluster.watch()
    cluster.serve_devices()
    cluster.using("c")
    assert _is_given_up(cluster)


def test_no_pod_is_bound_on_what_half_a_list_shows() -> None:
    """A list shows our claim before the one that was allocated earlier: the look at all devices waits for its end."""
    cluster, _ = _with_claim()
    asked = cluster.reserve()
    cluster.server.put(_allocated("theirs"))
    assert cluster.write(asked) == []
    cluster.handle(DevicesRelisted(DeviceKind.CLAIM))
    cluster.events.reverse()
    theirs = cluster.events.pop()  # the earlier one, which comes last
    assert cluster.watch() == cluster.cycle() == []
    cluster.handle(theirs)
    instructions = cluster.handle(DevicesServed(DeviceKind.CLAIM))
    assert "claim default/c has a device" in attempt_of(instructions).message


@pytest.mark.parametrize("name", ["c", "theirs"])
def test_a_later_list_leaves_no_order_among_the_claims_that_it_shows(name: str) -> None:
    """The watch was interrupted, so that one of them may have been allocated anew."""
    cluster, _ = _with_claim()
    cluster.write(cluster.reserve())
    cluster.apply(_allocated("theirs"))
    cluster.serve_devices()
    claim = cluster.state.devices.claim(f"default/{name}")
    assert claim is not None
    assert cluster.state.devices.earlier_claim(claim) is not None


@pytest.mark.parametrize("first", [0, 1])
def test_members_of_a_group_share_a_claim_that_is_being_allocated(first: int) -> None:
    """Whichever write comes first stores the allocation, and the other one joins it."""
    cluster = ClaimCluster(1)
    cluster.apply(resource_claim("shared"))
    labels = {GROUP: "g", MIN_COUNT: "2"}
    for name in ("m0", "m1"):
        cluster.using("shared", name=name, labels=labels)
    writes = each_of(cluster.cycle(), WriteReservation)
    assert [each.pod.name for each in writes] == ["m0", "m1"]
    assert len({each.node_name for each in writes}) == 1
    for each in (writes[first], writes[1 - first]):
        assert cluster.write(each) == []
    assert sorted(_reserved(cluster, "shared")) == ["m0", "m1"]
    cluster.watch()
    for _ in writes:
        pod = bind_of(cluster.cycle()).pod
        cluster.confirm(pod, writes[0].node_name)
    cluster.holds_nothing()


def test_a_pod_without_the_group_waits_for_a_claim_that_is_being_allocated() -> None:
    cluster, _ = _with_claim()
    cluster.reserve()
    cluster.using("c", name="q", labels={GROUP: "g", MIN_COUNT: "1"})
    assert not each_of(cluster.cycle(), WriteReservation)


@pytest.mark.parametrize(("minor", "is_given_up"), [(36, False), (37, True)])
def test_a_claim_that_is_elsewhere_is_given_up_beside_missing_devices_from_1_37(
    minor: int, *, is_given_up: bool
) -> None:
    cluster = ClaimCluster(1, ("a",), default_settings(semantics_of(Version(1, minor))))
    result = {"request": "r", "driver": DRIVER, "pool": "gone", "device": "gpu-0"}
    fields = [{"key": "metadata.name", "operator": "In", "values": ["gone"]}]
    selector = {"nodeSelectorTerms": [{"matchFields": fields}]}
    allocation = {"devices": {"results": [result]}, "nodeSelector": selector}
    cluster.apply(resource_claim("elsewhere", allocation=allocation), resource_claim("too-many", count=2))
    cluster.using("elsewhere", "too-many")
    message = attempt_of(cluster.cycle()).message
    assert "cannot allocate all claims" in message
    assert ("deallocation of ResourceClaim completed" in message) is is_given_up


@pytest.mark.parametrize("of_device", [{}, {"bindingConditions": ["ready"]}], ids=["plain", "conditions"])
def test_a_pod_whose_claim_is_deleted_while_it_waits_fails(of_device: dict[str, list[str]]) -> None:
    cluster = _waiting(**of_device)[0]
    cluster.events.clear()
    del cluster.server.claims["default/c"]
    cluster.collect()
    message = attempt_of(cluster.watch()).message
    assert message == 'running PreBind plugin "DynamicResources": could not find ResourceClaim "default/c"'


@pytest.mark.parametrize(("of_device", "is_over"), [({}, True), ({"bindingConditions": ["ready"]}, False)])
def test_two_minutes_are_enough_for_a_watch_and_not_for_devices(
    of_device: dict[str, list[str]], *, is_over: bool
) -> None:
    cluster = _waiting(**of_device)[0]
    failed = each_of(cluster.live(130.0), Attempted)
    assert bool(failed) is is_over


@pytest.mark.parametrize("is_refused", [True, False])
def test_a_selector_that_fails_on_a_node_fails_the_pod_unless_another_rule_refuses_the_node(
    *, is_refused: bool
) -> None:
    cluster = ClaimCluster(0, ())
    cluster.node("b", unschedulable=is_refused)
    cluster.node("a")
    cluster.show(device_slice("b", 1))
    cluster.show(device_slice("a", 1, attributes={"model": {"string": "x"}}))
    cluster.apply(selecting_claim("c", f'device.attributes["{DRIVER}"].model == "x"'))
    cluster.using("c")
    if is_refused:
        assert cluster.reserve().node_name == "a"
    else:
        assert "CEL runtime error: no such key: model" in attempt_of(cluster.cycle()).message


def test_a_pod_whose_extended_resource_the_node_itself_serves_is_bound_at_once() -> None:
    """Its device plugin does: nothing is written of claims."""
    cluster = ClaimCluster(1, ())
    cluster.node("a", allocatable={"pods": "10", "example.com/gpu": "1"})
    cluster.show(device_class(extended_resource="example.com/gpu"))
    cluster.pod("p", containers=[build.container(requests={"example.com/gpu": "1"})])
    assert bind_of(cluster.cycle()).node_name == "a"
