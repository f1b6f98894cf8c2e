"""Ranges of capacities with an amount that is no whole number: counted in thousandths."""

from __future__ import annotations

import pytest

from scheduler.engine.model.device_requests import DeviceQuery
from scheduler.engine.model.devices import Device
from scheduler.engine.plugins.dynamic_resources.capacity import wanted_of
from scheduler.engine.syntax.quantity_format import parse_formatted
from tests.engine.plugins.dynamic_resources.clusters import slice_of

_HALVES = {"min": "500m", "step": "500m", "max": "4"}


def _device(valid: dict[str, str], default: str = "500m") -> Device:
    capacity = {"cores": {"value": "4", "requestPolicy": {"default": default, "validRange": valid}}}
    spec = {"driver": "d", "pool": {"name": "p"}, "devices": [{"name": "x", "capacity": capacity}]}
    return slice_of("x", spec).devices[0]


def _taken(requested: str, valid: dict[str, str], default: str = "500m") -> str | None:
    query = DeviceQuery("r", "c", capacity={"cores": parse_formatted(requested)})
    wanted = wanted_of(query, _device(valid, default))
    return None if wanted is None else str(wanted["cores"])


@pytest.mark.parametrize(
    ("requested", "valid", "taken"),
    [
        pytest.param("100m", _HALVES, "500m", id="below the minimum"),
        pytest.param("1", _HALVES, "1", id="a multiple"),
        pytest.param("1100m", _HALVES, "1500m", id="up to the next step"),
        pytest.param("1000001u", _HALVES, "1500m", id="less than a thousandth above a step"),
        pytest.param("3600m", _HALVES, "4", id="a whole number"),
        pytest.param("4100m", _HALVES, None, id="above the maximum"),
        pytest.param("100E", _HALVES, None, id="far above, where upstream's int64 would overflow"),
        pytest.param(
            "1100m", {"min": "1", "step": "1", "max": "3500m"}, "2", id="only the maximum is broken"
        ),
        pytest.param("1100m", {"min": "1", "step": "1"}, "2", id="whole numbers, in whole units"),
        pytest.param(
            "1100m", {"min": "1", "step": "500100u"}, "2", id="finer than thousandths, in whole units"
        ),
        # Written as by upstream: consumable_capacity.go, roundUpRange (kubernetes 1.36).
        pytest.param("2k", {"min": "2k", "step": "1"}, "2000", id="rounded to a step, in binary format"),
        pytest.param("2048", {"min": "2Ki"}, "2048", id="without a step, as it was requested"),
        pytest.param("2047", {"min": "2Ki"}, "2Ki", id="below the minimum, as the driver wrote that"),
    ],
)
def test_an_amount_is_rounded_in_thousandths(
    requested: str, valid: dict[str, str], taken: str | None
) -> None:
    assert _taken(requested, valid) == taken


def test_an_amount_that_is_rounded_to_the_default_may_break_the_range() -> None:
    above = {**_HALVES, "max": "3"}
    assert _taken("3600m", above, default="4") == "4"
    assert _taken("3600m", above) is None
