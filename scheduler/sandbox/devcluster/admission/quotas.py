"""
What pods use of quotas, and the refusal of a pod that would use too much.

The status of a quota holds: limits in `status.hard`, and what is used of each. A new pod is charged here at once;
`controllers.quotas` counts again when pods end.

Source: pkg/quota/v1/evaluator/core/pods.go, apiserver pkg/admission/plugin/resourcequota/controller.go,
component-helpers resource/helpers.go (kubernetes 1.36).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, cast

from scheduler.engine.syntax.selectors import Operator, Requirement
from scheduler.sandbox.devcluster.admission.amounts import Amount
from scheduler.sandbox.devcluster.admission.pods import qos_class
from scheduler.sandbox.devcluster.admission.quota_rules import (
    COMPUTE,
    COUNT_PODS,
    CROSS_NAMESPACE,
    counts_pods,
)
from scheduler.sandbox.devcluster.kinds import POD, JsonObject
from scheduler.sandbox.devcluster.status import forbidden
from scheduler.sandbox.devcluster.timestamps import epoch_s

Amounts = dict[str, Amount]

_ONE: Final = Amount.of("1")
_ZERO: Final = Amount()
_LIMITED: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
_POD_LEVEL: Final = ("cpu", "memory")
_SIDES: Final = ("podAffinity", "podAntiAffinity")
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def charge(
    quotas: Iterable[JsonObject], pod: JsonObject, now_s: float, old: JsonObject | None = None
) -> list[JsonObject]:
    """
    Return the quotas that the pod uses, with its use added to their status.

    Args:
        quotas: those of the pod's namespace, in the order in which they are charged.
        pod: as it would be stored.
        now_s: seconds since 1970.
        old: the pod before an update; None at creation.

    Raises: StatusError 403 if a quota is exceeded, not counted yet, or requires an amount that the pod does not state.
    """
    wanted = pod_usage(pod, now_s)
    changed = []
    for quota in quotas:
        status = quota.get("status") or {}
        tracked = sorted(name for name in status.get("hard") or {} if counts_pods(name))
        if not tracked or not in_scope(quota, pod):
            continue
        _check_stated(quota, pod, tracked)
        _check_counted(quota, pod, tracked)
        if old is None or not in_scope(quota, old):
            change = {name: wanted[name] for name in tracked if name in wanted and wanted[name].nano}
            if change:
                changed.append(_increased(quota, pod, change))
    return changed


def recount(quota: JsonObject, pods: Iterable[JsonObject], now_s: float) -> JsonObject:
    """Return the status that the quota should have. O(pods)."""
    hard = (quota.get("spec") or {}).get("hard") or {}
    used: Amounts = {name: _ZERO for name in hard if counts_pods(name)}
    for pod in pods:
        if in_scope(quota, pod):
            for name, amount in pod_usage(pod, now_s).items():
                if name in used:
                    used[name] += amount
    shown_hard = {name: str(Amount.of(amount)) for name, amount in hard.items()}
    return {"hard": shown_hard, "used": {name: str(amount) for name, amount in used.items()}}


def expires_in_s(pod: JsonObject, now_s: float) -> float | None:
    """Return the seconds until a terminating pod no longer counts (<= 0: now); None if it is not being deleted."""
    metadata = pod["metadata"]
    deleted_s, grace_s = (
        epoch_s(metadata.get("deletionTimestamp")),
        metadata.get("deletionGracePeriodSeconds"),
    )
    return None if deleted_s is None or grace_s is None else float(deleted_s + grace_s - now_s)


def pod_usage(pod: JsonObject, now_s: float) -> Amounts:
    """Return what one pod uses: count/pods always, everything else until it has ended."""
    expires_s = expires_in_s(pod, now_s)
    phase = (pod.get("status") or {}).get("phase")
    if phase in ("Succeeded", "Failed") or (expires_s is not None and expires_s < 0):
        return {COUNT_PODS: _ONE}
    spec = pod.get("spec") or {}
    return {COUNT_PODS: _ONE, **_compute(_pod_amounts(spec, "requests"), _pod_amounts(spec, "limits"))}


def _compute(requests: Mapping[str, Amount], limits: Mapping[str, Amount]) -> Amounts:
    """Return requests and limits under the names that quotas use."""
    amounts: Amounts = {"pods": _ONE}
    for name, amount in requests.items():
        if name in _LIMITED or name.startswith("hugepages-"):
            amounts[name] = amounts[f"requests.{name}"] = amount
        elif "/" in name:
            amounts[f"requests.{name}"] = amount
    for name in _LIMITED & limits.keys():
        amounts[f"limits.{name}"] = limits[name]
    return amounts


def _pod_amounts(spec: JsonObject, side: str) -> Amounts:
    """Return what the pod as a whole requests (or is limited to)."""
    running = _sum(_amounts(one, side) for one in spec.get("containers") or [])
    sidecars: Amounts = {}
    starting: Amounts = {}
    for one in spec.get("initContainers") or []:
        wanted = _amounts(one, side)
        if one.get("restartPolicy") == "Always":
            running, sidecars = _sum([running, wanted]), _sum([sidecars, wanted])
            starting = _larger(starting, sidecars)
        else:
            starting = _larger(starting, _sum([sidecars, wanted]))
    total = _larger(running, starting)
    said = _amounts(spec, side)
    total |= {name: said[name] for name in said if name in _POD_LEVEL or name.startswith("hugepages-")}
    overhead = {name: Amount.of(amount) for name, amount in (spec.get("overhead") or {}).items()}
    if side == "limits":
        overhead = {name: amount for name, amount in overhead.items() if total.get(name, _ZERO).nano}
    return _sum([total, overhead])


def _amounts(holder: JsonObject, side: str) -> Amounts:
    """Return the requests or limits of a container, or of a pod."""
    said = (holder.get("resources") or {}).get(side) or {}
    return {name: Amount.of(amount) for name, amount in said.items()}


def _sum(several: Iterable[Amounts]) -> Amounts:
    total: Amounts = {}
    for amounts in several:
        for name, amount in amounts.items():
            total[name] = total[name] + amount if name in total else amount
    return total


def _larger(one: Amounts, other: Amounts) -> Amounts:
    larger = dict(one)
    for name, amount in other.items():
        if name not in larger or amount.nano > larger[name].nano:
            larger[name] = amount
    return larger


# -- scopes --------------------------------------------------------------------------------------------------


def in_scope(quota: JsonObject, pod: JsonObject) -> bool:
    """Return True if the pod is in every scope of the quota; a quota without scopes is about all pods."""
    spec = quota.get("spec") or {}
    needs = [{"scopeName": scope, "operator": "Exists"} for scope in spec.get("scopes") or []]
    needs += (spec.get("scopeSelector") or {}).get("matchExpressions") or []
    return all(_is_met(need, pod) for need in needs)


def _is_met(need: JsonObject, pod: JsonObject) -> bool:
    spec, scope = pod.get("spec") or {}, need.get("scopeName")
    if scope == "PriorityClass":
        name = spec.get("priorityClassName")
        operator, values = cast("Operator", need.get("operator")), tuple(sorted(need.get("values") or ()))
        wanted = Requirement("PriorityClass", operator, values)
        return bool(wanted.matches({"PriorityClass": name} if name else {}))
    met = _SCOPES.get(scope or "")
    return met is not None and met(spec)


def has_deadline(spec: JsonObject) -> bool:
    """Return True if a pod is in scope Terminating: it has a deadline."""
    deadline_s = spec.get("activeDeadlineSeconds")
    return deadline_s is not None and deadline_s >= 0


def crosses_namespaces(spec: JsonObject) -> bool:
    """Return True if an affinity term names namespaces, even the pod's own, or selects them."""
    return any(term.get("namespaces") or term.get("namespaceSelector") is not None for term in _terms(spec))


