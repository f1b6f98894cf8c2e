"""
Which taints a pod tolerates.

Source: staging/src/k8s.io/api/core/v1/toleration.go (kubernetes 1.36).
"""

import re

from tests.reference.question import Object, Question, taints_of

_CANONICAL_INT = re.compile(r"0|-?[1-9][0-9]*", re.ASCII)


def tolerates(toleration: Object, taint: Object, *, comparison: bool) -> bool:
    """Return whether the toleration covers the taint; `comparison` is the gate of Lt and Gt."""
    effect, key = toleration.get("effect") or "", toleration.get("key") or ""
    if effect and effect != taint.get("effect"):
        return False
    if key and key != taint["key"]:
        return False
    operator = toleration.get("operator") or "Equal"
    wanted, found = toleration.get("value") or "", taint.get("value") or ""
    if operator == "Equal":
        return bool(wanted == found)
    if operator in ("Lt", "Gt"):
        return comparison and _compares(operator, found, wanted)
    return bool(operator == "Exists")


def _compares(operator: str, found: str, wanted: str) -> bool:
    if not (_is_canonical_int64(found) and _is_canonical_int64(wanted)):
        return False
    return int(found) < int(wanted) if operator == "Lt" else int(found) > int(wanted)


def _is_canonical_int64(text: str) -> bool:
    return _CANONICAL_INT.fullmatch(text) is not None and -(2**63) <= int(text) < 2**63


def tolerated(question: Question, taint: Object, tolerations: list[Object] | None = None) -> bool:
    """Return whether the incoming pod tolerates a taint, by all of its tolerations or by those given."""
    if tolerations is None:
        tolerations = question.spec.get("tolerations") or []
    comparison = question.gates.get("TaintTolerationComparisonOperators", False)
    return any(tolerates(toleration, taint, comparison=comparison) for toleration in tolerations)


def tolerates_node(question: Question, node: Object) -> bool:
    """Return whether the incoming pod tolerates every taint of a node that keeps pods away."""
    return all(
        tolerated(question, taint)
        for taint in taints_of(node)
        if taint.get("effect") in ("NoSchedule", "NoExecute")
    )
