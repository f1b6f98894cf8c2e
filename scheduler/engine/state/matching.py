"""The pods that a term selects, as a value that can be compared and hashed, so that equal terms share one count."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from scheduler.engine.model.terms import AffinityTerm, Problem, SpreadConstraint
from scheduler.engine.model.wording import namespaces_text, selector_text
from scheduler.engine.syntax.selectors import EVERYTHING, NOTHING, Requirement, Selector, with_requirements

_SEPARATOR: Final = "; and "
_NO_LABELS: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class NamespaceRule:
    """The namespaces that a term covers: those named, and those whose labels the selector matches."""

    names: frozenset[str]
    selector: Selector

    def covers(self, namespace: str, labels: Mapping[str, str] | None) -> bool:
        """Return whether pods of the namespace are covered; `labels` is None for a namespace that is not known."""
        return namespace in self.names or self.selector.matches(_NO_LABELS if labels is None else labels)


def incoming_rule(term: AffinityTerm) -> NamespaceRule:
    """
    Return the namespaces that a term of an incoming pod covers.

    Quirk of kubernetes 1.36 (interpodaffinity, getNamespaceLabelsSnapshot): after the matching namespaces were added
    to the names, the selector itself is also matched against empty labels; a selector of only NotIn and DoesNotExist
    then covers every namespace.
    """
    if term.namespace_selector.requirements and term.namespace_selector.matches(_NO_LABELS):
        return NamespaceRule(term.namespaces, EVERYTHING)
    return NamespaceRule(term.namespaces, term.namespace_selector)


def declared_rule(term: AffinityTerm) -> NamespaceRule:
    """Return the namespaces that a term of a running pod covers: the selector is matched as written."""
    return NamespaceRule(term.namespaces, term.namespace_selector)


@dataclass(frozen=True, slots=True)
class PodMatcher:
    """Selects the pods that every part selects; a part is a namespace rule and a label selector."""

    parts: tuple[tuple[NamespaceRule, Selector], ...]
    #: Namespaces whose pods are never selected, whatever the parts say.
    exempt: frozenset[str] = frozenset()
    #: Precomputed: a matcher is looked up in every decision, and hashing its selectors takes 2 µs.
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.parts, self.exempt)))

    @classmethod
    def of(cls, labels: Mapping[str, str], *, namespaces: Iterable[str] | None = None) -> PodMatcher:
        """Return the matcher of the pods with these labels, in all namespaces unless some are named."""
        selector = Selector(tuple(Requirement(key, "In", (value,)) for key, value in labels.items()))
        rule = NamespaceRule(frozenset(namespaces or ()), EVERYTHING if namespaces is None else NOTHING)
        return cls(((rule, selector),))

    def __hash__(self) -> int:
        return self._hash

    def matches(
        self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str] | None
    ) -> bool:
        """Return whether a pod with these labels in that namespace is selected."""
        if namespace in self.exempt:
            return False
        for rule, selector in self.parts:
            if not (selector.matches(labels) and rule.covers(namespace, namespace_labels)):
                return False
        return True

    @property
    def selects(self) -> str:
        """The selectors, as text."""
        return _SEPARATOR.join(dict.fromkeys(selector_text(selector) for _, selector in self.parts))

    @property
    def namespaces(self) -> str:
        """The namespaces, as text."""
        texts = (namespaces_text(rule.names, rule.selector) for rule, _ in self.parts)
        return _SEPARATOR.join(dict.fromkeys(texts))

    def anchor(self) -> tuple[str, tuple[str, ...]] | None:
        """Return the label key with the fewest values that selected pods may have, and these; None if there is none."""
        anchors = [anchor for _, selector in self.parts if (anchor := selector.anchor()) is not None]
        return min(anchors, key=lambda anchor: len(anchor[1]), default=None)

    def named_namespaces(self) -> frozenset[str] | None:
        """Return the only namespaces that selected pods can be in; None if no part is limited to named namespaces."""
        for rule, _ in self.parts:
            if not rule.selector.matches(_NO_LABELS) and not rule.selector.requirements:
                return rule.names
        return None


def incoming_matcher(terms: Iterable[AffinityTerm], exempt: frozenset[str] = frozenset()) -> PodMatcher:
    """Return the matcher of the pods that all these terms of an incoming pod select."""
    return PodMatcher(tuple((incoming_rule(term), term.selector) for term in terms), exempt)


def spread_selector(constraint: SpreadConstraint, labels: Mapping[str, str]) -> Selector:
    """Return the selector of a pod's constraint, with matchLabelKeys merged into it. `labels`: of the pod."""
    selector = NOTHING if isinstance(constraint.selector, Problem) else constraint.selector
    return with_requirements(
        selector, {key: labels[key] for key in constraint.match_label_keys if key in labels}
    )


def spread_matcher(selector: Selector, namespace: str) -> PodMatcher | None:
    """
    Return the matcher of the pods of the namespace that a constraint of this selector counts; None if it counts none.

    Quirk of kubernetes 1.36 (common.go, countPodsMatchSelector): an empty selector counts no pod, although it matches
    the incoming pod.
    """
    if selector.is_empty or selector.is_nothing:
        return None
    return PodMatcher(((NamespaceRule(frozenset((namespace,)), NOTHING), selector),))
