"""Every shape at a small size: its objects, and that all its pods can be scheduled with no rule broken."""

from typing import cast
from unittest.mock import Mock

import pytest
from aiohttp import ServerTimeoutError

from scheduler.errors import SettingsError
from tests.bench.api_objects import Objects
from tests.bench.checks import broken_rules
from tests.bench.core_level import measure_core
from tests.bench.devices import allocation_faults
from tests.bench.http_level import measure_http
from tests.bench.scene import Size, build_scene, room_for, sized
from tests.bench.schedulers import OURS
from tests.bench.shapes import SHAPE_BY_NAME, SHAPES, placed
from tests.support.api_client import Api
from tests.support.build import Json


@pytest.mark.parametrize(
    "shape",
    [pytest.param(shape, id=shape.name) for shape in (*SHAPES, placed(100_000)) if not shape.is_http_only],
)
def test_every_measured_pod_of_every_shape_is_bound_and_no_rule_is_broken(shape):
    measured = measure_core(build_scene(shape, Size(60, 10, n_crowd=120)))
    assert measured.decision.n == 10


async def test_events_that_never_come_are_counted_and_not_waited_for():
    """A scheduler that drops events is measured too."""

    class Server:
        async def lines(self, *_, **__):
            yield b'{"type":"ADDED","object":{}}'
            yield b'{"type":"MODIFIED","object":{}}'
            raise ServerTimeoutError

    assert await Objects(Mock(), cast("Api", Server())).await_told(3, "1", lambda: "measured") == (
        "measured",
        2,
    )


def test_members_of_a_group_that_are_woken_in_steps_are_placed():
    measured = measure_core(build_scene(SHAPE_BY_NAME["one-group"], Size(60, 200)))
    assert measured.decision.n == 200


def test_pods_and_their_claims_are_measured_over_http():
    (result,) = measure_http(build_scene(SHAPE_BY_NAME["bound-claims"], Size(5, 3)), "devcluster", [OURS])
    assert (result.n_pods, result.n_untold) == (3, 0)


def test_more_pods_than_there_is_room_for_are_refused():
    shape = SHAPE_BY_NAME["ns-anti-affinity"]
    room = room_for(shape, 150)
    assert sized(shape, n_nodes=150, n_pods=room).n_pods == room
    with pytest.raises(SettingsError, match=f"1 to {room} pods"):
        sized(shape, n_nodes=150, n_pods=room + 1)


def _all_on(name: str, node: str, size: Size) -> list[str]:
    scene = build_scene(SHAPE_BY_NAME[name], size)
    return broken_rules(scene, dict.fromkeys(scene.measured_keys, node))


@pytest.mark.parametrize(
    ("name", "node", "line"),
    [
        pytest.param("basic", "node-000000", "node-000000: 4100m of 4000m CPU in use", id="room"),
        pytest.param("basic", "elsewhere", "elsewhere: no such node", id="unknown node"),
        pytest.param(
            "anti-affinity", "node-000002", "anti-affinity of anti-affinity broken by 2", id="anti-affinity"
        ),
        pytest.param("matching-anti-affinity", "node-000000", "broken by 40 labelled", id="of others"),
        pytest.param("spread-hard", "node-000000", "skew 40 over topology.kubernetes.io/zone", id="spread"),
        pytest.param("node-inclusion", "node-000009", "pods that do not tolerate its taint", id="taint"),
    ],
)
def test_a_broken_rule_is_found(name, node, line):
    n_pods = 2 if name == "anti-affinity" else 40
    assert any(line in found for found in _all_on(name, node, Size(10, n_pods)))


def _claim(*devices: str) -> Json:
    results = [{"driver": "gpu.example.com", "pool": "node-000001", "device": device} for device in devices]
    return {"status": {"allocation": {"devices": {"results": results}}}}


@pytest.mark.parametrize(
    ("claims", "lines"),
    [
        pytest.param([_claim("gpu-0"), _claim("gpu-1")], [], id="a device each"),
        pytest.param(
            [_claim("gpu-0"), _claim("gpu-0")],
            ["('gpu.example.com', 'node-000001', 'gpu-0') has 2 claims"],
            id="a device twice",
        ),
        pytest.param(
            [_claim("gpu-0"), {}], ["1 devices are allocated to 2 pods"], id="a pod without a device"
        ),
    ],
)
def test_faults_of_allocations_are_found(claims, lines):
    assert allocation_faults(claims, 2) == lines


@pytest.mark.parametrize("name", ["device-claims", "extended-resources"])
def test_a_shape_with_devices_has_room_for_eight_pods_on_each_node(name):
    scene = build_scene(SHAPE_BY_NAME[name], Size(3, 24))
    assert room_for(scene.shape, 3) == len(scene.measured) == 24
    assert [each["kind"] for each in scene.from_drivers] == ["DeviceClass", *["ResourceSlice"] * 3]


def test_members_of_a_pod_group_are_told_from_two_racks_and_named_after_their_scheduler():
    scene = build_scene(SHAPE_BY_NAME["rack-pod-groups"], Size(100, 6))
    four, two = scene.measured[:4], scene.measured[4:]
    assert {pod.template.min_count for pod in four} == {4}
    assert {pod.template.min_count for pod in two} == {2}
    document = two[0].template.pod("n", "p", scheduler="s")
    assert document["spec"]["schedulingGroup"] == {"podGroupName": "gang-1-s"}

    def broken(last: str) -> list[str]:
        nodes = dict.fromkeys(scene.measured_keys, "node-000003")
        return broken_rules(scene, {**nodes, (two[1].namespace, two[1].name): last})

    # The 54th node is in the rack of the fourth.
    assert broken("node-000053") == []
    assert broken("node-000004") == ["gang-1: in 2 zones, one is required"]
