"""
The eviction subresource: a deletion that a disruption budget may forbid.

Source: pkg/registry/core/pod/storage/eviction.go (kubernetes 1.36). Difference: budgets guard pods that are not ready
as they guard others.
"""

from typing import Final

from scheduler.sandbox.devcluster import status
from scheduler.sandbox.devcluster.kinds import POD, POD_DISRUPTION_BUDGET, JsonObject
from scheduler.sandbox.devcluster.parts import selects, with_condition
from scheduler.sandbox.devcluster.storage.store import ObjectStore

_REFUSAL: Final = "Cannot evict pod as it would violate the pod's disruption budget."
_SEVERAL: Final = (
    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
)
_UNGUARDED_PHASES: Final = ("Succeeded", "Failed", "Pending")
_EVICTED: Final = {
    "type": "DisruptionTarget",
    "status": "True",
    "lastProbeTime": None,
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}


def evict(
    store: ObjectStore, namespace: str, name: str, eviction: JsonObject, *, dry_run: bool = False
) -> None:
    """
    Delete the pod with a condition that names the reason, and take one disruption from its budget.

    Raises: StatusError 400 (names differ), 404, 429 (the budget is used up), 500 (more than one budget).
    """
    if (eviction.get("metadata") or {}).get("name") != name:
        raise status.bad_request("name in URL does not match name in Eviction object")
    pod, options = store.revision(POD, namespace, name).obj, eviction.get("deleteOptions") or {}
    pod_status, is_dry = pod.get("status") or {}, dry_run or bool(options.get("dryRun"))
    if not pod["metadata"].get("deletionTimestamp"):
        if pod_status.get("phase") not in _UNGUARDED_PHASES:
            _take_from_budget(store, pod, dry_run=is_dry)
        condition = {**_EVICTED, "lastTransitionTime": store.now()}
        conditions = with_condition(pod_status.get("conditions") or [], condition)
        store.rewrite(POD, {**pod, "status": {**pod_status, "conditions": conditions}}, dry_run=is_dry)
    store.delete(
        POD,
        namespace,
        name,
        uid=(options.get("preconditions") or {}).get("uid"),
        grace_period_s=options.get("gracePeriodSeconds"),
        dry_run=is_dry,
    )


def _take_from_budget(store: ObjectStore, pod: JsonObject, *, dry_run: bool) -> None:
    """Raise StatusError 429 if the pod's budget allows no disruption, 500 if it has several budgets."""
    metadata = pod["metadata"]
    labels = metadata.get("labels") or {}
    budgets = store.list(POD_DISRUPTION_BUDGET, metadata["namespace"])[0]
    guarding = [one for one in budgets if selects((one.get("spec") or {}).get("selector"), labels)]
    if len(guarding) > 1:
        raise status.StatusError(500, "", _SEVERAL)
    for budget in guarding:
        counted = budget.get("status") or {}
        allowed = counted.get("disruptionsAllowed", 0)
        if allowed <= 0:
            desired, current = counted.get("desiredHealthy", 0), counted.get("currentHealthy", 0)
            why = f"needs {desired} healthy pods and has {current} currently"
            if current > desired:
                why = "does not allow evicting pods currently"
            message = f"The disruption budget {budget['metadata']['name']} {why}"
            cause = {"reason": "DisruptionBudget", "message": message}
            raise status.StatusError(429, "TooManyRequests", _REFUSAL, details={"causes": [cause]})
        disrupted = {**(counted.get("disruptedPods") or {}), metadata["name"]: store.now()}
        taken = {**counted, "disruptionsAllowed": allowed - 1, "disruptedPods": disrupted}
        store.rewrite(POD_DISRUPTION_BUDGET, {**budget, "status": taken}, dry_run=dry_run)
