"""
InterPodAffinity: which pods may, must or would rather run beside which.

And what upstream has not: limits per domain, exempt namespaces.

Source: plugins/interpodaffinity/{plugin,filtering,scoring}.go and framework/types.go, AffinityTerm (kubernetes 1.36).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from tests.reference.question import (
    UNRESOLVABLE,
    UNSCHEDULABLE,
    Object,
    Question,
    Verdict,
    labels_of,
    namespace_of,
)
from tests.reference.selectors import NOTHING, Labels, Selector, SelectorError, parse

NAME = "InterPodAffinity"

#: (topology key, its value) -> how often.
Counts = dict[tuple[str, str], int]


@dataclass(frozen=True)
class Term:
    """One term of pod (anti-)affinity. A pod of these namespaces, or of those selected, matches by its labels."""

    namespaces: frozenset[str]
    namespace_selector: Selector
    selector: Selector
    topology_key: str
    weight: int = 0
    #: Pods that it selects, the declaring one included, that a domain may have.
    max_pods: int = 1
    #: Instead, of all pods that it selects: hundredths for every domain, or by domain; none for other domains.
    percent: int = 0
    weights: tuple[tuple[str, int], ...] = ()

    @property
    def is_plain(self) -> bool:
        """Return whether a preferred term is about pods alone, not about shares."""
        return not self.weights

    def most(self, question: Question, value: str, n_pods: int) -> int:
        """Return how many pods a domain may have of so many, rounded up."""
        if not self.percent and not self.weights:
            return self.max_pods
        share, whole = self.share(question, value) if self.weights else (self.percent, 100)
        most = 0
        while most * whole < share * n_pods:
            most += 1
        return most

    def share(self, question: Question, value: str) -> tuple[int, int]:
        """Return the domain's weight, and the sum of those of all domains with a node."""
        there = {question.node_labels(name).get(self.topology_key) for name in question.nodes}
        weights = {domain: weight for domain, weight in self.weights if domain in there}
        return weights.get(value, 0), sum(weights.values())

    def matches(self, pod: Object, namespace_labels: Labels) -> bool:
        """Return whether the term selects `pod`, whose namespace has the given labels."""
        covered = namespace_of(pod) in self.namespaces or self.namespace_selector.matches(namespace_labels)
        return covered and self.selector.matches(labels_of(pod))


@dataclass(frozen=True)
class Terms:
    """The four lists of a pod; a list with a term that does not parse is empty."""

    required: tuple[Term, ...]
    anti_required: tuple[Term, ...]
    preferred: tuple[Term, ...]
    anti_preferred: tuple[Term, ...]
    #: Of the first list that does not parse, as the status of the incoming pod carries it.
    error: str | None


def terms_of(pod: Object) -> Terms:
    """Return the pod's parsed terms; a term that names no namespace has the pod's own."""
    affinity, anti = _affinity(pod, "podAffinity"), _affinity(pod, "podAntiAffinity")
    lists: list[tuple[Term, ...]] = []
    error = None
    for list_name, declared, weighted in [
        ("requiredAffinityTerms", affinity.get("requiredDuringSchedulingIgnoredDuringExecution"), False),
        ("requiredAntiAffinityTerms", anti.get("requiredDuringSchedulingIgnoredDuringExecution"), False),
        ("preferredAffinityTerms", affinity.get("preferredDuringSchedulingIgnoredDuringExecution"), True),
        ("preferredAntiAffinityTerms", anti.get("preferredDuringSchedulingIgnoredDuringExecution"), True),
    ]:
        try:
            lists.append(tuple(_term(pod, term, weighted) for term in declared or []))
        except SelectorError as cause:
            lists.append(())
            error = error or f"{list_name}: {cause}"
    return Terms(lists[0], lists[1], lists[2], lists[3], error)


def _affinity(pod: Object, side: str) -> Object:
    return ((pod.get("spec") or {}).get("affinity") or {}).get(side) or {}


def is_in_group(pod: Object) -> bool:
    """Return whether the pod says the minimum of its group."""
    metadata, name = pod["metadata"], "affinity-scheduler.io/pod-group-min-count"
    return any(name in (metadata.get(where) or {}) for where in ("labels", "annotations"))


def max_pods(pod: Object, term: Object) -> int:
    """Return the least number of pods that is at least the percentage of the group's minimum, or the number given."""
    limit = term.get("maxPodsPerDomain", 1)
    if isinstance(limit, int):
        return limit
    if not is_in_group(pod):
        return 1
    metadata, name = pod["metadata"], "affinity-scheduler.io/pod-group-min-count"
    minimum = int((metadata.get("labels") or {}).get(name) or metadata["annotations"][name])
    n_pods = 0
    while n_pods * 100 < int(limit.removesuffix("%")) * minimum:
        n_pods += 1
    return n_pods


