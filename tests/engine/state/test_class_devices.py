"""How many devices of a class each node reaches, by what slices and devices say of nodes."""

from __future__ import annotations

import json

import pytest

from scheduler.engine.framework.kinds import KINDS
from scheduler.engine.model.devices import DeviceKind
from scheduler.engine.model.nodes import decode_node
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.cluster_view import ClusterView
from tests.support import build
from tests.support.build import Json
from tests.support.device_documents import DRIVER

RESOURCE = "example.com/gpu"
#: Of nodes a and b.
_ON_B = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "z", "operator": "In", "values": ["b"]}]}]}
_BROKEN = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "z", "operator": "Is", "values": ["b"]}]}]}


def device(name: str, model: str | None = "new", **fields: object) -> Json:
    attributes = {} if model is None else {"model": {"string": model}}
    return {"name": name, "attributes": attributes, **fields}


def of_slice(*devices: Json, **fields: object) -> Json:
    return {"driver": DRIVER, "devices": list(devices), **fields}


def claim(*devices: str) -> Json:
    results = [{"request": "r", "driver": DRIVER, "pool": "pool-0", "device": name} for name in devices]
    return {
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "default", "uid": "c"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}},
        "status": {"allocation": {"devices": {"results": results}}},
    }


_IS_NEW = f'device.attributes["{DRIVER}"].model == "new"'


def cluster(*slices: Json, held: tuple[str, ...] = (), expression: str = _IS_NEW) -> ClusterView:
    """Return nodes a and b with these slices, and a class of the devices that the expression selects."""
    made: list[Json] = [
        {
            "kind": "DeviceClass",
            "metadata": {"name": "gpu", "uid": "gpu"},
            "spec": {"selectors": [{"cel": {"expression": expression}}], "extendedResourceName": RESOURCE},
        },
        *(
            {
                "kind": "ResourceSlice",
                "metadata": {"name": f"s{number}", "uid": f"s{number}"},
                "spec": {
                    "pool": {"name": f"pool-{number}", "generation": 1, "resourceSliceCount": 1},
                    **spec,
                },
            }
            for number, spec in enumerate(slices)
        ),
        claim(*held),
    ]
    state = ClusterState()
    for name in "ab":
        state.nodes.upsert(decode_node(json.dumps(build.node(name, labels={"z": name})).encode()))
    for document in made:
        kind = DeviceKind(document["kind"])
        state.devices.upsert(KINDS[kind].decode(json.dumps(document).encode()))
    state.devices.serve(*DeviceKind)
    return ClusterView(state)


@pytest.mark.parametrize(
    ("slices", "total"),
    [
        pytest.param([of_slice(device("d"), device("e"), nodeName="a")], [2, 0], id="of a node"),
        pytest.param([of_slice(device("d"), nodeName="gone")], [0, 0], id="of a node that is gone"),
        pytest.param([of_slice(device("d"), allNodes=True)], [1, 1], id="of all nodes"),
        pytest.param([of_slice(device("d"))], [1, 1], id="of no node, as upstream counts it"),
        pytest.param([of_slice(device("d"), nodeSelector=_ON_B)], [0, 1], id="of selected nodes"),
        pytest.param(
            [
                of_slice(
                    device("c", nodeName="gone"),
                    device("d", nodeName="a"),
                    device("e", allNodes=True),
                    device("f", nodeSelector=_ON_B),
                    device("g"),
                    perDeviceNodeSelection=True,
                )
            ],
            [2, 2],
            id="each device of its nodes",
        ),
        pytest.param(
            [of_slice(device("d", "old"), device("e"), nodeName="a")],
            [1, 0],
            id="another model does not count",
        ),
        pytest.param(
            [
                of_slice(device("d", None), device("e"), nodeName="a"),
                of_slice(device("d"), device("e"), nodeName="b"),
            ],
            [0, 2],
            id="none where a selector fails for one",
        ),
        pytest.param(
            [of_slice(device("d", None), nodeName="a"), of_slice(device("d", None), nodeName="b")],
            [0, 0],
            id="a selector fails on each node",
        ),
        pytest.param(
            [of_slice(device("d"), nodeSelector=_BROKEN), of_slice(device("d"), nodeName="a")],
            [0, 0],
            id="none anywhere where a slice selects nodes by an unknown operator",
        ),
    ],
)
def test_a_class_has_the_devices_that_its_selectors_take(slices: list[Json], total: list[int]) -> None:
    found = cluster(*slices).class_devices(RESOURCE)
    assert found is not None
    assert [amounts.tolist() for amounts in found] == [total, [0, 0]]


def test_allocated_devices_are_counted_where_they_are_reached() -> None:
    view = cluster(of_slice(device("d"), device("e"), device("f", "old"), nodeName="a"), held=("d", "f"))
    found = view.class_devices(RESOURCE)
    assert found is not None
    assert [amounts.tolist() for amounts in found] == [[2, 0], [1, 0]]
    assert view.class_devices("example.com/other") is None


def test_an_expression_is_told_of_no_device_that_claims_may_share_it() -> None:
    """As upstream, where this number is counted for scores."""
    shared = of_slice(device("d", allowMultipleAllocations=True), nodeName="a")
    for expression, total in (
        ("device.allowMultipleAllocations", [0, 0]),
        ("!device.allowMultipleAllocations", [1, 0]),
    ):
        found = cluster(shared, expression=expression).class_devices(RESOURCE)
        assert found is not None
        assert found[0].tolist() == total
