"""
ResourceQuotas as objects: which may be created, and how they may change.

Quotas of anything but pods are refused, for nothing here would hold anybody to them.
Source: pkg/apis/core/validation/validation.go (ValidateResourceQuota), pkg/apis/core/helper/helpers.go,
pkg/registry/core/resourcequota/strategy.go (kubernetes 1.36).
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from scheduler.devcluster import fields
from scheduler.devcluster.admission.quantities import Quantity
from scheduler.devcluster.admission.strategy import Strategy, View
from scheduler.devcluster.fields import FieldError
from scheduler.devcluster.kinds import JsonObject

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
_UNSUITED: Final = "unsupported scope applied to resource"
_EXISTS_ONLY: Final = (
    "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "
    "ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)


def counts_pods(resource: str) -> bool:
    """Whether a quota's resource is one that pods use up."""
    return (
        resource in _POD_COUNT | COMPUTE | _EPHEMERAL | {COUNT_PODS}
        or resource.startswith(_HUGE_PAGES)
        or (resource.startswith(_REQUESTS) and "/" in resource)
    )


@dataclass(frozen=True, slots=True)
class QuotaStrategy(Strategy):
    """ResourceQuotas: hard limits in scopes that suit them; what is used stands in the status."""

    has_status: bool = True

    def prepare_create(self, obj: JsonObject, view: View) -> None:
        """The status is empty until somebody has counted."""
        del view
        obj.setdefault("spec", {})
        obj["status"] = {}

    def prepare_update(self, new: JsonObject, old: JsonObject, view: View) -> None:
        """A quota has a spec, if an empty one."""
        del old, view
        new.setdefault("spec", {})

    def validate_create(self, obj: JsonObject) -> list[FieldError]:
        """The rules that limits and scopes break."""
        spec = obj["spec"]
        hard = spec.get("hard") or {}
        errors = [
            *_amount_errors(hard, "spec.hard"),
            *_scope_errors(spec, hard),
            *_selector_errors(spec, hard),
        ]
        return errors or [
            fields.forbidden(f"spec.hard[{name}]", "the embedded cluster has quotas of pods alone")
            for name in sorted(hard)
            if not counts_pods(name)
        ]

    def validate_update(self, new: JsonObject, old: JsonObject) -> list[FieldError]:
        """As at creation, and the scopes are as they were."""
        errors = self.validate_create(new)
        scopes = new["spec"].get("scopes") or []
        if set(scopes) != set((old.get("spec") or {}).get("scopes") or []):
            errors.append(fields.invalid("spec.scopes", scopes, "field is immutable"))
        return errors

    def validate_status_update(self, new: JsonObject) -> list[FieldError]:
        """The rules that amounts in the status break."""
        status = new.get("status") or {}
        return [
            error
            for side in ("hard", "used")
            for error in _amount_errors(status.get(side) or {}, f"status.{side}")
        ]


def _amount_errors(amounts: Mapping[str, object], path: str) -> Iterator[FieldError]:
    for name, amount in sorted(amounts.items()):
        where = f"{path}[{name}]"
        yield from _name_errors(name, where)
        quantity = Quantity.of(amount)
        if quantity.value < 0:
            yield fields.invalid(where, str(quantity), "must be greater than or equal to 0")
        is_whole = name in _POD_COUNT | _OBJECTS or ("/" in name and not name.startswith(_REQUESTS))
        if is_whole and quantity.value % 1:
            yield fields.invalid(where, str(quantity), "must be an integer")


def _name_errors(name: str, where: str) -> Iterator[FieldError]:
    faults = fields.qualified_name_faults(name)
    yield from (fields.invalid(where, name, fault) for fault in faults)
    if "/" in name or name.startswith(_HUGE_PAGES):
        return
    if not faults and name not in _STANDARD | {"storage"}:
        yield fields.invalid(where, name, "must be a standard resource type or fully qualified")
    if name not in _STANDARD:
        yield fields.invalid(where, name, "must be a standard resource for quota")


def _suits(scope: str, resource: str) -> bool:
    """Whether a limit on a standard resource can be narrowed to a scope."""
    match scope:
        case "BestEffort":
            return resource in _POD_COUNT
        case "VolumeAttributesClass":
            return resource in ("persistentvolumeclaims", "requests.storage")
        case _ if scope in _POD_SCOPES:
            return resource in _POD_COUNT | COMPUTE
        case _:
            return True


def _unsuited(scope: str, hard: Mapping[str, object]) -> list[str]:
    standard = (name for name in sorted(hard) if name in _STANDARD or name.startswith(_HUGE_PAGES))
    return [name for name in standard if not _suits(scope, name)]


def _conflicting(scopes: Collection[str]) -> int:
    return sum(pair.issubset(scopes) for pair in _CONFLICTS)


def _scope_errors(spec: JsonObject, hard: Mapping[str, object]) -> Iterator[FieldError]:
    scopes, path = spec.get("scopes") or [], "spec.scopes"
    for scope in scopes:
        if scope not in _SCOPES:
            yield fields.invalid(path, scopes, "unsupported scope")
        for _ in _unsuited(scope, hard):
            yield fields.invalid(path, scopes, _UNSUITED)
    for _ in range(_conflicting(scopes)):
        yield fields.invalid(path, scopes, "conflicting scopes")


def _selector_errors(spec: JsonObject, hard: Mapping[str, object]) -> Iterator[FieldError]:
    selector, path = spec.get("scopeSelector") or {}, "spec.scopeSelector.matchExpressions"
    needs = selector.get("matchExpressions") or []
    for need in needs:
        scope = need.get("scopeName") or ""
        if scope not in _SCOPES:
            yield fields.invalid(f"{path}.scopeName", scope, "unsupported scope")
        for _ in _unsuited(scope, hard):
            yield fields.invalid(path, selector, _UNSUITED)
        yield from _need_errors(need, scope, path)
    for _ in range(_conflicting([need.get("scopeName") or "" for need in needs])):
        yield fields.invalid(path, spec.get("scopes"), "conflicting scopes")


def _need_errors(need: JsonObject, scope: str, path: str) -> Iterator[FieldError]:
    operator, values = need.get("operator") or "", need.get("values") or []
    if scope in _BARE_SCOPES and operator != "Exists":
        yield fields.invalid(f"{path}.operator", operator, _EXISTS_ONLY)
    if operator in ("In", "NotIn"):
        if not values:
            detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
            yield fields.required(f"{path}.values", detail)
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
            yield fields.invalid(f"{path}.values", values, detail)
    else:
        yield fields.invalid(f"{path}.operator", operator, "not a valid selector operator")