def _terms(spec: JsonObject) -> Iterator[JsonObject]:
    affinity = spec.get("affinity") or {}
    for side in _SIDES:
        lists = affinity.get(side) or {}
        yield from lists.get(_REQUIRED) or []
        yield from (one.get("podAffinityTerm") or {} for one in lists.get(_PREFERRED) or [])


_SCOPES: Final[Mapping[str, Callable[[JsonObject], bool]]] = {
    "Terminating": has_deadline,
    "NotTerminating": lambda spec: not has_deadline(spec),
    "BestEffort": lambda spec: qos_class(spec) == "BestEffort",
    "NotBestEffort": lambda spec: qos_class(spec) != "BestEffort",
    CROSS_NAMESPACE: crosses_namespaces,
}


# -- refusals ------------------------------------------------------------------------------------------------


def _check_stated(quota: JsonObject, pod: JsonObject, tracked: Iterable[str]) -> None:
    """Raise StatusError 403 if a container does not state how much it uses of a resource that the quota limits."""
    spec = pod["spec"]
    if any((spec.get("resources") or {}).get(side) for side in ("requests", "limits")):
        return
    containers = [*(spec.get("containers") or []), *(spec.get("initContainers") or [])]
    silent: list[str] = []
    for name in sorted(COMPUTE.intersection(tracked)):
        silent_containers = {
            str(one.get("name"))
            for one in containers
            if name not in _compute(_amounts(one, "requests"), _amounts(one, "limits"))
        }
        if silent_containers:
            silent.append(f"{name} for: {','.join(sorted(silent_containers))}")
    if silent:
        raise _refusal(pod, f"failed quota: {quota['metadata']['name']}: must specify {'; '.join(silent)}")


def _check_counted(quota: JsonObject, pod: JsonObject, tracked: Sequence[str]) -> None:
    """Raise StatusError 403 if the use of the quota was never counted."""
    if not set(tracked) <= (quota["status"].get("used") or {}).keys():
        names = ",".join(tracked)
        raise _refusal(pod, f"status unknown for quota: {quota['metadata']['name']}, resources: {names}")


def _increased(quota: JsonObject, pod: JsonObject, change: Amounts) -> JsonObject:
    """Return the quota with the change in its status. Raises: StatusError 403 if that exceeds a limit."""
    status = quota["status"]
    used = {name: Amount.of(status["used"][name]) for name in change}
    hard = {name: Amount.of(status["hard"][name]) for name in change}
    over = sorted(name for name in change if (used[name] + change[name]).nano > hard[name].nano)
    if over:
        requested, before, limit = (
            ",".join(f"{name}={amounts[name]}" for name in over) for amounts in (change, used, hard)
        )
        why = (
            f"exceeded quota: {quota['metadata']['name']}, requested: {requested}, used: {before}, "
            f"limited: {limit}"
        )
        raise _refusal(pod, why)
    counted = {**status["used"], **{name: str(used[name] + change[name]) for name in change}}
    return {**quota, "status": {**status, "used": counted}}


def _refusal(pod: JsonObject, why: str) -> Exception:
    return forbidden(POD, pod["metadata"].get("name", ""), why)
