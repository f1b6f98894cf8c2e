"""What a node lacks to satisfy nodeSelector and required node affinity."""

from __future__ import annotations

from scheduler.model.nodes import Node
from scheduler.model.terms import NodeRequirement, NodeRule, NodeTerm
from scheduler.plugins.node_affinity import rule_matches


def unmet(rule: NodeRule, node: Node) -> tuple[NodeRequirement, ...]:
    """
    The fewest requirements that the node fails: of nodeSelector, and of the term that it comes closest to.

    Empty where the rule matches, and where nothing the node could have would make it match.
    """
    pairs = tuple(
        NodeRequirement(key, "In", (value,))
        for key, value in rule.pairs or ()
        if node.labels.get(key) != value
    )
    by_term = [
        _failing(term, node) for term in rule.terms or () if not term.is_empty and term.problem is None
    ]
    return pairs + min(by_term, key=len, default=())


def _failing(term: NodeTerm, node: Node) -> tuple[NodeRequirement, ...]:
    return tuple(
        requirement
        for requirement in (*term.expressions, *term.names)
        if not rule_matches(_alone(term, requirement), node)
    )


def _alone(term: NodeTerm, requirement: NodeRequirement) -> NodeRule:
    """The requirement as a rule of its own."""
    is_name = requirement in term.names
    one = (requirement,)
    return NodeRule(None, (NodeTerm((), one) if is_name else NodeTerm(one, ()),))
