"""
Affinity declared by annotation: what the API has no field for, read as if it stood in the spec.

`affinity-scheduler.io/affinity` holds an Affinity as JSON. Its terms are added to the spec's, or stand in their place
where `affinity-scheduler.io/affinity-mode` is `replace`. Beside the usual fields it takes
`requiredDuringSchedulingRequiredDuringExecution` lists (required now, and enforced while the pod runs),
`matchLabelKeys` and `mismatchLabelKeys` on terms, and `maxPodsPerDomain` on required anti-affinity.

It is read strictly: an unknown field or a wrong type is a problem that names its JSON path. Such a pod is not
scheduled; on a running pod the annotation counts as absent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from scheduler.model import wire
from scheduler.model.affinity import parse_node_term
from scheduler.model.labels import (
    NOTHING,
    Requirement,
    Selector,
    SelectorError,
    escaped,
    parse_selector,
    qualified_name_problem,
)
from scheduler.model.terms import (
    ANY_NODE,
    AffinityTerm,
    NodeRule,
    NodeTerm,
    PodAffinity,
    PreferredNodeTerm,
    Problem,
    TermList,
)

AFFINITY: Final = "affinity-scheduler.io/affinity"
MODE: Final = "affinity-scheduler.io/affinity-mode"
#: Written by the webhook beside terms whose label keys it has merged.
MERGED_LABELS: Final = "affinity-scheduler.io/merged-labels"
#: Seconds that a running pod may lack the pods that its enforced affinity asks for.
GRACE: Final = "affinity-scheduler.io/affinity-grace-seconds"

_ADD: Final = "add"
_REPLACE: Final = "replace"

#: An annotation longer than this is refused: all annotations of an object together may have 256 KiB.
_LIMIT_BYTES: Final = 64 * 1024
#: Terms that an annotation may declare in all, of nodes too; each costs time in every decision.
_LIMIT_TERMS: Final = 64
#: Expressions of node affinity in all: each is a look at every node.
_LIMIT_NODE_EXPRESSIONS: Final = 256
#: Node selector terms after those of the spec and of the annotation were combined.
_LIMIT_NODE_TERMS: Final = 64
#: Longest problem: it stands in a condition, in events and in logs, and may quote what was found.
_LIMIT_PROBLEM: Final = 512
_LIMIT_PODS: Final = 1_000_000

_GRACE_FORMAT: Final = re.compile(r"[0-9]{1,6}(\.[0-9]{1,3})?")


class _Strict(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Camel-cased; a field that is not known is an error."""


class _Expression(_Strict, frozen=True):
    key: str
    operator: str
    values: tuple[str, ...] = ()


class _LabelSelector(_Strict, frozen=True):
    match_labels: dict[str, str] | None = None
    match_expressions: tuple[_Expression, ...] = ()


class _Term(_Strict, frozen=True):
    topology_key: str
    label_selector: _LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: _LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()
    max_pods_per_domain: int | None = None


class _WeightedTerm(_Strict, frozen=True):
    weight: int
    pod_affinity_term: _Term


class _Side(_Strict, frozen=True):
    required: tuple[_Term, ...] = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=()
    )
    preferred: tuple[_WeightedTerm, ...] = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=()
    )
    enforced: tuple[_Term, ...] = msgspec.field(
        name="requiredDuringSchedulingRequiredDuringExecution", default=()
    )


class _NodeExpression(wire.Expression, frozen=True, forbid_unknown_fields=True):
    pass


class _NodeTerm(wire.NodeTerm, frozen=True, forbid_unknown_fields=True):
    match_expressions: tuple[_NodeExpression, ...] | None = None
    match_fields: tuple[_NodeExpression, ...] | None = None


class _NodeSelector(_Strict, frozen=True):
    node_selector_terms: tuple[_NodeTerm, ...] = ()


class _PreferredNode(_Strict, frozen=True):
    weight: int
    preference: _NodeTerm


