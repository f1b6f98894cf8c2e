"""
Node selectors: of slices, devices and allocated claims, of volumes, and of required node affinity.

Source: component-helpers/scheduling/corev1/nodeaffinity/nodeaffinity.go, NewNodeSelector (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final

from msgspec import field

from scheduler.engine.model.terms import NodeRequirement, NodeTerm, RequiredNodeAffinity, satisfies
from scheduler.engine.model.wire import Wire

_OPERATORS: Final = '"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"'
_FIELD_OPERATORS: Final = '"In", "NotIn"'


class NodeSelector(Wire, frozen=True, omit_defaults=True, cache_hash=True):
    """The nodes that match one of the terms; an empty term matches none."""

    terms: tuple[NodeTerm, ...] = field(name="nodeSelectorTerms", default=())

    @property
    def problem(self) -> str | None:
        """Return why upstream would not parse the selector, None if it does; one bad term makes all of it bad."""
        return _problem_of(self)

    @property
    def rule(self) -> RequiredNodeAffinity:
        """The selector as a rule for a mask over all nodes."""
        return RequiredNodeAffinity(node_selector=None, terms=self.terms)

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        """Return whether the node of that name and labels matches. O(requirements)."""
        return any(_matches_term(term, name, labels) for term in self.terms if not term.is_empty)


@lru_cache(maxsize=4096)
def _problem_of(selector: NodeSelector) -> str | None:
    terms = enumerate(selector.terms)
    problems = dict.fromkeys(each for index, term in terms for each in _problems(term, index))
    if not problems:
        return None
    return next(iter(problems)) if len(problems) == 1 else f"[{', '.join(problems)}]"


def on_node(name: str) -> NodeSelector:
    """Return the selector of the node of that name alone."""
    return NodeSelector((NodeTerm((), (NodeRequirement("metadata.name", "In", (name,)),)),))


def go_text(selector: NodeSelector) -> str:
    """Return a selector as Go's protobuf code prints it, as in upstream's errors."""
    terms = "".join(
        f"NodeSelectorTerm{{MatchExpressions:[]NodeSelectorRequirement{{{_go_requirements(term.expressions)}}},"
        f"MatchFields:[]NodeSelectorRequirement{{{_go_requirements(term.names)}}},}},"
        for term in selector.terms
    )
    return f"&NodeSelector{{NodeSelectorTerms:[]NodeSelectorTerm{{{terms}}},}}"


def _go_requirements(requirements: tuple[NodeRequirement, ...]) -> str:
    return "".join(
        f"NodeSelectorRequirement{{Key:{each.key},Operator:{each.operator},Values:[{' '.join(each.values)}],}},"
        for each in requirements
    )


def _problems(term: NodeTerm, index: int) -> Iterator[str]:
    """Yield the problems of a term; one of an operator lists the operators that exist, as upstream does."""
    for path, problem in term.problems():
        operators = _OPERATORS if path.startswith("matchExpressions") else _FIELD_OPERATORS
        listed = f": supported values: {operators}" if problem.startswith("operator: ") else ""
        yield f"nodeSelectorTerms[{index}].{path}.{problem}{listed}"


def _matches_term(term: NodeTerm, name: str, labels: Mapping[str, str]) -> bool:
    return all(satisfies(labels.get(each.key), each) for each in term.expressions) and all(
        satisfies(name, each) for each in term.names
    )
