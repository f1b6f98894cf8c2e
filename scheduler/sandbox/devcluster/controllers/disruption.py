"""
The disruption controller: how many of a budget's pods may be evicted now.

Source: pkg/controller/disruption/disruption.go (kubernetes 1.36). Difference: there should be as many pods as there
are, whatever their workloads say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from scheduler.sandbox.devcluster.controllers.actions import Action, Revisit, status_written
from scheduler.sandbox.devcluster.controllers.ownership import generation, scaled
from scheduler.sandbox.devcluster.controllers.pods import is_terminating, ready_since_s
from scheduler.sandbox.devcluster.kinds import POD_DISRUPTION_BUDGET, JsonObject
from scheduler.sandbox.devcluster.timestamps import epoch_s

#: A granted eviction without a deletion within this time no longer counts.
_EVICTION_TIMEOUT_S: Final = 120.0


def plan(budget: JsonObject, pods: Sequence[JsonObject], now_s: float) -> list[Action]:
    """
    Return the write that brings the budget's status up to date.

    Args:
        budget: as stored.
        pods: matched by its selector.
        now_s: seconds since 1970.
    """
    expected, desired = len(pods), _desired(budget, len(pods))
    evicted = _still_awaited(budget, pods, now_s)
    healthy = sum(
        ready_since_s(pod) is not None and not is_terminating(pod) and pod["metadata"]["name"] not in evicted
        for pod in pods
    )
    allowed = max(healthy - desired, 0) if expected > 0 else 0
    status: JsonObject = {
        "observedGeneration": generation(budget),
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
    }
    if evicted:
        status["disruptedPods"] = evicted
    actions = status_written(POD_DISRUPTION_BUDGET, budget, status)
    if evicted:
        actions.append(Revisit(_EVICTION_TIMEOUT_S))
    return actions


def _desired(budget: JsonObject, expected: int) -> int:
    """Return how many of the expected pods must stay healthy."""
    spec = budget.get("spec") or {}
    if (at_most := spec.get("maxUnavailable")) is not None:
        return max(expected - scaled(at_most, expected, round_up=True), 0)
    return scaled(spec.get("minAvailable", 1), expected, round_up=True)


def _still_awaited(budget: JsonObject, pods: Sequence[JsonObject], now_s: float) -> dict[str, str]:
    """Return the granted evictions whose pods are not being deleted yet."""
    living = {pod["metadata"]["name"] for pod in pods if not is_terminating(pod)}
    granted = (budget.get("status") or {}).get("disruptedPods") or {}
    return {
        name: at
        for name, at in granted.items()
        if name in living and (epoch_s(at) or 0.0) + _EVICTION_TIMEOUT_S > now_s
    }
