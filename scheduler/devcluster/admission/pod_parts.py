"""
The rules of the parts of a pod's spec: containers with their ports and resources, tolerations, node affinity.

Source: pkg/apis/core/validation/validation.go (kubernetes 1.36).
"""

from collections.abc import Iterator
from typing import Final

from scheduler.devcluster import fields
from scheduler.devcluster.admission.quantities import parse_quantity
from scheduler.devcluster.fields import FieldError
from scheduler.devcluster.kinds import JsonObject

_PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_STANDARD_RESOURCES: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
_MAX_PORT: Final = 65535
_MAX_WEIGHT: Final = 100
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def container_errors(container: JsonObject, path: str, *, host_network: bool) -> Iterator[FieldError]:
    """The rules that one container breaks."""
    name = container.get("name") or ""
    if not name:
        yield fields.required(f"{path}.name")
    else:
        yield from (fields.invalid(f"{path}.name", name, fault) for fault in fields.label_name_faults(name))
    if not container.get("image"):
        yield fields.required(f"{path}.image")
    yield from _port_errors(container.get("ports") or [], f"{path}.ports", host_network=host_network)
    yield from _resource_errors(container.get("resources") or {}, f"{path}.resources")


def _port_errors(ports: list[JsonObject], path: str, *, host_network: bool) -> Iterator[FieldError]:
    detail = f"must be between 1 and {_MAX_PORT}, inclusive"
    taken: set[str] = set()
    for index, port in enumerate(ports):
        number, host_port = port.get("containerPort") or 0, port.get("hostPort") or 0
        if not number:
            yield fields.required(f"{path}[{index}].containerPort")
        elif not 1 <= number <= _MAX_PORT:
            yield fields.invalid(f"{path}[{index}].containerPort", number, detail)
        if host_port and not 1 <= host_port <= _MAX_PORT:
            yield fields.invalid(f"{path}[{index}].hostPort", host_port, detail)
        if port.get("protocol") not in _PROTOCOLS:
            yield fields.not_supported(f"{path}[{index}].protocol", port.get("protocol"), _PROTOCOLS)
        if host_network and host_port and host_port != number:
            rule = "must match `containerPort` when `hostNetwork` is true"
            yield fields.invalid(f"{path}[{index}].hostPort", host_port, rule)
    for index, port in enumerate(ports):
        if port.get("hostPort"):
            where = f"{port.get('protocol')}/{port.get('hostIP') or ''}/{port['hostPort']}"
            if where in taken:
                yield fields.duplicate(f"{path}[{index}].hostPort", where)
            taken.add(where)


def _resource_errors(resources: JsonObject, path: str) -> Iterator[FieldError]:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for side, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            where = f"{path}.{side}"
            yield from _resource_name_errors(name, f"{where}[{name}]")
            value = parse_quantity(amount)
            if value is not None and value < 0:
                yield fields.invalid(f"{where}[{name}]", amount, "must be greater than or equal to 0")
            if side == "requests":
                yield from _request_errors(name, amount, limits, path)


def _resource_name_errors(name: str, path: str) -> Iterator[FieldError]:
    yield from (fields.invalid(path, name, fault) for fault in fields.qualified_name_faults(name))
    if "/" not in name and name not in _STANDARD_RESOURCES and not name.startswith("hugepages-"):
        yield fields.invalid(path, name, "must be a standard resource type or fully qualified")
        yield fields.invalid(path, name, "must be a standard resource for containers")


def _request_errors(name: str, amount: object, limits: JsonObject, path: str) -> Iterator[FieldError]:
    """A request stays below its limit; what can't be overcommitted has one, and equals it."""
    exact = "/" in name or name.startswith("hugepages-")
    if name not in limits:
        if exact:
            detail = "Limit must be set for non overcommitable resources"
            yield fields.required(f"{path}.limits", detail)
        return
    asked, bound = parse_quantity(amount), parse_quantity(limits[name])
    if asked is None or bound is None:
        return
    if exact and asked != bound:
        yield fields.invalid(f"{path}.requests", amount, f"must be equal to {name} limit of {limits[name]}")
    elif asked > bound:
        detail = f"must be less than or equal to {name} limit of {limits[name]}"
        yield fields.invalid(f"{path}.requests", amount, detail)


