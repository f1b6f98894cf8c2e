"""
The quota controller: counts what pods use again when they come and go.

Source: pkg/controller/resourcequota/resource_quota_controller.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from scheduler.sandbox.devcluster.admission.quotas import expires_in_s, recount
from scheduler.sandbox.devcluster.controllers.actions import Action, Revisit, status_written
from scheduler.sandbox.devcluster.kinds import RESOURCE_QUOTA, JsonObject

#: Seconds after the grace of a terminating pod until its quota is counted again.
_LATE_S: Final = 1.0


def plan(quota: JsonObject, pods: Sequence[JsonObject], now_s: float) -> list[Action]:
    """
    Return the write that brings the quota's status up to date.

    Args:
        quota: as stored.
        pods: of its namespace.
        now_s: seconds since 1970.
    """
    actions = status_written(RESOURCE_QUOTA, quota, recount(quota, pods, now_s))
    waits = [wait_s for pod in pods if (wait_s := expires_in_s(pod, now_s)) is not None and wait_s > 0]
    if waits:
        actions.append(Revisit(min(waits) + _LATE_S))
    return actions
