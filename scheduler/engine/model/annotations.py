"""
Affinity declared by annotation, for rules that have no field in the API.

`affinity-scheduler.io/affinity` holds an Affinity as JSON (its fields: manifests/examples/README.md).
Its terms are added to those of the spec, or replace them if `affinity-scheduler.io/affinity-mode` is `replace`. A
percentage of `maxPodsPerDomain` refers to the minimum of the pod's group, else to the pods that the term selects, the
incoming one included; it is rounded up.

A quota for CrossNamespacePodAffinity does not see annotations. So terms about other namespaces than the pod's own count
only if the pod's namespace is marked, see `MARKED_NAMESPACES`.

Parsing is strict: an unknown field or a wrong type is a problem that names its JSON path. A pod with a problem is not
scheduled; on a running pod the annotation counts as absent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from scheduler.engine.model import annotation_json
from scheduler.engine.model.affinity import label_selector
from scheduler.engine.model.annotation_json import decode_affinity, decoded
from scheduler.engine.model.pod_groups import group_minimum
from scheduler.engine.model.pod_wire import (
    WireAffinity,
    WireAffinityTerm,
    WireNodeAffinity,
    WirePodAffinity,
    WireWeightedTerm,
)
from scheduler.engine.model.terms import (
    ANY_NODE,
    AffinityTerm,
    DomainLimit,
    NodeTerm,
    PodAffinity,
    PreferredNodeTerm,
    Problem,
    RequiredNodeAffinity,
    Shares,
    TermList,
    usable,
)
from scheduler.engine.model.wire import LabelSelector
from scheduler.engine.syntax.names import label_key_faults, label_value_faults
from scheduler.engine.syntax.selectors import NOTHING, Operator, Requirement, Selector, SelectorError, escaped

AFFINITY: Final = "affinity-scheduler.io/affinity"
MODE: Final = "affinity-scheduler.io/affinity-mode"
#: Set by the webhook when it has merged label keys into selectors: the merged label values as JSON.
MERGED_LABELS: Final = "affinity-scheduler.io/merged-labels"
#: Seconds that a pod may run without the pods that its enforced affinity requires.
GRACE: Final = "affinity-scheduler.io/affinity-grace-seconds"
#: Asks the webhook to copy required rules into the spec.
MIRROR: Final = "affinity-scheduler.io/mirror-to-spec"
#: How a pod was placed, written with its bind.
DECISION_ANNOTATION: Final = "affinity-scheduler.io/decision"
#: The label of namespaces whose annotations may be about other namespaces, unless the configuration names others.
MARKED_NAMESPACES: Final = Selector(
    (Requirement("affinity-scheduler.io/annotation-reach", "In", ("cluster",)),)
)

_ADD: Final = "add"
_REPLACE: Final = "replace"

#: Longest annotation; all annotations of an object together may have 256 KiB.
LIMIT_BYTES: Final = 64 * 1024
#: Terms of one annotation, node terms included; each costs time in every decision.
_LIMIT_TERMS: Final = 64
#: Expressions of node affinity in one annotation; each is evaluated on every node.
_LIMIT_NODE_EXPRESSIONS: Final = 256
#: Node selector terms of both: each term of the spec with each of the annotation.
_LIMIT_NODE_TERMS: Final = 64
#: Characters of an unknown mode that a problem shows.
SHOWN_OF_MODE: Final = 64
_LIMIT_PODS: Final = 1_000_000
#: Domains with weights of one term.
_LIMIT_WEIGHTS: Final = 100
_LIMIT_WEIGHT: Final = 1000

_PERCENTAGE: Final = re.compile(r"([1-9][0-9]?|100)%")
_GRACE_FORMAT: Final = re.compile(r"[0-9]{1,6}(\.[0-9]{1,3})?")


class DeclaredAffinity(NamedTuple):
    """
    The affinity that a pod declares; `preferred_nodes` is None without such a list.

    `replaces`: whether an annotation declares it, and the affinity of the spec does not count.
    """

    pod_affinity: PodAffinity
    required_nodes: RequiredNodeAffinity
    preferred_nodes: tuple[PreferredNodeTerm, ...] | None
    replaces: bool = False

    @property
    def is_required(self) -> bool:
        """Whether a pod without this affinity could go to other nodes."""
        affinity = self.pod_affinity
        terms = affinity.required or affinity.required_anti or self.required_nodes.terms
        return bool(terms) or self.replaces


class _MalformedError(Exception):
    """Raised and caught in this module, with a JSON path and the problem there."""


def parse_grace_period(annotations: Mapping[str, str]) -> float | Problem | None:
    """Return the seconds in a pod's annotation of its grace period, None without it, a Problem if it is malformed."""
    text = annotations.get(GRACE)
    if text is None:
        return None
    if not _GRACE_FORMAT.fullmatch(text):
        return Problem(f'annotation {GRACE}: found "{escaped(text[:64])}", expected seconds from 0 to 999999')
    return float(text)


