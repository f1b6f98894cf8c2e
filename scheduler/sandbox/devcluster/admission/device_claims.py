"""
The rules of claims of devices and of their templates.

Source: pkg/apis/resource/validation/validation.go, pkg/registry/resource, pkg/apis/resource/v1/defaults.go
(kubernetes 1.36). Differences: selectors are not compiled; of lists, requests and consumers alone have a limit; of an
allocation, results have to name a request.
"""

from collections.abc import Iterator
from typing import Any, Final

from scheduler.engine.syntax import field_errors
from scheduler.engine.syntax.field_errors import FieldError
from scheduler.engine.syntax.names import dns_label_faults, subdomain_faults
from scheduler.sandbox.devcluster.admission.strategy import Strategy, View
from scheduler.sandbox.devcluster.kinds import NAMESPACE, RESOURCE_CLAIM, JsonObject
from scheduler.sandbox.devcluster.status import invalid

#: Finalizer of an allocated claim.
DELETE_PROTECTION: Final = "resource.kubernetes.io/delete-protection"
_ADMIN_LABEL: Final = "resource.kubernetes.io/admin-access"
#: Longest lists that the API takes.
_MAX_PER_CLAIM: Final = 32
_MAX_CONSUMERS: Final = 256
_ONE_REQUEST_FIELD: Final = "exactly one of `exactly` or `firstAvailable` is required"
_ONE_ATTRIBUTE: Final = (
    'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'
)
_REQUEST_REFERENCE: Final = (
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
)


def _at_most(items: list[JsonObject], path: str, limit: int) -> Iterator[FieldError]:
    if len(items) > limit:
        yield field_errors.too_many(path, len(items), limit)


def _requests(spec: JsonObject) -> list[JsonObject]:
    requests: list[JsonObject] = (spec.get("devices") or {}).get("requests") or []
    return requests


def _asked(request: JsonObject) -> list[JsonObject]:
    """Return what a request asks for: exactly one thing, or alternatives."""
    exactly = request.get("exactly")
    return [*([] if exactly is None else [exactly]), *(request.get("firstAvailable") or [])]


def _default_spec(spec: JsonObject) -> None:
    for one in (asked for request in _requests(spec) for asked in _asked(request)):
        # In Go empty text equals an absent field.
        one["allocationMode"] = one.get("allocationMode") or "ExactCount"
        if one["allocationMode"] == "ExactCount":
            one.setdefault("count", 1)
        for toleration in one.get("tolerations") or []:
            toleration["operator"] = toleration.get("operator") or "Equal"


def _prepare_claim(claim: JsonObject, view: View) -> None:
    """Empty the status; refuse admin access outside of namespaces that are labelled for it. Raises: StatusError 422."""
    claim["status"] = {}
    namespace = view.find(NAMESPACE, "", claim["metadata"]["namespace"]) or {"metadata": {}}
    if (namespace["metadata"].get("labels") or {}).get(_ADMIN_LABEL) == "true":
        return
    for index, request in enumerate(_requests(claim["spec"])):
        if (request.get("exactly") or {}).get("adminAccess"):
            path = f"spec.devices.requests[{index}].adminAccess"
            detail = f"admin access to devices requires the `{_ADMIN_LABEL}: true` label on the containing namespace"
            refused = [field_errors.forbidden(path, detail)]
            raise invalid(RESOURCE_CLAIM, claim["metadata"].get("name", ""), refused)


def _spec_errors(spec: JsonObject, path: str) -> Iterator[FieldError]:
    """Yield the rules that a claim's spec breaks, beside those of the table."""
    devices, requests = spec.get("devices") or {}, _requests(spec)
    yield from _at_most(requests, f"{path}.devices.requests", _MAX_PER_CLAIM)
    seen: set[object] = set()
    for index, request in enumerate(requests):
        where = f"{path}.devices.requests[{index}]"
        if request.get("name") in seen:
            yield field_errors.duplicate(where, request.get("name"))
        seen.add(request.get("name"))
        exactly = request.get("exactly")
        if exactly is not None and request.get("firstAvailable"):
            yield field_errors.invalid(where, None, f"{_ONE_REQUEST_FIELD}, but multiple fields are set")
        elif not _asked(request):
            yield field_errors.required(where, _ONE_REQUEST_FIELD)
        elif exactly is not None:
            yield from _count_errors(exactly, f"{where}.exactly.count")
        for number, alternative in enumerate(request.get("firstAvailable") or []):
            yield from _count_errors(alternative, f"{where}.firstAvailable[{number}].count")
    known = _request_names(spec)
    for part in ("constraints", "config"):
        for index, one in enumerate(devices.get(part) or []):
            where = f"{path}.devices.{part}[{index}]"
            for number, name in enumerate(one.get("requests") or []):
                yield from _reference_errors(name, f"{where}.requests[{number}]", known)
            if part == "constraints" and not one.get("matchAttribute") and not one.get("distinctAttribute"):
                yield field_errors.required(where, _ONE_ATTRIBUTE)


