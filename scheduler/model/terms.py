"""
What a pod asks of its neighbours and its node: terms, constraints, tolerations and node selectors, parsed once.

A list that does not parse is kept as a `Problem`: for an incoming pod it is a refusal with upstream's text, for a
running pod it counts as empty (interpodaffinity, kubernetes 1.36).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from scheduler.model.labels import Selector

HOSTNAME_KEY: Final = "kubernetes.io/hostname"
ZONE_KEY: Final = "topology.kubernetes.io/zone"


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a part of an object did not parse, in one line, as upstream words it."""

    cause: str


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    """
    One (anti-)affinity term as declared by a pod.

    `namespaces` is the explicit set, or the declaring pod's own namespace where neither a list nor a selector is
    given; `namespace_selector` is NOTHING for nil. The term covers the union of both. `weight` is 0 for required terms.
    Only an annotation sets `max_pods` (pods of a domain that required anti-affinity lets be, this one included) and
    `enforced` (the rule has to hold while the pod runs).
    """

    selector: Selector
    namespaces: frozenset[str]
    namespace_selector: Selector
    topology_key: str
    weight: int = 0
    max_pods: int = 1
    enforced: bool = False


#: A parsed list of terms, or why it did not parse (the first bad term empties its whole list).
TermList = tuple[AffinityTerm, ...] | Problem


@dataclass(frozen=True, slots=True)
class PodAffinity:
    """The four term lists of a pod; each parses or fails on its own."""

    required: TermList = ()
    required_anti: TermList = ()
    preferred: TermList = ()
    preferred_anti: TermList = ()

    def problem(self) -> str | None:
        """The first list that does not parse as upstream names it, or None. Source: framework/types.go, NewPodInfo."""
        for name, terms in (
            ("requiredAffinityTerms", self.required),
            ("requiredAntiAffinityTerms", self.required_anti),
            ("preferredAffinityTerms", self.preferred),
            ("preferredAntiAffinityTerms", self.preferred_anti),
        ):
            if isinstance(terms, Problem):
                return f"{name}: {terms.cause}"
        return None


def usable(terms: TermList) -> tuple[AffinityTerm, ...]:
    """The terms of a list, none where it does not parse: how a running pod's broken list counts."""
    return () if isinstance(terms, Problem) else terms


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """One topology spread constraint; match_label_keys are merged into `selector` per pod, by the plugin."""

    max_skew: int
    topology_key: str
    hard: bool
    selector: Selector | Problem
    min_domains: int = 1
    honor_node_affinity: bool = True
    honor_node_taints: bool = False
    match_label_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Taint:
    """A node's taint; effects are kept as the text that the node has."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Toleration:
    """A pod's toleration; empty fields are empty texts."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """
        Whether this toleration covers the taint.

        Lt and Gt never match: their gate TaintTolerationComparisonOperators is off in 1.36.
        Source: staging/src/k8s.io/api/core/v1/toleration.go, ToleratesTaint (kubernetes 1.36).
        """
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        match self.operator:
            case "" | "Equal":
                return self.value == taint.value
            case "Exists":
                return True
            case _:
                return False


@dataclass(frozen=True, slots=True)
class NodeRequirement:
    """One expression of a node selector term that parsed: `operator` is In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodeTerm:
    """
    The AND of label expressions and name requirements; terms of a selector are ORed.

    An empty term matches nothing; a term with a `problem` never matches, and other terms still count.
    """

    expressions: tuple[NodeRequirement, ...]
    names: tuple[NodeRequirement, ...]
    problem: str | None = None

    @property
    def is_empty(self) -> bool:
        """Whether neither list is there: such a term matches no node."""
        return not self.expressions and not self.names and self.problem is None


@dataclass(frozen=True, slots=True)
class PreferredNodeTerm:
    """A node term that is worth `weight` on every node it matches."""

    weight: int
    term: NodeTerm


@dataclass(frozen=True, slots=True)
class NodeRule:
    """
    What a pod requires of a node: every pair of `pairs` AND (where `terms` is not None) one of `terms`.

    `pairs` is None where the pod has no nodeSelector, which PreFilter tells apart from an empty one. Hashable: equal
    rules share one cached mask.
    """

    pairs: tuple[tuple[str, str], ...] | None
    terms: tuple[NodeTerm, ...] | None

    @property
    def is_trivial(self) -> bool:
        """Whether every node passes."""
        return not self.pairs and self.terms is None


ANY_NODE: Final = NodeRule(pairs=None, terms=None)
