"""Every shape at a small size: its objects, and that all its pods can be scheduled with no rule broken."""

import pytest

from scheduler.engine.framework.status import SKIP, Skip
from scheduler.engine.plugins.inter_pod_affinity.plugin import InterPodAffinity
from scheduler.engine.plugins.pod_topology_spread.plugin import PodTopologySpread
from scheduler.errors import SettingsError
from tests.bench.bytes_level import measure_bytes
from tests.bench.checks import broken_rules
from tests.bench.core_level import measure_core
from tests.bench.devices import allocation_faults
from tests.bench.loaded import SCHEDULER
from tests.bench.scene import Size, build_scene, room_for, sized
from tests.bench.shapes import DECIDED, SHAPE_BY_NAME, Shape, placed
from tests.bench.templates import Planned
from tests.bench.volumes import claims_and_volumes
from tests.conformance.compare import decision_mismatches
from tests.conformance.product import ProductSubject
from tests.conformance.subject import ReferenceSubject
from tests.support.build import Json

_ALL = [pytest.param(shape, id=shape.name) for shape in (*DECIDED, placed(100_000))]


@pytest.mark.parametrize("shape", _ALL)
def test_every_measured_pod_of_every_shape_is_bound_and_no_rule_is_broken(shape):
    measured = measure_core(build_scene(shape, Size(150, 10, n_crowd=300)), with_shares=False)
    assert measured.decision.n == 10


@pytest.mark.parametrize("name", ["anti-affinity", "spread-default", "unschedulable"])
def test_every_measured_pod_is_bound_from_the_bytes_of_watches(name):
    measured = measure_bytes(build_scene(SHAPE_BY_NAME[name], Size(60, 10)))
    assert set(measured.us_by_event) >= {"pod pending", "pod bound", "pod running"}
    assert 2000 < measured.bytes_per_pod < 4000


@pytest.mark.parametrize("shape", _ALL)
def test_a_full_shape_has_upstreams_counts(shape):
    scene = build_scene(shape, sized(shape, n_nodes=None, n_pods=None, full=True))
    assert len(scene.nodes) == shape.n_nodes
    assert len(scene.measured) == shape.n_measured
    assert len(scene.running) == sum(group.n for group in shape.init) * shape.n_namespaces
    assert len(scene.idle) == sum(group.n for group in shape.idle)


@pytest.mark.parametrize("shape", _ALL)
def test_running_pods_break_no_rule_beforehand(shape):
    scene = build_scene(shape, Size(150, 1, n_crowd=2000))
    found = broken_rules(scene, {})
    assert found == ["1 of 1 measured pods are not bound"]
    assert len(scene.running) == 2000


def test_more_pods_than_there_is_room_for_are_refused():
    shape = SHAPE_BY_NAME["ns-anti-affinity"]
    room = room_for(shape, 150)
    assert sized(shape, n_nodes=150, n_pods=room, full=False).n_pods == room
    with pytest.raises(SettingsError, match=f"1 to {room} pods"):
        sized(shape, n_nodes=150, n_pods=room + 1, full=False)


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


def _disagreements(shape: Shape) -> list[str]:
    """
    Return the differences between decisions about the shape and the reference's, one line each.

    Pods that go to the emptiest nodes rarely meet, so that a run without a broken rule proves little: here the reasons
    and scores of every node are compared. The nodes are enough for a pod in each of a hundred namespaces.
    """
    scene = build_scene(shape, Size(110, min(4, room_for(shape, 110)), n_idle_max=2))
    subjects = (ReferenceSubject(None), ProductSubject(None))
    storage = (*scene.from_drivers, *claims_and_volumes((*scene.running, *scene.measured)))
    pods = (_pod(planned, planned.node) for planned in (*scene.running, *scene.idle))
    for one in (*scene.namespaces, *scene.nodes, *scene.services, *storage, *pods):
        for subject in subjects:
            subject.apply(one)
    found: list[str] = []
    for planned in scene.measured:
        expected, got = (subject.evaluate(_pod(planned)) for subject in subjects)
        found += map(str, decision_mismatches(expected, got))
        assert expected.get("feasible"), f"{planned.name} fits on no node"
        total = expected.get("total") or {}
        best = max(expected["feasible"], key=lambda node: (total.get(node, 0), node))
        for subject in subjects:
            subject.apply(_pod(planned, best))
    return found


def _pod(planned: Planned, node: str = "") -> Json:
    return planned.template.pod(planned.namespace, planned.name, node=node, scheduler=SCHEDULER)


@pytest.mark.parametrize("shape", _ALL)
def test_decisions_about_every_shape_are_the_references(shape):
    assert _disagreements(shape) == []


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


def _skip(*_: object) -> Skip:
    return SKIP


@pytest.mark.parametrize(
    ("name", "plugin", "method"),
    [
        pytest.param("anti-affinity", InterPodAffinity, "prefilter", id="anti-affinity"),
        pytest.param("matching-anti-affinity", InterPodAffinity, "prefilter", id="of others"),
        pytest.param("ns-anti-affinity", InterPodAffinity, "prefilter", id="namespaceSelector"),
        pytest.param("preferred-affinity", InterPodAffinity, "prescore", id="preferred"),
        pytest.param("node-inclusion", PodTopologySpread, "prefilter", id="hard spread"),
        pytest.param("spread-soft", PodTopologySpread, "prescore", id="soft spread"),
        pytest.param("spread-default", PodTopologySpread, "prescore", id="default spread"),
    ],
)
def test_a_rule_left_out_is_found_though_no_rule_is_broken_by_it(monkeypatch, name, plugin, method):
    shape = SHAPE_BY_NAME[name]
    monkeypatch.setattr(plugin, method, _skip)
    assert measure_core(build_scene(shape, Size(150, 10)), with_shares=False).decision.n == 10
    assert _disagreements(shape)
