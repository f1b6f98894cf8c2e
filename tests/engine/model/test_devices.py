"""Slices, classes and claims are decoded strictly, and allocations are written as they were read."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from scheduler.engine.framework.kinds import KINDS
from scheduler.engine.model.device_requests import DeviceObject, ResourceClaim
from scheduler.engine.model.devices import DeviceAttribute, DeviceClass, DeviceKind, ResourceSlice
from scheduler.engine.model.node_selector import NodeSelector, on_node
from scheduler.engine.model.terms import NodeRequirement, NodeTerm
from scheduler.engine.model.wire import MalformedObjectError

Json = dict[str, Any]


def decoded(kind: DeviceKind, spec: Json, **more: Json) -> DeviceObject:
    """Return an object with this spec."""
    meta = {"name": "x", "namespace": "default", "uid": "u"}
    found: DeviceObject = KINDS[kind].decode(json.dumps({"metadata": meta, "spec": spec, **more}).encode())
    return found


def test_a_device_has_its_attributes_and_capacities() -> None:
    policy = {"default": "1Gi", "validRange": {"min": "1Gi", "step": "512Mi"}}
    device = {
        "name": "d",
        "attributes": {
            "a": {"string": "s"},
            "b": {"int": 1},
            "c": {"bool": True},
            "d": {"version": "1.0.0"},
            "e": {},
        },
        "capacity": {"memory": {"value": "4Gi", "requestPolicy": policy}},
        "taints": [{"key": "k", "effect": "NoSchedule"}],
    }
    made = decoded(DeviceKind.SLICE, {"driver": "d", "pool": {"name": "p"}, "devices": [device]})
    assert isinstance(made, ResourceSlice)
    (each,) = made.devices
    assert list(each.attributes.values()) == [
        DeviceAttribute(string="s"),
        DeviceAttribute(int_=1),
        DeviceAttribute(bool_=True),
        DeviceAttribute(version="1.0.0"),
        DeviceAttribute(),
    ]
    assert [one.value for one in each.attributes.values()] == ["s", 1, True, "1.0.0", None]
    memory = each.capacity["memory"]
    assert str(memory.value) == "4Gi"
    assert memory.policy is not None
    assert memory.policy.valid_range is not None
    assert str(memory.policy.valid_range.step) == "512Mi"


def test_an_allocation_is_written_as_it_was_read() -> None:
    """Parameters of drivers keep their text, and empty fields are left out."""
    parameters = {"big": 12345678901234567890, "float": 1.0}
    allocation = {
        "devices": {
            "results": [{"request": "r", "driver": "d", "pool": "p", "device": "x", "shareID": "s"}],
            "config": [
                {
                    "source": "FromClass",
                    "requests": ["r"],
                    "opaque": {"driver": "d", "parameters": parameters},
                }
            ],
        },
        "nodeSelector": {
            "nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
            ]
        },
    }
    made = decoded(DeviceKind.CLAIM, {"devices": {}}, status={"allocation": allocation})
    assert isinstance(made, ResourceClaim)
    assert json.loads(msgspec.json.encode(made.allocation)) == allocation


def test_a_selector_of_an_unknown_kind_is_kept_as_none() -> None:
    """A class of a later version may select by something else than CEL."""
    made = decoded(DeviceKind.CLASS, {"selectors": [{"cel": {"expression": "true"}}, {"future": {}}]})
    assert isinstance(made, DeviceClass)
    assert made.selectors == ("true", None)


@pytest.mark.parametrize(
    ("kind", "spec", "problem"),
    [
        pytest.param(
            DeviceKind.SLICE,
            {"pool": {"generation": "1"}},
            "ResourceSlice: Expected `int`, got `str` - at `$.spec.pool.generation`",
            id="a generation is a number",
        ),
        pytest.param(
            DeviceKind.SLICE,
            {"devices": [{"name": "d", "capacity": {"m": {"value": "many"}}}]},
            "ResourceSlice: 'many' is not a quantity: quantities are a number and a suffix such as m, k, Mi or e3",
            id="a capacity is a quantity",
        ),
        pytest.param(
            DeviceKind.CLAIM,
            {"devices": {"requests": [{"name": "r", "exactly": {"count": "1"}}]}},
            "ResourceClaim: Expected `int`, got `str` - at `$.spec.devices.requests[0].exactly.count`",
            id="a count is a number",
        ),
    ],
)
def test_a_field_of_the_wrong_type_is_named(kind: DeviceKind, spec: Json, problem: str) -> None:
    with pytest.raises(MalformedObjectError) as caught:
        decoded(kind, spec)
    assert str(caught.value) == problem


def test_an_amount_that_is_consumed_is_a_quantity() -> None:
    result = {"request": "r", "driver": "d", "pool": "p", "device": "d", "consumedCapacity": {"m": "much"}}
    with pytest.raises(MalformedObjectError, match="ResourceClaim: 'much' is not a quantity"):
        decoded(DeviceKind.CLAIM, {}, status={"allocation": {"devices": {"results": [result]}}})


def test_a_bad_node_selector_is_told_as_upstream_tells_it() -> None:
    bogus = NodeRequirement("zone", "Bogus", ("a",))
    one = NodeSelector((NodeTerm(expressions=(bogus,)),))
    supported = 'supported values: "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"'
    text = f'nodeSelectorTerms[0].matchExpressions[0].operator: Unsupported value: "Bogus": {supported}'
    assert one.problem == text
    two = NodeSelector((NodeTerm(expressions=(bogus, bogus)),))
    assert two.problem == f"[{text}, {text.replace('Expressions[0]', 'Expressions[1]')}]"


@pytest.mark.parametrize(
    ("term", "matches"),
    [
        pytest.param(NodeTerm(), False, id="an empty term matches nothing"),
        pytest.param(NodeTerm(expressions=(NodeRequirement("zone", "In", ("a", "b")),)), True, id="In"),
        pytest.param(
            NodeTerm(expressions=(NodeRequirement("disk", "NotIn", ("a",)),)), True, id="NotIn absent"
        ),
        pytest.param(NodeTerm(expressions=(NodeRequirement("disk", "Exists"),)), False, id="Exists"),
        pytest.param(
            NodeTerm(expressions=(NodeRequirement("disk", "DoesNotExist"),)), True, id="DoesNotExist"
        ),
        pytest.param(NodeTerm(expressions=(NodeRequirement("size", "Gt", ("3",)),)), True, id="Gt"),
        pytest.param(
            NodeTerm(expressions=(NodeRequirement("zone", "Lt", ("3",)),)), False, id="Lt of a word"
        ),
        pytest.param(NodeTerm(names=(NodeRequirement("metadata.name", "In", ("n",)),)), True, id="the name"),
        pytest.param(
            NodeTerm(names=(NodeRequirement("metadata.name", "NotIn", ("n",)),)), False, id="not the name"
        ),
    ],
)
def test_a_node_selector_matches_labels_and_name(term: NodeTerm, *, matches: bool) -> None:
    selection = NodeSelector((term,))
    assert selection.matches("n", {"zone": "a", "size": "4"}) is matches


def test_the_selector_of_a_node_is_written_by_its_name() -> None:
    written = json.loads(msgspec.json.encode(on_node("n")))
    field = {"key": "metadata.name", "operator": "In", "values": ["n"]}
    assert written == {"nodeSelectorTerms": [{"matchFields": [field]}]}
