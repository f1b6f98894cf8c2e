"""
matchLabelKeys and mismatchLabelKeys at pod creation: merged into the selectors, then everything is validated.

Pure: a pod in, an answer out.
Source: pkg/registry/core/pod/strategy.go (mutatePodAffinity, mutateTopologySpreadConstraints) and
pkg/apis/core/validation/validation.go (kubernetes 1.36).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from scheduler.devcluster import fields
from scheduler.devcluster.fields import FieldError
from scheduler.devcluster.kinds import POD, JsonObject
from scheduler.devcluster.status import invalid

_AFFINITIES: Final = ("podAffinity", "podAntiAffinity")
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_ACTIONS: Final = ("DoNotSchedule", "ScheduleAnyway")
_POLICIES: Final = ("Honor", "Ignore")
_MAX_WEIGHT: Final = 100


@dataclass(frozen=True, slots=True)
class Admitted:
    """The pod is stored with these; None where it has none."""

    affinity: JsonObject | None
    topology_spread_constraints: list[JsonObject] | None


@dataclass(frozen=True, slots=True)
class Refused:
    """The pod is refused with this Status: one cause (reason, message, field) per broken rule, in order."""

    code: int
    reason: str
    message: str
    causes: list[dict[str, str]]


def admit_pod(pod: JsonObject) -> Admitted | Refused:
    """
    What the API server answers to the creation of `pod`, as far as its affinity and spread constraints decide.

    `pod` is not changed. Cost: O(terms x keys).
    """
    labels = pod.get("metadata", {}).get("labels") or {}
    spec = pod.get("spec", {})
    affinity = merged_affinity(spec.get("affinity"), labels)
    constraints = merged_constraints(spec.get("topologySpreadConstraints"), labels)
    errors = [*affinity_errors(affinity or {}), *constraint_errors(constraints or [])]
    if errors:
        refusal = invalid(POD, pod["metadata"].get("name", ""), errors)
        return Refused(refusal.code, refusal.reason, refusal.message, [error.cause() for error in errors])
    return Admitted(affinity, constraints)


# -- merging -------------------------------------------------------------------------------------------------


def merged_affinity(affinity: JsonObject | None, labels: Mapping[str, str]) -> JsonObject | None:
    """The affinity with the label values of its key lists added to its selectors. The argument is not changed."""
    if not affinity:
        return affinity
    merged = dict(affinity)
    for side in _AFFINITIES:
        if not merged.get(side):
            continue
        terms_by_list = dict(merged[side])
        if terms_by_list.get(_REQUIRED):
            terms_by_list[_REQUIRED] = [_merged_term(term, labels) for term in terms_by_list[_REQUIRED]]
        if terms_by_list.get(_PREFERRED):
            terms_by_list[_PREFERRED] = [
                {**weighted, "podAffinityTerm": _merged_term(weighted.get("podAffinityTerm") or {}, labels)}
                for weighted in terms_by_list[_PREFERRED]
            ]
        merged[side] = terms_by_list
    return merged


def merged_constraints(
    constraints: list[JsonObject] | None, labels: Mapping[str, str]
) -> list[JsonObject] | None:
    """The spread constraints with the label values of their matchLabelKeys added to their selectors."""
    return constraints and [_merged_term({**one}, labels) for one in constraints]


def _merged_term(term: JsonObject, labels: Mapping[str, str]) -> JsonObject:
    """
    A term or constraint with one expression more for every listed key that the pod has as a label.

    Spread constraints have no mismatchLabelKeys; an absent selector stays absent.
    """
    selector = term.get("labelSelector")
    if selector is None:
        return term
    added = [
        {"key": key, "operator": operator, "values": [labels[key]]}
        for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
        for key in term.get(field) or []
        if key in labels
    ]
    if not added:
        return term
    expressions = [*(selector.get("matchExpressions") or []), *added]
    return {**term, "labelSelector": {**selector, "matchExpressions": expressions}}


# -- validation ----------------------------------------------------------------------------------------------


def affinity_errors(affinity: JsonObject, path: str = "spec.affinity") -> Iterator[FieldError]:
    """The rules that merged pod affinity and anti-affinity break, in upstream's order."""
    for side in _AFFINITIES:
        terms_by_list = affinity.get(side) or {}
        for index, term in enumerate(terms_by_list.get(_REQUIRED) or []):
            yield from _term_errors(term, f"{path}.{side}.{_REQUIRED}[{index}]")
        for index, weighted in enumerate(terms_by_list.get(_PREFERRED) or []):
            where = f"{path}.{side}.{_PREFERRED}[{index}]"
            weight = weighted.get("weight") or 0
            if not 0 < weight <= _MAX_WEIGHT:
                yield fields.invalid(f"{where}.weight", weight, "must be in the range 1-100")
            yield from _term_errors(weighted.get("podAffinityTerm") or {}, f"{where}.podAffinityTerm")


