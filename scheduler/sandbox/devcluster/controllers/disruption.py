"""
The disruption controller: how many of a budget's pods may be evicted now.

Source: pkg/controller/disruption/disruption.go (kubernetes 1.36). Differences: there should be as many pods as there
are, whatever their workloads say; an eviction deletes its pod in the same turn, so none is waited for.
"""

from __future__ import annotations

from scheduler.sandbox.devcluster.controllers.actions import Action, status_written
from scheduler.sandbox.devcluster.controllers.objects import generation, is_available, key_of, scaled
from scheduler.sandbox.devcluster.kinds import POD, POD_DISRUPTION_BUDGET, JsonObject
from scheduler.sandbox.devcluster.parts import selects
from scheduler.sandbox.devcluster.storage.store import ObjectStore


def guards(budget: JsonObject, pod: JsonObject) -> bool:
    """Return whether the budget is about the pod, which is of its namespace."""
    return selects((budget.get("spec") or {}).get("selector"), pod["metadata"].get("labels") or {})


def plan(budget: JsonObject, store: ObjectStore) -> list[Action]:
    """Return the write that brings the budget's status up to date."""
    pods = [pod for pod in store.list(POD, key_of(budget)[0])[0] if guards(budget, pod)]
    spec, expected, healthy = budget.get("spec") or {}, len(pods), sum(map(is_available, pods))
    if (at_most := spec.get("maxUnavailable")) is not None:
        desired = max(expected - scaled(at_most, expected, round_up=True), 0)
    else:
        desired = scaled(spec.get("minAvailable", 1), expected, round_up=True)
    status = {
        "observedGeneration": generation(budget),
        "disruptionsAllowed": max(healthy - desired, 0),
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
    }
    return status_written(POD_DISRUPTION_BUDGET, budget, status)
