"""
The rules of ResourceQuotas.

Quotas of anything but pods are refused, because nothing here would enforce them.

Source: pkg/apis/core/validation/validation.go (ValidateResourceQuota), pkg/apis/core/helper/helpers.go,
pkg/registry/core/resourcequota/strategy.go (kubernetes 1.36).
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from scheduler.engine.syntax import field_errors
from scheduler.engine.syntax.field_errors import FieldError
from scheduler.engine.syntax.names import label_key_faults
from scheduler.sandbox.devcluster.admission.amounts import Amount
from scheduler.sandbox.devcluster.admission.checks import at_least_zero
from scheduler.sandbox.devcluster.admission.strategy import Strategy
from scheduler.sandbox.devcluster.kinds import JsonObject

CROSS_NAMESPACE: Final = "CrossNamespacePodAffinity"
COUNT_PODS: Final = "count/pods"

_POD_COUNT: Final = frozenset({"pods"})
COMPUTE: Final = frozenset(
    {"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"}
)
_EPHEMERAL: Final = frozenset({"ephemeral-storage", "requests.ephemeral-storage", "limits.ephemeral-storage"})
_OBJECTS: Final = frozenset(
    {
        "resourcequotas", "services", "replicationcontrollers", "secrets", "persistentvolumeclaims",
        "configmaps", "services.nodeports", "services.loadbalancers",
    }
)  # fmt: skip
_STANDARD: Final = _POD_COUNT | COMPUTE | _EPHEMERAL | _OBJECTS | {"requests.storage"}
_HUGE_PAGES: Final = ("hugepages-", "requests.hugepages-")
_REQUESTS: Final = "requests."

_POD_SCOPES: Final = ("Terminating", "NotTerminating", "NotBestEffort", "PriorityClass", CROSS_NAMESPACE)
_SCOPES: Final = (*_POD_SCOPES, "BestEffort", "VolumeAttributesClass")
_BARE_SCOPES: Final = ("BestEffort", "NotBestEffort", "Terminating", "NotTerminating", CROSS_NAMESPACE)
_CONFLICTS: Final = (frozenset({"BestEffort", "NotBestEffort"}), frozenset({"Terminating", "NotTerminating"}))
_DISALLOWED: Final = "unsupported scope applied to resource"
_EXISTS_ONLY: Final = (
    "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "
    "ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)


def counts_pods(resource: str) -> bool:
    """Return True if a quota's resource is one that pods use up."""
    return (
        resource in _POD_COUNT | COMPUTE | _EPHEMERAL | {COUNT_PODS}
        or resource.startswith(_HUGE_PAGES)
        or (resource.startswith(_REQUESTS) and "/" in resource)
    )


def _set_defaults(quota: JsonObject) -> None:
    quota.setdefault("spec", {})


def _errors(quota: JsonObject) -> list[FieldError]:
    spec = quota["spec"]
    hard = spec.get("hard") or {}
    errors = [
        *_amount_errors(hard, "spec.hard"),
        *_scope_errors(spec, hard),
        *_selector_errors(spec, hard),
    ]
    return errors or [
        field_errors.forbidden(f"spec.hard[{name}]", "the embedded cluster has quotas of pods alone")
        for name in sorted(hard)
        if not counts_pods(name)
    ]


