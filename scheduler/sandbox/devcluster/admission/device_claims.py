"""
The rules of claims of devices and of their templates.

Source: pkg/apis/resource/validation/validation.go, pkg/registry/resource, pkg/apis/resource/v1/defaults.go
(kubernetes 1.36). Differences: selectors are not compiled; of lists, requests and consumers alone have a limit; of an
allocation, results have to name a request.
"""

from collections.abc import Callable, Iterator
from typing import Final

from scheduler.engine.syntax import field_errors
from scheduler.engine.syntax.field_errors import FieldError
from scheduler.engine.syntax.names import dns_label_faults, subdomain_faults
from scheduler.sandbox.devcluster.admission.checks import one_of, stated, unused, well_formed
from scheduler.sandbox.devcluster.admission.strategy import Strategy, View
from scheduler.sandbox.devcluster.kinds import NAMESPACE, RESOURCE_CLAIM, JsonObject
from scheduler.sandbox.devcluster.status import invalid

#: Finalizer of an allocated claim.
DELETE_PROTECTION: Final = "resource.kubernetes.io/delete-protection"
_MODES: Final = ("All", "ExactCount")
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


# -- claims --------------------------------------------------------------------------------------------------


def _default_claim(claim: JsonObject) -> None:
    _default_spec(claim.setdefault("spec", {}))


def _default_template(template: JsonObject) -> None:
    _default_spec(template.setdefault("spec", {}).setdefault("spec", {}))


def _default_spec(spec: JsonObject) -> None:
    for request in (spec.setdefault("devices", {}) or {}).get("requests") or []:
        asked = request.get("exactly")
        for one in [*([asked] if isinstance(asked, dict) else []), *(request.get("firstAvailable") or [])]:
            if one.setdefault("allocationMode", "ExactCount") == "ExactCount":
                one.setdefault("count", 1)
            for toleration in one.get("tolerations") or []:
                toleration.setdefault("operator", "Equal")


def _prepare_claim(claim: JsonObject, view: View) -> None:
    """Empty the status; refuse admin access outside of namespaces that are labelled for it. Raises: StatusError 422."""
    claim["status"] = {}
    namespace = view.find(NAMESPACE, "", claim["metadata"]["namespace"]) or {"metadata": {}}
    if (namespace["metadata"].get("labels") or {}).get(_ADMIN_LABEL) == "true":
        return
    for index, request in enumerate((claim["spec"].get("devices") or {}).get("requests") or []):
        if (request.get("exactly") or {}).get("adminAccess"):
            path = f"spec.devices.requests[{index}].adminAccess"
            detail = f"admin access to devices requires the `{_ADMIN_LABEL}: true` label on the containing namespace"
            refused = [field_errors.forbidden(path, detail)]
            raise invalid(RESOURCE_CLAIM, claim["metadata"].get("name", ""), refused)


def _claim_errors(claim: JsonObject) -> Iterator[FieldError]:
    yield from _spec_errors(claim["spec"], "spec")


def _template_errors(template: JsonObject) -> Iterator[FieldError]:
    yield from _spec_errors(template["spec"]["spec"], "spec.spec")


def _spec_errors(spec: JsonObject, path: str) -> Iterator[FieldError]:
    devices = spec.get("devices") or {}
    requests = devices.get("requests") or []
    yield from _at_most(requests, f"{path}.devices.requests", _MAX_PER_CLAIM)
    names: set[str] = set()
    for index, request in enumerate(requests):
        where = f"{path}.devices.requests[{index}]"
        yield from _named(request.get("name"), f"{where}.name", dns_label_faults)
        yield from unused(request.get("name") or "", where, names)
        yield from _request_errors(request, where)
    known = _request_names(spec)
    for part in ("constraints", "config"):
        for index, one in enumerate(devices.get(part) or []):
            where = f"{path}.devices.{part}[{index}]"
            yield from _reference_errors(one.get("requests") or [], f"{where}.requests", known)
            if part == "config":
                yield from stated(one, f"{where}.", "opaque")
            elif not one.get("matchAttribute") and not one.get("distinctAttribute"):
                yield field_errors.required(where, _ONE_ATTRIBUTE)


