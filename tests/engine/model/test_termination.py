"""Whether a pod that terminates is gone right after."""

from __future__ import annotations

import json

import pytest

from scheduler.engine.model.pod_decoder import PodDecoder
from tests.support import build
from tests.support.build import Json


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({}, (False, False)),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30}, (True, False)),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0}, (True, True)),
        (
            {
                "deletionTimestamp": "2026-01-01T00:00:00Z",
                "deletionGracePeriodSeconds": 0,
                "finalizers": ["batch.kubernetes.io/job-tracking"],
            },
            (True, False),
        ),
    ],
    ids=["runs", "has a grace period", "has none", "has none but a finalizer"],
)
def test_a_pod_ends_at_once_without_a_grace_period_and_finalizers(
    metadata: Json, expected: tuple[bool, bool]
) -> None:
    made = build.pod("p")
    made["metadata"] |= metadata
    pod = PodDecoder().decode(json.dumps(made).encode())
    assert (pod.terminating, pod.ends_at_once) == expected
