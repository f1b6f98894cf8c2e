"""
The rules that the API server checks on affinity terms and spread constraints, after it has merged their key lists.

Paths, messages and their order are upstream's, including its mistakes.
Source: pkg/apis/core/validation/validation.go, validatePodAffinityTerm, validateTopologySpreadConstraints,
ValidateMatchLabelKeysAndMismatchLabelKeys; apimachinery metav1 validation, ValidateLabelSelector (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from scheduler.engine.syntax.field_errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
)
from scheduler.engine.syntax.json_fields import list_field, object_field, string_field
from scheduler.engine.syntax.names import dns_label_faults, label_key_faults, label_value_faults

Term = Mapping[str, object]

_ACTIONS: Final = ("DoNotSchedule", "ScheduleAnyway")
_POLICIES: Final = ("Honor", "Ignore")
_MAX_WEIGHT: Final = 100


def weighted_term_errors(weighted: Term, path: str) -> Iterator[FieldError]:
    """Yield the rules that a preferred term breaks."""
    weight = weighted.get("weight")
    if not isinstance(weight, int) or not 0 < weight <= _MAX_WEIGHT:
        yield invalid(f"{path}.weight", weight or 0, "must be in the range 1-100")
    yield from term_errors(object_field(weighted, "podAffinityTerm"), f"{path}.podAffinityTerm")


def term_errors(term: Term, path: str) -> Iterator[FieldError]:
    """Yield the rules that a required term breaks. O(its size)."""
    yield from selector_errors(term.get("labelSelector"), f"{path}.labelSelector")
    yield from selector_errors(term.get("namespaceSelector"), f"{path}.namespaceSelector")
    for name in list_field(term, "namespaces"):
        # Upstream's path really ends in "namespace".
        yield from (invalid(f"{path}.namespace", name, fault) for fault in dns_label_faults(str(name)))
    yield from _key_list_errors(term, path)
    topology_key = string_field(term, "topologyKey")
    if not topology_key:
        yield required(f"{path}.topologyKey", "can not be empty")
    yield from _key_errors(topology_key, f"{path}.topologyKey")


def constraint_errors(
    constraints: Sequence[Term], path: str, checked: Collection[int]
) -> Iterator[FieldError]:
    """
    Yield the rules that spread constraints break. O(n) for n constraints.

    Args:
        constraints: all constraints of the pod.
        path: the path of their list.
        checked: the indices of the constraints to check; the others are only compared with these.
    """
    last_index_of = {_pair(constraint): index for index, constraint in enumerate(constraints)}
    last_checked_of = {_pair(constraints[index]): index for index in sorted(checked)}
    for index, constraint in enumerate(constraints):
        pair, where = _pair(constraint), f"{path}[{index}]"
        last_index = (last_index_of if index in checked else last_checked_of).get(pair, index)
        same = [duplicate(f"{where}.{{topologyKey, whenUnsatisfiable}}", f"{{{pair[0]}, {pair[1]}}}")]
        if index in checked:
            yield from _constraint_errors(constraint, where, same if last_index > index else [])
        elif last_index > index:
            yield from same


def _constraint_errors(constraint: Term, where: str, same: Sequence[FieldError]) -> Iterator[FieldError]:
    topology_key, action = _pair(constraint)
    yield from _positive_errors(constraint.get("maxSkew") or 0, f"{where}.maxSkew")
    if not topology_key:
        yield required(f"{where}.topologyKey", "can not be empty")
    if action not in _ACTIONS:
        yield not_supported(f"{where}.whenUnsatisfiable", action, _ACTIONS)
    yield from same
    yield from _min_domains_errors(constraint.get("minDomains"), action, f"{where}.minDomains")
    for name in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        policy = constraint.get(name)
        if policy is not None and policy not in _POLICIES:
            yield not_supported(f"{where}.{name}", str(policy), _POLICIES)
    yield from _key_list_errors(constraint, where)
    yield from selector_errors(constraint.get("labelSelector"), f"{where}.labelSelector")


def _pair(constraint: Term) -> tuple[str, str]:
    return string_field(constraint, "topologyKey"), string_field(constraint, "whenUnsatisfiable")


def _positive_errors(value: object, path: str) -> Iterator[FieldError]:
    if not isinstance(value, int) or value <= 0:
        yield invalid(path, value, "must be greater than zero")


def _min_domains_errors(min_domains: object, action: str, path: str) -> Iterator[FieldError]:
    if min_domains is None:
        return
    yield from _positive_errors(min_domains, path)
    if action != "DoNotSchedule":
        detail = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
        yield invalid(path, min_domains, detail)


def _key_list_errors(term: Term, path: str) -> Iterator[FieldError]:
    selector = term.get("labelSelector")
    match_keys, mismatch_keys = list_field(term, "matchLabelKeys"), list_field(term, "mismatchLabelKeys")
    for name, keys in (("matchLabelKeys", match_keys), ("mismatchLabelKeys", mismatch_keys)):
        if keys and selector is None:
            yield forbidden(f"{path}.{name}", "must not be specified when labelSelector is not set")
            continue
        for index, key in enumerate(keys):
            yield from _key_errors(str(key), f"{path}.{name}[{index}]")
    yield from _keys_also_selected(path, match_keys, selector)
    mismatched = {str(key) for key in mismatch_keys}
    for index, key in enumerate(match_keys):
        if str(key) in mismatched:
            detail = "exists in both matchLabelKeys and mismatchLabelKeys"
            yield invalid(f"{path}.matchLabelKeys[{index}]", key, detail)


def _keys_also_selected(path: str, match_keys: Sequence[object], selector: object) -> Iterator[FieldError]:
    """
    Yield an error for every listed key that the user's selector has too.

    One expression with a listed key is the merged one; a second one is the user's. The path lacks the name of the
    list because upstream indexes the term itself.
    """
    index_of = {str(key): index for index, key in enumerate(match_keys)}
    seen = {str(key) for key in object_field(selector, "matchLabels")}
    for expression in list_field(selector, "matchExpressions"):
        key = string_field(expression, "key")
        if key in index_of and key in seen:
            yield invalid(f"{path}[{index_of[key]}]", key, "exists in both matchLabelKeys and labelSelector")
        seen.add(key)


def selector_errors(selector: object, path: str) -> Iterator[FieldError]:
    """Yield the rules that a LabelSelector breaks; an absent one breaks none."""
    for key, value in object_field(selector, "matchLabels").items():
        yield from _key_errors(key, f"{path}.matchLabels")
        yield from _value_errors(value, f"{path}.matchLabels")
    for index, expression in enumerate(list_field(selector, "matchExpressions")):
        yield from _expression_errors(expression, f"{path}.matchExpressions[{index}]")


def _expression_errors(expression: object, path: str) -> Iterator[FieldError]:
    operator, values = string_field(expression, "operator"), list_field(expression, "values")
    match operator:
        case "In" | "NotIn":
            if not values:
                yield required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
        case "Exists" | "DoesNotExist":
            if values:
                detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                yield forbidden(f"{path}.values", detail)
        case _:
            yield invalid(f"{path}.operator", operator, "not a valid selector operator")
    yield from _key_errors(string_field(expression, "key"), f"{path}.key")
    for index, value in enumerate(values):
        yield from _value_errors(value, f"{path}.values[{index}]")


def _key_errors(key: str, path: str) -> Iterator[FieldError]:
    return (invalid(path, key, fault) for fault in label_key_faults(key))


def _value_errors(value: object, path: str) -> Iterator[FieldError]:
    return (invalid(path, value, fault) for fault in label_value_faults(str(value)))
