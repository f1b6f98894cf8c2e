"""
The eviction subresource: a deletion that a disruption budget may forbid.

Source: pkg/registry/core/pod/storage/eviction.go (kubernetes 1.36). Difference: budgets guard pods that are not ready
as they guard others.
"""

from typing import Final

from scheduler.sandbox.devcluster import status
from scheduler.sandbox.devcluster.conditions import with_condition
from scheduler.sandbox.devcluster.kinds import POD, POD_DISRUPTION_BUDGET, JsonObject
from scheduler.sandbox.devcluster.label_selectors import selects
from scheduler.sandbox.devcluster.storage.store import ObjectStore

_REFUSAL: Final = "Cannot evict pod as it would violate the pod's disruption budget."
_UNGUARDED_PHASES: Final = ("Succeeded", "Failed", "Pending")


def evict(
    store: ObjectStore, namespace: str, name: str, eviction: JsonObject, *, dry_run: bool = False
) -> None:
    """
    Delete the pod with a condition that names the reason, and take one disruption from its budget.

    Raises: StatusError 400 (names differ), 404, 429 (the budget is used up), 500 (more than one budget).
    """
    if (eviction.get("metadata") or {}).get("name") != name:
        raise status.bad_request("name in URL does not match name in Eviction object")
    pod = store.revision(POD, namespace, name).obj
    options = eviction.get("deleteOptions") or {}
    dry_run = dry_run or bool(options.get("dryRun"))
    is_going = bool(pod["metadata"].get("deletionTimestamp"))
    if not is_going and (pod.get("status") or {}).get("phase") not in _UNGUARDED_PHASES:
        _take_from_budget(store, pod, dry_run=dry_run)
    preconditions = options.get("preconditions") or {}
    if not dry_run and not is_going:
        store.rewrite(POD, _with_condition(pod, store.now()))
    store.delete(
        POD,
        namespace,
        name,
        uid=preconditions.get("uid"),
        grace_period_s=options.get("gracePeriodSeconds"),
        dry_run=dry_run,
    )


def _take_from_budget(store: ObjectStore, pod: JsonObject, *, dry_run: bool) -> None:
    """Raise StatusError 429 if the pod's budget allows no disruption, 500 if it has several budgets."""
    metadata = pod["metadata"]
    labels = metadata.get("labels") or {}
    budgets = [
        budget
        for budget in store.list(POD_DISRUPTION_BUDGET, metadata["namespace"])[0]
        if selects((budget.get("spec") or {}).get("selector"), labels)
    ]
    if not budgets:
        return
    if len(budgets) > 1:
        message = (
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )
        raise status.StatusError(500, "", message)
    budget = budgets[0]
    counted = budget.get("status") or {}
    if counted.get("disruptionsAllowed", 0) <= 0:
        desired, current = counted.get("desiredHealthy", 0), counted.get("currentHealthy", 0)
        needs = f"The disruption budget {budget['metadata']['name']} needs {desired} healthy pods"
        cause = {"reason": "DisruptionBudget", "message": f"{needs} and has {current} currently"}
        raise status.StatusError(429, "TooManyRequests", _REFUSAL, details={"causes": [cause]})
    taken = dict(counted)
    taken["disruptionsAllowed"] -= 1
    taken["disruptedPods"] = {**(taken.get("disruptedPods") or {}), metadata["name"]: store.now()}
    if not dry_run:
        store.rewrite(POD_DISRUPTION_BUDGET, {**budget, "status": taken})


def _with_condition(pod: JsonObject, now: str) -> JsonObject:
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": now,
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }
    pod_status = pod.get("status") or {}
    conditions = with_condition(pod_status.get("conditions") or [], condition)
    return {**pod, "status": {**pod_status, "conditions": conditions}}
