"""Whether the devices of a claim are ready, and since when they should be."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from scheduler.engine.model.device_requests import ResourceClaim
from scheduler.engine.plugins.dynamic_resources.binding import has_timed_out, readiness
from tests.engine.plugins.dynamic_resources.clusters import claim_of
from tests.support.build import Json
from tests.support.device_documents import DRIVER, resource_claim

_READY = {"type": "ready", "status": "True"}
_PLAIN: Json = {}
_CONDITIONS: Json = {"bindingConditions": ["ready"], "bindingFailureConditions": ["broken"]}
_ALLOCATED = "2026-01-01T00:00:00Z"
_ALLOCATED_S = datetime(2026, 1, 1, tzinfo=UTC).timestamp()


def _claim(*results: Json, devices: list[Json] | None = None, **allocation: object) -> ResourceClaim:
    """Return a claim with these devices, named by their number."""
    named = [
        {"request": "r", "driver": DRIVER, "pool": "a", "device": f"gpu-{number}", **each}
        for number, each in enumerate(results)
    ]
    allocated = {"devices": {"results": named}, **allocation}
    return claim_of(resource_claim("c", allocation=allocated, devices=devices or []))


def _status(number: int, *conditions: Json) -> Json:
    return {"driver": DRIVER, "pool": "a", "device": f"gpu-{number}", "conditions": list(conditions)}


@pytest.mark.parametrize(
    ("results", "devices", "expected"),
    [
        pytest.param([_PLAIN], [], True, id="nothing to wait for"),
        pytest.param([_PLAIN, _CONDITIONS], [], False, id="the second device has no status"),
        pytest.param([_CONDITIONS], [_status(0)], False, id="no condition yet"),
        pytest.param([_CONDITIONS], [_status(1, _READY)], False, id="the condition is another device's"),
        pytest.param([_CONDITIONS], [_status(0, _READY)], True, id="ready"),
        pytest.param(
            [_CONDITIONS, _CONDITIONS],
            [_status(0, _READY), _status(1, {**_READY, "status": "False"})],
            False,
            id="one of two",
        ),
        pytest.param(
            [_CONDITIONS],
            [
                _status(
                    0, _READY, {"type": "broken", "status": "True", "reason": "Off", "message": "no power"}
                )
            ],
            'device binding failed: claim=c, reason=Off, message="no power"',
            id="failed",
        ),
        pytest.param(
            [_CONDITIONS], [_status(0, _READY, {"type": "broken", "status": "False"})], True, id="not failed"
        ),
    ],
)
def test_devices_are_ready_once_all_their_conditions_are_true(
    results: list[Json], devices: list[Json], expected: bool | str
) -> None:
    assert readiness(_claim(*results, devices=devices)) == expected


@pytest.mark.parametrize(
    ("claim", "after_s", "expected"),
    [
        pytest.param(_claim(_CONDITIONS, allocationTimestamp=_ALLOCATED), 9.0, False, id="in time"),
        pytest.param(_claim(_CONDITIONS, allocationTimestamp=_ALLOCATED), 11.0, True, id="too late"),
        pytest.param(
            _claim(_PLAIN, _CONDITIONS, allocationTimestamp=_ALLOCATED), 11.0, True, id="one of two devices"
        ),
        pytest.param(
            _claim({"bindingConditions": []}, allocationTimestamp=_ALLOCATED), 11.0, True, id="an empty list"
        ),
        pytest.param(_claim(_PLAIN, allocationTimestamp=_ALLOCATED), 11.0, False, id="no conditions"),
        pytest.param(_claim(_CONDITIONS), 11.0, False, id="no time"),
        pytest.param(_claim(_CONDITIONS, allocationTimestamp="today"), 11.0, False, id="a time of no form"),
    ],
)
def test_devices_with_conditions_have_their_time(
    claim: ResourceClaim, after_s: float, *, expected: bool
) -> None:
    """Of ten seconds."""
    assert has_timed_out(claim, 10.0, _ALLOCATED_S + after_s) is expected
