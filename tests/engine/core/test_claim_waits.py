"""What a pod with claims waits for before it is bound, how long, and what it does not wait for."""

import pytest

from scheduler.engine.model.instructions import Attempted, Bind, DevicesAwaited
from tests.engine.core.claim_cluster import ClaimCluster, awaited
from tests.support import build
from tests.support.device_documents import DRIVER, device_class, device_slice, resource_claim, selecting_claim
from tests.support.driving import attempt_of, bind_of, each_of


def _waiting(**of_device: list[str]) -> ClaimCluster:
    """Return a cluster with a pod whose claim is written and not shown."""
    cluster = ClaimCluster(0, ("a",))
    cluster.show(device_slice("a", 1, **of_device))
    cluster.apply(resource_claim("c"))
    cluster.using("c")
    cluster.write(cluster.reserve())
    return cluster


def test_a_pod_is_bound_once_its_devices_are_ready() -> None:
    cluster = _waiting(bindingConditions=["ready"])
    claim = cluster.server.claims["default/c"]
    device = {"driver": DRIVER, "pool": "a", "device": "gpu-0"}
    ready = {**device, "conditions": [{"type": "ready", "status": "True"}]}
    cluster.store({**claim, "status": {**claim["status"], "devices": [ready]}})
    instructions = [*cluster.watch(), *cluster.cycle()]
    assert awaited(instructions) == ("success", ((DRIVER, True),))
    assert bind_of(each_of(instructions, Bind)).node_name == "a"


def test_no_wait_is_reported_of_devices_without_conditions() -> None:
    cluster = _waiting()
    instructions = [*cluster.watch(), *cluster.cycle()]
    assert not each_of(instructions, DevicesAwaited)


@pytest.mark.parametrize("of_device", [{}, {"bindingConditions": ["ready"]}], ids=["plain", "conditions"])
def test_a_pod_whose_claim_is_deleted_while_it_waits_fails(of_device: dict[str, list[str]]) -> None:
    cluster = _waiting(**of_device)
    cluster.events.clear()
    del cluster.server.claims["default/c"]
    cluster.collect()
    message = attempt_of(cluster.watch()).message
    assert message == 'running PreBind plugin "DynamicResources": could not find ResourceClaim "default/c"'


@pytest.mark.parametrize(("of_device", "is_over"), [({}, True), ({"bindingConditions": ["ready"]}, False)])
def test_two_minutes_are_enough_for_a_watch_and_not_for_devices(
    of_device: dict[str, list[str]], *, is_over: bool
) -> None:
    cluster = _waiting(**of_device)
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