def parse_affinity_annotation(
    namespace: str, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> DeclaredAffinity | Problem | None:
    """Return the affinity that the annotations of a pod with these labels declare; None if they declare none."""
    text, mode = annotations.get(AFFINITY), annotations.get(MODE, _ADD)
    if text is None:
        return None
    if mode not in (_ADD, _REPLACE):
        shown = escaped(mode[:SHOWN_OF_MODE])
        return Problem(f'annotation {MODE}: found "{shown}", expected "{_ADD}" or "{_REPLACE}"')
    if len(text.encode(errors="replace")) > LIMIT_BYTES:
        return Problem(f"annotation {AFFINITY}: $: more than {LIMIT_BYTES} bytes")
    raw = decoded(AFFINITY, decode_affinity, text)
    if isinstance(raw, Problem):
        return raw
    # The webhook merged label keys at creation; labels edited since must not add contradicting requirements.
    labels_to_merge = {} if MERGED_LABELS in annotations else labels
    parser = _TermParser(namespace, labels_to_merge, group_minimum(namespace, labels, annotations))
    try:
        return _parsed_affinity(parser, raw, replaces=mode == _REPLACE)
    except _MalformedError as error:
        return annotation_json.problem(AFFINITY, str(error))


def _parsed_affinity(parser: _TermParser, raw: WireAffinity, *, replaces: bool) -> DeclaredAffinity:
    pod, anti = raw.pod_affinity, raw.pod_anti_affinity
    lists = (pod.required, pod.preferred, pod.enforced, anti.required, anti.preferred, anti.enforced)
    node_terms = _node_terms(raw.node_affinity)
    if sum(len(terms) for terms in lists) + len(node_terms) > _LIMIT_TERMS:
        raise _MalformedError(f"$: more than {_LIMIT_TERMS} terms")
    if sum(len(term.expressions) for term in node_terms) > _LIMIT_NODE_EXPRESSIONS:
        raise _MalformedError(f"$.nodeAffinity: more than {_LIMIT_NODE_EXPRESSIONS} expressions")
    pod_affinity = PodAffinity(
        required=parser.required("$.podAffinity", pod, is_anti=False),
        required_anti=parser.required("$.podAntiAffinity", anti, is_anti=True),
        preferred=parser.preferred("$.podAffinity", pod.preferred, is_anti=False),
        preferred_anti=parser.preferred("$.podAntiAffinity", anti.preferred, is_anti=True),
    )
    return DeclaredAffinity(
        pod_affinity, _required_nodes(raw.node_affinity), _preferred_nodes(raw.node_affinity), replaces
    )


def reach_problem(namespace: str) -> str:
    """Return why annotations of this namespace may not be about other namespaces, as messages to users say it."""
    return (
        f"annotation {AFFINITY}: a term is about other namespaces, which annotationNamespaces of the"
        f" configuration does not allow pods of namespace {namespace}"
    )


def _node_terms(raw: WireNodeAffinity) -> tuple[NodeTerm, ...]:
    required = () if raw.required is None else raw.required.terms
    return (*required, *(each.term for each in raw.preferred or ()))


def _required_nodes(raw: WireNodeAffinity) -> RequiredNodeAffinity:
    if raw.required is None:
        return ANY_NODE
    path = "$.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
    terms = raw.required.terms
    if not terms:
        raise _MalformedError(f"{path}: must have at least one node selector term")
    for index, term in enumerate(terms):
        _check_node_term(f"{path}[{index}]", term)
    return RequiredNodeAffinity(None, terms)


def _preferred_nodes(raw: WireNodeAffinity) -> tuple[PreferredNodeTerm, ...] | None:
    path = "$.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution"
    for index, each in enumerate(raw.preferred or ()):
        _check_weight(f"{path}[{index}]", each.weight)
        _check_node_term(f"{path}[{index}].preference", each.term)
    return raw.preferred


def _check_node_term(path: str, term: NodeTerm) -> None:
    if term.problem is not None:
        raise _MalformedError(f"{path}: {term.problem}")


def _check_weight(path: str, weight: int) -> None:
    if not 1 <= weight <= 100:
        raise _MalformedError(f"{path}.weight: found {weight}, expected 1 to 100")


@dataclass(frozen=True, slots=True)
class _TermParser:
    """Parses the terms of one pod; raises _MalformedError. `group_minimum`: 0 if the pod does not say one."""

    namespace: str
    labels: Mapping[str, str]
    group_minimum: int

    def required(self, path: str, raw: WirePodAffinity, *, is_anti: bool) -> TermList:
        """Return the required terms, enforced ones last; only anti-affinity accepts maxPodsPerDomain."""
        at = f"{path}.requiredDuringScheduling"
        return (
            *self._terms(f"{at}IgnoredDuringExecution", raw.required, is_anti=is_anti),
            *self._terms(f"{at}RequiredDuringExecution", raw.enforced, is_anti=is_anti, enforced=True),
        )

    def preferred(self, path: str, raw: Iterable[WireWeightedTerm], *, is_anti: bool) -> TermList:
        """Return the preferred terms with their weights; only anti-affinity accepts domainWeights."""
        path = f"{path}.preferredDuringSchedulingIgnoredDuringExecution"
        terms = []
        for index, weighted in enumerate(raw):
            _check_weight(f"{path}[{index}]", weighted.weight)
            at, term = f"{path}[{index}].podAffinityTerm", weighted.pod_affinity_term
            terms.append(self._term(at, term, is_anti=is_anti, weight=weighted.weight))
        return tuple(terms)

    def _terms(
        self, path: str, raw: Iterable[WireAffinityTerm], *, is_anti: bool, enforced: bool = False
    ) -> tuple[AffinityTerm, ...]:
        return tuple(
            self._term(f"{path}[{index}]", term, is_anti=is_anti, enforced=enforced)
            for index, term in enumerate(raw)
        )

    def _term(
        self, path: str, raw: WireAffinityTerm, *, is_anti: bool, enforced: bool = False, weight: int = 0
    ) -> AffinityTerm:
        if not raw.topology_key:
            raise _MalformedError(f"{path}.topologyKey: can not be empty")
        if faults := label_key_faults(raw.topology_key):
            raise _MalformedError(f"{path}.topologyKey: {'; '.join(faults)}")
        namespaces = self._namespaces(raw)
        max_pods = _max_pods(path, raw, self.group_minimum, is_anti=is_anti, is_required=not weight)
        is_of_minimum = isinstance(max_pods, int) and isinstance(raw.max_pods_per_domain, str)
        return AffinityTerm(
            selector=self._selector(path, raw),
            namespaces=namespaces,
            namespace_selector=_parsed_selector(f"{path}.namespaceSelector", raw.namespace_selector),
            topology_key=raw.topology_key,
            weight=weight,
            max_pods=max_pods,
            enforced=enforced,
            crosses_by_annotation=raw.namespace_selector is not None or namespaces != {self.namespace},
            by_annotation=True,
            percent_of_minimum=int(str(raw.max_pods_per_domain).rstrip("%")) if is_of_minimum else 0,
        )

    def _namespaces(self, raw: WireAffinityTerm) -> frozenset[str]:
        is_own_only = not raw.namespaces and raw.namespace_selector is None
        return frozenset((self.namespace,) if is_own_only else raw.namespaces or ())

    def _selector(self, path: str, raw: WireAffinityTerm) -> Selector:
        """Return the labelSelector with matchLabelKeys and mismatchLabelKeys merged in, as the API server does."""
        selector = _parsed_selector(f"{path}.labelSelector", raw.label_selector)
        if (raw.match_label_keys or raw.mismatch_label_keys) and selector is NOTHING:
            name = "matchLabelKeys" if raw.match_label_keys else "mismatchLabelKeys"
            raise _MalformedError(f"{path}.{name}: must not be specified when labelSelector is not set")
        if both := set(raw.match_label_keys) & set(raw.mismatch_label_keys):
            raise _MalformedError(f"{path}.matchLabelKeys: {min(both)} is in mismatchLabelKeys too")
        operators: dict[str, Operator] = {
            **dict.fromkeys(raw.match_label_keys, "In"),
            **dict.fromkeys(raw.mismatch_label_keys, "NotIn"),
        }
        merged = [
            Requirement(key, operator, (self.labels[key],))
            for key, operator in operators.items()
            if key in self.labels
        ]
        return Selector((*selector.requirements, *merged)) if merged else selector


def _max_pods(
    path: str, raw: WireAffinityTerm, minimum: int, *, is_anti: bool, is_required: bool
) -> DomainLimit:
    """Return how many pods a domain may have; a percentage of the group's minimum is rounded up."""
    limit, at = raw.max_pods_per_domain, f"{path}.maxPodsPerDomain"
    if raw.domain_weights is not None:
        return _weights(path, raw, raw.domain_weights, minimum, is_anti=is_anti)
    if limit is None:
        return 1
    if not is_anti or not is_required:
        raise _MalformedError(f"{at}: only required anti-affinity takes it")
    if isinstance(limit, str):
        if not (percentage := _PERCENTAGE.fullmatch(limit)):
            raise _MalformedError(f'{at}: found "{limit[:64]}", expected a number, or "1%" to "100%"')
        percent = int(percentage[1])
        return -(-percent * minimum // 100) if minimum else Shares(percent=percent)
    if not 1 <= limit <= _LIMIT_PODS:
        raise _MalformedError(f"{at}: found {str(limit)[:64]}, expected 1 to {_LIMIT_PODS}")
    return limit


def _weights(
    path: str, raw: WireAffinityTerm, weights: Mapping[str, int], minimum: int, *, is_anti: bool
) -> Shares:
    at = f"{path}.domainWeights"
    if not is_anti:
        raise _MalformedError(f"{at}: only anti-affinity takes it")
    if raw.max_pods_per_domain is not None:
        raise _MalformedError(f"{at}: must not be specified together with maxPodsPerDomain")
    if not 1 <= len(weights) <= _LIMIT_WEIGHTS:
        raise _MalformedError(f"{at}: found {len(weights)} domains, expected 1 to {_LIMIT_WEIGHTS}")
    for domain, weight in weights.items():
        if faults := label_value_faults(domain):
            raise _MalformedError(f'{at}: domain "{domain[:64]}": {"; ".join(faults)}')
        if not 1 <= weight <= _LIMIT_WEIGHT:
            raise _MalformedError(f"{at}.{domain}: found {str(weight)[:64]}, expected 1 to {_LIMIT_WEIGHT}")
    return Shares(weights=tuple(sorted(weights.items())), least_whole=minimum)


def _parsed_selector(path: str, raw: LabelSelector | None) -> Selector:
    try:
        return label_selector(raw)
    except SelectorError as error:
        raise _MalformedError(f"{path}: {error}") from error


def combined(spec: DeclaredAffinity, annotated: DeclaredAffinity) -> DeclaredAffinity | Problem:
    """Return the affinity of both, or only that of the annotation if it replaces the spec's."""
    required_nodes = _combined_required_nodes(spec.required_nodes, annotated)
    if isinstance(required_nodes, Problem):
        return required_nodes
    own, added = spec.pod_affinity, annotated.pod_affinity
    if annotated.replaces:
        return DeclaredAffinity(added, required_nodes, annotated.preferred_nodes or None)
    pod_affinity = PodAffinity(
        required=_joined(own.required, added.required),
        required_anti=_joined(own.required_anti, added.required_anti),
        preferred=_joined(own.preferred, added.preferred),
        preferred_anti=_joined(own.preferred_anti, added.preferred_anti),
    )
    preferred = (*(spec.preferred_nodes or ()), *(annotated.preferred_nodes or ()))
    return DeclaredAffinity(pod_affinity, required_nodes, preferred or spec.preferred_nodes)


def _joined(of_spec: TermList, annotated: TermList) -> TermList:
    """Return the terms of both; a list of the spec that does not parse stays a problem."""
    return of_spec if isinstance(of_spec, Problem) else (*of_spec, *usable(annotated))


def _combined_required_nodes(
    spec: RequiredNodeAffinity, annotated: DeclaredAffinity
) -> RequiredNodeAffinity | Problem:
    """Return the required node affinity of both: their terms pairwise. nodeSelector is never replaced."""
    terms = annotated.required_nodes.terms
    if annotated.replaces or terms is None or spec.terms is None:
        only = terms if annotated.replaces or spec.terms is None else spec.terms
        if spec.node_selector is None and only is None:
            return ANY_NODE
        return RequiredNodeAffinity(spec.node_selector, only)
    if len(spec.terms) * len(terms) > _LIMIT_NODE_TERMS:
        return Problem(
            f"annotation {AFFINITY}: $.nodeAffinity: more than {_LIMIT_NODE_TERMS} alternatives with the spec's"
        )
    return RequiredNodeAffinity(
        spec.node_selector, tuple(_both(first, second) for first in spec.terms for second in terms)
    )


def _both(first: NodeTerm, second: NodeTerm) -> NodeTerm:
    """Return the term that matches a node if both match it: no node if one of the terms is empty."""
    if first.is_empty or second.is_empty:
        return NodeTerm((), ())
    return NodeTerm((*first.expressions, *second.expressions), (*first.names, *second.names))
