"""
NodeUnschedulable: a cordoned node takes only pods that tolerate being there.

Source: plugins/nodeunschedulable/node_unschedulable.go (kubernetes 1.36).
"""

from tests.reference.question import UNRESOLVABLE, Question, Verdict
from tests.reference.tolerations import tolerated

NAME = "NodeUnschedulable"

_CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def refusals(question: Question) -> dict[str, Verdict]:
    """Return nodes with spec.unschedulable, unless the pod tolerates that; the nodes' taints do not count."""
    if tolerated(question, _CORDON):
        return {}
    return {
        name: Verdict(UNRESOLVABLE, ("node(s) were unschedulable",))
        for name, node in question.nodes.items()
        if (node.get("spec") or {}).get("unschedulable")
    }
