"""
TaintToleration: hard taints refuse, soft taints cost points.

Source: plugins/tainttoleration/taint_toleration.go (kubernetes 1.36).
"""

from tests.reference.arithmetic import normalised
from tests.reference.question import UNRESOLVABLE, Question, Verdict, taints_of
from tests.reference.tolerations import tolerated, tolerates_node

NAME = "TaintToleration"


def refusals(question: Question) -> dict[str, Verdict]:
    """Return nodes with a NoSchedule or NoExecute taint that no toleration covers."""
    return {
        name: Verdict(UNRESOLVABLE, ("node(s) had untolerated taint(s)",))
        for name, node in question.nodes.items()
        if not tolerates_node(question, node)
    }


def scores(question: Question, feasible: list[str]) -> dict[str, int]:
    """Return scores that are higher the fewer PreferNoSchedule taints are not tolerated; never skipped."""
    soft = [
        toleration
        for toleration in question.spec.get("tolerations") or []
        if (toleration.get("effect") or "") in ("", "PreferNoSchedule")
    ]
    untolerated = {
        name: sum(
            taint.get("effect") == "PreferNoSchedule" and not tolerated(question, taint, soft)
            for taint in taints_of(question.nodes[name])
        )
        for name in feasible
    }
    return normalised(untolerated, reverse=True)
