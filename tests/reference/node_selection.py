"""
Node selectors: spec.nodeSelector and the terms of node affinity.

Source: staging/src/k8s.io/component-helpers/scheduling/corev1/nodeaffinity/nodeaffinity.go (kubernetes 1.36).
"""

import re

from tests.reference.question import Object, labels_of
from tests.reference.selectors import Labels, is_label_value, is_qualified_name

_INT = re.compile(r"[+-]?[0-9]+", re.ASCII)


class TermError(ValueError):
    """A term that does not parse, and so matches no node."""


def pod_accepts(pod: Object, node: Object) -> bool:
    """Return whether a node has every label of the pod's nodeSelector and meets its required node affinity."""
    spec = pod.get("spec") or {}
    labels = labels_of(node)
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    required = required_of(spec)
    return required is None or any_term_matches(required, node)


def required_of(spec: Object) -> Object | None:
    """Return the required node affinity of a pod's spec."""
    node_affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required: Object | None = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return required


def any_term_matches(required: Object, node: Object) -> bool:
    """Return whether one of a node selector's terms matches; a term that does not parse never does."""
    return any(_matches_if_parsed(term, node) for term in required.get("nodeSelectorTerms") or [])


def _matches_if_parsed(term: Object, node: Object) -> bool:
    try:
        check(term)
    except TermError:
        return False
    return term_matches(term, node)


def term_matches(term: Object, node: Object) -> bool:
    """Return whether a node meets every expression and field of a parsable term; an empty term matches nothing."""
    expressions, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    if not expressions and not fields:
        return False
    labels, name = labels_of(node), {"metadata.name": node["metadata"]["name"]}
    return all(_meets(e, labels) for e in expressions) and all(_meets(f, name) for f in fields)


def labels_match(term: Object, labels: Labels) -> bool:
    """Return whether the labels meet a volume's term, apart from its requirements on the node's name."""
    expressions = term.get("matchExpressions") or []
    if not expressions and not term.get("matchFields"):
        return False
    try:
        check(term)
    except TermError:
        return False
    return all(_meets(e, labels) for e in expressions)


def check(term: Object) -> None:
    """
    Nothing, where the term parses.

    Raises: TermError for unknown operators, wrong numbers of values, and keys or values that are no labels.
    """
    for expression in term.get("matchExpressions") or []:
        _check_expression(expression)
    for field in term.get("matchFields") or []:
        known = field["key"] == "metadata.name" and field["operator"] in ("In", "NotIn")
        if not known or len(field.get("values") or []) != 1:
            raise TermError(f"bad field {field}")


def _check_expression(expression: Object) -> None:
    operator, values = expression["operator"], expression.get("values") or []
    counts_right = {
        "In": len(values) > 0,
        "NotIn": len(values) > 0,
        "Exists": not values,
        "DoesNotExist": not values,
        "Gt": len(values) == 1 and _int64(values[0]) is not None,
        "Lt": len(values) == 1 and _int64(values[0]) is not None,
    }
    if not counts_right.get(operator, False):
        raise TermError(f"bad operator or values in {expression}")
    if not is_qualified_name(expression["key"]) or not all(is_label_value(value) for value in values):
        raise TermError(f"bad key or value in {expression}")


def _meets(requirement: Object, labels: Labels) -> bool:
    key, operator = requirement["key"], requirement["operator"]
    values: list[str] = requirement.get("values") or []
    if operator == "In":
        return key in labels and labels[key] in values
    if operator == "NotIn":
        return key not in labels or labels[key] not in values
    if operator == "Exists":
        return key in labels
    if operator == "DoesNotExist":
        return key not in labels
    found, wanted = _int64(labels.get(key, "")), _int64(values[0])
    if found is None or wanted is None:
        return False
    return found > wanted if operator == "Gt" else found < wanted


def _int64(text: str) -> int | None:
    if _INT.fullmatch(text) is None or not -(2**63) <= int(text) < 2**63:
        return None
    return int(text)
