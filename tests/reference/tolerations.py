"""
Which taints a pod tolerates.

Source: staging/src/k8s.io/api/core/v1/toleration.go (kubernetes 1.36).
"""

from tests.reference.question import Object, Question, taints_of


def tolerates(toleration: Object, taint: Object) -> bool:
    """Return whether the toleration covers the taint; Lt and Gt, whose gate is alpha, cover none."""
    effect, key = toleration.get("effect") or "", toleration.get("key") or ""
    if effect and effect != taint.get("effect"):
        return False
    if key and key != taint["key"]:
        return False
    operator = toleration.get("operator") or "Equal"
    wanted, found = toleration.get("value") or "", taint.get("value") or ""
    if operator == "Equal":
        return bool(wanted == found)
    return bool(operator == "Exists")


def tolerated(question: Question, taint: Object, tolerations: list[Object] | None = None) -> bool:
    """Return whether the incoming pod tolerates a taint, by all of its tolerations or by those given."""
    if tolerations is None:
        tolerations = question.spec.get("tolerations") or []
    return any(tolerates(toleration, taint) for toleration in tolerations)


def tolerates_node(question: Question, node: Object) -> bool:
    """Return whether the incoming pod tolerates every taint of a node that keeps pods away."""
    return all(
        tolerated(question, taint)
        for taint in taints_of(node)
        if taint.get("effect") in ("NoSchedule", "NoExecute")
    )