def _request_errors(request: JsonObject, path: str) -> Iterator[FieldError]:
    exactly, alternatives = request.get("exactly"), request.get("firstAvailable") or []
    if exactly and alternatives:
        yield field_errors.invalid(path, None, f"{_ONE_REQUEST_FIELD}, but multiple fields are set")
    elif exactly:
        yield from _asked_errors(exactly, f"{path}.exactly")
    elif not alternatives:
        yield field_errors.required(path, _ONE_REQUEST_FIELD)
    for index, alternative in enumerate(alternatives):
        where = f"{path}.firstAvailable[{index}]"
        yield from _named(alternative.get("name"), f"{where}.name", dns_label_faults)
        yield from _asked_errors(alternative, where)


def _asked_errors(asked: JsonObject, path: str) -> Iterator[FieldError]:
    """Yield the rules that the devices of a request, or of an alternative, break."""
    yield from _named(asked.get("deviceClassName"), f"{path}.deviceClassName", subdomain_faults)
    for index, selector in enumerate(asked.get("selectors") or []):
        yield from stated(selector, f"{path}.selectors[{index}].", "cel")
    mode, count = asked.get("allocationMode"), asked.get("count") or 0
    if mode == "All" and count:
        detail = "must not be specified when allocationMode is 'All'"
        yield field_errors.invalid(f"{path}.count", count, detail)
    elif mode == "ExactCount" and count <= 0:
        yield field_errors.invalid(f"{path}.count", count, "must be greater than zero")
    yield from one_of(mode, f"{path}.allocationMode", _MODES)


def _named(name: object, path: str, faults: Callable[[str], list[str]]) -> Iterator[FieldError]:
    """Yield an error if a name is absent or malformed."""
    if name:
        yield from well_formed(str(name), path, faults)
    else:
        yield field_errors.required(path)


def _request_names(spec: JsonObject) -> set[str]:
    """Return the names by which constraints, configurations and results may call requests: `R`, and `R/S`."""
    names: set[str] = set()
    for request in (spec.get("devices") or {}).get("requests") or []:
        name = request.get("name") or ""
        names |= {name, *(f"{name}/{one.get('name')}" for one in request.get("firstAvailable") or [])}
    return names


def _reference_errors(names: list[str], path: str, known: set[str]) -> Iterator[FieldError]:
    for index, name in enumerate(names):
        if name not in known:
            yield field_errors.invalid(f"{path}[{index}]", name, _REQUEST_REFERENCE)


# -- the status of claims ------------------------------------------------------------------------------------


def _status_errors(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """Yield the rules that a change of the status breaks: an allocation never changes, it only goes."""
    status, stored = new.get("status") or {}, old.get("status") or {}
    allocation, before = status.get("allocation"), stored.get("allocation")
    consumers = status.get("reservedFor") or []
    yield from _at_most(consumers, "status.reservedFor", _MAX_CONSUMERS)
    if consumers and allocation is None:
        yield field_errors.forbidden("status.reservedFor", "may not be specified when `allocated` is not set")
    elif new["metadata"].get("deletionTimestamp"):
        known = stored.get("reservedFor") or []
        if any(consumer not in known for consumer in consumers):
            detail = (
                "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
            )
            yield field_errors.forbidden("status.reservedFor", detail)
    if allocation is not None and before is not None:
        if allocation != before:
            yield field_errors.invalid("status.allocation", allocation, "field is immutable")
    elif allocation is not None:
        names = _request_names(new["spec"])
        for index, result in enumerate((allocation.get("devices") or {}).get("results") or []):
            if result.get("request") not in names:
                path = f"status.allocation.devices.results[{index}].request"
                yield field_errors.invalid(path, result.get("request"), _REQUEST_REFERENCE)


def _forget_freed_devices(new: JsonObject, old: JsonObject, _: View) -> None:
    """Drop what drivers reported of the devices of an allocation that this update takes away."""
    status = new.get("status") or {}
    if (old.get("status") or {}).get("allocation") and not status.get("allocation"):
        status.pop("devices", None)


RESOURCE_CLAIMS: Final = Strategy(
    has_status=True,
    returns_deleted=True,
    set_defaults=_default_claim,
    prepare_create=_prepare_claim,
    prepare_update=_forget_freed_devices,
    validate_create=_claim_errors,
    fixed="spec",
    validate_status=_status_errors,
)
RESOURCE_CLAIM_TEMPLATES: Final = Strategy(
    returns_deleted=True,
    set_defaults=_default_template,
    validate_create=_template_errors,
    fixed="spec",
)