def _update_errors(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    scopes = new["spec"].get("scopes") or []
    if set(scopes) != set((old.get("spec") or {}).get("scopes") or []):
        yield field_errors.invalid("spec.scopes", scopes, "field is immutable")


def _status_errors(quota: JsonObject, _: JsonObject) -> Iterator[FieldError]:
    status = quota.get("status") or {}
    for side in ("hard", "used"):
        yield from _amount_errors(status.get(side) or {}, f"status.{side}")


def _amount_errors(amounts: Mapping[str, object], path: str) -> Iterator[FieldError]:
    for name, amount in sorted(amounts.items()):
        where = f"{path}[{name}]"
        yield from _name_errors(name, where)
        stated = Amount.of(amount)
        yield from at_least_zero(str(stated), where)
        must_be_whole = name in _POD_COUNT | _OBJECTS or ("/" in name and not name.startswith(_REQUESTS))
        if must_be_whole and not stated.is_whole:
            yield field_errors.invalid(where, str(stated), "must be an integer")


def _name_errors(name: str, where: str) -> Iterator[FieldError]:
    faults = label_key_faults(name)
    yield from (field_errors.invalid(where, name, fault) for fault in faults)
    if "/" in name or name.startswith(_HUGE_PAGES):
        return
    if not faults and name not in _STANDARD | {"storage"}:
        yield field_errors.invalid(where, name, "must be a standard resource type or fully qualified")
    if name not in _STANDARD:
        yield field_errors.invalid(where, name, "must be a standard resource for quota")


def _allows(scope: str, resource: str) -> bool:
    """Return True if a limit on a standard resource can be narrowed to a scope."""
    match scope:
        case "BestEffort":
            return resource in _POD_COUNT
        case "VolumeAttributesClass":
            return resource in ("persistentvolumeclaims", "requests.storage")
        case _ if scope in _POD_SCOPES:
            return resource in _POD_COUNT | COMPUTE
        case _:
            return True


def _disallowed(scope: str, hard: Mapping[str, object]) -> list[str]:
    standard = (name for name in sorted(hard) if name in _STANDARD or name.startswith(_HUGE_PAGES))
    return [name for name in standard if not _allows(scope, name)]


def _conflicting(scopes: Collection[str]) -> int:
    return sum(pair.issubset(scopes) for pair in _CONFLICTS)


def _scope_errors(spec: JsonObject, hard: Mapping[str, object]) -> Iterator[FieldError]:
    scopes, path = spec.get("scopes") or [], "spec.scopes"
    for scope in scopes:
        if scope not in _SCOPES:
            yield field_errors.invalid(path, scopes, "unsupported scope")
        for _ in _disallowed(scope, hard):
            yield field_errors.invalid(path, scopes, _DISALLOWED)
    for _ in range(_conflicting(scopes)):
        yield field_errors.invalid(path, scopes, "conflicting scopes")


def _selector_errors(spec: JsonObject, hard: Mapping[str, object]) -> Iterator[FieldError]:
    selector, path = spec.get("scopeSelector") or {}, "spec.scopeSelector.matchExpressions"
    requirements = selector.get("matchExpressions") or []
    for requirement in requirements:
        scope = requirement.get("scopeName") or ""
        if scope not in _SCOPES:
            yield field_errors.invalid(f"{path}.scopeName", scope, "unsupported scope")
        for _ in _disallowed(scope, hard):
            yield field_errors.invalid(path, selector, _DISALLOWED)
        yield from _requirement_errors(requirement, scope, path)
    for _ in range(_conflicting([requirement.get("scopeName") or "" for requirement in requirements])):
        yield field_errors.invalid(path, spec.get("scopes"), "conflicting scopes")


def _requirement_errors(requirement: JsonObject, scope: str, path: str) -> Iterator[FieldError]:
    operator, values = requirement.get("operator") or "", requirement.get("values") or []
    if scope in _BARE_SCOPES and operator != "Exists":
        yield field_errors.invalid(f"{path}.operator", operator, _EXISTS_ONLY)
    if operator in ("In", "NotIn"):
        if not values:
            detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
            yield field_errors.required(f"{path}.values", detail)
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
            yield field_errors.invalid(f"{path}.values", values, detail)
    else:
        yield field_errors.invalid(f"{path}.operator", operator, "not a valid selector operator")


QUOTAS: Final = Strategy(
    has_status=True,
    initial_status={},  # until the controller has counted
    set_defaults=_set_defaults,
    validate=_errors,
    validate_update=_update_errors,
    validate_status=_status_errors,
)
