"""
The rules of the parts of a pod's spec: containers, tolerations and node affinity.

Source: pkg/apis/core/validation/validation.go (kubernetes 1.36). Differences: the values of Exists, Gt and Lt, and the
fields that a node is selected by, are not checked.
"""

from collections.abc import Iterator
from typing import Final

from scheduler.engine.syntax import field_errors
from scheduler.engine.syntax.field_errors import FieldError
from scheduler.engine.syntax.names import dns_label_faults, label_key_faults
from scheduler.sandbox.devcluster.admission.checks import at_least_zero, one_of, quantity, stated, well_formed
from scheduler.sandbox.devcluster.kinds import JsonObject

_PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_STANDARD_RESOURCES: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
_MAX_PORT: Final = 65535
_PORT_RANGE: Final = f"must be between 1 and {_MAX_PORT}, inclusive"
_MAX_WEIGHT: Final = 100
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


# -- containers ----------------------------------------------------------------------------------------------


def container_errors(container: JsonObject, path: str) -> Iterator[FieldError]:
    """Yield the rules that one container breaks."""
    yield from stated(container, f"{path}.", "name")
    if container.get("name"):
        yield from well_formed(container["name"], f"{path}.name", dns_label_faults)
    yield from stated(container, f"{path}.", "image")
    for index, port in enumerate(container.get("ports") or []):
        yield from _port_errors(port, f"{path}.ports[{index}]")
    yield from _resource_errors(container.get("resources") or {}, f"{path}.resources")


def _port_errors(port: JsonObject, path: str) -> Iterator[FieldError]:
    yield from stated(port, f"{path}.", "containerPort")
    for name in ("containerPort", "hostPort"):
        if port.get(name) and not 1 <= port[name] <= _MAX_PORT:
            yield field_errors.invalid(f"{path}.{name}", port[name], _PORT_RANGE)
    yield from one_of(port.get("protocol"), f"{path}.protocol", _PROTOCOLS)


def _resource_errors(resources: JsonObject, path: str) -> Iterator[FieldError]:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for side, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            where = f"{path}.{side}[{name}]"
            yield from _resource_name_errors(name, where)
            yield from at_least_zero(amount, where)
            if side == "requests":
                yield from _request_errors(name, amount, limits, path)


def _resource_name_errors(name: str, path: str) -> Iterator[FieldError]:
    yield from well_formed(name, path, label_key_faults)
    if "/" not in name and name not in _STANDARD_RESOURCES and not name.startswith("hugepages-"):
        yield field_errors.invalid(path, name, "must be a standard resource type or fully qualified")
        yield field_errors.invalid(path, name, "must be a standard resource for containers")


def _request_errors(name: str, amount: object, limits: JsonObject, path: str) -> Iterator[FieldError]:
    """Yield an error for a request above its limit; a resource that cannot be overcommitted must equal its limit."""
    is_exact = "/" in name or name.startswith("hugepages-")
    if name not in limits:
        if is_exact:
            detail = "Limit must be set for non overcommitable resources"
            yield field_errors.required(f"{path}.limits", detail)
        return
    requested, limit = quantity(amount), quantity(limits[name])
    if requested is None or limit is None:
        return
    if is_exact and requested != limit:
        detail = f"must be equal to {name} limit of {limits[name]}"
        yield field_errors.invalid(f"{path}.requests", amount, detail)
    elif requested > limit:
        detail = f"must be less than or equal to {name} limit of {limits[name]}"
        yield field_errors.invalid(f"{path}.requests", amount, detail)


# -- tolerations ---------------------------------------------------------------------------------------------


def toleration_errors(tolerations: list[JsonObject]) -> Iterator[FieldError]:
    """Yield the rules that a pod's tolerations break."""
    for index, toleration in enumerate(tolerations):
        path = f"spec.tolerations[{index}]"
        key, operator, value, effect = (
            toleration.get(name) or "" for name in ("key", "operator", "value", "effect")
        )
        yield from well_formed(key, f"{path}.key", label_key_faults) if key else ()
        if not key and operator != "Exists":
            detail = (
                'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            )
            yield field_errors.invalid(f"{path}.operator", operator, detail)
        if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
            detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            yield field_errors.invalid(f"{path}.effect", effect, detail)
        # Lt and Gt need the gate TaintTolerationComparisonOperators, which is off.
        yield from one_of(operator or "Equal", f"{path}.operator", ("Equal", "Exists"))
        if operator == "Exists" and value:
            detail = "value must be empty when `operator` is 'Exists'"
            yield field_errors.invalid(f"{path}.operator", value, detail)
        yield from one_of(effect, f"{path}.effect", _EFFECTS) if effect else ()


# -- node affinity -------------------------------------------------------------------------------------------


def node_affinity_errors(affinity: JsonObject, path: str) -> Iterator[FieldError]:
    """Yield the rules that a pod's node affinity breaks."""
    required = affinity.get(_REQUIRED)
    if required is not None:
        yield from node_selector_errors(required, f"{path}.{_REQUIRED}")
    for index, weighted in enumerate(affinity.get(_PREFERRED) or []):
        where, weight = f"{path}.{_PREFERRED}[{index}]", weighted.get("weight") or 0
        if not 0 < weight <= _MAX_WEIGHT:
            yield field_errors.invalid(f"{where}.weight", weight, "must be in the range 1-100")
        yield from _node_term_errors(weighted.get("preference") or {}, f"{where}.preference")


def node_selector_errors(selector: JsonObject, path: str) -> Iterator[FieldError]:
    """Yield the rules that a NodeSelector breaks: of a pod, or of a volume."""
    terms, where = selector.get("nodeSelectorTerms") or [], f"{path}.nodeSelectorTerms"
    if not terms:
        yield field_errors.required(where, "must have at least one node selector term")
    for index, term in enumerate(terms):
        yield from _node_term_errors(term, f"{where}[{index}]")


def _node_term_errors(term: JsonObject, path: str) -> Iterator[FieldError]:
    for index, one in enumerate(term.get("matchExpressions") or []):
        where, key = f"{path}.matchExpressions[{index}]", one.get("key") or ""
        yield from _node_operator_errors(one.get("operator") or "", one.get("values") or [], where)
        yield from well_formed(key, f"{where}.key", label_key_faults)


def _node_operator_errors(operator: str, values: list[str], path: str) -> Iterator[FieldError]:
    match operator:
        case "In" | "NotIn":
            if not values:
                detail = "must be specified when `operator` is 'In' or 'NotIn'"
                yield field_errors.required(f"{path}.values", detail)
        case "Exists" | "DoesNotExist" | "Gt" | "Lt":
            pass
        case _:
            yield field_errors.invalid(f"{path}.operator", operator, "not a valid selector operator")