def toleration_errors(tolerations: list[JsonObject]) -> Iterator[FieldError]:
    """The rules that a pod's tolerations break."""
    for index, one in enumerate(tolerations):
        path = f"spec.tolerations[{index}]"
        key, operator, value = one.get("key") or "", one.get("operator") or "", one.get("value") or ""
        effect = one.get("effect") or ""
        if key:
            yield from (
                fields.invalid(f"{path}.key", key, fault) for fault in fields.qualified_name_faults(key)
            )
        elif operator != "Exists":
            detail = (
                'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            )
            yield fields.invalid(f"{path}.operator", operator, detail)
        if one.get("tolerationSeconds") is not None and effect != "NoExecute":
            detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            yield fields.invalid(f"{path}.effect", effect, detail)
        yield from _operator_errors(operator, value, f"{path}.operator")
        if effect and effect not in _EFFECTS:
            yield fields.not_supported(f"{path}.effect", effect, _EFFECTS)


def _operator_errors(operator: str, value: str, path: str) -> Iterator[FieldError]:
    match operator:
        case "" | "Equal":
            faults = fields.label_value_faults(value)
            if faults:
                yield fields.invalid(path, value, ";".join(faults))
        case "Exists":
            if value:
                yield fields.invalid(path, value, "value must be empty when `operator` is 'Exists'")
        case "Lt" | "Gt":
            # Comparison operators need the gate TaintTolerationComparisonOperators, which is off.
            yield fields.not_supported(path, operator, ("Equal", "Exists", "Lt", "Gt"))
        case _:
            yield fields.not_supported(path, operator, ("Equal", "Exists"))


def node_affinity_errors(affinity: JsonObject, path: str) -> Iterator[FieldError]:
    """The rules that a pod's node affinity breaks."""
    required = affinity.get(_REQUIRED)
    if required is not None:
        terms = required.get("nodeSelectorTerms") or []
        if not terms:
            detail = "must have at least one node selector term"
            yield fields.required(f"{path}.{_REQUIRED}.nodeSelectorTerms", detail)
        for index, term in enumerate(terms):
            yield from _node_term_errors(term, f"{path}.{_REQUIRED}.nodeSelectorTerms[{index}]", strict=True)
    for index, weighted in enumerate(affinity.get(_PREFERRED) or []):
        where = f"{path}.{_PREFERRED}[{index}]"
        weight = weighted.get("weight") or 0
        if not 0 < weight <= _MAX_WEIGHT:
            yield fields.invalid(f"{where}.weight", weight, "must be in the range 1-100")
        yield from _node_term_errors(weighted.get("preference") or {}, f"{where}.preference", strict=False)


def _node_term_errors(term: JsonObject, path: str, *, strict: bool) -> Iterator[FieldError]:
    """`strict`: values must be label values, which preferred terms need not heed."""
    for index, one in enumerate(term.get("matchExpressions") or []):
        where = f"{path}.matchExpressions[{index}]"
        key, values = one.get("key") or "", one.get("values") or []
        yield from _values_errors(one.get("operator") or "", values, where)
        yield from (fields.invalid(f"{where}.key", key, fault) for fault in fields.qualified_name_faults(key))
        for position, value in enumerate(values if strict else []):
            for fault in fields.label_value_faults(value):
                yield fields.invalid(f"{where}.values[{position}]", value, fault)
    for index, one in enumerate(term.get("matchFields") or []):
        yield from _field_errors(one, f"{path}.matchFields[{index}]")


def _values_errors(operator: str, values: list[str], path: str) -> Iterator[FieldError]:
    match operator:
        case "In" | "NotIn":
            if not values:
                yield fields.required(
                    f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'"
                )
        case "Exists" | "DoesNotExist":
            if values:
                detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                yield fields.forbidden(f"{path}.values", detail)
        case "Gt" | "Lt":
            if len(values) != 1:
                detail = "must be specified single value when `operator` is 'Lt' or 'Gt'"
                yield fields.required(f"{path}.values", detail)
        case _:
            yield fields.invalid(f"{path}.operator", operator, "not a valid selector operator")


def _field_errors(one: JsonObject, path: str) -> Iterator[FieldError]:
    key, operator, values = one.get("key") or "", one.get("operator") or "", one.get("values") or []
    if operator not in ("In", "NotIn"):
        yield fields.invalid(f"{path}.operator", operator, "not a valid selector operator")
    elif len(values) != 1:
        detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        yield fields.required(f"{path}.values", detail)
    if key != "metadata.name":
        yield fields.invalid(f"{path}.key", key, "not a valid field selector key")
        return
    for position, value in enumerate(values):
        for fault in fields.subdomain_faults(value):
            yield fields.invalid(f"{path}.values[{position}]", value, fault)
