"""
The node selectors of slices, devices and allocated claims.

Source: component-helpers/scheduling/corev1/nodeaffinity/nodeaffinity.go, NewNodeSelector (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from scheduler.engine.model.affinity import satisfies
from scheduler.engine.model.terms import (
    NodeRequirement,
    NodeSelector,
    NodeTerm,
    RequiredNodeAffinity,
)

_OPERATORS: Final = '"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"'
_FIELD_OPERATORS: Final = '"In", "NotIn"'


@dataclass(frozen=True, slots=True)
class NodeSelection:
    """
    The nodes that match one of the terms; an empty term matches none.

    Attributes:
        problem: why upstream would not parse the selector; None if it does. One bad term makes the whole selector bad.
    """

    terms: tuple[NodeTerm, ...]
    problem: str | None = None

    @property
    def rule(self) -> RequiredNodeAffinity:
        """The selector as a rule for a mask over all nodes."""
        return RequiredNodeAffinity(node_selector=None, terms=self.terms)

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        """Return whether the node of that name and labels matches. O(requirements)."""
        return any(_matches_term(term, name, labels) for term in self.terms if not term.is_empty)

    def to_wire(self) -> NodeSelector:
        """Return the selector as it is written."""
        return NodeSelector(self.terms)


def node_selection(raw: NodeSelector) -> NodeSelection:
    """Return a node selector parsed."""
    terms = raw.node_selector_terms
    problems = dict.fromkeys(each for index, term in enumerate(terms) for each in _problems(term, index))
    text = None
    if problems:
        text = next(iter(problems)) if len(problems) == 1 else f"[{', '.join(problems)}]"
    return NodeSelection(terms, text)


def on_node(name: str) -> NodeSelection:
    """Return the selector of the node of that name alone."""
    return NodeSelection((NodeTerm((), (NodeRequirement("metadata.name", "In", (name,)),)),))


def go_text(selection: NodeSelection) -> str:
    """Return a selector as Go's protobuf code prints it, as in upstream's errors."""
    terms = "".join(
        f"NodeSelectorTerm{{MatchExpressions:[]NodeSelectorRequirement{{{_go_requirements(term.expressions)}}},"
        f"MatchFields:[]NodeSelectorRequirement{{{_go_requirements(term.names)}}},}},"
        for term in selection.terms
    )
    return f"&NodeSelector{{NodeSelectorTerms:[]NodeSelectorTerm{{{terms}}},}}"


def _go_requirements(requirements: tuple[NodeRequirement, ...]) -> str:
    return "".join(
        f"NodeSelectorRequirement{{Key:{each.key},Operator:{each.operator},Values:[{' '.join(each.values)}],}},"
        for each in requirements
    )


def _problems(term: NodeTerm, index: int) -> Iterator[str]:
    """Yield the problems of a term; those of operators with the ones that exist, which upstream lists."""
    for path, problem in term.problems():
        operators = _OPERATORS if path.startswith("matchExpressions") else _FIELD_OPERATORS
        listed = f": supported values: {operators}" if problem.startswith("operator: ") else ""
        yield f"nodeSelectorTerms[{index}].{path}.{problem}{listed}"


def _matches_term(term: NodeTerm, name: str, labels: Mapping[str, str]) -> bool:
    return all(satisfies(labels.get(each.key), each) for each in term.expressions) and all(
        satisfies(name, each) for each in term.names
    )
