"""
NodeName: a pod that names its node fits only there.

Source: plugins/nodename/node_name.go (kubernetes 1.36).
"""

from tests.reference.question import UNRESOLVABLE, Question, Verdict

NAME = "NodeName"


def refusals(question: Question) -> dict[str, Verdict]:
    """Return all nodes but the one named, where one is."""
    wanted = question.spec.get("nodeName") or ""
    return {
        name: Verdict(UNRESOLVABLE, ("node(s) didn't match the requested node name",))
        for name in question.nodes
        if wanted and name != wanted
    }
