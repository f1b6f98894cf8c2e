"""Results of selectors that devices share, against an evaluation of each device on its own."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scheduler.cel import DeviceFields, Selector, compile_selector
from scheduler.model.device_decoder import DeviceDecoder
from scheduler.model.device_fields import fields_of
from scheduler.model.devices import Device, DeviceId, DeviceKind, ResourceSlice
from scheduler.plugins.dynamic_resources import selection
from scheduler.plugins.dynamic_resources.inputs import Candidate
from scheduler.plugins.dynamic_resources.selection import SelectorResults

DRIVERS = ("d.example.com", "e.example.com")
NAMES = ("a", "z", "d.example.com/a", "d.example.com/z", "e.example.com/z")

EXPRESSIONS = (
    'device.driver == "d.example.com"',
    "device.allowMultipleAllocations",
    "true",
    'device.attributes["d.example.com"].a == 1',
    'device.attributes["d.example.com"]["z"] == "x" || device.attributes["e.example.com"].z',
    'has(device.attributes["d.example.com"].a) && !has(device.capacity["d.example.com"].z)',
    'device.attributes["d.example.com"].a.isGreaterThan(semver("1.0.0"))',
    'device.capacity["d.example.com"].a.compareTo(quantity("1Ki")) > 0',
    'device.capacity["d.example.com"].z.asInteger() > 5',
    # These may read any field.
    '"a" in device.attributes["d.example.com"]',
    'device.attributes["d.example.com"].?a.orValue(1) == 1',
    'device.attributes["d.example.com"].exists(name, name == "z")',
    'cel.bind(own, device.attributes["d.example.com"], own.a == 1)',
    'device.attributes[device.driver].a == "x"',
    "[device].all(device, device.driver.size() > 13)",
    "dyn(device).pool == 1",
)

attributes = st.one_of(
    st.sampled_from([{"int": 1}, {"int": 0}, {"bool": True}, {"bool": False}, {"string": "x"}]),
    st.sampled_from([{"string": "1"}, {"version": "2.0.0"}, {"version": "0.1.0"}, {"version": "bad"}, {}]),
)
capacities = st.sampled_from(
    [{"value": text} for text in ("1", "6", "6000m", "1024", "1Ki", "5500m", "1e20")]
)
devices = st.tuples(
    st.sampled_from(DRIVERS),
    st.fixed_dictionaries(
        {},
        optional={
            "attributes": st.dictionaries(st.sampled_from(NAMES), attributes, max_size=4),
            "capacity": st.dictionaries(st.sampled_from(NAMES), capacities, max_size=4),
            "allowMultipleAllocations": st.booleans(),
        },
    ),
)


def candidates_of(given_devices: list[tuple[str, dict[str, Any]]]) -> list[Candidate]:
    """Return the devices, each in a slice of its driver."""
    found = []
    for number, (driver, fields) in enumerate(given_devices):
        raw = {
            "metadata": {"name": f"slice-{number}", "uid": f"uid-{number}", "resourceVersion": "1"},
            "spec": {
                "driver": driver,
                "nodeName": "n",
                "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": f"device-{number}", **fields}],
            },
        }
        its_slice = DeviceDecoder().decode(DeviceKind.SLICE, json.dumps(raw).encode())
        assert isinstance(its_slice, ResourceSlice)
        (device,) = its_slice.devices
        found.append(Candidate(device, its_slice, DeviceId(driver, "n", device.name)))
    return found


def of_capacities(*each: dict[str, str]) -> list[tuple[str, dict[str, Any]]]:
    """Return devices with these capacities."""
    return [
        ("d.example.com", {"capacity": {name: {"value": text} for name, text in one.items()}}) for one in each
    ]


@given(st.lists(devices, min_size=1, max_size=12), st.lists(st.sampled_from(EXPRESSIONS), min_size=1))
@example(of_capacities({"z": "6"}, {"z": "6000m"}), ['device.capacity["d.example.com"].z.asInteger() > 5'])
@example(
    of_capacities({"z": "6", "d.example.com/z": "1"}, {"d.example.com/z": "1", "z": "6"}),
    ['device.capacity["d.example.com"].z.asInteger() > 5'],
)
def test_a_device_has_the_result_of_its_own_evaluation(
    given_devices: list[tuple[str, dict[str, Any]]], expressions: list[str]
) -> None:
    results, candidates = SelectorResults(), candidates_of(given_devices)
    for expression in expressions:
        selector = compile_selector(expression)
        assert isinstance(selector, Selector)
        for candidate in candidates:
            alone = selector.matches(fields_of(candidate.id.driver, candidate.device))
            assert results.matches(expression, candidate) == alone


@pytest.mark.parametrize("expression", [each for each in EXPRESSIONS if "pool" not in each])
def test_devices_that_an_expression_sees_alike_are_evaluated_once(
    monkeypatch: pytest.MonkeyPatch, expression: str
) -> None:
    fields = {"attributes": {"d.example.com/a": {"int": 1}}}
    candidates = candidates_of([("d.example.com", fields)] * 3)
    seen: list[Device] = []

    def seeing(driver: str, device: Device) -> DeviceFields:
        seen.append(device)
        return fields_of(driver, device)

    monkeypatch.setattr(selection, "fields_of", seeing)
    results = SelectorResults()
    for candidate in candidates:
        results.matches(expression, candidate)
    selector = compile_selector(expression)
    assert isinstance(selector, Selector)
    assert len(seen) == (3 if selector.reads is None else 1)