def _term(pod: Object, declared: Object, weighted: bool) -> Term:
    term = declared["podAffinityTerm"] if weighted else declared
    namespaces = frozenset(term.get("namespaces") or ())
    if not namespaces and term.get("namespaceSelector") is None:
        namespaces = frozenset({namespace_of(pod)})
    limit = term.get("maxPodsPerDomain", 1)
    return Term(
        namespaces=namespaces,
        namespace_selector=parse(term.get("namespaceSelector")),
        selector=parse(term.get("labelSelector")),
        topology_key=term["topologyKey"],
        weight=declared["weight"] if weighted else 0,
        max_pods=max_pods(pod, term),
        percent=0 if isinstance(limit, int) or is_in_group(pod) else int(limit.removesuffix("%")),
        weights=tuple(sorted((term.get("domainWeights") or {}).items())),
    )


def _own_terms(question: Question) -> Terms:
    """
    Return the incoming pod's terms with every known namespace that they select listed by name.

    The namespace selector stays in place, and is asked again with no namespace labels at all: one that only
    excludes (NotIn, DoesNotExist) then covers every namespace. That looks unintended, and is what 1.36 does.
    """
    terms = terms_of(question.pod)
    return replace(
        terms,
        required=_unrolled(question, terms.required),
        anti_required=_unrolled(question, terms.anti_required),
        preferred=_unrolled(question, terms.preferred),
        anti_preferred=_unrolled(question, terms.anti_preferred),
    )


def _unrolled(question: Question, terms: Iterable[Term]) -> tuple[Term, ...]:
    return tuple(
        replace(term, namespaces=term.namespaces | _selected_namespaces(question, term.namespace_selector))
        for term in terms
    )


def _selected_namespaces(question: Question, selector: Selector) -> frozenset[str]:
    if selector.everything or selector == NOTHING:
        return frozenset()
    return frozenset(name for name, labels in question.namespaces.items() if selector.matches(labels))


def _existing_pods(question: Question) -> Iterator[tuple[Object, Labels]]:
    """Yield every pod on every node, terminating ones too, with the labels of its node."""
    for node, pods in question.pods_on.items():
        for pod in pods:
            yield pod, question.node_labels(node)


def _incoming_namespace_labels(question: Question) -> Labels:
    return question.namespaces.get(question.namespace, {})


def prefilter(question: Question) -> Verdict | None:
    """Return a refusal everywhere if any of the pod's four lists does not parse."""
    error = terms_of(question.pod).error
    return Verdict(UNRESOLVABLE, (f"parsing pod: {error}",)) if error else None


def refusals(question: Question) -> dict[str, Verdict]:
    """Return refusals by the pod's affinity, then its anti-affinity, then the anti-affinity of running pods."""
    own = _own_terms(question)
    affinity = _count_affinity(question, own)
    exempt = _exempt_namespaces(question)
    anti = _full_for_the_pod(question, () if question.namespace in exempt else own.anti_required)
    existing_anti = set() if question.namespace in exempt else _full_for_existing_pods(question)
    lets_first_pod_in = not affinity and all(term.matches(question.pod, {}) for term in own.required)
    refused = {}
    for name in question.nodes:
        labels = question.node_labels(name)
        if not _affinity_holds(own, affinity, labels, lets_first_pod_in):
            refused[name] = Verdict(UNRESOLVABLE, ("node(s) didn't match pod affinity rules",))
        elif any(pair in anti for pair in labels.items()):
            refused[name] = Verdict(UNSCHEDULABLE, ("node(s) didn't match pod anti-affinity rules",))
        elif any(pair in existing_anti for pair in labels.items()):
            reason = "node(s) didn't satisfy existing pods anti-affinity rules"
            refused[name] = Verdict(UNSCHEDULABLE, (reason,))
    return refused


def _affinity_holds(own: Terms, affinity: Counts, labels: Labels, lets_first_pod_in: bool) -> bool:
    if any(term.topology_key not in labels for term in own.required):
        return False
    met = all(affinity.get((term.topology_key, labels[term.topology_key]), 0) > 0 for term in own.required)
    return met or lets_first_pod_in


def _count_affinity(question: Question, own: Terms) -> Counts:
    """Count the pods that match all required affinity terms, at the pair of each term."""
    counts: Counts = defaultdict(int)
    for pod, labels in _existing_pods(question):
        if own.required and all(term.matches(pod, {}) for term in own.required):
            for term in own.required:
                if term.topology_key in labels:
                    counts[term.topology_key, labels[term.topology_key]] += 1
    return dict(counts)


