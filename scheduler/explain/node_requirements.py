"""Finds the nodeSelector and node affinity requirements that a node does not meet."""

from __future__ import annotations

from scheduler.model.nodes import Node
from scheduler.model.terms import NodeRequirement, NodeTerm, RequiredNodeAffinity
from scheduler.plugins.node_affinity import rule_matches


def unmet_requirements(rule: RequiredNodeAffinity, node: Node) -> tuple[NodeRequirement, ...]:
    """
    Return the requirements that the node fails: all of nodeSelector, and of the term with the fewest failures.

    Empty if the rule matches, or if no label could make it match.
    """
    pairs = tuple(
        NodeRequirement(key, "In", (value,))
        for key, value in rule.node_selector or ()
        if node.labels.get(key) != value
    )
    by_term = [
        _failed_requirements(term, node)
        for term in rule.terms or ()
        if not term.is_empty and term.problem is None
    ]
    return pairs + min(by_term, key=len, default=())


def _failed_requirements(term: NodeTerm, node: Node) -> tuple[NodeRequirement, ...]:
    return tuple(
        requirement
        for requirement in (*term.expressions, *term.names)
        if not rule_matches(_single_rule(term, requirement), node)
    )


def _single_rule(term: NodeTerm, requirement: NodeRequirement) -> RequiredNodeAffinity:
    """Return a rule with only this requirement."""
    is_name = requirement in term.names
    one = (requirement,)
    return RequiredNodeAffinity(None, (NodeTerm((), one) if is_name else NodeTerm(one, ()),))