def _term_errors(term: JsonObject, path: str) -> Iterator[FieldError]:
    yield from selector_errors(term.get("labelSelector"), f"{path}.labelSelector")
    yield from selector_errors(term.get("namespaceSelector"), f"{path}.namespaceSelector")
    for name in term.get("namespaces") or []:
        # The path really says "namespace": upstream's field name here differs from the API's.
        yield from (
            fields.invalid(f"{path}.namespace", name, fault) for fault in fields.label_name_faults(name)
        )
    yield from _key_list_errors(
        path, term.get("matchLabelKeys") or [], term.get("mismatchLabelKeys") or [], term.get("labelSelector")
    )
    topology_key = term.get("topologyKey") or ""
    if not topology_key:
        yield fields.required(f"{path}.topologyKey", "can not be empty")
    yield from _label_name_errors(topology_key, f"{path}.topologyKey")


def _label_name_errors(name: str, path: str) -> Iterator[FieldError]:
    return (fields.invalid(path, name, fault) for fault in fields.qualified_name_faults(name))


def selector_errors(selector: JsonObject | None, path: str) -> Iterator[FieldError]:
    """The rules that a LabelSelector object breaks."""
    if selector is None:
        return
    for key, value in (selector.get("matchLabels") or {}).items():
        yield from _label_name_errors(key, f"{path}.matchLabels")
        for fault in fields.label_value_faults(value):
            yield fields.invalid(f"{path}.matchLabels", value, fault)
    for index, expression in enumerate(selector.get("matchExpressions") or []):
        yield from _expression_errors(expression, f"{path}.matchExpressions[{index}]")


def _expression_errors(expression: JsonObject, path: str) -> Iterator[FieldError]:
    operator, values = expression.get("operator", ""), expression.get("values") or []
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
        case _:
            yield fields.invalid(f"{path}.operator", operator, "not a valid selector operator")
    yield from _label_name_errors(expression.get("key", ""), f"{path}.key")
    for index, value in enumerate(values):
        for fault in fields.label_value_faults(value):
            yield fields.invalid(f"{path}.values[{index}]", value, fault)


def _key_list_errors(
    path: str, match_keys: Sequence[str], mismatch_keys: Sequence[str], selector: JsonObject | None
) -> Iterator[FieldError]:
    """The rules on the two key lists, the selector being merged already."""
    for name, keys in (("matchLabelKeys", match_keys), ("mismatchLabelKeys", mismatch_keys)):
        if keys and selector is None:
            yield fields.forbidden(f"{path}.{name}", "must not be specified when labelSelector is not set")
        elif keys:
            for index, key in enumerate(keys):
                yield from _label_name_errors(key, f"{path}.{name}[{index}]")
    yield from _keys_also_selected(path, match_keys, selector or {})
    for index, key in enumerate(match_keys):
        if key in mismatch_keys:
            detail = "exists in both matchLabelKeys and mismatchLabelKeys"
            yield fields.invalid(f"{path}.matchLabelKeys[{index}]", key, detail)


def _keys_also_selected(path: str, match_keys: Sequence[str], selector: JsonObject) -> Iterator[FieldError]:
    """
    One expression per matched key is the merged one; any beside it was the user's and is refused.

    The path lacks the list's name: upstream indexes the term itself.
    """
    position = {key: index for index, key in enumerate(match_keys)}
    seen = set(selector.get("matchLabels") or {})
    for expression in selector.get("matchExpressions") or []:
        key = expression.get("key", "")
        if key in position and key in seen:
            detail = "exists in both matchLabelKeys and labelSelector"
            yield fields.invalid(f"{path}[{position[key]}]", key, detail)
        seen.add(key)


def constraint_errors(
    constraints: Sequence[JsonObject], path: str = "spec.topologySpreadConstraints"
) -> Iterator[FieldError]:
    """The rules that merged topology spread constraints break, in upstream's order."""
    for index, constraint in enumerate(constraints):
        where = f"{path}[{index}]"
        action = constraint.get("whenUnsatisfiable") or ""
        topology_key = constraint.get("topologyKey") or ""
        yield from _positive_errors(constraint.get("maxSkew") or 0, f"{where}.maxSkew")
        if not topology_key:
            yield fields.required(f"{where}.topologyKey", "can not be empty")
        if action not in _ACTIONS:
            yield fields.not_supported(f"{where}.whenUnsatisfiable", action, _ACTIONS)
        pairs = [(one.get("topologyKey"), one.get("whenUnsatisfiable")) for one in constraints[index + 1 :]]
        if (topology_key, action) in pairs:
            pair = f"{{{topology_key}, {action}}}"
            yield fields.duplicate(f"{where}.{{topologyKey, whenUnsatisfiable}}", pair)
        yield from _min_domains_errors(constraint.get("minDomains"), action, f"{where}.minDomains")
        for name in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            policy = constraint.get(name)
            if policy is not None and policy not in _POLICIES:
                yield fields.not_supported(f"{where}.{name}", policy, _POLICIES)
        selector = constraint.get("labelSelector")
        yield from _key_list_errors(where, constraint.get("matchLabelKeys") or [], (), selector)
        yield from selector_errors(selector, f"{where}.labelSelector")


def _positive_errors(value: int, path: str) -> Iterator[FieldError]:
    if value <= 0:
        yield fields.invalid(path, value, "must be greater than zero")


def _min_domains_errors(min_domains: int | None, action: str, path: str) -> Iterator[FieldError]:
    if min_domains is None:
        return
    yield from _positive_errors(min_domains, path)
    if action != "DoNotSchedule":
        detail = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
        yield fields.invalid(path, min_domains, detail)
