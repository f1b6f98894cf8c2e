"""
The disruption controller: how many of a budget's pods may be evicted now.

Source: pkg/controller/disruption/disruption.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from scheduler.sandbox.devcluster.controllers.actions import Action, Revisit, status_written
from scheduler.sandbox.devcluster.controllers.ownership import generation, replicas, scaled, uid
from scheduler.sandbox.devcluster.controllers.pods import is_terminating, ready_since_s
from scheduler.sandbox.devcluster.kinds import POD_DISRUPTION_BUDGET, JsonObject
from scheduler.sandbox.devcluster.timestamps import epoch_s

#: A granted eviction without a deletion within this time no longer counts.
_EVICTION_TIMEOUT_S: Final = 120.0

#: The workload whose size says how many pods there should be; None for a pod without one.
ScalerOf = Callable[[JsonObject], JsonObject | None]


def plan(budget: JsonObject, pods: Sequence[JsonObject], scaler_of: ScalerOf, now_s: float) -> list[Action]:
    """
    Return the write that brings the budget's status up to date.

    Args:
        budget: as stored.
        pods: matched by its selector.
        scaler_of: finds the deployment, replica set or stateful set that a pod belongs to.
        now_s: seconds since 1970.
    """
    expected, desired = _sizes(budget, pods, scaler_of)
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


def _sizes(budget: JsonObject, pods: Sequence[JsonObject], scaler_of: ScalerOf) -> tuple[int, int]:
    """Return (pods that there should be, pods that must stay healthy)."""
    spec = budget.get("spec") or {}
    if (at_most := spec.get("maxUnavailable")) is not None:
        expected = _expected(pods, scaler_of)
        return expected, max(expected - scaled(at_most, expected, round_up=True), 0)
    at_least = spec.get("minAvailable")
    if isinstance(at_least, str):
        expected = _expected(pods, scaler_of)
        return expected, scaled(at_least, expected, round_up=True)
    return len(pods), 1 if at_least is None else int(at_least)


def _expected(pods: Iterable[JsonObject], scaler_of: ScalerOf) -> int:
    scalers = {uid(scaler): scaler for pod in pods if (scaler := scaler_of(pod)) is not None}
    return sum(replicas(scaler) for scaler in scalers.values())


def _still_awaited(budget: JsonObject, pods: Sequence[JsonObject], now_s: float) -> dict[str, str]:
    """Return the granted evictions whose pods are not being deleted yet."""
    living = {pod["metadata"]["name"] for pod in pods if not is_terminating(pod)}
    granted = (budget.get("status") or {}).get("disruptedPods") or {}
    return {
        name: at
        for name, at in granted.items()
        if name in living and (epoch_s(at) or 0.0) + _EVICTION_TIMEOUT_S > now_s
    }