def _count_errors(asked: JsonObject, path: str) -> Iterator[FieldError]:
    mode, count = asked.get("allocationMode"), asked.get("count") or 0
    if mode == "All" and count:
        yield field_errors.invalid(path, count, "must not be specified when allocationMode is 'All'")
    elif mode == "ExactCount" and count <= 0:
        yield field_errors.invalid(path, count, "must be greater than zero")


def _request_names(spec: JsonObject) -> set[str]:
    """Return the names by which constraints, configurations and results may call requests: `R`, and `R/S`."""
    names: set[str] = set()
    for request in _requests(spec):
        name = request.get("name") or ""
        names |= {name, *(f"{name}/{one.get('name')}" for one in request.get("firstAvailable") or [])}
    return names


def _reference_errors(name: object, path: str, known: set[str]) -> Iterator[FieldError]:
    if name not in known:
        yield field_errors.invalid(path, name, _REQUEST_REFERENCE)


def _status_errors(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """Yield the rules that a change of the status breaks: an allocation never changes, it only goes."""
    status, stored = new.get("status") or {}, old.get("status") or {}
    allocation, before = status.get("allocation"), stored.get("allocation")
    consumers, known = status.get("reservedFor") or [], stored.get("reservedFor") or []
    yield from _at_most(consumers, "status.reservedFor", _MAX_CONSUMERS)
    if consumers and allocation is None:
        yield field_errors.forbidden("status.reservedFor", "may not be specified when `allocated` is not set")
    elif new["metadata"].get("deletionTimestamp") and any(one not in known for one in consumers):
        detail = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
        yield field_errors.forbidden("status.reservedFor", detail)
    if allocation is not None and before is not None:
        if allocation != before:
            yield field_errors.invalid("status.allocation", allocation, "field is immutable")
    elif allocation is not None:
        names = _request_names(new["spec"])
        for index, result in enumerate((allocation.get("devices") or {}).get("results") or []):
            path = f"status.allocation.devices.results[{index}].request"
            yield from _reference_errors(result.get("request"), path, names)


def _forget_freed_devices(new: JsonObject, old: JsonObject, _: View) -> None:
    """Drop what drivers reported of the devices of an allocation that this update takes away."""
    status = new.get("status") or {}
    if (old.get("status") or {}).get("allocation") and not status.get("allocation"):
        status.pop("devices", None)


def _rules(spec: str, **others: Any) -> Strategy:  # noqa: ANN401 - the fields of a Strategy
    """Return the strategy of a kind that has the spec of a claim at this path."""
    request = f"{spec}.devices.requests[]"
    both = (f"{request}.exactly?", f"{request}.firstAvailable[]")
    names, classes = (f"{request}.name", f"{both[1]}.name"), [f"{one}.deviceClassName" for one in both]
    expressions = [f"{one}.selectors[].cel" for one in both]
    return Strategy(
        required=" ".join((*names, *classes, *expressions, f"{spec}.devices.config[].opaque")),
        names={**dict.fromkeys(names, dns_label_faults), **dict.fromkeys(classes, subdomain_faults)},
        choices={f"{one}.allocationMode": ("All", "ExactCount") for one in both},
        defaults={f"{spec}.devices": {}},
        fixed="spec",
        **others,
    )


RESOURCE_CLAIMS: Final = _rules(
    "spec",
    set_defaults=lambda claim: _default_spec(claim["spec"]),
    prepare_create=_prepare_claim,
    prepare_update=_forget_freed_devices,
    validate_create=lambda claim: _spec_errors(claim["spec"], "spec"),
    validate_status=_status_errors,
)
RESOURCE_CLAIM_TEMPLATES: Final = _rules(
    "spec.spec",
    set_defaults=lambda template: _default_spec(template["spec"]["spec"]),
    validate_create=lambda template: _spec_errors(template["spec"]["spec"], "spec.spec"),
)