def _full_for_the_pod(question: Question, anti_required: Iterable[Term]) -> set[tuple[str, str]]:
    """Return pairs with as many pods as a term allows together with the incoming one, each term on its own."""
    exempt = _exempt_namespaces(question)
    full: set[tuple[str, str]] = set()
    for term in anti_required:
        key = term.topology_key
        selected = [
            labels.get(key)
            for pod, labels in _existing_pods(question)
            if namespace_of(pod) not in exempt and term.matches(pod, {})
        ]
        for value in _domains(question, key):
            if selected.count(value) >= term.most(question, value, len(selected) + 1):
                full.add((key, value))
    return full


def _full_for_existing_pods(question: Question) -> set[tuple[str, str]]:
    """Return pairs with an existing pod whose term selects the incoming pod and allows no more pods there."""
    exempt = _exempt_namespaces(question)
    full: set[tuple[str, str]] = set()
    for pod, labels in _existing_pods(question):
        for term in terms_of(pod).anti_required if namespace_of(pod) not in exempt else ():
            key = term.topology_key
            if key not in labels or not term.matches(question.pod, _incoming_namespace_labels(question)):
                continue
            selected = [
                (other, their_labels)
                for other, their_labels in _existing_pods(question)
                if namespace_of(other) not in exempt
                and term.matches(other, question.namespaces.get(namespace_of(other), {}))
            ]
            others = sum(
                other is not pod and their_labels.get(key) == labels[key] for other, their_labels in selected
            )
            if others + 1 >= term.most(question, labels[key], len(selected) + 1):
                full.add((key, labels[key]))
    return full


def _domains(question: Question, key: str) -> set[str]:
    return {labels[key] for labels in map(question.node_labels, question.nodes) if key in labels}


def _exempt_namespaces(question: Question) -> frozenset[str]:
    return frozenset(question.args.get(NAME, {}).get("exemptNamespaces") or ())


def scores(question: Question, feasible: list[str]) -> dict[str, int] | None:
    """Return the weights of all matching preferences, both ways, per domain; skipped where none matches anywhere."""
    weights = _weights(question)
    if not weights:
        return None
    raw = {
        name: sum(weights.get(pair, 0) for pair in question.node_labels(name).items()) for name in feasible
    }
    lowest, highest = min(raw.values()), max(raw.values())
    if highest - lowest <= 0:
        return dict.fromkeys(feasible, 0)
    # Divided first and multiplied after, in floating point: 29 of 100 gives 28.
    return {
        name: int(100.0 * (float(score - lowest) / float(highest - lowest))) for name, score in raw.items()
    }


def _weights(question: Question) -> Counts:
    """Return the sum of weights at each pair; a pair whose weights cancel out is still present."""
    args: Mapping[str, int | bool] = question.args.get(NAME, {})
    hard_weight = args.get("hardPodAffinityWeight")
    hard_weight = 1 if hard_weight is None else hard_weight
    own = _own_terms(question)
    prefers = bool(own.preferred or own.anti_preferred)
    weights: Counts = defaultdict(int)
    if args.get("ignorePreferredTermsOfExistingPods") and not prefers:
        return weights
    namespace_labels = _incoming_namespace_labels(question)
    for pod, labels in _existing_pods(question):
        theirs = terms_of(pod)
        for term, about, its_namespace_labels, weight in [
            *((term, pod, {}, term.weight) for term in own.preferred),
            *((term, pod, {}, -term.weight) for term in own.anti_preferred if term.is_plain),
            *(
                (term, question.pod, namespace_labels, hard_weight)
                for term in theirs.required
                if hard_weight > 0
            ),
            *((term, question.pod, namespace_labels, term.weight) for term in theirs.preferred),
            *(
                (term, question.pod, namespace_labels, -term.weight)
                for term in theirs.anti_preferred
                if term.is_plain
            ),
        ]:
            if term.topology_key in labels and term.matches(about, its_namespace_labels):
                weights[term.topology_key, labels[term.topology_key]] += weight
    for term in own.anti_preferred:
        if not term.is_plain:
            _add_missing(question, term, weights)
    return weights


def _add_missing(question: Question, term: Term, weights: Counts) -> None:
    """Add the term's weight for each pod that a domain has less than its share, rounded down over all of them."""
    key, exempt = term.topology_key, _exempt_namespaces(question)
    selected = [
        labels.get(key)
        for pod, labels in _existing_pods(question)
        if namespace_of(pod) not in exempt and term.matches(pod, {})
    ]
    for value in _domains(question, key):
        share, whole = term.share(question, value)
        whole = max(whole, 1)
        missing = term.weight * (share * (len(selected) + 1) - selected.count(value) * whole) // whole
        if missing:
            weights[key, value] += missing
