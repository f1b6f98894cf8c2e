"""DeviceTaintRules taint the devices of slices, whichever of both comes first."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.engine.framework.kinds import KINDS
from scheduler.engine.model.devices import DeviceKind, ResourceSlice
from scheduler.engine.model.stimuli import ObjectGone
from scheduler.engine.state.devices import Devices
from tests.engine.core.claim_cluster import ClaimCluster
from tests.support.build import Json
from tests.support.device_documents import DRIVER, device_slice, resource_claim
from tests.support.driving import attempt_of

RULE = DeviceKind.TAINT_RULE


def rule(name: str, effect: str = "NoSchedule", *, selects: bool = True, **selector: str | None) -> Json:
    """Return a rule for the devices that all given fields select; for none without `selects`."""
    given_fields = {field: value for field, value in selector.items() if value is not None}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": name, "uid": name},
        "spec": {
            **({"deviceSelector": given_fields} if selects else {}),
            "taint": {"key": f"taint-{name}", "effect": effect},
        },
    }


@pytest.mark.parametrize(
    ("selector", "effect", "is_refused"),
    [
        ({"driver": DRIVER}, "NoSchedule", True),
        ({}, "NoExecute", True),
        ({}, "None", False),
        ({"driver": DRIVER, "device": "no-such"}, "NoSchedule", False),
        ({"driver": "another"}, "NoSchedule", False),
    ],
)
def test_a_pod_gets_no_device_that_a_rule_taints_until_the_rule_is_gone(
    selector: dict[str, str], effect: str, *, is_refused: bool
) -> None:
    cluster = ClaimCluster(1, ("a",))
    cluster.apply(resource_claim("c"))
    cluster.show(rule("r", effect, driver=selector.get("driver"), device=selector.get("device")))
    cluster.using("c")
    if is_refused:
        assert "cannot allocate all claims" in attempt_of(cluster.cycle()).message
        cluster.handle(ObjectGone(RULE, "r"))
        cluster.pass_time(20)
    assert cluster.write(cluster.reserve()) == []
    cluster.audit()


def _taints(devices: Devices) -> dict[str, list[list[str]]]:
    return {
        each.key: [[taint.key for taint in device.taints] for device in each.devices]
        for each in devices.slices()
    }


_NAMES = st.sampled_from(["r0", "r1", "r2"])
_CHANGES = st.lists(
    st.one_of(
        st.builds(
            rule,
            _NAMES,
            selects=st.booleans(),
            driver=st.sampled_from([None, DRIVER, "x"]),
            pool=st.sampled_from([None, "a", "b"]),
            device=st.sampled_from([None, "gpu-0", "gpu-1"]),
        ),
        _NAMES,
        st.builds(device_slice, st.sampled_from("abc"), st.sampled_from([1, 2])),
    ),
    max_size=12,
)


@settings(max_examples=100, deadline=None)
@given(changes=_CHANGES)
def test_slices_have_the_taints_of_all_rules_in_whatever_order_they_come(changes: list[Json | str]) -> None:
    devices, rules, slices = Devices(), dict[str, Json](), dict[str, Json]()
    for change in changes:
        if isinstance(change, str):
            devices.remove(RULE, change)
            rules.pop(change, None)
        else:
            kind = DeviceKind(change["kind"])
            devices.upsert(KINDS[kind].decode(json.dumps(change).encode()))
            (rules if kind is RULE else slices)[change["metadata"]["name"]] = change
        assert _taints(devices) == {
            name: [
                [
                    each["spec"]["taint"]["key"]
                    for _, each in sorted(rules.items())
                    if _selects(each["spec"].get("deviceSelector"), document["spec"], device["name"])
                ]
                for device in document["spec"]["devices"]
            ]
            for name, document in slices.items()
        }
        assert list(devices.differences()) == []
        copy = Devices()
        for _ in devices.copy_pieces(copy):
            pass
        assert _taints(copy) == _taints(devices)
        assert list(copy.differences()) == []
    assert all(isinstance(each, ResourceSlice) for each in devices.slices())
    for name in slices:
        devices.remove(DeviceKind.SLICE, name)
    assert not devices._taints._tainted


def _selects(selector: Json | None, spec: Json, device: str) -> bool:
    if selector is None:
        return False
    found = {"driver": spec["driver"], "pool": spec["pool"]["name"], "device": device}
    return all(found[field] == value for field, value in selector.items())