class _NodeAffinity(_Strict, frozen=True):
    required: _NodeSelector | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )
    preferred: tuple[_PreferredNode, ...] = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=()
    )


class _Affinity(_Strict, frozen=True):
    node_affinity: _NodeAffinity = _NodeAffinity()
    pod_affinity: _Side = _Side()
    pod_anti_affinity: _Side = _Side()


_DECODER: Final = msgspec.json.Decoder(_Affinity)


@dataclass(frozen=True, slots=True)
class Extra:
    """What the annotations of a pod add to its spec, or put in its place."""

    affinity: PodAffinity
    node_rule: NodeRule
    preferred_nodes: tuple[PreferredNodeTerm, ...]
    replaces: bool


class _MalformedError(Exception):
    """Raised and caught in this module: the JSON path and what is wrong there."""


def parse_grace(annotations: Mapping[str, str]) -> float | Problem | None:
    """The grace period that a pod declares, in seconds; None where it declares none."""
    text = annotations.get(GRACE)
    if text is None:
        return None
    if not _GRACE_FORMAT.fullmatch(text):
        return Problem(f'annotation {GRACE}: found "{escaped(text[:64])}", expected seconds from 0 to 999999')
    return float(text)


def parse_extra(
    namespace: str, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> Extra | Problem | None:
    """What the annotations declare for a pod of these labels; None where they declare nothing."""
    text, mode = annotations.get(AFFINITY), annotations.get(MODE, _ADD)
    if text is None:
        return None
    try:
        if mode not in (_ADD, _REPLACE):
            found = escaped(mode[:64])
            return Problem(f'annotation {MODE}: found "{found}", expected "{_ADD}" or "{_REPLACE}"')
        if len(text.encode()) > _LIMIT_BYTES:
            return Problem(f"annotation {AFFINITY}: $: more than {_LIMIT_BYTES} bytes")
        raw = _DECODER.decode(text)
        # The webhook merged label keys at creation: labels edited since must not contradict what it froze.
        merging = {} if MERGED_LABELS in annotations else labels
        return _extra(namespace, merging, raw, replaces=mode == _REPLACE)
    except msgspec.ValidationError as error:
        cause, at, path = str(error).rpartition(" - at `")
        return _problem(f"{path.rstrip('`')}: {cause}" if at else f"$: {path}")
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        return _problem(f"$: {error}")
    except _MalformedError as error:
        return _problem(str(error))


def _problem(cause: str) -> Problem:
    shown = cause if len(cause) <= _LIMIT_PROBLEM else f"{cause[:_LIMIT_PROBLEM]}..."
    return Problem(f"annotation {AFFINITY}: {escaped(shown)}")


def _extra(namespace: str, labels: Mapping[str, str], raw: _Affinity, *, replaces: bool) -> Extra:
    near, far = raw.pod_affinity, raw.pod_anti_affinity
    lists = (near.required, near.preferred, near.enforced, far.required, far.preferred, far.enforced)
    of_nodes = _node_terms(raw.node_affinity)
    if sum(len(terms) for terms in lists) + len(of_nodes) > _LIMIT_TERMS:
        raise _MalformedError(f"$: more than {_LIMIT_TERMS} terms")
    if sum(len(term.match_expressions or ()) for term in of_nodes) > _LIMIT_NODE_EXPRESSIONS:
        raise _MalformedError(f"$.nodeAffinity: more than {_LIMIT_NODE_EXPRESSIONS} expressions")
    parser = _Parser(namespace, labels)
    affinity = PodAffinity(
        required=parser.required("$.podAffinity", near, limits=False),
        required_anti=parser.required("$.podAntiAffinity", far, limits=True),
        preferred=parser.preferred("$.podAffinity", near.preferred),
        preferred_anti=parser.preferred("$.podAntiAffinity", far.preferred),
    )
    return Extra(affinity, _node_rule(raw.node_affinity), _preferred_nodes(raw.node_affinity), replaces)


def _node_terms(raw: _NodeAffinity) -> tuple[_NodeTerm, ...]:
    required = () if raw.required is None else raw.required.node_selector_terms
    return (*required, *(each.preference for each in raw.preferred))


def _node_rule(raw: _NodeAffinity) -> NodeRule:
    if raw.required is None:
        return ANY_NODE
    path = "$.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
    terms = raw.required.node_selector_terms
    if not terms:
        raise _MalformedError(f"{path}: must have at least one node selector term")
    return NodeRule(None, tuple(_node_term(f"{path}[{index}]", term) for index, term in enumerate(terms)))


def _preferred_nodes(raw: _NodeAffinity) -> tuple[PreferredNodeTerm, ...]:
    path = "$.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution"
    return tuple(
        PreferredNodeTerm(
            _weight(f"{path}[{index}]", each.weight),
            _node_term(f"{path}[{index}].preference", each.preference),
        )
        for index, each in enumerate(raw.preferred)
    )


def _node_term(path: str, raw: _NodeTerm) -> NodeTerm:
    term = parse_node_term(raw)
    if term.problem is not None:
        raise _MalformedError(f"{path}: {term.problem}")
    return term


def _weight(path: str, weight: int) -> int:
    if not 1 <= weight <= 100:
        raise _MalformedError(f"{path}.weight: found {weight}, expected 1 to 100")
    return weight


@dataclass(frozen=True, slots=True)
class _Parser:
    """Parses terms for one pod; raises _MalformedError with the path of what is wrong."""

    namespace: str
    labels: Mapping[str, str]

    def required(self, side: str, raw: _Side, *, limits: bool) -> TermList:
        """The required terms and those that are enforced as well; only anti-affinity takes limits."""
        plain = self._terms(
            f"{side}.requiredDuringSchedulingIgnoredDuringExecution", raw.required, limits=limits
        )
        enforced = self._terms(
            f"{side}.requiredDuringSchedulingRequiredDuringExecution",
            raw.enforced,
            limits=limits,
            enforced=True,
        )
        return (*plain, *enforced)

    def preferred(self, side: str, raw: Iterable[_WeightedTerm]) -> TermList:
        """The preferred terms with their weights."""
        path = f"{side}.preferredDuringSchedulingIgnoredDuringExecution"
        terms = []
        for index, weighted in enumerate(raw):
            weight = _weight(f"{path}[{index}]", weighted.weight)
            at = f"{path}[{index}].podAffinityTerm"
            terms.append(self._term(at, weighted.pod_affinity_term, limits=False, weight=weight))
        return tuple(terms)

    def _terms(
        self, path: str, raw: Iterable[_Term], *, limits: bool, enforced: bool = False
    ) -> tuple[AffinityTerm, ...]:
        return tuple(
            self._term(f"{path}[{index}]", term, limits=limits, enforced=enforced)
            for index, term in enumerate(raw)
        )

    def _term(
        self, path: str, raw: _Term, *, limits: bool, enforced: bool = False, weight: int = 0
    ) -> AffinityTerm:
        if not raw.topology_key:
            raise _MalformedError(f"{path}.topologyKey: can not be empty")
        if problem := qualified_name_problem(raw.topology_key):
            raise _MalformedError(f"{path}.topologyKey: {problem}")
        return AffinityTerm(
            selector=self._selector(path, raw),
            namespaces=self._namespaces(raw),
            namespace_selector=_parsed(f"{path}.namespaceSelector", raw.namespace_selector),
            topology_key=raw.topology_key,
            weight=weight,
            max_pods=_limit(path, raw, allowed=limits),
            enforced=enforced,
        )

    def _namespaces(self, raw: _Term) -> frozenset[str]:
        own_only = not raw.namespaces and raw.namespace_selector is None
        return frozenset((self.namespace,) if own_only else raw.namespaces)

    def _selector(self, path: str, raw: _Term) -> Selector:
        """The selector with the pod's own values of the listed keys, as the API server merges them into real fields."""
        selector = _parsed(f"{path}.labelSelector", raw.label_selector)
        if (raw.match_label_keys or raw.mismatch_label_keys) and selector is NOTHING:
            name = "matchLabelKeys" if raw.match_label_keys else "mismatchLabelKeys"
            raise _MalformedError(f"{path}.{name}: must not be specified when labelSelector is not set")
        if both := set(raw.match_label_keys) & set(raw.mismatch_label_keys):
            raise _MalformedError(f"{path}.matchLabelKeys: {min(both)} is in mismatchLabelKeys too")
        own = [
            Requirement(key, "In", (self.labels[key],)) for key in raw.match_label_keys if key in self.labels
        ]
        other = [
            Requirement(key, "NotIn", (self.labels[key],))
            for key in raw.mismatch_label_keys
            if key in self.labels
        ]
        return Selector((*selector.requirements, *own, *other)) if own or other else selector


def _limit(path: str, raw: _Term, *, allowed: bool) -> int:
    if raw.max_pods_per_domain is None:
        return 1
    if not allowed:
        raise _MalformedError(f"{path}.maxPodsPerDomain: only required anti-affinity takes it")
    if not 1 <= raw.max_pods_per_domain <= _LIMIT_PODS:
        found = str(raw.max_pods_per_domain)[:64]
        raise _MalformedError(f"{path}.maxPodsPerDomain: found {found}, expected 1 to {_LIMIT_PODS}")
    return raw.max_pods_per_domain


def _parsed(path: str, raw: _LabelSelector | None) -> Selector:
    if raw is None:
        return NOTHING
    try:
        return parse_selector(
            raw.match_labels, [(e.key, e.operator, e.values) for e in raw.match_expressions]
        )
    except SelectorError as error:
        raise _MalformedError(f"{path}: {error}") from error


def combined_affinity(spec: PodAffinity, extra: Extra) -> PodAffinity:
    """The terms of both; a list of the spec that does not parse stays a problem."""
    if extra.replaces:
        return extra.affinity
    return PodAffinity(
        required=_joined(spec.required, extra.affinity.required),
        required_anti=_joined(spec.required_anti, extra.affinity.required_anti),
        preferred=_joined(spec.preferred, extra.affinity.preferred),
        preferred_anti=_joined(spec.preferred_anti, extra.affinity.preferred_anti),
    )


def _joined(first: TermList, second: TermList) -> TermList:
    if isinstance(first, Problem):
        return first
    return first if isinstance(second, Problem) else (*first, *second)


def combined_node_rule(spec: NodeRule, extra: Extra) -> NodeRule | Problem:
    """A node has to satisfy both: alternatives are combined pairwise. nodeSelector is never replaced."""
    terms = extra.node_rule.terms
    if extra.replaces or terms is None or spec.terms is None:
        kept = terms if extra.replaces or spec.terms is None else spec.terms
        return NodeRule(spec.pairs, kept) if spec.pairs is not None or kept is not None else ANY_NODE
    if len(spec.terms) * len(terms) > _LIMIT_NODE_TERMS:
        return Problem(
            f"annotation {AFFINITY}: $.nodeAffinity: more than {_LIMIT_NODE_TERMS} alternatives with the spec's"
        )
    return NodeRule(spec.pairs, tuple(_both(first, second) for first in spec.terms for second in terms))


def _both(first: NodeTerm, second: NodeTerm) -> NodeTerm:
    """Satisfied where both are; an empty one matches nothing, so the pair must not look like the other alone."""
    if first.is_empty or second.is_empty:
        return NodeTerm((), ())
    return NodeTerm(
        (*first.expressions, *second.expressions),
        (*first.names, *second.names),
        first.problem or second.problem,
    )
